"""Crash points that tests of one subject kill a process at; test_crashes.py asks for all of them."""

from __future__ import annotations

ALERT_POINTS = ("before_alert_opens", "after_alert_opens", "before_alert_send", "after_alert_send")


HOOK_POINTS = ("before_hook_send", "before_hook_send:2", "after_hook_send", "after_hook_send:2")
"""Before a summary, and after it."""


FEEDBACK, READ, WORK, EDIT = "after_feedback", "after_read", "after_work_change", "after_edit"
ASIDE_POINTS = (FEEDBACK, READ, WORK, EDIT)


AFTER_REPLY, AFTER_ASKING = "after_operator_reply", "after_ask_human"
BEFORE_WORD, AFTER_WORD = "telegram_before_word", "telegram_after_word"
AFTER_TAKING, AFTER_RETURN = "after_handover", "after_handover:2"
HANDOVER_POINTS = (AFTER_REPLY, AFTER_ASKING, AFTER_TAKING, AFTER_RETURN, BEFORE_WORD, AFTER_WORD)


IN_A_LOGIN = "mid_login"
LOGIN_POINTS = (IN_A_LOGIN,)


BEFORE_PUSH, AFTER_PUSH = "before_push", "after_push"
PUSH_POINTS = (BEFORE_PUSH, AFTER_PUSH)


REMINDER_POINTS = ("before_reminder", "after_reminder")


PLAYED = "after_sample"
SAMPLE_POINTS = (PLAYED,)


IN_A_CHANGE, IN_A_FOLLOW = "mid_settings", "mid_follow"
SETTINGS_POINTS = (IN_A_CHANGE, IN_A_FOLLOW)


BOT_SHORT = ("telegram_before_send", "telegram_after_send")
"""Reached where an answer is there before a bubble was worth it."""
BOT_LONG = ("telegram_after_part", "telegram_after_part:2")
BOT_POINTS = (
    "before_accept",
    "after_accept",
    "after_claim",
    "mid_stream:3",
    "after_model",
    "after_answer",
    "after_delivered",
    "telegram_after_store",
    "telegram_before_bubble",
    "telegram_after_bubble",
    "telegram_before_edit",
    "telegram_after_edit",
    *BOT_SHORT,
    *BOT_LONG,
    "after_reword",
)


BOT_NOTICES = (
    "telegram_before_notice", "telegram_after_notice", "telegram_after_search", "telegram_after_press",
)  # fmt: skip
"""Reached where an answer was cut off before Telegram had it."""


GUEST_POINTS = ("telegram_before_guest", "telegram_after_guest")
"""Reached where the bot answers in a chat where it is a guest."""
SECRETARY_POINTS = (
    "telegram_before_draft", "telegram_after_draft", "telegram_after_approval", "telegram_before_customer",
    "telegram_after_customer",
)  # fmt: skip
"""Reached where the bot shows drafts to the owner of a business account, and sends them."""


BEFORE_HEARING, AFTER_HEARING = "before_hearing", "after_hearing"
SPEECH = "after_speech", "before_voice_note", "after_voice_note"
VOICE_POINTS = (BEFORE_HEARING, AFTER_HEARING, *SPEECH)


MONEY_POINTS = ("after_slice",)
"""With the beat after the first answer that cost something."""
TOKEN_POINT = "after_tokens_held"
"""Before a call of a model without a price."""


PUT_BACK = "after_put_back"
