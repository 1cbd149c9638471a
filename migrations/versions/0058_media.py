"""Pictures are made and answers are spoken: the ledger knows what that costs."""

from __future__ import annotations

from alembic import op

revision = "0058"
down_revision = "0057"
branch_labels = None
depends_on = None

_FORMER = "'chat', 'flush', 'compact', 'repair', 'delegate', 'tidy', 'transcribe'"
_NEW = ("picture", "speech")


def upgrade() -> None:
    _change(f"{_FORMER}, {', '.join(map(repr, _NEW))}")


def downgrade() -> None:
    for purpose in _NEW:
        op.execute(f"UPDATE usage SET purpose = 'chat' WHERE purpose = '{purpose}'")
        op.execute(f"DELETE FROM session_spend WHERE purpose = '{purpose}'")
    _change(_FORMER)


def _change(purposes: str) -> None:
    for table, name, check in (
        ("usage", "usage_purpose", f"purpose IN ({purposes}, 'playground')"),
        ("session_spend", "spend_purpose", f"purpose IN ({purposes})"),
    ):
        op.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
        op.execute(f"ALTER TABLE {table} ADD CONSTRAINT {name} CHECK ({check}) NOT VALID")
        op.execute(f"ALTER TABLE {table} VALIDATE CONSTRAINT {name}")
