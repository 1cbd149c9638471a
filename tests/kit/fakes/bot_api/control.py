"""Control interface beside the Bot API: act as a person, read screens, set faults and time, read records."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
from typing import Any

from aiohttp import web

from tests.kit.fakes.bot_api.business import look_at_business
from tests.kit.fakes.bot_api.calls import Journal, Record
from tests.kit.fakes.bot_api.chats import Chat
from tests.kit.fakes.bot_api.door import Door
from tests.kit.fakes.bot_api.groups import act
from tests.kit.fakes.bot_api.guests import look_at_guest
from tests.kit.fakes.bot_api.inline import look_at_inline
from tests.kit.fakes.bot_api.screens import screen, views
from tests.kit.fakes.bot_api.shapes import Json
from tests.kit.fakes.bot_api.world import NoSuchThing, World
from tests.kit.fakes.script import BadScript, Script

MAX_BODY_BYTES = 64 * 1024 * 1024


class Control:
    def __init__(self, world: World, journal: Journal, script: Script[Record], door: Door) -> None:
        self._world = world
        self._journal = journal
        self._script = script
        self._door = door

    def application(self) -> web.Application:
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_post("/control/act/{name}", self._act)
        app.router.add_post("/control/{what}", self._post)
        return app

    async def _act(self, request: web.Request) -> web.StreamResponse:
        wish = json.loads(await request.read() or b"{}")
        try:
            found = act(self._world, request.match_info["name"], wish)
            return web.json_response(await found if inspect.isawaitable(found) else found)
        except (NoSuchThing, KeyError, TypeError, ValueError) as error:
            return _refused(error)

    async def _post(self, request: web.Request) -> web.StreamResponse:
        wish = json.loads(await request.read() or b"{}")
        what = request.match_info["what"]
        try:
            return web.json_response(await self._answer(what, wish))
        except (BadScript, NoSuchThing, KeyError, TypeError, ValueError) as error:
            return _refused(error)

    async def _answer(self, what: str, wish: Json) -> Any:
        match what:
            case "screen":
                return await self._screen(wish)
            case "views":
                chat = self._chat(wish)
                return views(self._world, chat, since=wish.get("since", 0), message_id=wish.get("message_id"))
            case "inline":
                return look_at_inline(self._world, wish)
            case "guest":
                return look_at_guest(self._world, wish)
            case "business":
                return look_at_business(self._world, wish)
            case "calls":
                return self._journal.calls(**wish)
            case "counts":
                return self._journal.counts()
            case "violations":
                return self._journal.violations()
            case "rules":
                return [rule.as_json() for rule in self._script.rules]
            case "bot":
                return self._bot(wish)
        return await self._changed(what, wish)

    async def _changed(self, what: str, wish: Json) -> Json:
        match what:
            case "script":
                (self._script.extend if wish.get("more") else self._script.set)(wish["rules"])
            case "advance":
                self._world.clock.advance(float(wish["seconds"]))
            case "speed":
                self._world.clock.set_speed(float(wish["speed"]))
            case "limits":
                self._world.limiter.switch(on=wish["on"], burst=wish.get("burst", 3))
            case "shut":
                await self._door.shut(wish.get("seconds"))
            case "open":
                await self._door.open()
            case "duplicate" | "reorder" | "push":
                return self._odd(what, wish)
            case "forget":
                self._journal.reset()
            case "reset":
                await self._reset()
            case _:
                raise NoSuchThing(f"no such control: {what}")
        return {"ok": True}

    def _odd(self, what: str, wish: Json) -> Json:
        inbox = self._world.bot(wish.get("bot")).inbox
        match what:
            case "duplicate":
                inbox.duplicate(wish["count"], repeats=wish.get("repeats", 1), copies=wish.get("copies", 1))
            case "reorder":
                inbox.reorder(wish["count"])
            case _:
                return {"update_id": inbox.put_raw(wish["update"])}
        return {"ok": True}

    async def _screen(self, wish: Json) -> Json:
        """Return a screen; with `after` and `wait`, as soon as it has changed since that version."""
        chat = self._chat(wish)
        if chat.version <= wish.get("after", -1):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(chat.changed.wait(), wish.get("wait", 0))
        return screen(self._world, chat)

    def _bot(self, wish: Json) -> Json:
        bot = self._world.bot(wish.get("bot"))
        commands = [{"scope": json.loads(key), "commands": value} for key, value in bot.commands.items()]
        return {
            "me": bot.me(),
            "pending": len(bot.inbox),
            "allowed_updates": bot.inbox.allowed,
            "commands": commands,
            "texts": bot.texts,
            "menu_buttons": bot.menu_buttons,
            "webhook": bot.webhook.info() if bot.webhook else None,
            "posts": {str(status): count for status, count in bot.webhook.posts.items()}
            if bot.webhook
            else {},
        }

    def _chat(self, wish: Json) -> Chat:
        bot = self._world.bot(wish.get("bot"))
        number = wish["chat"]
        if number in self._world.people:
            return self._world.private(bot, self._world.people[number])
        return self._world.chat(bot, number)

    async def _reset(self) -> None:
        """Create a new world with the same bots.

        Numbers of updates continue, so that new ones are not taken for old.
        """
        await self._door.open()
        self._script.set([])
        self._journal.reset()
        await self._world.renew()


def _refused(error: Exception) -> web.Response:
    words = f"{type(error).__name__}: {error}" if isinstance(error, KeyError) else str(error)
    return web.json_response({"error": words}, status=400)
