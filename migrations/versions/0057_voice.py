"""Recordings are heard: their words stand beside them, and the ledger knows what that cost."""

from __future__ import annotations

from alembic import op

revision = "0057"
down_revision = "0056"
branch_labels = None
depends_on = None

_FORMER = "'chat', 'flush', 'compact', 'repair', 'delegate', 'tidy'"
_READ = "(words IS NULL) = (width IS NOT NULL)"


def upgrade() -> None:
    _change(f"{_FORMER}, 'transcribe'", f"arrived_sha256 IS NULL OR mime LIKE 'audio/%' OR {_READ}")


def downgrade() -> None:
    op.execute("UPDATE usage SET purpose = 'chat' WHERE purpose = 'transcribe'")
    op.execute("DELETE FROM session_spend WHERE purpose = 'transcribe'")
    op.execute("UPDATE attachments SET arrived_sha256 = NULL WHERE mime LIKE 'audio/%'")
    _change(_FORMER, f"arrived_sha256 IS NULL OR {_READ}")


def _change(purposes: str, read: str) -> None:
    for table, name, check in (
        ("usage", "usage_purpose", f"purpose IN ({purposes}, 'playground')"),
        ("session_spend", "spend_purpose", f"purpose IN ({purposes})"),
        ("attachments", "attachment_is_seen_or_read", read),
    ):
        op.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
        op.execute(f"ALTER TABLE {table} ADD CONSTRAINT {name} CHECK ({check}) NOT VALID")
        op.execute(f"ALTER TABLE {table} VALIDATE CONSTRAINT {name}")
