"""The schema that the history begins with: 0044_first.sql beside this file."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from alembic import op
from sqlalchemy import AdaptedConnection

revision = "0044"
down_revision = None
branch_labels = None
depends_on = None

SCHEMA = Path(__file__).with_suffix(".sql")


def upgrade() -> None:
    schema = SCHEMA.read_text()
    # Only the driver itself runs many statements at once: SQLAlchemy prepares one after the other.
    connection = cast("AdaptedConnection", op.get_bind().connection.dbapi_connection)
    connection.run_async(lambda driver: driver.execute(schema))


def downgrade() -> None:
    raise NotImplementedError("there is nothing before the first schema")
