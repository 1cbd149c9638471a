"""Person with a telephone, and the groups they are in."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from tests.kit.fakes.bot_api.shapes import Json
from tests.kit.fakes.bot_api.sight import Screen

WAIT_SECONDS = 60.0
GLANCE_SECONDS = 5.0


class Controls(Protocol):
    async def act(self, name: str, wish: Json) -> Any: ...

    async def control(self, what: str, wish: Json | None = None) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """Message that a person sent, and the number of its update for each bot that got it."""

    message_id: int
    chat_id: int
    updates: dict[int, int | None]


class NotSeen(AssertionError):
    """Raised if an expected change did not come; the message contains the screen."""


class Person:
    """Person; `bot` is the bot in their private chat, None for the first.

    Acts take a group as `chat`, a topic as `thread`.
    """

    def __init__(self, api: Controls, number: int, *, bot: int | None) -> None:
        self._api = api
        self.id = number
        self.bot = bot

    async def say(self, text: str, **where: Any) -> Sent:
        """Send a message.

        `where` of all acts can have chat, thread, reply_to and quote, here also `entities`.
        """
        return _sent(await self._act("say", where, text=text))

    async def command(self, name: str, arguments: str = "", **where: Any) -> Sent:
        return await self.say(f"/{name} {arguments}".strip(), **where)

    async def paste(self, text: str, **where: Any) -> list[Sent]:
        """Send a long text, cut at 4,096 units as by apps, which lose whitespace at a cut."""
        return [_sent(one) for one in await self._act("paste", where, text=text)]

    async def forward(
        self, *texts: str, comment: str | None = None, from_name: str = "Somebody", **where: Any
    ) -> list[Sent]:
        wish = {"texts": list(texts), "comment": comment, "from_name": from_name}
        return [_sent(one) for one in await self._act("forward", where, **wish)]

    async def album(
        self,
        count: int,
        *,
        gap: float | list[float] = 0,
        caption: str | None = None,
        content: bytes = b"jpeg",
        **where: Any,
    ) -> list[Sent]:
        wish = {"count": count, "gap": gap, "caption": caption, "content": _encoded(content)}
        return [_sent(one) for one in await self._act("album", where, **wish)]

    async def send_file(
        self,
        name: str,
        content: bytes = b"",
        *,
        size: int | None = None,
        caption: str | None = None,
        media_type: str = "application/octet-stream",
        **where: Any,
    ) -> Sent:
        """Send a file; `size` can be claimed without the bytes."""
        wish: Json = {"name": name, "content": _encoded(content), "media_type": media_type}
        wish.update({"size": size, "caption": caption})
        return _sent(await self._act("send_file", where, **wish))

    async def send_photo(self, content: bytes = b"jpeg", *, caption: str | None = None, **where: Any) -> Sent:
        return await self.send_file(
            "photo.jpg", content, caption=caption, media_type="image/jpeg", folder="photos", **where
        )

    async def send_voice(self, content: bytes = b"ogg", **where: Any) -> Sent:
        return await self.send_file("voice.oga", content, media_type="audio/ogg", folder="voice", **where)

    async def send_content(self, content: Json, **where: Any) -> Sent:
        """Send any message content in the format of the Bot API: `{"sticker": {...}}`."""
        return _sent(await self._act("send_content", where, content=content))

    async def edit(self, message_id: int, text: str, **where: Any) -> Sent:
        return _sent(await self._act("edit", where, message_id=message_id, text=text))

    async def replace_file(
        self, message_id: int, name: str, content: bytes, *, caption: str = "", folder: str = "documents"
    ) -> Sent:
        """Edit a message so that it shows another file."""
        file = {"name": name, "content": _encoded(content), "folder": folder}
        return _sent(await self._act("edit", {}, message_id=message_id, text=caption, file=file))

    async def delete(self, message_id: int, **where: Any) -> None:
        await self._act("delete", where, message_id=message_id)

    async def tap(self, label: str, *, message_id: int | None = None, **where: Any) -> Json:
        """Press a button; return `query`, `message_id` and `updates`, or `url` for a link."""
        found: Json = await self._act("tap", where, label=label, message_id=message_id)
        return found

    async def forge_tap(self, message_id: int, data: str, **where: Any) -> Json:
        """Press with any data, as a tampered app could."""
        found: Json = await self._act("forge_tap", where, message_id=message_id, data=data)
        return found

    async def asks_inline(self, query: str) -> str:
        """Type an inline query in some chat; return its id."""
        return str((await self._act("ask_inline", {}, query=query))["query"])

    async def offered(self, query_id: str, *, within: float = WAIT_SECONDS) -> Json | None:
        """Return the answer to an inline query, with `results` and `button`.

        None if none came within the time.
        """
        clock = asyncio.get_running_loop()
        until = clock.time() + within
        while (found := await self._api.control("inline", {"query": query_id}))["answer"] is None:
            if clock.time() > until:
                return None
            await asyncio.sleep(0.05)
        answer: Json = found["answer"]
        return answer

    async def asks_guest(self, text: str, **where: Any) -> str:
        """Mention the bot in a `chat` where it is no member, or `beside` another person.

        Return the query's id. `age` is the number of seconds for which Telegram kept the question, `reply_to`
        an answer of the bot.
        """
        return str((await self._act("ask_guest", where, text=text))["query"])

    async def guest_views(self, query_id: str, count: int = 1, *, within: float = WAIT_SECONDS) -> Json:
        """Return what the chat saw as the answer, once that are `count` texts, and after how many seconds."""
        clock = asyncio.get_running_loop()
        until = clock.time() + within
        while len((found := await self._api.control("guest", {"query": query_id}))["views"]) < count:
            if clock.time() > until:
                raise NotSeen(f"{count} views of the answer of {query_id}: {found}")
            await asyncio.sleep(0.05)
        answer: Json = found
        return answer

    async def connects_business(self, *, can_reply: bool = True) -> str:
        """Connect the bot to the person's business account; return the id of the connection."""
        return str((await self._act("connect_business", {}, can_reply=can_reply))["connection"])

    async def changes_business(self, **rights: bool) -> None:
        """Change what the bot may do (`can_reply`), or remove it (`enabled`)."""
        await self._act("change_business", rights)

    async def writes_to_owner(self, owner: Person, text: str = "", **where: Any) -> int:
        """Write as a customer to the owner of a business account; return the message id.

        `age` and `file` are options.
        """
        return int((await self._act("write_business", where, owner=owner.id, text=text))["message_id"])

    async def writes_to_customer(self, customer: Person, text: str) -> int:
        """Write by hand as the owner of a business account; return the message id."""
        return int((await self._act("write_business", {}, customer=customer.id, text=text))["message_id"])

    async def edits_to_owner(self, owner: Person, message_id: int, text: str) -> None:
        await self._act("edit_business", {}, owner=owner.id, message_id=message_id, text=text)

    async def deletes_to_owner(self, owner: Person, *message_ids: int) -> None:
        await self._act("delete_business", {}, owner=owner.id, message_ids=list(message_ids))

    async def business_chat(self, customer: Person) -> list[Json]:
        """Return all messages between this owner and a customer, with id, text, from and by_bot."""
        wish = {"owner": self.id, "customer": customer.id}
        found: list[Json] = (await self._api.control("business", wish))["messages"]
        return found

    async def react(self, message_id: int, emoji: str | None, **where: Any) -> None:
        await self._act("react", where, message_id=message_id, emoji=emoji)

    async def stop_draft(self, **where: Any) -> Json:
        found: Json = await self._act("stop_draft", where)
        return found

    async def pin(self, message_id: int, **where: Any) -> Sent:
        return _sent(await self._act("pin_message", where, message_id=message_id))

    async def unpin(self, message_id: int, **where: Any) -> None:
        await self._act("unpin_message", where, message_id=message_id)

    async def block(self) -> None:
        await self._act("block", {})

    async def unblock(self) -> None:
        await self._act("unblock", {})

    async def deactivate(self) -> None:
        await self._act("deactivate", {})

    async def create_topic(self, name: str, **where: Any) -> int:
        """Create a topic; return its thread id."""
        return int((await self._act("create_topic", where, name=name))["thread"])

    async def delete_topic(self, thread: int, **where: Any) -> None:
        wish = {"chat": where.pop("chat", self.id), "thread": thread}
        await self._act("delete_topic", where, **wish)

    async def screen(self, *, chat: int | None = None) -> Screen:
        return Screen(await self._api.control("screen", self._looks_at(chat)))

    async def views(
        self, *, chat: int | None = None, since: int = 0, message_id: int | None = None
    ) -> list[Json]:
        """Return every change of the screen in order, with number, at, kind, message_id, thread and text.

        Kinds are said, sent, edited, deleted, draft, draft_gone, typing, toast, pinned, reaction and others.
        """
        wish = {**self._looks_at(chat), "since": since, "message_id": message_id}
        found: list[Json] = await self._api.control("views", wish)
        return found

    async def next_screen(
        self, after: int, *, chat: int | None = None, within: float = WAIT_SECONDS
    ) -> Screen:
        """Return the screen once it is newer than version `after`, at the latest after `within` seconds."""
        wish = {**self._looks_at(chat), "after": after, "wait": within}
        return Screen(await self._api.control("screen", wish))

    async def sees(
        self, wanted: str | Callable[[Screen], bool], *, chat: int | None = None, within: float = WAIT_SECONDS
    ) -> Screen:
        """Wait until a line of the bot contains this text, or until the function returns True.

        Return the screen.
        """
        asked = wanted if callable(wanted) else _holds(wanted)
        clock = asyncio.get_running_loop()
        until = clock.time() + within
        version = -1
        while True:
            wait = max(0.0, min(GLANCE_SECONDS, until - clock.time()))
            seen = await self.next_screen(version, chat=chat, within=wait)
            if asked(seen):
                return seen
            if clock.time() >= until:
                shown = "\n".join(f"{'bot' if line.by_bot else 'person'}: {line.text}" for line in seen.lines)
                raise NotSeen(f"not seen within {within:g} s: {wanted!r}; the screen:\n{shown}")
            version = seen.version

    def _looks_at(self, chat: int | None) -> Json:
        return {"bot": self.bot, "chat": self.id if chat is None else chat}

    async def _act(self, act: str, where: Json, /, **wish: Any) -> Any:
        return await self._api.act(act, {"person": self.id, "bot": self.bot, **wish, **where})


