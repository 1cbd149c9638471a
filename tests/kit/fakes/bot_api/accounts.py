"""People and bots of the fake, and what each bot has set about itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.kit.fakes.bot_api.shapes import Json, without_nones


@dataclass(slots=True, kw_only=True)
class Account:
    id: int
    first_name: str
    last_name: str | None = None
    username: str | None = None
    language_code: str | None = None
    is_bot: bool = False
    deactivated: bool = False

    def as_json(self) -> Json:
        return without_nones(
            id=self.id,
            is_bot=self.is_bot,
            first_name=self.first_name,
            last_name=self.last_name,
            username=self.username,
            language_code=self.language_code,
        )


@dataclass(slots=True, kw_only=True)
class Bot:
    """Bot with its token; its updates leave by `inbox` and `poller`, or by `webhook`."""

    token: str
    account: Account
    topics: bool = False
    """Whether private chats with the bot have topics."""
    privacy: bool = True
    """Whether the bot sees only messages in groups that are addressed to it."""
    guests: bool = False
    """Whether @BotFather lets people ask the bot in chats where it is no member."""
    business: bool = False
    """Whether @BotFather lets owners of business accounts connect the bot."""
    revoked: bool = False
    commands: dict[str, list[Json]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    menu_buttons: dict[str, Json] = field(default_factory=dict)
    inbox: Any = None
    poller: Any = None
    webhook: Any = None
    webhook_set_at: float = float("-inf")

    @property
    def id(self) -> int:
        return self.account.id

    def forget(self) -> None:
        """Reset everything that the bot or its settings changed; numbers of updates continue."""
        self.commands, self.texts, self.menu_buttons = {}, {}, {}
        self.revoked = False
        self.webhook_set_at = float("-inf")
        self.poller.forget()
        self.inbox.clear()
        self.inbox.allow([])

    def me(self) -> Json:
        return {
            **self.account.as_json(),
            "can_join_groups": True,
            "can_read_all_group_messages": not self.privacy,
            "supports_guest_queries": self.guests,
            "supports_inline_queries": False,
            "can_connect_to_business": self.business,
            "has_main_web_app": False,
            "has_topics_enabled": self.topics,
            "allows_users_to_create_topics": self.topics,
        }
