"""SQL that finds candidates for recall, scored by their words, in lanes, with neighbours.

Both statements begin with the same person and sessions, and repeat which passages and notes a search reaches:
`test_repeated_parts` compares these parts word for word. They are no functions, since the planner would not see
through them to the indexes.
"""

from __future__ import annotations

from shared.adapters.postgres.db.pool import Named
from shared.core.memory.recall import FEW_PASSAGES, K1, TOLD_BESIDE, TOLD_LEAST, TOLD_RARE, B
from shared.core.session.failed_messages import NOT_RECALLED

SESSIONS_AT_MOST = 32
"""Maximum sessions of one person and agent that are searched.

They are the current one and the newest archived ones.
"""
LOOKED_AT = 8_000
"""Maximum occurrences of a question's words that are followed, the rarest words first."""
ASKED_AT_LEAST = 2
"""Number of meaningful words from which a question is searched alone; with fewer, the whole message is."""
CANDIDATES, CANDIDATES_AT_MOST = 120, 240
"""Minimum and maximum of scored passages per author; the number grows with the root of all passages.

Notes and knowledge use the minimum.
"""
GROWTH = 2
"""Candidates per author for each unit of the root of the number of passages."""
SPOKEN_OF = 60
"""Maximum passages of the time that a message speaks of."""
TOLD_FEW = 8
"""Number of passages up to which a word counts as rare in any conversation."""
MEANT = 150
"""Maximum passages nearest in meaning by the signs of their vectors; their whole vectors are compared then.
"""
VECTORS_AT_MOST = 100_000
"""Maximum vectors of a conversation that are searched, the newest."""
NEAREST = 2_000
"""Nearest vectors by sign that a search sorts before it drops messages that it may not reach.

Sorting all 100,000 takes 17 ms of CPU more (docs/decisions.md).
"""
NOTES_MEANT = 40
"""Maximum notes nearest in meaning to the message."""
SURROUNDED = 40
"""Best candidates per author that are returned with their neighbours."""
NEIGHBOURS = 2
"""Number of passages before and after a candidate that are returned with it."""
CITED = 48
"""Maximum passages cited by fitting notes and summary facts; they are candidates without a common word."""

NAMED_SESSIONS = 8
"""Maximum sessions of a person in which a name is looked for, the newest."""