class Group:
    """Group, supergroup or forum; its `id` is the `chat` in acts of people."""

    def __init__(self, api: Controls, number: int, *, owner: Person) -> None:
        self._api = api
        self.id = number
        self.owner = owner

    async def join(self, person: Person) -> None:
        await self._act("add_to_group", person=person.id)

    async def leave(self, person: Person) -> None:
        await self._act("remove_from_group", person=person.id)

    async def add_bot(self, bot: int, *, admin: bool = False) -> None:
        await self._act("add_to_group", account=bot, admin=admin)

    async def kick(self, account: int) -> None:
        """Remove a person or a bot."""
        await self._act("remove_from_group", account=account)

    async def set_admin(self, account: int, *, admin: bool = True) -> None:
        await self._act("set_admin", account=account, admin=admin)

    async def create_topic(self, name: str) -> int:
        return int((await self._act("create_topic", name=name))["thread"])

    async def delete_topic(self, thread: int) -> None:
        await self._act("delete_topic", thread=thread)

    async def migrate(self) -> Group:
        """Turn the group into a supergroup; return that."""
        number = int((await self._act("migrate_group"))["chat_id"])
        return Group(self._api, number, owner=self.owner)

    async def screen(self) -> Screen:
        return await self.owner.screen(chat=self.id)

    async def sees(self, wanted: str | Callable[[Screen], bool], *, within: float = WAIT_SECONDS) -> Screen:
        return await self.owner.sees(wanted, chat=self.id, within=within)

    async def _act(self, act: str, /, **wish: Any) -> Any:
        return await self._api.act(act, {"person": self.owner.id, "chat": self.id, **wish})


def _holds(text: str) -> Callable[[Screen], bool]:
    return lambda screen: any(text in line.text for line in screen.answers)


def _sent(found: Json) -> Sent:
    updates = {int(bot): number for bot, number in found["updates"].items()}
    return Sent(message_id=found["message_id"], chat_id=found["chat_id"], updates=updates)


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()
