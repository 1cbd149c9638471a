"""The operator's rules for business accounts: which customers get drafts, and which answers are sent at
once.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared.config.fields.kinds import TelegramSecretary, TelegramSecretaryChats


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretaryRules:
    """Rules of secretary mode for all bots; `listed` and `automatic` are ids of customers."""

    mode: TelegramSecretary = "off"
    chats: TelegramSecretaryChats = "all"
    listed: frozenset[int] = frozenset()
    automatic: frozenset[int] = frozenset()
    hours: int = 24
    """Hours after the customer's message within which the owner can send a draft."""

    def serves(self, customer_id: int) -> bool:
        """Return whether the bot reads the chat with a customer."""
        if self.mode == "off":
            return False
        return self.chats == "all" or (customer_id in self.listed) == (self.chats == "listed")

    def is_automatic(self, customer_id: int) -> bool:
        """Return whether answers to a customer are sent without the owner's approval."""
        if not self.serves(customer_id):
            return False
        return self.mode == "auto" or customer_id in self.automatic
