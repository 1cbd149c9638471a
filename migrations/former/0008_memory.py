"""Notes that can be changed, put away and erased for good, and the lists that people choose from."""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_LIVE = "superseded_by IS NULL AND forgotten_at IS NULL"

STATEMENTS = (
    """
    ALTER TABLE notes
        ADD COLUMN durability TEXT NOT NULL DEFAULT 'durable',
        ADD COLUMN source_seqs JSONB NOT NULL DEFAULT '[]'::jsonb,
        ADD COLUMN gist INTEGER[] NOT NULL DEFAULT '{}',
        ADD COLUMN call_key TEXT,
        ADD COLUMN superseded_reason TEXT NOT NULL DEFAULT '',
        ADD COLUMN expired_at TIMESTAMP WITH TIME ZONE,
        ADD COLUMN undo_until TIMESTAMP WITH TIME ZONE
    """,
    """
    UPDATE notes SET text = '', subject = '' WHERE forgotten_at IS NOT NULL
    """,
    """
    ALTER TABLE notes
        ADD CONSTRAINT note_durability CHECK (durability IN ('permanent', 'durable', 'ephemeral')),
        ADD CONSTRAINT note_reason CHECK (superseded_reason IN ('', 'changed', 'duplicate')),
        ADD CONSTRAINT note_words_until_forgotten CHECK (
            CASE WHEN forgotten_at IS NULL THEN text <> '' AND undo_until IS NULL
                 WHEN undo_until IS NULL THEN text = '' AND subject = '' AND event_date IS NULL
                 ELSE text <> '' END),
        ADD CONSTRAINT note_is_not_its_own_heir CHECK (superseded_by <> id)
    """,
    """
    CREATE UNIQUE INDEX note_of_call ON notes (call_key) WHERE call_key IS NOT NULL
    """,
    f"""
    CREATE INDEX notes_in_core ON notes (party_id, scope, importance DESC, id DESC)
     WHERE {_LIVE} AND expired_at IS NULL AND authority <> 'tool'
    """,
    """
    CREATE INDEX notes_by_time ON notes (created_at)
    """,
    """
    CREATE INDEX notes_put_away ON notes (undo_until) WHERE undo_until IS NOT NULL
    """,
    """
    CREATE TABLE note_lists (
        session_id BIGINT NOT NULL,
        address_id BIGINT NOT NULL,
        purpose TEXT NOT NULL,
        note_ids BIGINT[] NOT NULL,
        expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
        PRIMARY KEY (session_id, address_id),
        CONSTRAINT note_list_purpose CHECK (purpose IN ('list', 'forget')),
        FOREIGN KEY(session_id) REFERENCES sessions (id)
    )
    """,
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TABLE note_lists")
    for index in ("notes_put_away", "notes_by_time", "notes_in_core", "note_of_call"):
        op.execute(f"DROP INDEX {index}")
    for name in (
        "note_is_not_its_own_heir", "note_words_until_forgotten", "note_reason", "note_durability",
    ):  # fmt: skip
        op.execute(f"ALTER TABLE notes DROP CONSTRAINT {name}")
    for column in (
        "undo_until", "expired_at", "superseded_reason", "call_key", "gist", "source_seqs", "durability",
    ):  # fmt: skip
        op.execute(f"ALTER TABLE notes DROP COLUMN {column}")
