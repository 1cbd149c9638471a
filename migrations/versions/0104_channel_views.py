"""Names for what statements of channels share: chats, drafts, notices, and hand-overs with their waits."""

from __future__ import annotations

from alembic import op

revision = "0104"
down_revision = "0103"
branch_labels = None
depends_on = None

FUNCTIONS = {
    # Roles that may write to people and may have a hand-over. The planner puts the body into the statements
    # that call it.
    "may_write(operators)": """
        CREATE FUNCTION may_write(o operators) RETURNS boolean LANGUAGE sql STABLE AS
        $$ SELECT o.role IN ('operator', 'admin') $$""",
    # Time at which a hand-over returns from its snooze: the end of the snooze, or the next waiting message if
    # that comes first; minus infinity without a snooze.
    "awake_at(handovers)": """
        CREATE FUNCTION awake_at(h handovers) RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$
        BEGIN
          RETURN coalesce(least(h.snoozed_until, (
            SELECT min(e.at)
              FROM sessions s JOIN turn_entries te ON te.session_id = s.id AND te.turn_no > s.answered_turn
              JOIN entries e ON e.session_id = te.session_id AND e.seq = te.seq AND e.at > h.snoozed_at
             WHERE s.id = h.session_id)), '-infinity');
        END $$""",
    # Why a hand-over is overdue, else NULL. The limits are minutes; 0 switches hand-overs off. An operator's
    # silence is measured by the oldest waiting message.
    "overdue_for(handovers, double precision, double precision)": """
        CREATE FUNCTION overdue_for(h handovers, waiting double precision, silence double precision)
        RETURNS text LANGUAGE plpgsql STABLE AS $$
        BEGIN
          RETURN CASE
            WHEN h.state = 'waiting'
                 AND greatest(h.asked_at, awake_at(h)) <= now() - make_interval(secs => waiting * 60) THEN
              CASE WHEN waiting > 0 THEN 'unanswered' ELSE 'off' END
            WHEN h.state = 'human' AND waiting <= 0 THEN 'off'
            WHEN h.state = 'human'
                 AND greatest(h.taken_at, awake_at(h)) <= now() - make_interval(secs => silence * 60)
                 AND EXISTS (
                   SELECT FROM sessions s
                     JOIN turns t ON t.session_id = s.id AND t.turn_no = s.answered_turn + 1
                    WHERE s.id = h.session_id AND t.opened_at <= now() - make_interval(secs => silence * 60))
              THEN 'silent' END;
        END $$""",
    # Micro-dollars that open slices of a day have spent; the shared row `total` receives them as they close.
    "spent_of_open_slices(date)": """
        CREATE FUNCTION spent_of_open_slices(of_day date) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
        BEGIN
          RETURN (
            SELECT coalesce(sum(r.settled_micro), 0)::bigint FROM spend_slices s
              JOIN reservations r ON r.slice_id = s.id AND r.id > s.after_reservation
             WHERE s.closed_at IS NULL AND s.day = of_day AND 'total' = ANY (s.scopes));
        END $$""",
}
VIEWS = {
    # Chats of bots and topics in them, each with its session. `due_turn` is the session's oldest unanswered
    # turn, which need not be there.
    "telegram_chats": """
        CREATE VIEW telegram_chats AS
        SELECT a.id AS address_id, a.account, a.chat, a.thread, a.contact_id, a.session_id, s.public_id,
               a.title, a.settings, a.unreachable_since IS NOT NULL AS unreachable,
               a.next_try_at IS NOT NULL AS will_be_tried, coalesce(a.next_try_at <= now(), false) AS is_due,
               s.answered_turn + 1 AS due_turn
          FROM addresses a JOIN sessions s ON s.id = a.session_id
         WHERE a.channel = 'telegram'""",
    # Drafts of answers to customers with the connection that sends them: the enabled one, or else the newest.
    "customer_drafts": """
        CREATE VIEW customer_drafts AS
        SELECT f.draft_id, f.session_id, f.turn_no AS turn, f.bot_id, f.owner_id, f.chat_id, f.state,
               f.is_automatic, f.own_text, f.prompt_id, f.change_id, c.owner_chat_id, c.language,
               p.display_name AS customer, c.can_reply, f.error, f.shown_state, f.next_try_at, f.ended_at
          FROM secretary_drafts f JOIN sessions s ON s.id = f.session_id
          JOIN contacts p ON p.id = s.contact_id
          CROSS JOIN LATERAL (
            SELECT o.owner_chat_id, o.language, o.can_reply FROM secretary_connections o
             WHERE o.bot_id = f.bot_id AND o.owner_id = f.owner_id
             ORDER BY o.is_enabled DESC, o.established_at DESC LIMIT 1) c""",
    # Notices whose time has come, in chats that can be reached. A notice is needed while a part of the answer
    # is uncertain; while another part is under way, its end is awaited.
    "due_uncertain_notices": """
        CREATE VIEW due_uncertain_notices AS
        SELECT n.id, n.session_id, n.turn_no AS turn, n.address_id, n.round, n.tries, n.chat_id, n.message_id,
               n.state, n.due_at, a.channel, a.account, d.is_needed, d.is_under_way
          FROM uncertain_notices n JOIN addresses a ON a.id = n.address_id
          CROSS JOIN LATERAL (
            SELECT coalesce(bool_or(d.state = 'uncertain'), false) AS is_needed,
                   coalesce(bool_or(d.state IN ('queued', 'sending', 'sent')), false) AS is_under_way
              FROM deliveries d WHERE d.session_id = n.session_id AND d.turn_no = n.turn_no) d
         WHERE n.state IN ('due', 'shown') AND n.due_at <= now() AND a.unreachable_since IS NULL""",
    # Hand-overs as the operators' inbox lists them, open and ended ones.
    "listed_handovers": """
        CREATE VIEW listed_handovers AS
        SELECT h.id, h.ended_by, s.public_id AS session, h.state, h.asked_by, h.reason,
               h.operator_name AS operator, p.display_name AS who, p.kind, p.anonymous,
               coalesce((SELECT public_id FROM contacts WHERE id = p.merged_into), p.public_id) AS person_id,
               a.channel, g.name AS agent, h.asked_at, h.taken_at, h.version, h.labels, h.ended_at, h.rating,
               CASE WHEN h.ended_at IS NULL THEN (
                 SELECT t.opened_at FROM turns t
                  WHERE t.session_id = s.id AND t.turn_no = s.answered_turn + 1)
               END AS waits_since,
               CASE WHEN awake_at(h) > now() THEN h.snoozed_until END AS snoozed_until,
               coalesce((
                 SELECT left(string_agg(b ->> 'text', ' '), 120) FROM (
                   SELECT e.blocks FROM entries e
                    WHERE e.session_id = s.id AND e.author = 'person'
                    ORDER BY e.seq DESC LIMIT 1) e, jsonb_array_elements(e.blocks) b
                  WHERE b ->> 'type' = 'text'), '') AS excerpt
          FROM handovers h JOIN sessions s ON s.id = h.session_id JOIN contacts p ON p.id = s.contact_id
          JOIN addresses a ON a.id = h.address_id JOIN agents g ON g.id = s.agent_id""",
}


def upgrade() -> None:
    for statement in (*FUNCTIONS.values(), *VIEWS.values()):
        op.execute(statement)


def downgrade() -> None:
    for view in reversed(VIEWS):
        op.execute(f"DROP VIEW {view}")
    for signature in reversed(FUNCTIONS):
        op.execute(f"DROP FUNCTION {signature}")
