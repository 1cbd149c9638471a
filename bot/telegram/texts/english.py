"""The bot's own words in English, which are those for every language that has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.telegram.texts.markdown_text import Markdown, Plain, escape_markdown
from shared.core.commands.public_messages import advice_for_public

_UNSUPPORTED_MEDIA = {
    "voice": "I cannot listen to voice messages yet.",
    "audio": "I cannot listen to sound files yet.",
    "video": "I cannot watch videos.",
    "video_note": "I cannot watch video messages.",
    "animation": "I cannot watch animations.",
    "sticker": "Nice sticker! But I can only read words, pictures and documents.",
    "location": "I cannot read maps.",
    "contact": "I cannot read contacts.",
    "poll": "I cannot take part in polls.",
}
_EXAMPLES = (
    "What should I cook tonight with eggs and spinach?",
    "Explain to me how tides work, as if I were ten.",
    "Help me to write a friendly reminder to a customer.",
)
_SETTINGS = {
    "language": "Language",
    "notices": "Tell me when older messages are summarised",
    "drafts": "Answers with a stop button",
    "rich": "Tables and formulas",
    "receipts": "Mark what I have read",
    "model": "Model",
}
_STATUS_BY_TOOL = {
    "calculate": "Calculating …",
    "current_time": "Looking at the clock …",
    "open_artifact": "Reading on …",
    "recall": "Looking back at what was said …",
    "search_memory": "Looking at what I know …",
}
_STATUS_WITH_SUBJECT = {"fetch_url": "Looking at {subject} …", "mcp": "Asking {subject} …"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """Fields are fixed sentences; methods put numbers and names in."""

    language: str = "en"

    # What people see before they write: the bot's profile.
    about: Plain = "Talk with me about anything. I remember what we said."
    """At most 120 characters."""
    description: Plain = (
        "Hello! I am an assistant that you can talk with for as long as you like: I remember what matters, "
        "however long ago it was. Press Start and write to me."
    )
    """At most 512 characters, shown in an empty chat."""

    demo: Markdown = "To be honest: at the moment only a demo without intelligence answers you."
    demo_advice: Markdown = "My owner can give me a real model with `./evertalk setup`."

    # Who may talk.
    pairing_full: Markdown = "Too many people are waiting to be let in just now. Please try again in an hour."
    refused: Markdown = "I am sorry, I may not talk with you here. Only my owner can change that."
    allowed: Markdown = "You can talk with me now. What is on your mind?"
    owner_link_used: Markdown = "This link was used already or is too old. My owner can make a new one."
    owner_now: Markdown = (
        "Hello! I am yours now. When somebody else writes to me, they get a code, and you decide whether "
        "they may talk with me."
    )
    allow: Plain = "Allow"
    deny: Plain = "Deny"
    decided_before: Plain = "That was decided already."
    left_group: Markdown = "My owner has not let me into this group, so I leave. Goodbye!"

    # What cannot be read.
    picture_unseen: Markdown = "I cannot look at pictures here. Please describe it in words."
    nothing_to_read: Markdown = "There was nothing in it that I can read."
    too_many_files: Markdown = "These are too many files at once. Please send fewer."

    # Marks below an answer.
    stopped: Plain = "⏹ Stopped."
    interrupted: Plain = "⚠️ I was interrupted here and could not go on."
    whole_answer: Plain = "The answer goes on in this file, which holds all of it."
    """Caption of the file behind the messages of a very long answer."""

    # An answer of which nobody knows whether it arrived.
    uncertain: Plain = (
        "The connection broke while I sent you an answer, so it may be missing here. Press the button, and "
        "I bring it."
    )
    bring: Plain = "Bring the answer"
    bringing: Plain = "Here it comes …"
    brought_before: Plain = "That answer is on its way already, or here."
    arrived: Plain = "An answer that seemed to be missing has arrived."

    # Answers to commands and presses.
    nothing_to_stop: Plain = "I am not writing anything at the moment."
    stopping: Plain = "Stopping …"
    nothing_to_retry: Markdown = "There is no message that I could answer again."
    answering_again: Plain = "Answering again …"
    inline_start: Plain = "Write to me in a chat of our own first"
    inline_later: Plain = "The answer comes in our chat"
    unknown_button: Plain = "This button is out of date."
    others_button: Plain = "This button is for somebody else."
    admins_only: Markdown = "In a group only its administrators may do that."
    busy: Plain = "One moment, I am still at it."
    not_now: Markdown = "That did not work just now. Please try again in a moment."

    # Summaries.
    summarising: Plain = "Summarising older messages …"
    summary_title: Markdown = "**What I keep of our older messages**"
    view: Plain = "View"
    undo: Plain = "Undo"

    # Export, settings, memory, edits, opinions.
    unknown_message: Markdown = "I do not have this message. Please send it again."
    nothing_to_export: Markdown = "We have not talked yet, so there is nothing to put into a file."
    settings_title: Markdown = "**Settings of this chat**\n\nPress one to change it."
    on: Plain = "on"
    off: Plain = "off"
    close: Plain = "Close"
    saved: Plain = "Saved."
    forgotten: Plain = "Put away."
    back_again: Plain = "It is back."
    previous: Plain = "‹ Back"
    following: Plain = "Next ›"
    all_notes: Plain = "Show all"
    forget_all: Plain = "Yes, erase everything"
    cancel: Plain = "Cancel"
    nothing_erased: Markdown = "Nothing was erased."
    answer_again: Markdown = "You have changed your message. Shall I answer again?"
    yes: Plain = "Answer again"
    no: Plain = "No, leave it"
    edit_noted: Markdown = "I have noted the change."
    regenerate: Plain = "Again"
    longer: Plain = "Go on"
    shorter: Plain = "Shorter"
    stop: Plain = "Stop"
    thanks_good: Plain = "Thank you! I am glad that helped."
    thanks_bad: Plain = "Thank you. I am sorry that this was not good."
    opinion_gone: Plain = "Taken back."

    def at_work(self, tool: str, subject: str) -> Plain:
        """While a tool runs; `subject` is a host or a server, where the tool says."""
        if subject and tool in _STATUS_WITH_SUBJECT:
            return _STATUS_WITH_SUBJECT[tool].replace("{subject}", subject)
        return _STATUS_BY_TOOL.get(tool, self.busy)

    def hello(self, *, name: str = "", demo: bool = False, public: bool = False) -> Markdown:
        """The first words to somebody who may talk; `demo`: no real model answers."""
        greeting = f"Hello {escape_markdown(name, most=40)}!" if name.strip() else "Hello!"
        who = (
            "I am an AI assistant." if public else "I am an AI assistant, and I remember what we talk about."
        )
        lines = [
            f"{greeting} {who} Just write to me, for example:",
            "\n".join(f"- {example}" for example in _EXAMPLES),
            "/help shows what else I can do.",
        ]
        if demo:
            lines.append(self.demo if public else f"{self.demo} {self.demo_advice}")
        return "\n\n".join(lines)

    def hello_group(self, *, username: str, hears_all: bool) -> Markdown:
        """When the bot was added to a group; `hears_all`: privacy mode is off."""
        hint = self.group_hint(hears_all=hears_all)
        return f"Hello! Mention me as @{escape_markdown(username)} or reply to me, and I answer. {hint}"

    def group_hint(self, *, hears_all: bool) -> Markdown:
        """Also for /help."""
        if hears_all:
            return "I can read everything that is said in the group, and answer only when I am asked."
        return (
            "Telegram's privacy mode is on: I see only what mentions me, replies to me or is a command, "
            "nothing else that is said in the group."
        )

    def help(self, *, commands: Sequence[tuple[str, str]], groups: str = "") -> Markdown:
        """`commands`: as one types them, and what they do; `groups`: the hint, when asked in a group."""
        rows = "\n".join(
            f"- {escape_markdown(call)} – {escape_markdown(what, most=200)}" for call, what in commands
        )
        head = "Just write to me; pictures, PDFs and text files work too. You can also send:"
        return "\n\n".join([head, rows, *([groups] if groups else [])])

    def pairing_code(self, *, code: str) -> Markdown:
        return (
            "I talk only with people whom my owner has let in. Please give them this code:\n\n"
            f"`{code}`\n\nIt is good for one hour. Then write to me again."
        )

    def asks_for_access(self, *, name: str, username: str, code: str) -> Markdown:
        """To an owner, with the buttons `allow` and `deny`."""
        who = f"{escape_markdown(name)} (@{escape_markdown(username)})" if username else escape_markdown(name)
        return f"{who} would like to talk with me. Code: `{code}`"

    def let_in(self, *, name: str) -> Markdown:
        return f"{escape_markdown(name)} can talk with me now."

    def kept_out(self, *, name: str) -> Markdown:
        return f"{escape_markdown(name)} was refused."

    def cannot(self, *, kind: str) -> Markdown:
        """By the kind of a message: voice, video, sticker …"""
        words = _UNSUPPORTED_MEDIA.get(kind, "I cannot read this kind of message.")
        return f"{words} Please write to me instead."

    def file_too_large(self, *, name: str, limit_mb: int) -> Markdown:
        return f"{escape_markdown(name)} is too large: I can read files of up to {limit_mb} MB."

    def file_unreadable(self, *, name: str) -> Markdown:
        words = "Pictures, PDFs with text, office files, e-books and text files work."
        return f"I cannot read {escape_markdown(name)}. {words}"

    def file_locked(self, *, name: str) -> Markdown:
        return f"{escape_markdown(name)} is locked by a password. Please send it without one."

    def file_shortened(self, *, name: str) -> Markdown:
        return f"{escape_markdown(name)} is long, so I read only its beginning."

    def advice(self, *, code: str, advice: str, public: bool) -> Markdown:
        """Why there is no answer, in one line; `advice` is what the error itself says, in English."""
        return advice_for_public(code, advice) if public else advice

    def try_later(self, *, seconds: int) -> Plain:
        return f"That was a lot at once. Please try again in {seconds} seconds."

    def summarised(self, *, messages: int) -> Markdown:
        """The quiet note after a compaction, with the buttons `view` and `undo`."""
        return (
            "I summarised one older message."
            if messages == 1
            else f"I summarised {messages:,} older messages."
        )

    def export_caption(self, *, messages: int) -> Plain:
        return (
            "Our conversation: one message" if messages == 1 else f"Our conversation: {messages:,} messages"
        )

    def setting(self, *, name: str, value: str) -> Plain:
        """Label of a button."""
        return f"{_SETTINGS.get(name, name)}: {value}"

    def put_away(self, *, text: str) -> Markdown:
        """Below the list, or where a search stood, with the button `undo`."""
        return f"~~{escape_markdown(text, most=200)}~~ Put away; for 30 days you can have it back."
