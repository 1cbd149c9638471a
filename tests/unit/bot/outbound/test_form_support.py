"""A refused form of answers is disabled in its chat, and everywhere after several unknown methods."""

from __future__ import annotations

from bot.telegram.client.calls import CallRejected
from bot.telegram.outbound.native_drafts import UNKNOWN_CHATS, FormSupport

NOT_FOUND = CallRejected(reason="Not Found", status=404)
FORBIDDEN = CallRejected(reason="TEXTDRAFT_PEER_INVALID", status=400)


def test_one_unknown_method_leaves_drafts_on_for_other_chats() -> None:
    support = FormSupport()
    support.refuse("drafts", 1, NOT_FOUND)
    assert not support.allows("drafts", 1)
    assert support.allows("drafts", 2)
    assert support.allows("rich", 1)


def test_refusals_of_chats_never_disable_drafts_for_all() -> None:
    support = FormSupport()
    for chat_id in range(1, 50):
        support.refuse("drafts", chat_id, FORBIDDEN)
    assert support.allows("drafts", 99)


def test_method_unknown_in_several_chats_is_tried_in_none() -> None:
    support = FormSupport()
    for chat_id in range(UNKNOWN_CHATS):
        assert support.allows("drafts", 99)
        support.refuse("drafts", chat_id, NOT_FOUND)
    assert not support.allows("drafts", 99)