BETWEEN = Named(
    """
WITH RECURSIVE copied(session_id, through) AS (
  SELECT from_session_id, through_turn FROM forks WHERE session_id = :session_id
  UNION ALL
  SELECT f.from_session_id, least(f.through_turn, c.through) FROM copied c JOIN forks f USING (session_id)
), me AS MATERIALIZED (
  SELECT s.id, s.agent_id, s.contact_id, a.name AS scope, a.config ->> 'name' AS assistant,
         (SELECT CASE WHEN p.kind <> 'person' OR p.display_name <> '' THEN p.display_name ELSE coalesce((
            SELECT x.speaker FROM (
                     SELECT o.id, o.last_active_at FROM sessions o
                      WHERE o.agent_id = s.agent_id AND o.contact_id IN (SELECT contact_family(s.contact_id))
                        AND o.indexed_turn > 0
                      ORDER BY o.id <> s.id, o.last_active_at DESC, o.id DESC LIMIT :named_sessions) o
             CROSS JOIN LATERAL (SELECT y.speaker FROM passages y
                                  WHERE y.session_id = o.id AND y.author = 'person'
                                  ORDER BY y.number DESC LIMIT 1) x
             WHERE x.speaker <> '' ORDER BY o.id <> s.id, o.last_active_at DESC, o.id DESC LIMIT 1), '') END
            FROM contacts p WHERE p.id = s.contact_id AND p.kind = 'person') AS person,
         (SELECT t.claimed_at FROM turns t WHERE t.session_id = s.id AND t.turn_no = :turn) AS known_by,
         (SELECT max(l.created_at) FROM compactions l
           WHERE l.session_id = s.id AND l.active AND l.kind IN ('new', 'separator')) AS anew
    FROM sessions s JOIN agents a ON a.id = s.agent_id WHERE s.id = :session_id
), s AS MATERIALIZED (
  SELECT o.id, (SELECT i.began_at FROM past_imports i WHERE i.session_id = o.id) AS imported_at,
         CASE WHEN o.id = :session_id THEN coalesce(:base_turn::bigint, o.base_turn) ELSE o.indexed_turn END AS through,
         greatest(o.erased_turn, CASE WHEN o.id <> :session_id THEN greatest(
           (SELECT f.through_turn FROM forks f WHERE f.session_id = o.id),
           (SELECT max(c.through) FROM copied c WHERE c.session_id = o.id)) END, CASE WHEN :automatic::boolean THEN (
           SELECT coalesce(max(l.through_turn), 0) FROM compactions l
            WHERE l.session_id = o.id AND l.active AND l.kind IN ('new', 'separator')) ELSE 0 END) AS since
    FROM me JOIN sessions o ON o.agent_id = me.agent_id AND o.contact_id IN (SELECT contact_family(me.contact_id))
   WHERE o.indexed_turn > 0
   ORDER BY o.id <> :session_id, o.last_active_at DESC, o.id DESC LIMIT :sessions_at_most
)
SELECT NULL, 'said', p.session_id, p.number, p.at, p.text, p.terms, NULL::int[], p.seq, p.part, p.turn_no, p.author,
       p.speaker, p.sitting, 0, 0, '', '', NULL::bytea, NULL::jsonb
  FROM me CROSS JOIN s JOIN passages p ON p.session_id = s.id
 WHERE p.turn_no > s.since AND p.turn_no <= s.through AND (p.author <> 'tool' OR NOT :automatic)
   AND (me.known_by IS NULL OR p.indexed_at <= me.known_by)
   AND (NOT :automatic OR p.session_id = :session_id OR me.anew IS NULL
        OR greatest(p.at, s.imported_at) > me.anew)
   AND (:after::timestamptz IS NULL OR p.at >= :after) AND (:before::timestamptz IS NULL OR p.at < :before)
   AND (:from_seq::bigint IS NULL OR p.session_id = :session_id AND p.seq >= :from_seq)
   AND (:through_seq::bigint IS NULL OR p.session_id = :session_id AND p.seq <= :through_seq)
   AND EXISTS (SELECT FROM turn_entries te WHERE te.session_id = p.session_id AND te.seq = p.seq)
   AND NOT (:automatic AND EXISTS (SELECT FROM pins x WHERE x.session_id = p.session_id AND x.seq = p.seq))
   AND NOT (p.author = 'person' AND EXISTS (
       SELECT FROM turns x WHERE x.session_id = p.session_id AND x.turn_no = p.turn_no
          AND x.state IN ('failed', 'refused') AND x.error_code = ANY (:not_recalled)))
 ORDER BY p.at, p.session_id, p.number LIMIT :candidates
""",
    sessions_at_most=SESSIONS_AT_MOST,
    candidates=CANDIDATES,
    named_sessions=NAMED_SESSIONS,
    not_recalled=NOT_RECALLED,
)
"""Select the first passages of a period or range of messages, at most CANDIDATES, oldest first.

The columns are the fields of `FoundPassage` in their order. A passage that is erased or pinned is left out, and so is a
message that a server rejected: it would make the next request fail too.
"""

EARLIER_CALLS = Named("""
SELECT next_seq - 1 AS last_seq,
       (SELECT count(*) FROM turn_steps
         WHERE session_id = :session_id AND turn_no = :turn AND tool = :tool
           AND (status = 'done' OR status = 'intent' AND call_id < :call_id)) AS asked
  FROM sessions WHERE id = :session_id
""")
"""Select the newest entry's number, and how often a turn called `tool` before the call `call_id`."""

