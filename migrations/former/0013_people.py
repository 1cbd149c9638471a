"""One person on two channels: who was joined with whom, and how to part them again."""

from __future__ import annotations

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    ALTER TABLE sessions ADD COLUMN open_address BIGINT,
        ADD COLUMN archived_at TIMESTAMP WITH TIME ZONE,
        ADD COLUMN left_by BIGINT[]
    """,
    """
    ALTER TABLE one_time_codes ADD COLUMN address_id BIGINT,
        ADD FOREIGN KEY (address_id) REFERENCES addresses (id)
    """,
    """
    CREATE INDEX link_codes_of_party ON one_time_codes (party_id, created_at) WHERE purpose = 'link'
    """,
    """
    CREATE INDEX addresses_by_session ON addresses (session_id)
    """,
    """
    CREATE TABLE party_links (
        id BIGSERIAL NOT NULL,
        kept_party_id BIGINT NOT NULL,
        joined_party_id BIGINT NOT NULL,
        kept_session_id BIGINT NOT NULL,
        archived_session_id BIGINT NOT NULL,
        day DATE NOT NULL,
        carried_micro BIGINT DEFAULT 0 NOT NULL,
        linked_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
        unlinked_at TIMESTAMP WITH TIME ZONE,
        PRIMARY KEY (id),
        CONSTRAINT party_link_joins_two CHECK (kept_party_id <> joined_party_id
            AND kept_session_id <> archived_session_id),
        FOREIGN KEY(kept_party_id) REFERENCES parties (id),
        FOREIGN KEY(joined_party_id) REFERENCES parties (id),
        FOREIGN KEY(kept_session_id) REFERENCES sessions (id),
        FOREIGN KEY(archived_session_id) REFERENCES sessions (id)
    )
    """,
    """
    CREATE UNIQUE INDEX party_is_joined_once ON party_links (joined_party_id) WHERE unlinked_at IS NULL
    """,
    """
    CREATE UNIQUE INDEX session_is_archived_once ON party_links (archived_session_id)
        WHERE unlinked_at IS NULL
    """,
    """
    CREATE INDEX party_links_of_kept ON party_links (kept_party_id)
    """,
    """
    ALTER TABLE notes ADD COLUMN party_link_id BIGINT,
        ADD FOREIGN KEY (party_link_id) REFERENCES party_links (id)
    """,
    """
    CREATE INDEX notes_of_party_link ON notes (party_link_id) WHERE party_link_id IS NOT NULL
    """,
    """
    CREATE TABLE link_guesses (
        id BIGSERIAL NOT NULL,
        party_id BIGINT NOT NULL,
        session_id BIGINT NOT NULL,
        at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
        PRIMARY KEY (id),
        FOREIGN KEY(party_id) REFERENCES parties (id),
        FOREIGN KEY(session_id) REFERENCES sessions (id)
    )
    """,
    """
    CREATE INDEX link_guesses_by_time ON link_guesses (at)
    """,
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TABLE link_guesses")
    op.execute("ALTER TABLE notes DROP COLUMN party_link_id")
    op.execute("DROP TABLE party_links")
    op.execute("DROP INDEX addresses_by_session")
    op.execute("ALTER TABLE one_time_codes DROP COLUMN address_id")
    for column in ("open_address", "archived_at", "left_by"):
        op.execute(f"ALTER TABLE sessions DROP COLUMN {column}")
