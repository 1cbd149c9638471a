"""What Telegram shows of each bot: menus and descriptions as they were last set."""

from __future__ import annotations

from alembic import op

revision = "0078"
down_revision = "0077"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """ALTER TABLE telegram_bots ADD COLUMN profile JSONB DEFAULT '{}'::jsonb NOT NULL,
             ADD CONSTRAINT telegram_bot_profile CHECK (jsonb_typeof(profile) = 'object')"""
    )
    op.execute(
        """COMMENT ON COLUMN telegram_bots.profile IS
             'Digests of the menus and descriptions that Telegram shows, by method, scope and language'"""
    )


def downgrade() -> None:
    op.execute("ALTER TABLE telegram_bots DROP COLUMN profile")