SEARCH = Named(
    """
WITH RECURSIVE copied(session_id, through) AS (
  SELECT from_session_id, through_turn FROM forks WHERE session_id = :session_id
  UNION ALL
  SELECT f.from_session_id, least(f.through_turn, c.through) FROM copied c JOIN forks f USING (session_id)
), me AS MATERIALIZED (
  SELECT s.id, s.agent_id, s.contact_id, a.name AS scope, a.config ->> 'name' AS assistant,
         (SELECT CASE WHEN p.kind <> 'person' OR p.display_name <> '' THEN p.display_name ELSE coalesce((
            SELECT x.speaker FROM (
                     SELECT o.id, o.last_active_at FROM sessions o
                      WHERE o.agent_id = s.agent_id AND o.contact_id IN (SELECT contact_family(s.contact_id))
                        AND o.indexed_turn > 0
                      ORDER BY o.id <> s.id, o.last_active_at DESC, o.id DESC LIMIT :named_sessions) o
             CROSS JOIN LATERAL (SELECT y.speaker FROM passages y
                                  WHERE y.session_id = o.id AND y.author = 'person'
                                  ORDER BY y.number DESC LIMIT 1) x
             WHERE x.speaker <> '' ORDER BY o.id <> s.id, o.last_active_at DESC, o.id DESC LIMIT 1), '') END
            FROM contacts p WHERE p.id = s.contact_id AND p.kind = 'person') AS person,
         (SELECT t.claimed_at FROM turns t WHERE t.session_id = s.id AND t.turn_no = :turn) AS known_by,
         (SELECT max(l.created_at) FROM compactions l
           WHERE l.session_id = s.id AND l.active AND l.kind IN ('new', 'separator')) AS anew
    FROM sessions s JOIN agents a ON a.id = s.agent_id WHERE s.id = :session_id
), s AS MATERIALIZED (
  SELECT o.id, (SELECT i.began_at FROM past_imports i WHERE i.session_id = o.id) AS imported_at,
         CASE WHEN o.id = :session_id THEN coalesce(:base_turn::bigint, o.base_turn) ELSE o.indexed_turn END AS through,
         greatest(o.erased_turn, CASE WHEN o.id <> :session_id THEN greatest(
           (SELECT f.through_turn FROM forks f WHERE f.session_id = o.id),
           (SELECT max(c.through) FROM copied c WHERE c.session_id = o.id)) END, CASE WHEN :automatic::boolean THEN (
           SELECT coalesce(max(l.through_turn), 0) FROM compactions l
            WHERE l.session_id = o.id AND l.active AND l.kind IN ('new', 'separator')) ELSE 0 END) AS since
    FROM me JOIN sessions o ON o.agent_id = me.agent_id AND o.contact_id IN (SELECT contact_family(me.contact_id))
   WHERE o.indexed_turn > 0
   ORDER BY o.id <> :session_id, o.last_active_at DESC, o.id DESC LIMIT :sessions_at_most
), w AS MATERIALIZED (
  SELECT row_number() OVER (ORDER BY x.n) - 1 AS n, x.word, x.n <= :asked::int AS of_question,
         x.n <= :asked::int OR count(*) FILTER (WHERE x.n <= :asked) OVER () < :asked_at_least AS asked,
         (SELECT array_agg(DISTINCT f) FROM unnest(:dictionaries::text[]) AS d,
                 unnest(tsvector_to_array(to_tsvector(d::regconfig, x.word))) AS f) AS forms
    FROM unnest(:words::text[]) WITH ORDINALITY AS x(word, n)
   WHERE length(to_tsvector(:dictionary::regconfig, x.word)) > 0
), stance AS MATERIALIZED (
  SELECT coalesce(:asks::boolean AND (NOT bool_and(asked) OR bool_and(of_question)), false) AS asks FROM w
), q AS MATERIALIZED (
  SELECT w.n, w.asked, string_agg('''' || f || '''', ' | ')::tsquery AS any_form
    FROM w, unnest(w.forms) AS f GROUP BY w.n, w.asked
), any_word AS MATERIALIZED (
  SELECT string_agg(any_form::text, ' | ')::tsquery AS query FROM q WHERE asked
), owners AS (
  SELECT 'said' AS lane, id AS owner FROM s UNION ALL SELECT 'knowledge', agent_id FROM me
), whole AS MATERIALIZED (
  SELECT r.lane, sum(r.passages)::float8 AS passages, sum(r.terms)::float8 AS terms
    FROM owners o JOIN recall_words r ON r.lane = o.lane AND r.owner = o.owner AND r.lexeme = '' GROUP BY r.lane
), d AS MATERIALIZED (
  SELECT o.lane, o.owner, w.n, w.asked, r.lexeme, r.passages
    FROM owners o CROSS JOIN w CROSS JOIN LATERAL unnest(w.forms) AS f
   CROSS JOIN LATERAL (SELECT * FROM recall_words x
                        WHERE x.lane = o.lane AND x.owner = o.owner AND x.lexeme = f OFFSET 0) r
), often AS MATERIALIZED (
  SELECT lane, n, asked, sum(passages)::bigint AS passages FROM d GROUP BY lane, n, asked
), weighed AS MATERIALIZED (
  SELECT o.lane, o.n, o.passages, sum(o.passages) OVER (PARTITION BY o.lane ORDER BY o.passages, o.n) AS so_far,
         o.passages <= greatest(:told_few, whole.passages ^ :told_rare) AS rare,
         ln(1 + (greatest(whole.passages, o.passages, :few_passages) - o.passages + 0.5) / (o.passages + 0.5))
           * CASE WHEN o.asked THEN 1 ELSE :told_beside END AS weight
    FROM often o JOIN whole USING (lane)
), worth_it AS MATERIALIZED (
  SELECT weighed.lane FROM weighed JOIN whole USING (lane) CROSS JOIN stance
   GROUP BY weighed.lane, whole.passages, stance.asks
  HAVING stance.asks
      OR sum(weight) FILTER (WHERE rare) >= :told_least * ln(1 + greatest(whole.passages, :few_passages))
), followed AS MATERIALIZED (
  SELECT lane, n, weight FROM weighed JOIN worth_it USING (lane) WHERE so_far <= :looked_at OR so_far = passages
), keys AS MATERIALIZED (
  SELECT f.lane, f.n, f.weight, array_agg(d.owner || ':' || d.lexeme) AS keys
    FROM followed f JOIN d USING (lane, n) GROUP BY f.lane, f.n, f.weight
), hit AS MATERIALIZED (
  SELECT x.session_id, x.number, x.author, array_agg(k.n::int) AS words,
         sum(k.weight) / (1 + :k1 * (1 - :b + :b * x.terms * whole.passages / greatest(whole.terms, 1))) AS score
    FROM keys k JOIN whole USING (lane) CROSS JOIN LATERAL (
         SELECT p.session_id, p.number, p.author, p.terms
           FROM passages p CROSS JOIN me JOIN s ON s.id = p.session_id + 0
          WHERE recall_keys(p.session_id, p.vector) && k.keys
            AND p.turn_no > s.since AND p.turn_no <= s.through AND (p.author <> 'tool' OR NOT :automatic)
            AND (me.known_by IS NULL OR p.indexed_at <= me.known_by)
            AND (NOT :automatic OR p.session_id = :session_id OR me.anew IS NULL
                 OR greatest(p.at, s.imported_at) > me.anew)
            AND (:after::timestamptz IS NULL OR p.at >= :after) AND (:before::timestamptz IS NULL OR p.at < :before)
            AND (:from_seq::bigint IS NULL OR p.session_id = :session_id AND p.seq >= :from_seq)
            AND (:through_seq::bigint IS NULL OR p.session_id = :session_id AND p.seq <= :through_seq)
         OFFSET 0) x
   WHERE k.lane = 'said' GROUP BY x.session_id, x.number, x.author, x.terms, whole.passages, whole.terms
), best AS MATERIALIZED (
  SELECT session_id, number, CASE WHEN place <= :surrounded THEN :neighbours ELSE 0 END AS around FROM (
    SELECT h.session_id, h.number, row_number() OVER (
             PARTITION BY h.author ORDER BY h.score DESC, h.session_id, h.number DESC) AS place FROM hit h) x
   WHERE place <= (SELECT least(:candidates_at_most, greatest(:candidates, :growth * sqrt(whole.passages)))
                     FROM whole WHERE whole.lane = 'said')
), nearest AS MATERIALIZED (
  SELECT v.session_id, v.number FROM me CROSS JOIN s JOIN passage_vectors v ON v.session_id = s.id
   WHERE :signs::varbit IS NOT NULL AND v.encoder = :encoder::text AND v.signs IS NOT NULL
     AND (me.known_by IS NULL OR v.encoded_at <= me.known_by)
     AND v.number > (SELECT max(x.number) FROM passage_vectors x WHERE x.session_id = s.id) - :vectors_at_most
   ORDER BY bit_count(v.signs # :signs::varbit), v.session_id, v.number DESC
   LIMIT CASE WHEN NOT (:after::timestamptz IS NOT NULL OR :before::timestamptz IS NOT NULL OR :from_seq::bigint IS NOT NULL
                        OR :through_seq::bigint IS NOT NULL OR (SELECT anew IS NOT NULL FROM me)
                        OR EXISTS (SELECT FROM s WHERE s.since > 0))
              THEN :nearest END
), meant AS MATERIALIZED (
  SELECT n.session_id, n.number FROM nearest n CROSS JOIN me JOIN s ON s.id = n.session_id
   CROSS JOIN LATERAL (SELECT * FROM passages x
                        WHERE x.session_id = n.session_id AND x.number = n.number OFFSET 0) p
   WHERE p.turn_no > s.since AND p.turn_no <= s.through AND (p.author <> 'tool' OR NOT :automatic)
     AND (me.known_by IS NULL OR p.indexed_at <= me.known_by)
     AND (NOT :automatic OR p.session_id = :session_id OR me.anew IS NULL
          OR greatest(p.at, s.imported_at) > me.anew)
     AND (:after::timestamptz IS NULL OR p.at >= :after) AND (:before::timestamptz IS NULL OR p.at < :before)
     AND (:from_seq::bigint IS NULL OR p.session_id = :session_id AND p.seq >= :from_seq)
     AND (:through_seq::bigint IS NULL OR p.session_id = :session_id AND p.seq <= :through_seq)
   LIMIT :meant
), near_notes AS MATERIALIZED (
  SELECT v.note_id, v.vector FROM me JOIN notes n ON n.contact_id IN (SELECT contact_family(me.contact_id))
     AND n.scope = me.scope JOIN note_vectors v ON v.note_id = n.id
   WHERE :signs::varbit IS NOT NULL AND v.encoder = :encoder::text AND v.signs IS NOT NULL
     AND (me.known_by IS NULL OR v.encoded_at <= me.known_by) AND n.id <> ALL (:known_notes::bigint[])
   ORDER BY bit_count(v.signs # :signs::varbit), v.note_id DESC LIMIT :notes_meant
), fitting_notes AS MATERIALIZED (
  SELECT note_id FROM near_notes
  UNION
  (SELECT x.note_id FROM me CROSS JOIN any_word a
     JOIN note_words x ON recall_keys(x.contact_id, x.vector) && (
            SELECT array_agg(f.id || ':' || form)
              FROM me, contact_family(me.contact_id) AS f(id), w, unnest(w.forms) AS form WHERE w.asked)
     JOIN notes n ON n.id = x.note_id
    WHERE n.scope = me.scope AND n.forgotten_at IS NULL AND n.superseded_by IS NULL AND n.authority <> 'tool'
      AND n.id <> ALL (:known_notes::bigint[]) AND (me.known_by IS NULL OR x.indexed_at <= me.known_by)
      AND (:after::timestamptz IS NULL OR n.observed_at >= :after)
      AND (:before::timestamptz IS NULL OR n.observed_at < :before)
      AND :from_seq::bigint IS NULL AND :through_seq::bigint IS NULL
    ORDER BY ts_rank(x.vector, a.query) DESC, n.id DESC LIMIT :candidates)
), near AS MATERIALIZED (
  SELECT session_id, number, max(words) AS words, bool_or(meant) AS meant FROM (
    SELECT h.session_id, h.number, h.words, false AS chosen, false AS meant FROM hit h
    UNION ALL
    SELECT session_id, number, NULL, true, true FROM meant
    UNION ALL
    SELECT b.session_id, b.number + apart, NULL, true, false
      FROM best b CROSS JOIN LATERAL generate_series(-b.around, b.around) AS apart
    UNION ALL
    (SELECT p.session_id, p.number, NULL, true, false FROM me CROSS JOIN s JOIN passages p ON p.session_id = s.id
      WHERE p.at >= :spoken_from::timestamptz AND p.at < :spoken_until::timestamptz
        AND p.turn_no > s.since AND p.turn_no <= s.through AND (p.author <> 'tool' OR NOT :automatic)
        AND (me.known_by IS NULL OR p.indexed_at <= me.known_by)
        AND (NOT :automatic OR p.session_id = :session_id OR me.anew IS NULL
             OR greatest(p.at, s.imported_at) > me.anew)
        AND (:after::timestamptz IS NULL OR p.at >= :after) AND (:before::timestamptz IS NULL OR p.at < :before)
        AND (:from_seq::bigint IS NULL OR p.session_id = :session_id AND p.seq >= :from_seq)
        AND (:through_seq::bigint IS NULL OR p.session_id = :session_id AND p.seq <= :through_seq)
      ORDER BY p.at, p.session_id, p.number LIMIT :spoken_of)
    UNION ALL
    (SELECT p.session_id, p.number, NULL, true, false
       FROM (SELECT :session_id::bigint AS session_id, seq FROM unnest(:cited::bigint[]) AS seq
             UNION
             (SELECT n.session_id, seq::bigint FROM fitting_notes f JOIN notes n ON n.id = f.note_id,
                     jsonb_array_elements_text(n.source_seqs) AS seq LIMIT :most_cited)) c
       CROSS JOIN me JOIN s ON s.id = c.session_id
       CROSS JOIN LATERAL (SELECT * FROM passages x
                            WHERE x.session_id = c.session_id AND x.seq = c.seq OFFSET 0) p
      WHERE p.turn_no > s.since AND p.turn_no <= s.through AND (p.author <> 'tool' OR NOT :automatic)
        AND (me.known_by IS NULL OR p.indexed_at <= me.known_by)
        AND (NOT :automatic OR p.session_id = :session_id OR me.anew IS NULL
             OR greatest(p.at, s.imported_at) > me.anew)
        AND (:after::timestamptz IS NULL OR p.at >= :after) AND (:before::timestamptz IS NULL OR p.at < :before)
        AND (:from_seq::bigint IS NULL OR p.session_id = :session_id AND p.seq >= :from_seq)
        AND (:through_seq::bigint IS NULL OR p.session_id = :session_id AND p.seq <= :through_seq)
      LIMIT :most_cited)) x
   GROUP BY session_id, number HAVING bool_or(chosen)
), known AS (
  SELECT jsonb_build_object(
    'words', (SELECT coalesce(jsonb_agg(word ORDER BY n), '[]') FROM w),
    'asked', (SELECT count(*) FROM w WHERE asked),
    'names', (SELECT jsonb_build_object('person', person, 'assistant', assistant) FROM me),
    'notes', (SELECT count(*) FROM me JOIN notes n ON n.contact_id IN (SELECT contact_family(me.contact_id))
                 AND n.scope = me.scope),
    'lanes', (SELECT coalesce(jsonb_object_agg(whole.lane, jsonb_build_object(
                'passages', whole.passages, 'terms', whole.terms, 'words', (
                  SELECT coalesce(jsonb_object_agg(often.n, often.passages), '{}') FROM often
                   WHERE often.lane = whole.lane))), '{}') FROM whole)) AS known
)
SELECT known, NULL AS lane, NULL::bigint AS owner, NULL::bigint AS number, NULL::timestamptz AS at, '' AS text,
       NULL::int AS terms, NULL::int[] AS words, NULL::bigint AS seq, NULL::int AS part, NULL::bigint AS turn_no,
       '' AS author, '' AS speaker, NULL::int AS sitting, NULL::bigint AS through_turn, NULL::bigint AS session_id,
       '' AS path, '' AS heading, NULL::bytea AS meaning,
       NULL::jsonb AS cites
  FROM known
UNION ALL
SELECT NULL, 'said', p.session_id, p.number, p.at, p.text, p.terms, near.words, p.seq, p.part, p.turn_no, p.author,
       p.speaker, p.sitting, 0, 0, '', '',
       CASE WHEN near.meant THEN (SELECT v.vector FROM passage_vectors v
                                   WHERE v.session_id = near.session_id AND v.number = near.number) END, NULL
  FROM near CROSS JOIN me JOIN s ON s.id = near.session_id
 CROSS JOIN LATERAL (SELECT * FROM passages x
                      WHERE x.session_id = near.session_id AND x.number = near.number OFFSET 0) p
 WHERE p.turn_no > s.since AND p.turn_no <= s.through AND (p.author <> 'tool' OR NOT :automatic)
   AND (me.known_by IS NULL OR p.indexed_at <= me.known_by)
   AND (NOT :automatic OR p.session_id = :session_id OR me.anew IS NULL
        OR greatest(p.at, s.imported_at) > me.anew)
   AND (:after::timestamptz IS NULL OR p.at >= :after) AND (:before::timestamptz IS NULL OR p.at < :before)
   AND (:from_seq::bigint IS NULL OR p.session_id = :session_id AND p.seq >= :from_seq)
   AND (:through_seq::bigint IS NULL OR p.session_id = :session_id AND p.seq <= :through_seq)
   AND EXISTS (SELECT FROM turn_entries te WHERE te.session_id = p.session_id AND te.seq = p.seq)
   AND NOT (:automatic AND EXISTS (SELECT FROM pins x WHERE x.session_id = p.session_id AND x.seq = p.seq))
   AND NOT (p.author = 'person' AND EXISTS (
       SELECT FROM turns x WHERE x.session_id = p.session_id AND x.turn_no = p.turn_no
          AND x.state IN ('failed', 'refused') AND x.error_code = ANY (:not_recalled)))
UNION ALL
SELECT NULL, 'note', n.id, n.id, n.observed_at, n.text, x.terms,
       ARRAY(SELECT q.n::int FROM q WHERE x.vector @@ q.any_form ORDER BY q.n), 0, 0, coalesce(n.from_turn, 0),
       n.authority, '', 0, coalesce(n.through_turn, 0), coalesce(n.session_id, 0), '', n.subject, v.vector,
       n.source_seqs
  FROM me CROSS JOIN fitting_notes f JOIN note_words x ON x.note_id = f.note_id JOIN notes n ON n.id = x.note_id
  LEFT JOIN near_notes v ON v.note_id = n.id
 WHERE n.scope = me.scope AND n.forgotten_at IS NULL AND n.superseded_by IS NULL AND n.authority <> 'tool'
   AND n.id <> ALL (:known_notes::bigint[]) AND (me.known_by IS NULL OR x.indexed_at <= me.known_by)
   AND (:after::timestamptz IS NULL OR n.observed_at >= :after)
   AND (:before::timestamptz IS NULL OR n.observed_at < :before)
   AND :from_seq::bigint IS NULL AND :through_seq::bigint IS NULL
UNION ALL
(SELECT NULL, 'knowledge', k.agent_id, k.place, k.indexed_at, k.text, k.terms,
        ARRAY(SELECT q.n::int FROM q WHERE k.vector @@ q.any_form ORDER BY q.n), 0, 0, 0, '', '', 0, 0, 0, k.path,
        k.heading, NULL, NULL
   FROM me CROSS JOIN any_word a
   JOIN knowledge k ON recall_keys(k.agent_id, k.vector) && (
          SELECT array_agg(key) FROM keys, unnest(keys.keys) AS key WHERE keys.lane = 'knowledge')
  WHERE k.agent_id = me.agent_id AND (me.known_by IS NULL OR k.indexed_at <= me.known_by)
    AND :after::timestamptz IS NULL AND :before::timestamptz IS NULL AND :from_seq::bigint IS NULL
    AND :through_seq::bigint IS NULL
  ORDER BY ts_rank(k.vector, a.query) DESC, k.path, k.place LIMIT :candidates)
""",
    sessions_at_most=SESSIONS_AT_MOST,
    asked_at_least=ASKED_AT_LEAST,
    told_few=TOLD_FEW,
    told_rare=TOLD_RARE,
    few_passages=FEW_PASSAGES,
    told_beside=TOLD_BESIDE,
    told_least=TOLD_LEAST,
    looked_at=LOOKED_AT,
    k1=K1,
    b=B,
    surrounded=SURROUNDED,
    neighbours=NEIGHBOURS,
    candidates_at_most=CANDIDATES_AT_MOST,
    candidates=CANDIDATES,
    growth=GROWTH,
    vectors_at_most=VECTORS_AT_MOST,
    nearest=NEAREST,
    meant=MEANT,
    notes_meant=NOTES_MEANT,
    spoken_of=SPOKEN_OF,
    most_cited=CITED,
    named_sessions=NAMED_SESSIONS,
    not_recalled=NOT_RECALLED,
)
"""Candidates for recall; the columns are the fields of `FoundPassage` in their order.

Words are looked up in every dictionary, since a passage may be in another language; stop words of the
question's language (`:dictionary`) do not count. The rarest words are followed through the index until they
lead to too many passages; a message without a question follows them only if it has enough rare words, by
`recall_words`. `session_id + 0` keeps the index by time out of the plan. Passages are scored without reading
their vectors. If a search reaches only a part of the hidden messages, the nearest vectors are not limited: they may
all be outside of that part. Of passages the same ones are left out as in `BETWEEN`.

The person's name is that of the account, else that in the person's newest passage: the indexer names passages
after an introduction such as "I'm Ada".
"""
