"""Forks: which conversation began as a copy of the beginning of another."""

from __future__ import annotations

from alembic import op

revision = "0093"
down_revision = "0092"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """CREATE TABLE forks (
             -- A conversation that began as a copy of the first turns of another of its person.
             session_id BIGINT NOT NULL,
             from_session_id BIGINT NOT NULL,
             -- The message at which the person forked, in the other conversation.
             from_seq BIGINT NOT NULL,
             -- The last turn that was copied, 0 if none; turns keep their numbers.
             through_turn BIGINT NOT NULL,
             -- Ranges of the copied entries, such as [[1, 40], [44, 44]]; their copies are numbered from 1.
             seqs JSONB NOT NULL,
             -- Hash of the client's own id of this fork, by which it is made once.
             key_hash BYTEA NOT NULL,
             created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
             PRIMARY KEY (session_id),
             CONSTRAINT fork_session FOREIGN KEY (session_id) REFERENCES sessions (id),
             CONSTRAINT fork_source FOREIGN KEY (from_session_id) REFERENCES sessions (id),
             CONSTRAINT fork_is_another CHECK (session_id <> from_session_id),
             CONSTRAINT fork_numbers CHECK (from_seq > 0 AND through_turn >= 0),
             CONSTRAINT fork_ranges CHECK (jsonb_typeof(seqs) = 'array'))"""
    )
    op.execute("CREATE UNIQUE INDEX fork_is_made_once ON forks (from_session_id, key_hash)")


def downgrade() -> None:
    op.execute("DROP TABLE forks")
