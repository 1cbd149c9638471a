"""SQL that searches messages: hidden ones by the index of recall, live ones by their text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shared.adapters.postgres.db.pool import Constant, Named
from shared.core.memory.search import SearchWord

SESSIONS_AT_MOST = 32
"""Maximum archived conversations that are searched with one conversation."""
LOOKED_AT = 3_000
"""Newest passages that one page reads for a frequent word."""
USUAL = 5_000
"""Number of matches above which reading back in time is faster than the index."""
FORMS_AT_MOST = 200
"""Maximum indexed forms of one word that are searched, the most frequent."""
PER_SESSION = 3
"""Maximum matches per conversation in a search of all."""
LOOKED_AT_EACH = 200
"""Newest passages per conversation that a search of all reads for a frequent word."""

SCOPE = Named(
    """
SELECT s.id, s.public_id::text AS session, true AS here, p.timezone
  FROM sessions s JOIN contacts p ON p.id = s.contact_id WHERE s.id = :session_id
UNION ALL
(SELECT o.id, o.public_id::text, false, NULL FROM sessions me
   JOIN sessions o ON o.contact_id IN (SELECT contact_family(me.contact_id)) AND o.archived_at IS NOT NULL
  WHERE me.id = :session_id AND o.id <> me.id AND :linked::boolean ORDER BY o.archived_at DESC
     LIMIT :sessions_at_most)
""",
    sessions_at_most=SESSIONS_AT_MOST,
)
"""Select the sessions to search: the given one and, if `linked`, archived ones that its person may read.

Archived ones are, for example, those before a `/link`; the newest SESSIONS_AT_MOST are selected.
"""

NEXT_SESSIONS = Named("""
SELECT l.id, l.public_id::text AS session, true AS here, l.last_active_at,
       coalesce(r.public_id, p.public_id) AS person_id,
       nullif(coalesce(s.person_name, p.display_name), '') AS person,
       coalesce(s.person_kind, p.kind) AS kind, coalesce(s.person_anonymous, p.anonymous) AS anonymous
  FROM session_list l JOIN sessions s ON s.id = l.id
  JOIN contacts p ON p.id = s.contact_id LEFT JOIN contacts r ON r.id = p.merged_into
 WHERE (:before_at::timestamptz IS NULL OR (l.last_active_at, l.id) < (:before_at, :before_id))
 ORDER BY l.last_active_at DESC, l.id DESC LIMIT :limit
""")
"""Select a page of sessions after a cursor, last active first, each with its person."""

FORMS = Named(
    """
WITH w AS MATERIALIZED (
  SELECT x.n, x.word, x.wide,
         (SELECT array_agg(DISTINCT f) FROM unnest(:dictionaries::text[]) AS d,
                 unnest(tsvector_to_array(to_tsvector(d::regconfig, x.word))) AS f) AS forms,
         EXISTS (SELECT FROM unnest(:dictionaries::text[]) AS d
           WHERE length(to_tsvector(d::regconfig, x.word)) = 0) AS small,
         coalesce((tsvector_to_array(to_tsvector(:dictionary::regconfig, x.word)))[1], '') AS stem
    FROM unnest(:words::text[], :wide::text[]) WITH ORDINALITY AS x(word, wide, n)
), r AS (
  SELECT w.n, r.owner, r.lexeme, r.passages
    FROM w CROSS JOIN LATERAL unnest(w.forms) AS f CROSS JOIN unnest(:session_ids::bigint[]) AS o(id)
   CROSS JOIN LATERAL (SELECT * FROM recall_words x
                        WHERE x.lane = 'said' AND x.owner = o.id AND x.lexeme = f OFFSET 0) r
  UNION
  SELECT w.n, r.owner, r.lexeme, r.passages
    FROM w JOIN recall_words r ON r.lane = 'said' AND r.owner = ANY (:session_ids) AND r.lexeme LIKE w.wide
   WHERE w.wide <> '' AND NOT w.small
)
SELECT w.word, w.small, w.stem, coalesce(k.often, 0) AS often, coalesce(k.lexemes, '{}') AS lexemes,
       coalesce(k.keys, '{}') AS keys,
       (SELECT coalesce(sum(passages), 0)::bigint FROM recall_words
         WHERE lane = 'said' AND owner = ANY (:session_ids) AND lexeme = '') AS passages
  FROM w LEFT JOIN LATERAL (
    SELECT sum(passages)::bigint AS often, array_agg(DISTINCT lexeme) AS lexemes,
           array_agg(owner || ':' || lexeme) AS keys
      FROM (SELECT * FROM r WHERE r.n = w.n ORDER BY passages DESC LIMIT :forms_at_most) x) k ON true
 ORDER BY w.n
