"""How the words of a search lead to rows by an index of pieces, or by the beginning of an id."""

from __future__ import annotations

FEW_FOUND = 300
"""So many are looked up of what seems rare; for more, the next rows are looked at as for a usual name."""
_PIECES = """
    SELECT substr(lower({word}), least(n, length({word}) - 2), 3), n
      FROM generate_series(1, (SELECT length({word})), 3) n"""
"""Of a word of three letters and more, and where each begins."""
USUAL = 0.005
"""A piece that more of the rows have is a usual one."""
LOOKED_BY = 6
"""So many pieces narrow a search; more would only be read."""
_LOOK = """
  SELECT (array_agg(piece ORDER BY share, place) FILTER (
            WHERE share <= greatest({usual}, 4 * rarest)))[:{most}] AS pieces,
         min(share) < {usual} AS rare
    FROM (SELECT x.piece, x.place, coalesce(u.share, 0) AS share, min(coalesce(u.share, 0)) OVER () AS rarest
            FROM ({pieces}) x(piece, place) LEFT JOIN (
              SELECT u.* FROM pg_stats s,
                     unnest(s.most_common_elems::text::text[], s.most_common_elem_freqs) u(usual, share)
               WHERE s.tablename = '{index}' AND s.schemaname = current_schema()) u ON u.usual = x.piece) y"""
"""Of the pieces of a word the rarest and those that are nearly as rare: a list of nearly all rows, read to be
narrowed by a short one, costs more than all the rest. The statistics of the index are a sample, and the next
says something else: whatever is near a limit costs about the same on either side of it.
"""


def find_pieces(word: str, index: str) -> str:
    """The `pieces` by which the rows that say a word are found in an index of pieces, and whether few are."""
    return _LOOK.format(pieces=_PIECES.format(word=word), index=index, usual=USUAL, most=LOOKED_BY)


_ID = "regexp_replace(lower({word}), '[^0-9a-f]', '', 'g')"
_NO_ID = "lower({word}) !~ '^[0-9a-f]+(-[0-9a-f-]*)?$' OR length({word}) > 36"
LEAST = f"(SELECT CASE WHEN {_NO_ID} THEN NULL ELSE rpad(left({_ID}, 32), 32, '0')::uuid END)"
MOST = f"(SELECT CASE WHEN {_NO_ID} THEN NULL ELSE rpad(left({_ID}, 32), 32, 'f')::uuid END)"
"""An id is found between these, by its beginning. By sub-selects, as all that is looked for: a plan for any
word then looks no dearer than one for this, which is made each time and takes longer than the search.
"""


def is_short(search: str) -> bool:
    return 0 < len(search) < 3
