"""`evertalk operator`: who may use the dashboard, seen and changed at a terminal."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from shared.adapters.postgres.db.pool import Pool, open_pool
from shared.adapters.postgres.people.operator_admin import OperatorAdmin
from shared.adapters.postgres.people.operator_auth import Operators, WeakPassword
from shared.adapters.postgres.people.second_factors import reset_factor
from shared.bootstrap.dashboard_stores import build_operators
from shared.bootstrap.stores import build_stores
from shared.cli.key import Say
from shared.config.settings import Settings
from shared.core.identity.operators import COMMAND_LINE, INVITATION_HOURS, ROLES
from shared.core.values.errors import EvertalkError


def build_login_url(settings: Settings, token: str) -> str:
    """Return the address of the dashboard at which a login token is used once."""
    return f"{settings.base_url}/dashboard/login?token={token}"


def read_operator_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments; if they are invalid, print a usage line and exit with status 2."""
    parser = argparse.ArgumentParser(
        prog="evertalk operator", description="Manage the operators of the dashboard."
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    add = verbs.add_parser("add", help="create an operator and print a one-time login link")
    add.add_argument("name", metavar="NAME")
    add.add_argument("--role", choices=ROLES, default="operator", help="default: operator")
    password = verbs.add_parser("passwd", help="set an operator's password and end all of their logins")
    password.add_argument("name", metavar="NAME")
    verbs.add_parser("list", help="list operators with their number of open logins")
    revoke = verbs.add_parser("revoke", help="remove an operator and end all of their logins")
    revoke.add_argument("name", metavar="NAME")
    totp = verbs.add_parser("totp", help="manage an operator's second factor")
    totp.add_argument(
        "what", choices=("reset",), help="remove the second factor; the password alone logs in again"
    )
    totp.add_argument("name", metavar="NAME")
    return parser.parse_args(arguments)


async def run_operator(
    wish: argparse.Namespace,
    *,
    database_url: str,
    say: Say,
    tell: Say,
    ask: Callable[[], str],
    url: Callable[[str], str],
) -> int:
    """Run `evertalk operator`; return exit status 0, or 1 after a line with the reason.

    A login link and the list go to `say`, all else to `tell`. `ask` reads a password, `url` returns the login
    address for a token. Changes are in the audit log.
    """
    pool = await open_pool(database_url, size=2)
    admin = build_stores(pool).operator_admin
    try:
        match wish.verb:
            case "add":
                invited = await admin.invite(wish.name, wish.role, by=COMMAND_LINE)
                tell(
                    f"{invited.name} is in as {wish.role}. This link logs them in once, within "
                    f"{INVITATION_HOURS} hours:"
                )
                say(url(invited.token))
            case "passwd":
                return await _password(admin, build_operators(pool), wish.name, tell=tell, ask=ask)
            case "list":
                operators = await admin.list_all()
                if not operators:
                    say("There are no operators. ./evertalk operator add NAME --role admin lets somebody in.")
                for operator in operators:
                    say("  ".join(_cells(operator)))
            case "totp":
                return await _reset(pool, admin, wish.name, tell=tell)
            case _:
                await admin.change(await admin.find_by_name(wish.name), by=COMMAND_LINE, locked=True)
                tell(
                    f"{wish.name} is locked out, and all their logins have ended. The page Operators unlocks."
                )
        return 0
    except EvertalkError as error:
        tell(error.advice)
        return 1
    finally:
        await pool.close()


async def _password(
    admin: OperatorAdmin, operators: Operators, name: str, *, tell: Say, ask: Callable[[], str]
) -> int:
    try:
        operator = await admin.find_password_user(await admin.find_by_name(name))
        await operators.set_password(operator, ask(), by=COMMAND_LINE)
    except WeakPassword as error:
        tell(str(error))
        return 1
    finally:
        await operators.close()
    tell(f"The password of {name} is set. Their logins have ended.")
    return 0


async def _reset(pool: Pool, admin: OperatorAdmin, name: str, *, tell: Say) -> int:
    operator = await admin.find_password_user(await admin.find_by_name(name))
    if not await reset_factor(pool, operator, by=COMMAND_LINE):
        tell(f"{name} has no second factor; nothing was changed.")
        return 1
    tell(f"The second factor of {name} is gone. Their password opens alone, until they set up another.")
    return 0


def _cells(operator: dict[str, Any]) -> list[str]:
    at = operator["last_login_at"]
    state = "locked" if operator["locked"] else f"{len(operator['logins'])} open"
    kind = ["identity provider"] if operator["by_provider"] else []
    kind += ["second factor"] if operator["has_second_factor"] else []
    return [operator["name"], operator["role"], *kind, state, f"last login {at[:10]}" if at else "never in"]
