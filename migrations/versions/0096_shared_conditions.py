"""Functions for what several statements ask: living workers, core notes, caps, and what recall can find."""

from __future__ import annotations

from alembic import op

revision = "0096"
down_revision = "0095"
branch_labels = None
depends_on = None

FUNCTIONS = {
    # The planner puts the bodies of this one and of `spending_caps` into the statements that call them.
    "worker_is_alive(workers)": """
        CREATE FUNCTION worker_is_alive(w workers) RETURNS boolean LANGUAGE sql STABLE AS
        $$ SELECT w.stopped_at IS NULL AND w.beat > now() - interval '4 s' $$""",
    # `limits` is `Caps.limits`. Of the deployment's and the agent's cap the smaller one holds.
    "spending_caps(bigint[], jsonb, bigint, bigint, boolean, text, text)": """
        CREATE FUNCTION spending_caps(
            limits bigint[], config jsonb, contact bigint, session bigint, anonymous boolean, network text,
            hour text
        ) RETURNS TABLE (scope text, cap bigint) LANGUAGE sql STABLE ROWS 5 AS $$
          SELECT x.scope, x.cap FROM (VALUES
            ('contact:' || contact,
             least(CASE WHEN network LIKE 'secretary:%' THEN limits[9] WHEN anonymous THEN limits[1]
                        ELSE limits[2] END, agent_cap(config, 'person_per_day_usd'))),
            ('session:' || session, least(limits[3], agent_cap(config, 'session_usd'))),
            ('total', limits[4]),
            ('network:' || network,
             CASE WHEN network = 'guests' THEN limits[7] WHEN network LIKE 'secretary:%' THEN limits[8]
                  ELSE limits[5] END),
            ('visitors:' || hour, limits[6])) AS x (scope, cap)
           WHERE x.scope IS NOT NULL $$""",
    # The most important live notes of a person and of those merged into it; notes by tools are left out.
    "core_notes(bigint, text, integer)": """
        CREATE FUNCTION core_notes(contact bigint, agent text, most integer) RETURNS jsonb
        LANGUAGE plpgsql STABLE AS $$
        BEGIN
          RETURN (
            SELECT jsonb_agg(jsonb_build_object(
                     'id', n.id, 'kind', n.kind, 'text', n.text, 'subject', n.subject,
                     'authority', n.authority, 'importance', n.importance, 'observed_at', n.observed_at,
                     'event_date', n.event_date)
                   ORDER BY n.importance DESC, n.id)
              FROM (SELECT m.* FROM contact_family(contact) AS family(id)
                     CROSS JOIN LATERAL (
                       SELECT o.* FROM notes o
                        WHERE o.contact_id = family.id AND o.scope = agent AND o.superseded_by IS NULL
                          AND o.forgotten_at IS NULL AND o.expired_at IS NULL AND o.authority <> 'tool'
                        ORDER BY o.importance DESC, o.id DESC LIMIT most) m
                     ORDER BY m.importance DESC, m.id DESC LIMIT most) n);
        END $$""",
    # Whether recall can find anything besides notes: hidden turns, knowledge, or another conversation.
    "is_recallable(bigint, bigint, bigint, bigint, bigint)": """
        CREATE FUNCTION is_recallable(
            session bigint, contact bigint, agent bigint, indexed bigint, base bigint
        ) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
        BEGIN
          RETURN indexed > 0 AND least(indexed, base) > (
                   SELECT coalesce(max(l.through_turn), 0) FROM links l
                    WHERE l.session_id = session AND l.active AND l.kind IN ('new', 'separator'))
              OR EXISTS (SELECT FROM knowledge k WHERE k.agent_id = agent)
              -- `+ 0` keeps the way through the person's few sessions: a plan that was made while there were
              -- few of all would walk through each of the agent's in every turn.
              OR EXISTS (SELECT FROM contact_family(contact) AS family(id)
                          CROSS JOIN LATERAL (
                            SELECT FROM sessions o WHERE o.contact_id = family.id AND o.agent_id + 0 = agent
                               AND o.id <> session AND o.indexed_turn > 0 OFFSET 0) k);
        END $$""",
}


def upgrade() -> None:
    for function in FUNCTIONS.values():
        op.execute(function)


def downgrade() -> None:
    for signature in reversed(FUNCTIONS):
        op.execute(f"DROP FUNCTION {signature}")
