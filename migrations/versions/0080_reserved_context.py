"""Tokens that requests keep free for recalled passages, and how a model counts the kinds of text in them."""

from __future__ import annotations

from alembic import op

revision = "0080"
down_revision = "0079"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """ALTER TABLE sessions ADD COLUMN context_reserved BIGINT NOT NULL DEFAULT 0,
             ADD COLUMN token_scale JSONB NOT NULL DEFAULT '{}',
             ADD CONSTRAINT session_context_reserved CHECK (context_reserved >= 0) NOT VALID,
             ADD CONSTRAINT session_token_scale CHECK (jsonb_typeof(token_scale) = 'object') NOT VALID"""
    )
    op.execute(
        """COMMENT ON COLUMN sessions.token_scale IS
             'How a model counts each kind of text in requests of this session: its name and numbers'"""
    )
    op.execute(
        """COMMENT ON COLUMN sessions.context_reserved IS
             'Tokens kept free for recalled passages; no part of context_tokens or context_limit'"""
    )


def downgrade() -> None:
    op.execute("ALTER TABLE sessions DROP COLUMN context_reserved, DROP COLUMN token_scale")
