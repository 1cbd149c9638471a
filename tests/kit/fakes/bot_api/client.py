"""What tests hold in their hands: the fake Telegram, its people and its groups, over the control port."""

from __future__ import annotations

from typing import Any

import aiohttp

from tests.kit.fakes.bot_api.person import Group, Person
from tests.kit.fakes.bot_api.shapes import Json

TOKEN = "700001:FAKE-token-of-the-first-bot_0123456789"
USERNAME = "evertalk_test_bot"
CONTROL_SECONDS = 60.0


class Refused(ValueError):
    """The fake cannot do that: no such person, message, button …"""


class BotApi:
    """Everything a test can ask of a running fake; how it was started is the subclass's."""

    def __init__(self) -> None:
        self.port = 0
        self.control_port = 0
        self._session: aiohttp.ClientSession | None = None

    @property
    def base_url(self) -> str:
        """For `TelegramAPIServer.from_base`."""
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
        """The id, which is the token's number."""
        wish: Json = {"token": token, "username": username, "topics": topics, "privacy": privacy}
        if name is not None:
            wish["name"] = name
        return int((await self.act("add_bot", wish))["bot"])

    async def change_bot(self, *, bot: int | None = None, **changes: bool) -> None:
        """`topics`, `privacy`, `revoked` (its token is refused with 401)."""
        await self.act("change_bot", {"bot": bot, **changes})

    async def person(self, number: int = 42, *, bot: int | None = None, **told: str) -> Person:
        """`told`: first_name, last_name, username, language_code. They talk to `bot`, else to the first."""
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
        """With the first bot in it unless said otherwise; `admin`: the bots are administrators."""
        found = bots if bots is not None else (int((await self.bot())["me"]["id"]),)
        wish = {
            "person": owner.id, "title": title, "kind": kind, "forum": forum, "admin": admin,
            "members": [member.id for member in members], "bots": list(found),
        }  # fmt: skip
        answer = await self.act("create_group", wish)
        return Group(self, int(answer["chat_id"]), owner=owner)

    # -- faults, limits, time -------------------------------------------------------------------------

    async def script(self, rules: list[Json]) -> None:
        """Replaces the script; see `faults` for what a rule can say."""
        await self.control("script", {"rules": rules})

    async def fail(
        self, method: str | None = None, *, times: int = 1, match: Json | None = None, **action: Any
    ) -> None:
        """One more rule: `fail("sendMessage", times=2, match={"chat": 42}, status=429, retry_after=5)`."""
        wanted = {**(match or {}), **({"method": method} if method else {})}
        rule = {"match": wanted, "times": times, "action": action}
        await self.control("script", {"rules": [rule], "more": True})

    async def rules(self) -> list[Json]:
        """The script with how often each rule was seen and used."""
        found: list[Json] = await self.control("rules")
        return found

    async def refuse_connections(self, seconds: float | None = None) -> None:
        """Nobody can connect to the Bot API, and who is connected is cut off; the controls stay."""
        await self.control("shut", {"seconds": seconds})

    async def accept_connections(self) -> None:
        await self.control("open")

    async def duplicate_updates(
        self, count: int, *, repeats: int = 1, copies: int = 1, bot: int | None = None
    ) -> None:
        """Each of the next `count` updates comes `repeats` times again after it was confirmed, and `copies`
        posts of it reach a webhook at the same time.
        """
        wish = {"count": count, "repeats": repeats, "copies": copies, "bot": bot}
        await self.control("duplicate", wish)

    async def reorder_updates(self, count: int, *, bot: int | None = None) -> None:
        """The next `count` updates are held until all are there and then come in reverse."""
        await self.control("reorder", {"count": count, "bot": bot})

    async def push_update(self, update: Json, *, bot: int | None = None) -> int:
        """Any update as it is, for what no person could send; its number."""
        return int((await self.control("push", {"update": update, "bot": bot}))["update_id"])

    async def set_limits(self, *, on: bool = True, burst: int = 3) -> None:
        """Telegram's sending limits, off at the start."""
        await self.control("limits", {"on": on, "burst": burst})

    async def advance_clock(self, seconds: float) -> None:
        await self.control("advance", {"seconds": seconds})

    async def set_speed(self, speed: float) -> None:
        """How fast the fake's time passes: for retries, drafts, typing, limits, long polls."""
        await self.control("speed", {"speed": speed})

    async def reset(self) -> None:
        """As after the start, but that bots stay and that update ids and call numbers go on."""
        await self.control("reset")

    # -- what happened --------------------------------------------------------------------------------

    async def calls(
        self, method: str | None = None, *, since: int = 0, chat: int | None = None, bot: int | None = None
    ) -> list[Json]:
        """Every call in order: id, at, method, params, files, status, outcome, processed, fault …"""
        wish = {"method": method, "since": since, "chat": chat, "bot": bot}
        found: list[Json] = await self.control("calls", wish)
        return found

    async def counts(self) -> dict[str, int]:
        """How often each method was called."""
        found: dict[str, int] = await self.control("counts")
        return found

    async def violations(self) -> list[Json]:
        """Calls that no careful bot makes; a test ends with `assert not await fake.violations()`."""
        found: list[Json] = await self.control("violations")
        return found

    async def forget_calls(self) -> None:
        await self.control("forget")

    async def bot(self, number: int | None = None) -> Json:
        """me, pending, allowed_updates, commands, texts, menu_buttons, webhook, posts (status → count)."""
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
