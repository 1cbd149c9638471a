"""Client of the fake Telegram for tests: bots, people, groups, faults and records, over the control port."""

from __future__ import annotations

from typing import Any

import aiohttp

from tests.kit.fakes.bot_api.person import Group, Person
from tests.kit.fakes.bot_api.shapes import Json

TOKEN = "700001:FAKE-token-of-the-first-bot_0123456789"
USERNAME = "evertalk_test_bot"
CONTROL_SECONDS = 60.0


class Refused(ValueError):
    """Raised if the fake cannot do something, such as for an unknown person, message or button."""


class BotApi:
    """Client of a running fake; subclasses start it."""

    def __init__(self) -> None:
        self.port = 0
        self.control_port = 0
        self._session: aiohttp.ClientSession | None = None

    @property
    def base_url(self) -> str:
        """URL for `TelegramAPIServer.from_base`."""
        return f"http://127.0.0.1:{self.port}"

    # -- bots, people, groups -------------------------------------------------------------------------

    async def add_bot(
        self,
        token: str,
        *,
        username: str,
        topics: bool = False,
        privacy: bool = True,
        name: str | None = None,
    ) -> int:
        """Add a bot; return its id, which is the number in its token."""
        wish: Json = {"token": token, "username": username, "topics": topics, "privacy": privacy}
        if name is not None:
            wish["name"] = name
        return int((await self.act("add_bot", wish))["bot"])

    async def change_bot(self, *, bot: int | None = None, **changes: bool) -> None:
        """Change a bot: `topics`, `privacy`, or `revoked`, which refuses its token with 401."""
        await self.act("change_bot", {"bot": bot, **changes})

    async def person(self, number: int = 42, *, bot: int | None = None, **told: str) -> Person:
        """Add a person, who talks with `bot`, None for the first bot.

        `told` are names and the language code.
        """
        await self.act("add_person", {"person": number, **told})
        return Person(self, number, bot=bot)

    async def group(
        self,
        title: str,
        owner: Person,
        *,
        members: tuple[Person, ...] = (),
        bots: tuple[int, ...] | None = None,
        kind: str = "supergroup",
        forum: bool = False,
        admin: bool = False,
    ) -> Group:
        """Create a group with the first bot, or with `bots`; `admin` makes them administrators."""
        found = bots if bots is not None else (int((await self.bot())["me"]["id"]),)
        wish = {
            "person": owner.id, "title": title, "kind": kind, "forum": forum, "admin": admin,
            "members": [member.id for member in members], "bots": list(found),
        }  # fmt: skip
        answer = await self.act("create_group", wish)
        return Group(self, int(answer["chat_id"]), owner=owner)

    # -- faults, limits, time -------------------------------------------------------------------------

    async def script(self, rules: list[Json]) -> None:
        """Replace the script of faults; the module `faults` describes the rules."""
        await self.control("script", {"rules": rules})

    async def fail(
        self, method: str | None = None, *, times: int = 1, match: Json | None = None, **action: Any
    ) -> None:
        """Add a rule: `fail("sendMessage", times=2, match={"chat": 42}, status=429, retry_after=5)`."""
        wanted = {**(match or {}), **({"method": method} if method else {})}
        rule = {"match": wanted, "times": times, "action": action}
        await self.control("script", {"rules": [rule], "more": True})

    async def rules(self) -> list[Json]:
        """Return the rules with the numbers of calls that each has seen and changed."""
        found: list[Json] = await self.control("rules")
        return found

    async def refuse_connections(self, seconds: float | None = None) -> None:
        """Refuse connections to the Bot API and cut existing ones, for `seconds` or until
        `accept_connections`.
        """
        await self.control("shut", {"seconds": seconds})

    async def accept_connections(self) -> None:
        await self.control("open")

    async def duplicate_updates(
        self, count: int, *, repeats: int = 1, copies: int = 1, bot: int | None = None
    ) -> None:
        """Send each of the next `count` updates `repeats` times again after it was confirmed.

        A webhook gets `copies` posts of it at the same time.
        """
        wish = {"count": count, "repeats": repeats, "copies": copies, "bot": bot}
        await self.control("duplicate", wish)

    async def reorder_updates(self, count: int, *, bot: int | None = None) -> None:
        """Hold the next `count` updates until all have arrived, then send them in reverse order."""
        await self.control("reorder", {"count": count, "bot": bot})

    async def push_update(self, update: Json, *, bot: int | None = None) -> int:
        """Send any update as it is, for one that no person can cause; return its number."""
        return int((await self.control("push", {"update": update, "bot": bot}))["update_id"])

    async def set_limits(self, *, on: bool = True, burst: int = 3) -> None:
        """Switch Telegram's sending limits on or off; they are off at the start."""
        await self.control("limits", {"on": on, "burst": burst})

    async def advance_clock(self, seconds: float) -> None:
        await self.control("advance", {"seconds": seconds})

    async def set_speed(self, speed: float) -> None:
        """Set the speed of the fake's time, which counts for retries, drafts, typing, limits and long
        polls.
        """
        await self.control("speed", {"speed": speed})

    async def reset(self) -> None:
        """Reset the fake to its state after the start.

        Bots stay, and numbers of updates and calls continue.
        """
        await self.control("reset")

    # -- what happened --------------------------------------------------------------------------------

    async def calls(
        self, method: str | None = None, *, since: int = 0, chat: int | None = None, bot: int | None = None
    ) -> list[Json]:
        """Return all calls in order, with fields such as id, at, method, params, status, outcome and
        fault.
        """
        wish = {"method": method, "since": since, "chat": chat, "bot": bot}
        found: list[Json] = await self.control("calls", wish)
        return found

    async def counts(self) -> dict[str, int]:
        """Return the number of calls by method."""
        found: dict[str, int] = await self.control("counts")
        return found

    async def violations(self) -> list[Json]:
        """Return the calls that no careful bot makes.

        A test ends with `assert not await fake.violations()`.
        """
        found: list[Json] = await self.control("violations")
        return found

    async def forget_calls(self) -> None:
        await self.control("forget")

    async def bot(self, number: int | None = None) -> Json:
        """Return the state of a bot: me, pending, allowed_updates, commands, texts, menu_buttons, webhook,
        posts.
        """
        found: Json = await self.control("bot", {"bot": number})
        return found

    # -- the wire -------------------------------------------------------------------------------------

    async def act(self, name: str, wish: Json) -> Any:
        return await self.control(f"act/{name}", wish)

    async def control(self, what: str, wish: Json | None = None) -> Any:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=CONTROL_SECONDS)
            self._session = aiohttp.ClientSession(timeout=timeout)
        url = f"http://127.0.0.1:{self.control_port}/control/{what}"
        async with self._session.post(url, json=wish or {}) as response:
            found = await response.json()
            if response.status != 200:
                raise Refused(found["error"])
            return found

    async def _hang_up(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()
