"""`evertalk database`: tasks of an administrator with a separate PostgreSQL."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from shared.adapters.postgres.operations.roles import PREFIX, render_roles_sql
from shared.core.values.errors import BadInput


def read_database_arguments(rest: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments; if they are invalid, print a usage line and exit with status 2."""
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
    """Print SQL that creates the database roles; return exit status 0, or 2 for an invalid prefix.

    SQL goes to `say`, the reason of a failure to `tell`.
    """
    try:
        say(render_roles_sql(wish.prefix))
    except BadInput as error:
        tell(error.advice)
        return 2
    return 0