""",
    forms_at_most=FORMS_AT_MOST,
)
"""Select, for each word of a search, its indexed forms and how many passages have them.

`lexemes` are the forms, `keys` those of the index, `often` counts passages with the word, and `passages` all
of the sessions. `small` words are stop words of a dictionary, which are searched in the text itself.
"""

ERASED = "[erased]"
"""Text that erased messages have."""


def build_like_pattern(word: SearchWord) -> str:
    """Return a LIKE pattern of the longer words that this word also finds; "" if it finds only itself.

    Nothing is escaped: the word must have letters and digits only, as those of `search_words` have.
    """
    return f"%{word.word}%" if word.letter else f"{word.word}%" if word.begins else ""


def build_hits_query(
    found: Sequence[Any], words: Sequence[SearchWord], *, grouped: bool = False
) -> tuple[Named, dict[str, Any]]:
    """Return the search statement for rows of FORMS, and the parameters from them.

    Its call also takes `session_ids`, the key as `before_at`, `before_session` and `before_seq`, and `limit`.
    With `grouped` it selects the newest PER_SESSION messages of each session, else the newest of all;
    `floor_*` then says how far back the search went, NULL if to the end.

    Only this statement is assembled, from the texts below. It has a condition for each word of the person: a
    condition on a list of words would not use the index.
    """
    given: dict[str, Any] = {}

    def add_argument(value: Any) -> str:
        name = f"word_{len(given) + 1}"
        given[name] = value
        return f":{name}"

    patterns = [add_argument(word.pattern) for word in words]
    says = [
        (_SMALL, pattern) if row["small"] else (_SAYS, add_argument(row["lexemes"]))
        for row, pattern in zip(found, patterns, strict=True)
    ]
    leads = sorted(
        (at for at, row in enumerate(found) if not row["small"]), key=lambda at: found[at]["often"]
    )
    by_key = _narrow(found, leads)
    lead = (by_key or leads or [0])[0]
    first, rarest = says[lead]
    conditions = [first.format(passage="p", word=rarest)]
    conditions += [
        _BESIDE.format(says=text.format(passage="y", word=word))
        for at, (text, word) in enumerate(says)
        if at != lead
    ]
    constants: dict[str, Constant] = {"erased": ERASED}
    if grouped:
        constants["per_session"] = PER_SESSION
    if by_key:
        keys = [_KEYS.format(keys=add_argument(found[at]["keys"])) for at in by_key]
        looked = _FOUND.format(keys=" AND ".join(keys))
    else:
        looked = _LOOKED
        constants["looked_at"] = 10**9 if grouped else LOOKED_AT
        constants["looked_at_each"] = LOOKED_AT_EACH if grouped else LOOKED_AT
    statement = _HITS.format(
        looked=looked,
        floor=_NO_FLOOR if by_key or grouped else _FLOOR,
        said=" AND ".join(conditions),
        live=" AND ".join(_LIVE.format(word=pattern) for pattern in patterns),
        page=_GROUPED if grouped else _NEWEST,
    )
    return Named(statement, **constants), given


def _narrow(found: Sequence[Any], leads: Sequence[int]) -> list[int]:
    """Return the indexes of the words whose keys lead to few passages.

    It is the rarest word, or the two rarest together; empty if both lead to many.
    """
    if not leads or found[leads[0]]["often"] <= USUAL:
        return list(leads[:1])
    first, total = found[leads[0]], max(1, found[0]["passages"])
    if len(leads) > 1 and first["often"] * found[leads[1]]["often"] // total <= USUAL:
        return list(leads[:2])
    return []


_FOUND = "SELECT p.* FROM s JOIN passages p ON p.session_id = s.id WHERE {keys}"
"""Passages that the index finds by keys of the rarest words."""
_KEYS = "recall_keys(p.session_id, p.vector) && {keys}::text[]"
_LOOKED = """
  SELECT p.* FROM s CROSS JOIN LATERAL (
         SELECT * FROM passages x WHERE x.session_id = s.id AND x.at <= :before_at
          ORDER BY x.at DESC, x.seq DESC LIMIT :looked_at_each) p
   ORDER BY p.at DESC, p.session_id DESC, p.seq DESC LIMIT :looked_at"""
"""Newest passages, for words that are too frequent for the index."""
_FLOOR = """
  SELECT at, session_id, seq FROM (SELECT at, session_id, seq, count(*) OVER () AS looked FROM looked) x
   WHERE looked >= :looked_at ORDER BY at, session_id, seq LIMIT 1"""
"""Passage before which nothing was read; no row if everything was."""
_NO_FLOOR = "SELECT NULL::timestamptz AS at, NULL::bigint AS session_id, NULL::bigint AS seq WHERE false"
_SAYS = r"""
     EXISTS (SELECT FROM unnest({passage}.vector) u WHERE u.lexeme = ANY ({word}::text[])
                AND u.positions[cardinality(u.positions)] >
                    3 + cardinality(regexp_split_to_array(trim({passage}.speaker), '\W+')) - ({passage}.speaker = '')::int)"""
"""Condition that a passage has a form of a word outside of its head with day and speaker."""
_SMALL = "lower(normalize({passage}.text, NFKC)) ~ {word}::text"
"""Condition that a passage has a stop word, which the index does not contain."""
_BESIDE = """
     EXISTS (SELECT FROM passages y WHERE y.session_id = p.session_id AND y.seq = p.seq AND {says})"""
"""Condition that any part of the same message says a word."""
_LIVE = "x.plain ~ {word}::text"
_NEWEST = """
  SELECT m.* FROM m WHERE NOT EXISTS (SELECT FROM f WHERE (m.at, m.session_id, m.seq) < (f.at, f.session_id, f.seq))
   ORDER BY m.at DESC, m.session_id DESC, m.seq DESC LIMIT :limit"""
_GROUPED = """
  SELECT x.* FROM (
         SELECT m.*, row_number() OVER (PARTITION BY m.session_id ORDER BY m.at DESC, m.seq DESC) AS place FROM m) x
   WHERE x.place <= :per_session
   ORDER BY array_position(:session_ids::bigint[], x.session_id), x.place LIMIT :limit"""
_HITS = r"""
WITH s AS MATERIALIZED (
  SELECT id, indexed_turn, erased_turn FROM sessions WHERE id = ANY (:session_ids::bigint[])
), looked AS MATERIALIZED ({looked}
), f AS MATERIALIZED ({floor}
), hidden AS (
  SELECT DISTINCT ON (p.at, p.session_id, p.seq) p.session_id, p.seq, p.turn_no, p.author, p.at, p.text
    FROM looked p JOIN s ON s.id = p.session_id
   WHERE p.turn_no > s.erased_turn AND p.author IN ('person', 'assistant', 'operator')
     AND (p.at, p.session_id, p.seq) < (:before_at::timestamptz, :before_session::bigint, :before_seq::bigint)
     AND {said}
     AND EXISTS (SELECT FROM turn_entries te WHERE te.session_id = p.session_id AND te.seq = p.seq)
   ORDER BY p.at DESC, p.session_id DESC, p.seq DESC, p.part
), live AS (
  SELECT e.session_id, e.seq, te.turn_no, e.author, e.at, x.text
    FROM s JOIN turn_entries te ON te.session_id = s.id
       AND te.turn_no > greatest(s.indexed_turn, s.erased_turn)
    JOIN entry_rows e ON e.session_id = te.session_id AND e.seq = te.seq
   CROSS JOIN LATERAL (
         SELECT t.text, lower(normalize(t.text, NFKC)) AS plain FROM (
                SELECT coalesce(e.words, (
                         SELECT string_agg(b ->> 'text', E'\n') FROM jsonb_array_elements(e.blocks) b
                          WHERE b ->> 'type' = 'text')) AS text) t) x
   WHERE e.author IN ('person', 'assistant', 'operator')
     AND (e.at, e.session_id, e.seq) < (:before_at::timestamptz, :before_session::bigint, :before_seq::bigint)
     AND {live} AND coalesce(te.replaced_by, 0) <= 0
     AND NOT coalesce(e.blocks @> '[{{"type": "tool_use"}}]', false) AND x.text <> :erased
), m AS MATERIALIZED (
  SELECT DISTINCT ON (a.session_id, coalesce(e.replaces_seq, a.seq)) a.*,
         coalesce((SELECT n.seq FROM turn_entries r
                     JOIN turn_entries n ON n.session_id = r.session_id AND n.turn_no = r.turn_no
                      AND n.replaced_by IS NULL
                     JOIN entry_rows w ON w.session_id = n.session_id AND w.seq = n.seq
                    WHERE r.session_id = a.session_id AND r.seq = e.replaces_seq AND r.replaced_by IS NOT NULL
                      AND w.replaces_seq = e.replaces_seq LIMIT 1),
                  e.replaces_seq, a.seq) AS shown
    FROM (SELECT * FROM hidden UNION ALL SELECT * FROM live) a JOIN entry_rows e USING (session_id, seq)
   ORDER BY a.session_id, coalesce(e.replaces_seq, a.seq), a.seq DESC
), page AS ({page})
SELECT page.*, f.at AS floor_at, f.session_id AS floor_session, f.seq AS floor_seq
  FROM (SELECT) one LEFT JOIN page ON true LEFT JOIN f ON true
