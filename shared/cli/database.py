"""`evertalk database`: tasks of an administrator with a separate PostgreSQL."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from shared.adapters.postgres.operations.roles import PREFIX, render_roles_sql
from shared.core.values.errors import BadInput


def read_database_arguments(rest: Sequence[str]) -> argparse.Namespace:
    """Ends the program with 2 and a usage line when they cannot be used."""
    parser = argparse.ArgumentParser(
        prog="evertalk database", description="Prepare your own PostgreSQL server."
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    roles = verbs.add_parser(
        "roles", help="print SQL for psql that creates roles with minimal rights; safe to repeat"
    )
    roles.add_argument("--prefix", default=PREFIX, help=f"prefix of the role names; default: {PREFIX}")
    return parser.parse_args(rest)


def run_database(wish: argparse.Namespace, *, say: Callable[[str], None], tell: Callable[[str], None]) -> int:
    """SQL alone goes to `say`, words about it to `tell`."""
    try:
        say(render_roles_sql(wish.prefix))
    except BadInput as error:
        tell(error.advice)
        return 2
    return 0
