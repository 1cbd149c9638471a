"""Names for what statements of the dashboard share: states of sessions, options of jobs, people, searches."""

from __future__ import annotations

from alembic import op

revision = "0105"
down_revision = "0104"
branch_labels = None
depends_on = None

# The planner puts the bodies of all but `name_sessions` into the statements that call them.
FUNCTIONS = {
    # State of a session by columns of its row. Only sessions marked as troubled have their newest job and
    # turn read; running jobs are few and read once per statement.
    "session_state(bigint, bigint, bigint, bigint, timestamptz)": """
        CREATE FUNCTION session_state(
            session bigint, answered bigint, next bigint, holder bigint, troubled timestamptz
        ) RETURNS TABLE (state text) LANGUAGE sql STABLE ROWS 1 AS $$
          SELECT CASE
            WHEN answered < next - 1 AND holder IS NOT NULL THEN 'answering'
            WHEN answered < next - 1 THEN 'waiting'
            WHEN session IN (SELECT r.session_id FROM jobs r WHERE r.state = 'running') THEN 'tidying'
            WHEN troubled IS NULL THEN 'idle'
            WHEN (SELECT j.state FROM jobs j
                   WHERE j.session_id = session ORDER BY j.id DESC LIMIT 1) = 'dead'
            THEN 'problem'
            WHEN (SELECT n.state FROM turns n
                   WHERE n.session_id = session AND n.turn_no = answered) = 'failed'
            THEN 'problem'
            ELSE 'idle' END $$""",
    # Title of a session for operators: the one that the person chose, else that of its newest summary.
    "session_title(bigint, bigint)": """
        CREATE FUNCTION session_title(session bigint, head bigint) RETURNS TABLE (title text)
        LANGUAGE sql STABLE ROWS 1 AS $$
          SELECT coalesce(
            (SELECT x.title FROM addresses x
              WHERE x.session_id = session AND x.channel = 'web' AND x.title <> '' LIMIT 1),
            (SELECT nullif(l.ledger ->> 'title', '') FROM compactions l WHERE l.id = head)) $$""",
    # Newest model call of a session. The order makes the planner use the index instead of sorting them all.
    "newest_call(bigint)": """
        CREATE FUNCTION newest_call(session bigint) RETURNS SETOF turn_context_audit
        LANGUAGE sql STABLE ROWS 1 AS $$
          SELECT x.* FROM turn_context_audit x
           WHERE (x.session_id, x.turn_id) < (session, 4611686018427387904) AND x.session_id >= session
           ORDER BY x.session_id DESC, x.turn_id DESC, x.id DESC LIMIT 1 $$""",
    # Ids of a person and of the people joined to them, as `contact_family` selects them. An array uses an
    # index where a sub-select would read every row. `OFFSET 0` computes it once per person.
    "family_ids(bigint)": """
        CREATE FUNCTION family_ids(person bigint) RETURNS TABLE (ids bigint[])
        LANGUAGE sql STABLE ROWS 1 AS $$
          SELECT ARRAY(SELECT person UNION ALL SELECT c.id FROM contacts c WHERE c.merged_into = person)
          OFFSET 0 $$""",
    # Person of a contact, with the ids of their family, if the session is the one in which they were last
    # active; else no row.
    "person_last_active_in(bigint, bigint)": """
        CREATE FUNCTION person_last_active_in(session bigint, contact bigint)
        RETURNS TABLE (id bigint, public_id uuid, display_name text, kind text, ids bigint[])
        LANGUAGE sql STABLE ROWS 1 AS $$
          SELECT r.id, r.public_id, r.display_name, r.kind, f.ids
            FROM contacts p JOIN contacts r ON r.id = coalesce(p.merged_into, p.id)
           CROSS JOIN LATERAL family_ids(r.id) f
           WHERE p.id = contact
             AND coalesce(session = (SELECT o.id FROM (SELECT y.id, l.last_active_at FROM sessions y
                                                         JOIN session_list l ON l.id = y.id
                                                        WHERE y.contact_id = ANY (f.ids) OFFSET 0) o
                                      ORDER BY o.last_active_at DESC, o.id DESC LIMIT 1), false) $$""",
    # Sums over all sessions of a family; `counted` is the number of sessions with totals.
    "family_sums(bigint[])": """
        CREATE FUNCTION family_sums(family bigint[])
        RETURNS TABLE (sessions bigint, turns bigint, last_active_at timestamptz, cost_micro bigint,
                       cost_unknown_calls bigint, counted bigint, tokens bigint, output_tokens bigint,
                       cache_read_tokens bigint)
        LANGUAGE sql STABLE ROWS 1 AS $$
          SELECT count(*), coalesce(sum(greatest(x.next_turn - 1, 0)), 0)::bigint, max(x.last_active_at),
                 coalesce(sum(t.cost_micro), 0)::bigint, coalesce(sum(t.cost_unknown_calls), 0)::bigint,
                 count(t.session_id), coalesce(sum(t.total_tokens), 0)::bigint,
                 coalesce(sum(t.output_tokens), 0)::bigint, coalesce(sum(t.cache_read_tokens), 0)::bigint
            FROM sessions x LEFT JOIN session_totals t ON t.session_id = x.id
           WHERE x.contact_id = ANY (family) $$""",
    # Trigrams by which a trigram index finds a text of three letters or more. `pieces` are the rarest ones
    # and those nearly as rare, at most six, since frequent ones cost more than they narrow; `rare` is whether
    # the rarest is in less than 0.5 percent of all rows. Statistics of the index are a sample; near a limit
    # both ways cost about the same.
    "search_pieces(text, text)": """
        CREATE FUNCTION search_pieces(word text, index_name text) RETURNS TABLE (pieces text[], rare boolean)
        LANGUAGE sql STABLE ROWS 1 AS $$
          SELECT (array_agg(y.piece ORDER BY y.share, y.place)
                    FILTER (WHERE y.share <= greatest(0.005, 4 * y.rarest)))[1 : 6],
                 min(y.share) < 0.005
            FROM (SELECT x.piece, x.place, coalesce(u.share, 0) AS share,
                         min(coalesce(u.share, 0)) OVER () AS rarest
                    FROM (SELECT substr(lower(word), least(n, length(word) - 2), 3), n
                            FROM generate_series(1, (SELECT length(word)), 3) n) x(piece, place)
                    LEFT JOIN (
                      SELECT u.* FROM pg_stats s,
                             unnest(s.most_common_elems::text::text[],
                                    s.most_common_elem_freqs) u(usual, share)
                       WHERE s.tablename = index_name::name AND s.schemaname = current_schema()) u
                      ON u.usual = x.piece) y $$""",
    # Lowest and highest id that begin with a search text; NULL if the text is no beginning of an id.
    "lowest_id(text)": """
        CREATE FUNCTION lowest_id(word text) RETURNS uuid LANGUAGE sql STABLE AS $$
          SELECT CASE WHEN lower(word) !~ '^[0-9a-f]+(-[0-9a-f-]*)?$' OR length(word) > 36 THEN NULL
                      ELSE rpad(left(regexp_replace(lower(word), '[^0-9a-f]', '', 'g'), 32), 32, '0')::uuid
                 END $$""",
    "highest_id(text)": """
        CREATE FUNCTION highest_id(word text) RETURNS uuid LANGUAGE sql STABLE AS $$
          SELECT CASE WHEN lower(word) !~ '^[0-9a-f]+(-[0-9a-f-]*)?$' OR length(word) > 36 THEN NULL
                      ELSE rpad(left(regexp_replace(lower(word), '[^0-9a-f]', '', 'g'), 32), 32, 'f')::uuid
                 END $$""",
    # Public ids of at most `most` sessions of a JSON list of internal ids; NULL if it is empty.
    "name_sessions(jsonb, integer)": """
        CREATE FUNCTION name_sessions(numbers jsonb, most integer) RETURNS text LANGUAGE sql STABLE AS $$
          SELECT string_agg(x.id, ', ') FROM (
            SELECT DISTINCT s.public_id::text AS id FROM jsonb_array_elements_text(numbers) n
              JOIN sessions s ON s.id = n::bigint ORDER BY 1 LIMIT most) x $$""",
}
VIEWS = {
    "session_states": """
        CREATE VIEW session_states AS
        SELECT s.id, x.state
          FROM sessions s CROSS JOIN LATERAL
               session_state(s.id, s.answered_turn, s.next_turn, s.leased_by, s.troubled_at) x""",
    # Jobs with what an operator may do with each. Running jobs are left to their workers, and late flushes of
    # unread messages cannot be cancelled. `OFFSET 0` keeps the way through the indexes: for a page of few
    # jobs the planner would read all sessions.
    "job_options": """
        CREATE VIEW job_options AS
        SELECT j.*,
               j.state = 'dead'
                 AND NOT EXISTS (SELECT FROM jobs o WHERE o.key = j.key AND o.state IN ('due', 'running')
                                    AND o.id <> j.id OFFSET 0)
                 AND NOT EXISTS (SELECT FROM jobs n WHERE n.session_id = j.session_id AND n.key = j.key
                                    AND n.id > j.id OFFSET 0)
                 AND NOT EXISTS (SELECT FROM sessions e WHERE e.id = j.session_id AND e.erased_turn > 0
                                    AND e.erased_turn >= e.answered_turn OFFSET 0)
                 OR j.state = 'due' AND j.last_error <> '' AND j.due_at > now() AS may_retry,
               (j.state = 'due' OR j.state = 'running' AND NOT EXISTS (
                   SELECT FROM workers w WHERE w.id = j.leased_by AND worker_is_alive(w) OFFSET 0))
                 AND NOT (j.kind = 'flush' AND j.trigger = 'late') AS may_cancel
          FROM jobs j""",
    # Parts of answers that are uncertain, dead, or wait for a chat that cannot be reached. Each branch uses
    # the partial index of its states; a part is in one of them.
    "delivery_problems": """
        CREATE VIEW delivery_problems AS
        SELECT d.session_id, d.turn_no, d.part, d.state AS shown_state
          FROM deliveries d JOIN sessions s ON s.id = d.session_id JOIN addresses a ON a.id = d.address_id
          JOIN turns t ON t.session_id = d.session_id AND t.turn_no = d.turn_no
         WHERE d.channel = 'telegram' AND d.state IN ('uncertain', 'dead') AND d.turn_no > s.erased_turn
        UNION ALL
        SELECT d.session_id, d.turn_no, d.part, 'waiting'
          FROM deliveries d JOIN sessions s ON s.id = d.session_id JOIN addresses a ON a.id = d.address_id
          JOIN turns t ON t.session_id = d.session_id AND t.turn_no = d.turn_no
         WHERE d.channel = 'telegram' AND d.state IN ('queued', 'sending', 'sent')
           AND a.unreachable_since IS NOT NULL AND t.ended_at IS NOT NULL AND d.turn_no > s.erased_turn""",
}


def upgrade() -> None:
    for statement in (*FUNCTIONS.values(), *VIEWS.values()):
        op.execute(statement)


def downgrade() -> None:
    for view in reversed(VIEWS):
        op.execute(f"DROP VIEW {view}")
    for signature in reversed(FUNCTIONS):
        op.execute(f"DROP FUNCTION {signature}")