"""
"""Search statement, without the conditions of the words.

A repeated question is one message, at the place where it was first asked, with its newest text.
"""
MESSAGES = Named(r"""
SELECT e.seq, te.turn_no AS turn, e.author, e.at,
       coalesce(e.words, (SELECT string_agg(b ->> 'text', E'\n') FROM jsonb_array_elements(e.blocks) b
                           WHERE b ->> 'type' = 'text')) AS text
  FROM turn_entries te JOIN entry_rows e USING (session_id, seq)
  JOIN sessions s ON s.id = te.session_id AND te.turn_no > s.erased_turn
 WHERE te.session_id = :session_id AND te.seq = ANY (:seqs::bigint[])
   AND e.author IN ('person', 'assistant', 'operator')
""")
"""Select messages of a session by number, without those of tools; erased ones have the text ERASED."""

MESSAGE = Named(r"""
SELECT te.turn_no AS turn, e.author, e.at,
       coalesce(e.words, (SELECT string_agg(b ->> 'text', E'\n') FROM jsonb_array_elements(e.blocks) b
                           WHERE b ->> 'type' = 'text')) AS text
  FROM turn_entries te JOIN entry_rows e USING (session_id, seq)
  JOIN sessions s ON s.id = te.session_id AND te.turn_no > s.erased_turn
 WHERE te.session_id = :session_id AND te.seq = :seq AND e.author IN ('person', 'assistant', 'operator')
""")
"""Select one message of a session by number; no row for one of a tool or in an erased turn."""

SUMMARY = Named("""
SELECT x.session_id, x.seq, x.at
  FROM sessions me JOIN contacts p ON p.id = me.contact_id
  JOIN past_imports i ON i.contact_id IN (SELECT contact_family(coalesce(p.merged_into, p.id)))
  JOIN passages x ON x.session_id = i.session_id AND x.at >= :after AND x.at < :before
 WHERE me.id = :session_id AND i.digest IS NOT NULL AND x.author = 'summary' AND x.text = :text
 ORDER BY x.number DESC LIMIT 1
""")
"""Select a passage of an import's summary by its text, among the person's imports, by the index of time."""
