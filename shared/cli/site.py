"""`evertalk site`: where the widget may live, how it looks there, and the secrets that sign its people in."""

from __future__ import annotations

import argparse
import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.adapters.postgres.people.agents import PostgresAgents
from shared.adapters.postgres.people.sites import PostgresSites
from shared.bootstrap.operator_services import build_operator_services
from shared.bootstrap.stores import open_stores
from shared.cli.editor_session import EditorSession, Terminal, format_columns, format_json, quote_name
from shared.config.bots import DEFAULT_AGENT
from shared.config.sites import AUDIENCES, BadSiteConfig, SiteView, build_site_form, check_site
from shared.core.identity.operators import COMMAND_LINE
from shared.services.admin.site_service import (
    BadSiteName,
    OtherProcessKey,
    OtherSealingKey,
    SiteExists,
    SiteService,
    StaleSite,
    TwoSecrets,
    UnknownSiteAgent,
)

_COLUMNS = (14, 14, 8, 8, 8, 20)
_TEXT_FLAGS = (
    "title", "welcome", "accent", "position", "offline-text", "ai-notice", "privacy-url", "launcher-label",
    "verified",
)  # fmt: skip
_SWITCHES = ("webview", "uploads", "handover", "memory-toasts")
_SWITCHED = {"on": True, "off": False, "auto": None}
"""Values of the switches; `auto` removes a setting, so that its default applies."""
_TAKES = "A running Evertalk follows within two seconds."


