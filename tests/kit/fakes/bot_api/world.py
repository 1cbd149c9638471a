"""All state of the fake Telegram: bots, people, chats and files."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from tests.kit.fakes.bot_api.accounts import Account, Bot
from tests.kit.fakes.bot_api.chats import GENERAL_TOPIC, Chat, Kind, Stored
from tests.kit.fakes.bot_api.clock import Clock
from tests.kit.fakes.bot_api.files import Files
from tests.kit.fakes.bot_api.limiter import Limiter
from tests.kit.fakes.bot_api.polling import Poller
from tests.kit.fakes.bot_api.refusals import Refusal, misuse
from tests.kit.fakes.bot_api.schema import Schema, load_schema
from tests.kit.fakes.bot_api.shapes import Json
from tests.kit.fakes.bot_api.updates import Inbox

FIRST_GROUP = 1_000_000
FIRST_SUPERGROUP = 1_000_000_000_000
KICKED = {
    "group": "bot was kicked from the group chat",
    "supergroup": "bot was kicked from the supergroup chat",
    "channel": "bot was kicked from the channel chat",
}


class NoSuchThing(LookupError):
    """Raised when a test names a bot, person, chat or message that does not exist."""


@dataclass(slots=True, kw_only=True)
class Query:
    """A pressed button whose query a bot has to answer."""

    id: str
    bot: int
    person: int
    chat: Chat
    born: float
    answered: bool = False


@dataclass(slots=True)
class InlineQuery:
    """An inline query: what a person typed behind a bot's name.

    `answer` is the result that the bot gave; None before.
    """

    id: str
    bot: int
    person: int
    born: float
    answer: Json | None = None


@dataclass(slots=True, kw_only=True)
class GuestQuery:
    """A mention of a bot in a chat where it is not a member.

    `views` holds the bot's answer after each of its changes.
    """

    id: str
    bot: int
    person: int
    chat: int
    born: float
    views: list[Json] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    """Seconds from the mention to each entry of `views`."""

    @property
    def shown(self) -> Json:
        return self.views[-1]


@dataclass(slots=True, kw_only=True)
class BusinessConnection:
    """A bot that a person has connected to their business account."""

    id: str
    bot: int
    owner: int
    can_reply: bool
    at: int
    is_enabled: bool = True


@dataclass(slots=True)
class World:
    clock: Clock = field(default_factory=Clock)
    schema: Schema = field(default_factory=load_schema)
    files: Files = field(default_factory=Files)
    bots: dict[str, Bot] = field(default_factory=dict)
    people: dict[int, Account] = field(default_factory=dict)
    queries: dict[str, Query] = field(default_factory=dict)
    inline: dict[str, InlineQuery] = field(default_factory=dict)
    guests: dict[str, GuestQuery] = field(default_factory=dict)
    connections: dict[str, BusinessConnection] = field(default_factory=dict)
    business_chats: dict[tuple[int, int], Chat] = field(default_factory=dict)
    """Chats between a business and its customer, by the ids of owner and customer."""
    customers_wrote: dict[tuple[int, int], float] = field(default_factory=dict)
    """Time of a customer's last message, by the ids of owner and customer."""
    limiter: Limiter = field(init=False)
    _private: dict[tuple[int, int], Chat] = field(default_factory=dict)
    _groups: dict[int, Chat] = field(default_factory=dict)
    _numbers: count[int] = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        self.limiter = Limiter(self.clock)

    def number(self) -> int:
        return next(self._numbers)

    def add_bot(self, token: str, *, username: str, name: str, topics: bool, privacy: bool) -> Bot:
        """Add a bot, or change the names and settings of the one that has this token already."""
        if token in self.bots:
            return self._changed_bot(self.bots[token], username, name, topics=topics, privacy=privacy)
        number = int(token.split(":")[0])
        account = Account(id=number, first_name=name, username=username, is_bot=True)
        bot = Bot(token=token, account=account, topics=topics, privacy=privacy)
        bot.inbox = Inbox(self.clock, first_id=number % 1_000 * 1_000_000 + 1)
        bot.poller = Poller(bot.inbox, self.clock)
        self.bots[token] = bot
        return bot

    def _changed_bot(self, bot: Bot, username: str, name: str, *, topics: bool, privacy: bool) -> Bot:
        bot.account.username, bot.account.first_name = username, name
        bot.topics, bot.privacy = topics, privacy
        return bot

    def bot(self, number: int | None) -> Bot:
        """Return the bot with this id, or the first bot if `number` is None.

        Raises NoSuchThing if there is none.
        """
        found = next((bot for bot in self.bots.values() if number in (None, bot.id)), None)
        if found is None:
            raise NoSuchThing(f"no bot {number}")
        return found

    def person(self, number: int) -> Account:
        """Return the person with this id.

        Raises NoSuchThing if there is none.
        """
        if number not in self.people:
            raise NoSuchThing(f"no person {number}")
        return self.people[number]

    def private(self, bot: Bot, person: Account) -> Chat:
        """Return the private chat of a bot and a person, created at its first use."""
        key = (bot.id, person.id)
        if key not in self._private:
            self._private[key] = Chat(
                id=person.id, kind="private", members={person.id, bot.id}, chat_instance=str(self.number())
            )
        chat = self._private[key]
        chat.person = person.as_json()
        return chat

    def add_group(self, title: str, kind: Kind, *, forum: bool = False) -> Chat:
        """Create a group, supergroup or channel without members."""
        number = self.number()
        own = -((FIRST_GROUP if kind == "group" else FIRST_SUPERGROUP) + number)
        chat = Chat(id=own, kind=kind, title=title, is_forum=forum, chat_instance=str(FIRST_GROUP + number))
        self._groups[chat.id] = chat
        return chat

    def chat(self, bot: Bot, number: int) -> Chat:
        """Return a chat by its id for a test, even if the bot can no longer reach it.

        Raises NoSuchThing if there is none.
        """
        found = self._groups.get(number) or self._private.get((bot.id, number))
        if found is None:
            raise NoSuchThing(f"no chat {number}")
        return found

    def writable(self, bot: Bot, number: object) -> Chat:
        """Return the chat that a call names if the bot may write there.

        Raises Refusal, in Telegram's words, if not.
        """
        found = self.readable(bot, number)
        if found.kind == "channel" and bot.id not in found.admins:
            raise Refusal("need administrator rights in the channel chat")
        if found.kind == "private":
            if found.blocked:
                raise Refusal("bot was blocked by the user", status=403)
            if self.people[found.id].deactivated:
                raise Refusal("user is deactivated", status=403)
        return found

    def readable(self, bot: Bot, number: object) -> Chat:
        if not isinstance(number, int):
            raise misuse("chat not found")
        found = self._private.get((bot.id, number)) if number > 0 else self._groups.get(number)
        if found is None or (found.kind == "private" and found.next_message_id == 1):
            if number in self.people:
                raise Refusal("bot can't initiate conversation with a user", status=403)
            raise Refusal("chat not found")
        if found.migrated_to is not None:
            words = "group chat was upgraded to a supergroup chat"
            raise Refusal(words, migrate_to=found.migrated_to)
        if bot.id not in found.members:
            if bot.id in found.kicked:
                raise Refusal(KICKED[found.kind], status=403)
            raise Refusal(f"bot is not a member of the {found.kind} chat", status=403)
        return found

    def thread(self, bot: Bot, chat: Chat, number: int | None) -> int | None:
        """Return the topic that a call names; None outside topics.

        Raises Refusal if there is no such topic, or if the call names the General topic, which takes no
        number.
        """
        if number is None:
            return None
        has_topics = chat.is_forum or (chat.kind == "private" and bot.topics)
        if not has_topics or number == GENERAL_TOPIC or not chat.has_thread(number):
            raise Refusal("message thread not found")
        return number

    def message(self, chat: Chat, number: int, *, missing: str) -> Stored:
        """Return a stored message.

        Raises Refusal with the words `missing` if there is none.
        """
        stored = chat.messages.get(number)
        if stored is None:
            raise Refusal(missing)
        return stored

    def guest_answer(self, number: str | None) -> GuestQuery | None:
        """Return the guest query whose answer is the message with this id; None if there is none."""
        found = self.guests.get((number or "").removeprefix("guest-"))
        return found if found is not None and found.views else None

    def bots_in(self, chat: Chat) -> list[Bot]:
        return [bot for bot in self.bots.values() if bot.id in chat.members]

    def author_json(self, bot_or_person: int) -> Json:
        account = self.people.get(bot_or_person)
        return account.as_json() if account else self.bot(bot_or_person).account.as_json()

    async def renew(self) -> None:
        """Forget everything but the bots, and drop their waiting updates.

        Numbering continues.
        """
        await self.close()
        self.clock.reset()
        self.limiter.reset()
        for kept in (
            self.people, self.queries, self.inline, self.guests, self.connections, self.business_chats,
            self.customers_wrote, self._private, self._groups,
        ):  # fmt: skip
            kept.clear()
        for bot in self.bots.values():
            bot.forget()

    async def close(self) -> None:
        for bot in self.bots.values():
            webhook, bot.webhook = bot.webhook, None
            if webhook is not None:
                await webhook.close()
