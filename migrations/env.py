"""Runs migrations on the connection that `shared.adapters.postgres.db.migrate` hands in."""

from __future__ import annotations

from alembic import context


def run() -> None:
    connection = context.config.attributes.get("connection")
    if connection is None:
        raise SystemExit("Migrations are run by `./evertalk up`, or by shared.adapters.postgres.db.migrate.")
    context.configure(connection=connection)
    with context.begin_transaction():
        context.run_migrations()


run()