def read_site_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command's arguments; if they are invalid, print a usage line and exit with status 2."""
    parser = argparse.ArgumentParser(
        prog="evertalk site", description="Create and change sites: the web pages that may show the widget."
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    verbs.add_parser("list", help="list all sites")
    for verb, told in (
        ("show", "print a site's settings as JSON"),
        ("snippet", "print the HTML line that adds the widget to a page"),
        ("add", "create a site"),
        ("edit", "change the given settings; without any, open your editor"),
    ):
        one = verbs.add_parser(verb, help=told)
        one.add_argument("name", metavar="NAME")
        if verb in ("add", "edit"):
            _add_flags(one)
    secret = verbs.add_parser("secret", help="add, list or revoke the secrets that sign visitors in")
    secret.add_argument("name", metavar="NAME")
    secret.add_argument("what", choices=("add", "list", "revoke"))
    secret.add_argument("id", metavar="ID", nargs="?", default="")
    return parser.parse_args(arguments)


def _add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--agent", metavar="AGENT")
    parser.add_argument("--audience", choices=AUDIENCES)
    parser.add_argument(
        "--origin",
        metavar="ORIGIN",
        action="append",
        help="origin of a page, such as https://example.org; repeat for more",
    )
    parser.add_argument(
        "--starter", metavar="TEXT", action="append", help="suggested first message; repeat for up to six"
    )
    for name in _TEXT_FLAGS:
        parser.add_argument(f"--{name}", metavar="TEXT", help="an empty text removes it")
    for name in _SWITCHES:
        parser.add_argument(f"--{name}", choices=tuple(_SWITCHED))


async def run_site(
    wish: argparse.Namespace,
    *,
    database_url: str,
    drafts: Path,
    terminal: Terminal,
    secret_key: Callable[[], bytes],
    public_url: str | None = None,
    key_note: str = "",
) -> int:
    """Run the parsed command; return exit code 0 if it was done, else 1 with the reason on the terminal.

    `secret_key` is called only to add a secret. `public_url` is for the snippet; None gives a placeholder.
    """
    async with open_stores(database_url) as stores:
        editor = SiteEditor(
            service=build_operator_services(stores).sites, sites=stores.sites, agents=stores.agents,
            drafts=EditorSession("site", folder=drafts, terminal=terminal), say=terminal.say,
            secret_key=secret_key, public_url=public_url, key_note=key_note,
        )  # fmt: skip
        return await editor.run(wish)


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteEditor:
    """Verbs of `evertalk site`, which print their results."""

    service: SiteService
    sites: PostgresSites
    agents: PostgresAgents
    drafts: EditorSession
    say: Callable[[str], None]
    secret_key: Callable[[], bytes]
    public_url: str | None
    key_note: str = ""
    """Sentence on the file of the key, printed with a new secret; empty for none."""

    async def run(self, wish: argparse.Namespace) -> int:
        """Run the parsed verb; return exit status 0 if it was done, else 1 after printing why."""
        if wish.verb == "list":
            return await self._list()
        if wish.verb == "add":
            return await self._add(wish)
        site = await self.sites.find(wish.name)
        if site is None:
            self.say(f"There is no site {quote_name(wish.name)}. ./evertalk site list shows all.")
            return 1
        match wish.verb:
            case "show":
                self.say(format_json(build_site_form(site)))
                return 0
            case "snippet":
                return self._snippet(site.name)
            case "secret":
                return await self._secret(site, wish.what, wish.id)
            case _:
                given = _collect_flags(wish)
                return await (
                    self._change(site, {**build_site_form(site), **given}) if given else self._edit(site)
                )

    async def _list(self) -> int:
        rows = [
            (
                site.name, site.agent, site.audience, str(site.config.get("verified", "off")),
                str(site.visitors), " ".join(site.origins) or "–",
            )
            for site in await self.sites.list_all()
        ]  # fmt: skip
        head = ("site", "agent", "audience", "verified", "visitors", "origins")
        for line in format_columns([head, *rows], most=_COLUMNS):
            self.say(line)
        return 0

    async def _add(self, wish: argparse.Namespace) -> int:
        form = {"agent": DEFAULT_AGENT, "audience": "personal", "origins": [], **_collect_flags(wish)}
        try:
            await self.service.add_site(wish.name, form, by=COMMAND_LINE)
        except BadSiteName:
            self.say(
                f"{quote_name(wish.name)} is no name for a site: 1 to 40 of a-z, 0-9, _ and -, no mark first."
            )
            return 1
        except BadSiteConfig as error:
            return await self._report_bad(error)
        except SiteExists:
            self.say("There is a site of that name already. ./evertalk site list shows all.")
            return 1
        return self._snippet(wish.name)

    async def _edit(self, site: SiteView) -> int:
        async def store(whole: Any, _: Sequence[str]) -> int:
            return await self._change(site, whole)

        return await self.drafts.change(
            site.name, site.version, build_site_form(site), check=check_site, store=store
        )

    async def _change(self, site: SiteView, whole: Mapping[str, Any]) -> int:
        try:
            changed = await self.service.change_site(site.name, whole, seen=site.version, by=COMMAND_LINE)
        except BadSiteConfig as error:
            return await self._report_bad(error)
        except StaleSite:
            self.say(f"Somebody else changed {site.name} meanwhile: nothing of yours was stored.")
            return 1
        self.say(f"{site.name} is changed. {_TAKES}")
        if changed.config.get("verified", "off") != "off" and not await self.sites.list_secrets(site.name):
            self.say(f"Nobody can sign in yet: ./evertalk site secret {site.name} add makes a secret.")
        return 0

    async def _report_bad(self, error: BadSiteConfig) -> int:
        if isinstance(error, UnknownSiteAgent):
            names = ", ".join(row.name for row in await self.agents.list_all())
            self.say(f"There is no agent {quote_name(error.agent)}. There are: {names}. Nothing was changed.")
        else:
            self.drafts.report_problems("This cannot be used; nothing was changed:", error)
        return 1

    def _snippet(self, name: str) -> int:
        place = html.escape((self.public_url or "https://YOUR-SERVER").rstrip("/"), quote=True)
        self.say(f'<script src="{place}/widget.js" data-site="{name}" async></script>')
        return 0

    async def _secret(self, site: SiteView, what: str, secret_id: str) -> int:
        name = site.name
        if what == "list":
            for found, at in await self.sites.list_secrets(name):
                self.say(f"{found}  made {at:%Y-%m-%d %H:%M} UTC")
            return 0
        if what == "add":
            return await self._add_secret(site)
        if not await self.service.revoke_secret(name, secret_id, by=COMMAND_LINE):
            self.say(
                f"{name} has no secret {quote_name(secret_id)}; ./evertalk site secret {name} list shows."
            )
            return 1
        self.say(f"{secret_id} is revoked; whoever was signed in has to come with a new signature. {_TAKES}")
        return 0

    async def _add_secret(self, site: SiteView) -> int:
        name = site.name
        try:
            made = await self.service.add_secret(name, self.secret_key(), by=COMMAND_LINE)
        except (OtherProcessKey, OtherSealingKey) as error:
            self.say(error.advice)
            self.say("Run this command with the key that the processes have, or in their data folder.")
            return 1
        except TwoSecrets:
            self.say(f"{name} has two secrets already; revoke one of them first:")
            self.say(f"./evertalk site secret {name} list shows them.")
            return 1
        self.say(made.secret)
        self.say(f"This is secret {made.id} of {name}, shown this once; keep it on your server only.")
        for line in _find_missing(site):
            self.say(line)
        if self.key_note:
            self.say(self.key_note)
        self.say(_TAKES)
        return 0


def _collect_flags(wish: argparse.Namespace) -> dict[str, Any]:
    """Return the flags under the names of settings; None removes a setting."""
    given: dict[str, Any] = {
        name: value for name in ("agent", "audience") if (value := getattr(wish, name)) is not None
    }
    if wish.origin is not None:
        given["origins"] = [one for one in wish.origin if one]
    if wish.starter is not None:
        given["starters"] = [one for one in wish.starter if one] or None
    for flag in _TEXT_FLAGS:
        name = flag.replace("-", "_")
        if (value := getattr(wish, name)) is not None:
            given[name] = value or None
    for flag in _SWITCHES:
        name = flag.replace("-", "_")
        if (value := getattr(wish, name)) is not None:
            given[name] = _SWITCHED[value]
    return given


def _find_missing(site: SiteView) -> Iterator[str]:
    """Yield what else a site needs before its page can sign people in."""
    if site.config.get("verified", "off") == "off":
        yield (
            f"Nobody is signed in yet: ./evertalk site edit {site.name} --verified optional (or required) "
            "turns it on."
        )
    if not site.origins:
        yield f"No page may use it yet: ./evertalk site edit {site.name} --origin https://YOUR-PAGE"
