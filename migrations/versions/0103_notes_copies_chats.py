"""Functions for what statements share: the state of a note, ranges of copied entries, chats of a person."""

from __future__ import annotations

from alembic import op

revision = "0103"
down_revision = "0100"
branch_labels = None
depends_on = None

# The planner puts their bodies into the statements that call them.
FUNCTIONS = {
    "note_state(notes)": """
        CREATE FUNCTION note_state(n notes) RETURNS text LANGUAGE sql STABLE AS $$
          SELECT CASE WHEN n.forgotten_at IS NULL AND n.superseded_by IS NULL THEN 'kept'
                      WHEN n.forgotten_at IS NULL THEN 'replaced'
                      WHEN n.undo_until IS NOT NULL THEN 'put_away' ELSE 'erased' END $$""",
    # `ranges` is `CopiedEntries.to_shifts`: the number of a copy is that of the original minus `shift`.
    "copied_ranges(jsonb)": """
        CREATE FUNCTION copied_ranges(ranges jsonb) RETURNS TABLE (first bigint, last bigint, shift bigint)
        LANGUAGE sql STABLE ROWS 100 AS $$
          SELECT m.first, m.last, m.shift
            FROM jsonb_to_recordset(ranges) AS m(first bigint, last bigint, shift bigint) $$""",
    # Telegram chats of these contacts. The id of a guest's chat comes with its caller, and that of a
    # customer's chat with the owner of the business account: other chats of the bot may have the same id.
    "telegram_chats_of(bigint[])": """
        CREATE FUNCTION telegram_chats_of(contacts bigint[])
        RETURNS TABLE (bot_id bigint, chat_id text, caller_id text, owner_id text)
        LANGUAGE sql STABLE AS $$
          SELECT a.account::bigint,
                 split_part(a.chat, ':', CASE a.channel WHEN 'telegram_business' THEN 2 ELSE 1 END),
                 CASE WHEN a.channel = 'telegram_guest' THEN split_part(a.chat, ':', 2) END,
                 CASE WHEN a.channel = 'telegram_business' THEN split_part(a.chat, ':', 1) END
            FROM addresses a
           WHERE a.contact_id = ANY (contacts)
             AND a.channel IN ('telegram', 'telegram_guest', 'telegram_business') $$""",
}


def upgrade() -> None:
    for function in FUNCTIONS.values():
        op.execute(function)


def downgrade() -> None:
    for signature in reversed(FUNCTIONS):
        op.execute(f"DROP FUNCTION {signature}")
