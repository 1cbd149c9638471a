"""`evertalk key`: keys for programs that talk over REST, made, listed and revoked at a terminal."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from shared.adapters.postgres.people.api_keys import ApiKey
from shared.bootstrap.operator_services import build_operator_services
from shared.bootstrap.stores import open_stores
from shared.core.identity.api_keys import SCOPES, BadKey, UnknownLimit
from shared.core.identity.operators import COMMAND_LINE
from shared.services.admin.key_service import ApiKeyExists, ApiKeyNotFound, ApiKeyService

Say = Callable[[str], None]


def read_key_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments; if they are invalid, print a usage line and exit with status 2."""
    scopes = "\n".join(f"  {scope:<16} {told}" for scope, told in SCOPES.items())
    parser = argparse.ArgumentParser(
        prog="evertalk key",
        description="Manage API keys for programs that use the REST API.",
        epilog=f"scopes:\n{scopes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    create = verbs.add_parser("create", help="create a key; it is shown only once")
    create.add_argument("name", metavar="NAME")
    create.add_argument(
        "--scope",
        action="append",
        metavar="SCOPE",
        required=True,
        help="permission of the key; repeat for more",
    )
    create.add_argument(
        "--expires", type=int, metavar="DAYS", help="days until the key expires; default: never"
    )
    create.add_argument("--site", metavar="SITE", help="limit the key to visitors of this site")
    create.add_argument("--agent", metavar="AGENT", help="limit the key to conversations with this agent")
    verbs.add_parser("list", help="list keys without their secrets")
    revoke = verbs.add_parser("revoke", help="revoke a key at once")
    revoke.add_argument("name", metavar="NAME", help="name of the key, or its prefix as listed")
    return parser.parse_args(arguments)


async def run_key(wish: argparse.Namespace, *, database_url: str, say: Say, tell: Say) -> int:
    """Run `evertalk key`; return exit status 0, or 1 if the key is unknown or cannot be created.

    The token of a new key and the list go to `say`, all else to `tell`.
    """
    async with open_stores(database_url) as stores:
        keys = build_operator_services(stores).keys
        match wish.verb:
            case "create":
                return await _create(keys, wish, say=say, tell=tell)
            case "list":
                listed = await stores.api_key_admin.list_all()
                if not listed:
                    say("There are no keys. ./evertalk key create NAME --scope SCOPE makes one.")
                for key in listed:
                    say("  ".join(_cells(key)))
                return 0
        try:
            await keys.revoke_key(wish.name, by=COMMAND_LINE)
        except ApiKeyNotFound:
            tell(f"No living key is called {wish.name}; ./evertalk key list shows all.")
            return 1
        tell(f"{wish.name} is revoked.")
        return 0


async def _create(
    keys: ApiKeyService,
    wish: argparse.Namespace,
    *,
    say: Say,
    tell: Say,
) -> int:
    try:
        token = await keys.create_key(
            wish.name, wish.scope, days=wish.expires, site=wish.site, agent=wish.agent, by=COMMAND_LINE
        )
    except (BadKey, UnknownLimit) as error:
        tell(error.advice if isinstance(error, BadKey) else str(error))
        return 1
    except ApiKeyExists:
        tell(f"There is a key {wish.name} already. Revoke it first, or choose another name.")
        return 1
    tell("This is the key. Keep it now: it is shown this once, and only its hash is stored.")
    say(token)
    return 0


def _cells(key: ApiKey) -> list[str]:
    limits = [f"site {key.site}"] if key.site else []
    limits += [f"agent {key.agent}"] if key.agent else []
    used = f"used {key.last_used_at:%Y-%m-%d %H}h" if key.last_used_at else "never used"
    end = f"until {key.expires_at:%Y-%m-%d}" if key.expires_at else "for good"
    state = f"revoked {key.revoked_at:%Y-%m-%d}" if key.revoked_at else end
    return [f"{key.prefix}…", key.name, ",".join(key.scopes), *limits, state, used]
