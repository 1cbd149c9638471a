"""SQL by which a search finds rows: by an index of trigrams, or by the beginning of an id."""

from __future__ import annotations

FEW_FOUND = 300
"""Maximum matches of a rare trigram that are read; with more, the search reads rows in the list's order."""
_PIECES = """
    SELECT substr(lower({word}), least(n, length({word}) - 2), 3), n
      FROM generate_series(1, (SELECT length({word})), 3) n"""
"""Select trigrams of a text of three letters or more, with their positions."""
FREQUENT_SHARE = 0.005
"""Share of rows from which a trigram counts as frequent."""
TRIGRAMS_AT_MOST = 6
"""Maximum trigrams by which a search is narrowed; more only cost reading."""
_LOOK = """
  SELECT (array_agg(piece ORDER BY share, place) FILTER (
            WHERE share <= greatest({usual}, 4 * rarest)))[:{most}] AS pieces,
         min(share) < {usual} AS rare
    FROM (SELECT x.piece, x.place, coalesce(u.share, 0) AS share, min(coalesce(u.share, 0)) OVER () AS rarest
            FROM ({pieces}) x(piece, place) LEFT JOIN (
              SELECT u.* FROM pg_stats s,
                     unnest(s.most_common_elems::text::text[], s.most_common_elem_freqs) u(usual, share)
               WHERE s.tablename = '{index}' AND s.schemaname = current_schema()) u ON u.usual = x.piece) y"""
"""Select the rarest trigrams of a text and those nearly as rare; frequent ones cost more than they narrow.

Index statistics are a sample; near a limit both ways cost about the same.
"""


def find_pieces(word: str, index: str) -> str:
    """Return SQL that selects one row: `pieces`, the trigrams to search by, and `rare`.

    `word` is an SQL expression of a text with at least three letters, `index` the name of the trigram index
    whose statistics are read. `pieces` are the rarest trigrams of the word, at most TRIGRAMS_AT_MOST. `rare`
    is whether the rarest of them is in less than FREQUENT_SHARE of all rows.
    """
    return _LOOK.format(
        pieces=_PIECES.format(word=word), index=index, usual=FREQUENT_SHARE, most=TRIGRAMS_AT_MOST
    )


_ID = "regexp_replace(lower({word}), '[^0-9a-f]', '', 'g')"
_NO_ID = "lower({word}) !~ '^[0-9a-f]+(-[0-9a-f-]*)?$' OR length({word}) > 36"
LEAST = f"(SELECT CASE WHEN {_NO_ID} THEN NULL ELSE rpad(left({_ID}, 32), 32, '0')::uuid END)"
"""Lowest id that begins with the search text `{word}`; NULL if the text is no beginning of an id."""
MOST = f"(SELECT CASE WHEN {_NO_ID} THEN NULL ELSE rpad(left({_ID}, 32), 32, 'f')::uuid END)"
"""Highest id that begins with the search text `{word}`; NULL if the text is no beginning of an id.

LEAST and MOST are subselects, so that the planner keeps a generic plan: planning takes longer than the
search.
"""


def is_short(search: str) -> bool:
    """Return whether a search has one or two characters, which no trigram can find."""
    return 0 < len(search) < 3
