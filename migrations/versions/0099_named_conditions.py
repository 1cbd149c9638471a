"""Names for what statements of turns share: traits of a session, committed costs, turns without a holder."""

from __future__ import annotations

from alembic import op

revision = "0099"
down_revision = "0098"
branch_labels = None
depends_on = None

FUNCTIONS = {
    # What requests depend on beyond the session's row. `brought`: a program or a site has said who the
    # anonymous person is, here or at a place joined to it. `nobody_comes`: a person can be asked for from no
    # place of the session, as its sites say. The planner puts the body into the statements that call it.
    "session_traits(bigint, bigint, boolean)": """
        CREATE FUNCTION session_traits(for_session bigint, for_contact bigint, is_anonymous boolean)
        RETURNS TABLE (brought boolean, nobody_comes boolean, no_pictures boolean)
        LANGUAGE sql STABLE ROWS 1 AS $$
          SELECT is_anonymous AND (
                   EXISTS (SELECT FROM addresses o WHERE o.contact_id = for_contact AND o.channel = 'web'
                              AND (o.chat LIKE 'x:%' OR o.chat LIKE 'sub:%'))
                   OR EXISTS (SELECT FROM addresses o WHERE o.session_id = for_session AND o.channel = 'web'
                                 AND (o.chat LIKE 'x:%' OR o.chat LIKE 'sub:%'))),
                 NOT EXISTS (SELECT FROM addresses x
                               LEFT JOIN sites w ON x.channel = 'web' AND w.name = x.account
                              WHERE x.session_id = for_session
                                AND w.config -> 'handover' IS DISTINCT FROM 'false'),
                 NOT EXISTS (SELECT FROM attachments x
                              WHERE x.session_id = for_session AND x.mime LIKE 'image/%') $$""",
    # Cost in the ledger of a reservation's turn, up to the next attempt; 0 without a turn. Helpers are left
    # out, since their calls have separate reservations.
    "committed_micro(reservations)": """
        CREATE FUNCTION committed_micro(r reservations) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
        BEGIN
          RETURN CASE WHEN r.turn_no IS NULL THEN 0 ELSE (
            SELECT coalesce(sum(u.cost_micro), 0) FROM usage u
             WHERE u.session_id = r.session_id AND u.turn_no = r.turn_no AND u.purpose = 'chat'
               AND u.at >= r.created_at
               AND u.at < coalesce((SELECT min(n.created_at) FROM reservations n
                                     WHERE n.id > r.id AND n.session_id = r.session_id
                                       AND n.turn_no = r.turn_no), 'infinity')) END;
        END $$""",
}
# Leased for a while to a process that lives and did not name the session with its last beat.
VIEW = """
CREATE VIEW turns_unknown_to_their_holder AS
SELECT t.session_id, t.turn_no, s.leased_by
  FROM turns t JOIN sessions s ON s.id = t.session_id AND s.answered_turn = t.turn_no - 1
  JOIN workers w ON w.id = s.leased_by AND worker_is_alive(w)
 WHERE t.ended_at IS NULL AND coalesce(s.leased_at, t.claimed_at) < w.beat - interval '15 s'
   AND w.health ? 'turns' AND NOT w.health -> 'turns' @> to_jsonb(s.id)
"""


def upgrade() -> None:
    for function in FUNCTIONS.values():
        op.execute(function)
    op.execute(VIEW)


def downgrade() -> None:
    op.execute("DROP VIEW turns_unknown_to_their_holder")
    for signature in reversed(FUNCTIONS):
        op.execute(f"DROP FUNCTION {signature}")
