"""How the words of a search lead to rows by an index of pieces, or by the beginning of an id."""

from __future__ import annotations

FEW_FOUND = 300
"""Matches of a rare trigram that are looked up; with more, the search reads the next rows in order."""
_PIECES = """
    SELECT substr(lower({word}), least(n, length({word}) - 2), 3), n
      FROM generate_series(1, (SELECT length({word})), 3) n"""
"""Trigrams of a word of three letters or more, with their places."""
USUAL = 0.005
"""A piece that more of the rows have is a usual one."""
LOOKED_BY = 6
"""Trigrams that narrow a search; more would only be read."""
_LOOK = """
  SELECT (array_agg(piece ORDER BY share, place) FILTER (
            WHERE share <= greatest({usual}, 4 * rarest)))[:{most}] AS pieces,
         min(share) < {usual} AS rare
    FROM (SELECT x.piece, x.place, coalesce(u.share, 0) AS share, min(coalesce(u.share, 0)) OVER () AS rarest
            FROM ({pieces}) x(piece, place) LEFT JOIN (
              SELECT u.* FROM pg_stats s,
                     unnest(s.most_common_elems::text::text[], s.most_common_elem_freqs) u(usual, share)
               WHERE s.tablename = '{index}' AND s.schemaname = current_schema()) u ON u.usual = x.piece) y"""
"""Rarest trigrams of a word and those nearly as rare; frequent ones cost more than they narrow.

The index statistics are a sample and vary, so that values near a limit cost similar on both sides.
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
