"""Map of erasure: tables and columns with text of people, and what an erasure does with each.

Every table is listed; a test compares the map with the schema, so that each new column needs a decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Owner = Literal["session", "contact", "address"]
"""Owner of rows: the person's sessions, contacts, or Telegram addresses (bot and chat)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Action of an erasure on a table: rows are deleted."""

    owner: Owner = "session"
    at: str | None = "created_at"
    """Column with the creation time: rows newer than the erasure stay.

    None means that all rows are deleted.
    """
    at_once: bool = False
    """Whether the rows are erased in the first transaction, since a request would otherwise contain them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blank:
    """Action of an erasure on a table: rows stay, for their numbers, and text is overwritten."""

    values: Mapping[str, str]
    """SQL of the new value by column."""
    kept: Mapping[str, str] = field(default_factory=dict)
    """Reason for keeping the value, by column."""
    owner: Owner = "session"
    at: str | None = "created_at"
    at_once: bool = False
    of: str = ""
    """Column that names the owner; "" means `session_id` or `contact_id`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Special:
    """Action of an erasure on a table that has its separate statements in `erasure.py`.

    `columns` have text of people; `kept` has the reason for keeping a value, by column.
    """

    columns: tuple[str, ...]
    kept: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Action of an erasure on a table: rows stay unchanged; `why` is the reason."""

    why: str


Action: TypeAlias = Delete | Blank | Special | Keep

_FIXED = "one of few fixed words"
_IDS = "an id that means nothing outside"
_MODEL = "a model's name"
_EMPTY_OBJECT, _EMPTY_LIST = "'{}'::jsonb", "'[]'::jsonb"
_LANGUAGES = (
    "jsonb_strip_nulls(jsonb_build_object('language', settings -> 'language', "
    "'app_language', settings -> 'app_language'))"
)

ACTIONS: Mapping[str, Action] = {
    # First the text that screens and the assistant would show, then what was made from it.
    "events": Special(columns=("kind", "payload")),
    "entry_rows": Special(
        columns=("blocks", "words", "cid"),
        kept={"role": _FIXED, "author": _FIXED, "dedupe_key": "so that no message is accepted a second time"},
    ),
    "notes": Delete(owner="contact", at_once=True),
    "note_words": Delete(owner="contact", at="indexed_at", at_once=True),
    "note_vectors": Delete(owner="contact", at="encoded_at", at_once=True),
    "note_changes": Delete(owner="contact", at="at", at_once=True),
    "note_lists": Delete(at=None),
    # Otherwise the import would still be recalled and could be resumed.
    "past_imports": Blank(
        values={"digest": "NULL"},
        kept={"source": _FIXED, "summaries": _FIXED},
        at="began_at",
        at_once=True,
    ),
    "past_summaries": Delete(at="written_at"),
    "import_pieces": Delete(at="received_at", at_once=True),
    "import_files": Delete(owner="contact", at_once=True),
    # A due reminder would begin a turn with its text.
    "reminders": Delete(owner="contact", at_once=True),
    # Otherwise the sample would continue in the empty conversation.
    "sample_plays": Delete(at=None, at_once=True),
    # An open hand-over ends, since the conversation begins from the start.
    "handovers": Delete(at=None, at_once=True),
    "private_notes": Delete(),
    "passage_vectors": Delete(at="encoded_at"),
    "passages": Delete(at="indexed_at"),
    "compactions": Blank(
        values={
            "summary_text": "''",
            "ledger": _EMPTY_OBJECT,
            "contract": _EMPTY_OBJECT,
            "audit": _EMPTY_OBJECT,
            "focus": "''",
        },
        kept={"kind": _FIXED, "trigger": _FIXED, "model": _MODEL},
    ),
    "checkpoints": Delete(),
    "flushes": Blank(
        values={"stray_text": "''", "error": "''"},
        kept={"threshold": _FIXED, "outcome": _FIXED, "model": _MODEL},
    ),
    "artifacts": Delete(),
    "pins": Delete(at="pinned_at"),
    "prune_decisions": Delete(at="decided_at"),
    "attachments": Delete(),
    "spoken_answers": Delete(),
    "jobs": Blank(
        values={
            "payload": _EMPTY_OBJECT,
            "outcome": _EMPTY_OBJECT,
            "failures": _EMPTY_LIST,
            "last_error": "''",
        },
        kept={"kind": _FIXED, "key": _IDS, "state": _FIXED, "trigger": _FIXED},
    ),
    # Erased before the audits, which say which parts belong to a person's requests.
    "prompt_parts": Special(columns=("sha256", "body")),
    "audit_rows": Blank(
        values={"part_hashes": "NULL", "hashes": "NULL", "recipe": "NULL", "plan": "NULL"},
        kept={"model_alias": _MODEL, "parts": "sizes by fixed names", "prune_seqs": "numbers"},
    ),
    "usage": Blank(
        values={"request_id": "''"},
        kept={"purpose": _FIXED, "status": _FIXED, "model": _MODEL},
        at="at",
    ),
    "deliveries": Blank(
        values={"remote_id": "NULL", "error": "''"}, kept={"channel": _FIXED, "state": _FIXED}
    ),
    # A notice would show erased text again.
    "uncertain_notices": Delete(at_once=True),
    "telegram_messages": Delete(at="at"),
    "guest_queries": Delete(at="asked_at"),
    # Drafts contain an owner's text, and text for a customer.
    "secretary_drafts": Delete(),
    "secretary_messages": Delete(at=None),
    "secretary_connections": Special(
        columns=("owner_name",), kept={"connection_id": _IDS, "language": _FIXED}
    ),
    "telegram_updates": Special(columns=("body", "error")),
    "telegram_access": Special(
        columns=("name", "username"),
        kept={"state": _FIXED, "code": "random, and gone once decided", "decided_by": "an operator's name"},
    ),
    "feedback": Delete(at="at"),
    "one_time_codes": Delete(owner="contact"),
    "push_subscriptions": Special(
        columns=("endpoint", "p256dh", "auth", "login_hash", "visitor_hash", "language")
    ),
    "erasure_wishes": Delete(at=None),
    "addresses": Blank(
        values={"title": "''", "settings": _LANGUAGES, "contact": _EMPTY_OBJECT},
        kept={
            "channel": _FIXED,
            "account": "the conversation goes on there",
            "chat": "the conversation goes on there",
            "thread": "the conversation goes on there",
            "refusal": "the channel's own words about the chat",
        },
        owner="contact",
        at=None,
        at_once=True,
    ),
    "sessions": Blank(
        values={"goal": "''", "mode": "''", "model": "''", "compaction_backoff": "NULL"},
        kept={
            "measured_by": _MODEL,
            "token_ratios": "numbers by a model's name",
            "token_scale": "a model's name and numbers",
            "left_by": "numbers of places",
            "last_channel": _FIXED,
            "voice": _FIXED,
            "compaction": _FIXED,
            "person": "goes with the person's name, by a trigger",
            "person_name": "goes with the person's name, by a trigger",
            "person_kind": _FIXED,
        },
        at=None,
        at_once=True,
        of="id",
    ),
    "contacts": Blank(
        values={"display_name": "''", "timezone": "NULL", "network": "NULL"},
        kept={"kind": _FIXED, "on_hold_by": "an operator's name"},
        owner="contact",
        at=None,
        at_once=True,
        of="id",
    ),
    # Tables that stay.
    "turns": Keep(why="numbers, states and codes of errors: the log keeps its order"),
    "turn_entries": Keep(why="numbers"),
    "turn_steps": Keep(why="which tool was called when, under a random id"),
    "session_totals": Keep(why="numbers"),
    "session_list": Keep(why="the name goes with the person's, by a trigger; else numbers and a channel"),
    "listed_minutes": Keep(why="numbers of conversations by the minute, for a day"),
    "session_list_changes": Keep(why="numbers of conversations, for seconds"),
    "unindexed_notes": Keep(why="numbers of notes, for seconds"),
    "unencoded_notes": Keep(why="numbers of notes, until they have vectors"),
    "left_sessions": Keep(why="numbers of conversations, until they are searchable"),
    "unencoded_sessions": Keep(why="numbers of conversations, until their passages have vectors"),
    "due_tidyings": Keep(why="numbers of people, until their notes are tidied"),
    "session_spend": Keep(why="numbers by purpose and model"),
    "reservations": Keep(why="numbers"),
    "spend_slices": Keep(why="numbers"),
    "spend_days": Keep(why="numbers by scope and day; the scope tokens is of nobody"),
    "recall_words": Keep(why="counts of the words of passages and files: a word goes with the last of them"),
    "knowledge": Keep(why="an operator's files"),
    "forks": Keep(why="ids, numbers and a hash: which conversation was copied from which"),
    "contact_links": Keep(why="ids and times: which persons are one"),
    "link_guesses": Keep(why="ids and times, for a day"),
    "visitors": Keep(why="a hash that opens the conversation, which goes on"),
    "recovery_codes": Keep(why="a hash that opens the conversation, which goes on"),
    "erasures": Keep(why="the log of erasures itself: numbers, ids, hashes; its work goes when it ends"),
    "agents": Keep(why="an operator's configuration"),
    "agent_versions": Keep(why="an operator's configuration"),
    "sites": Keep(why="an operator's configuration"),
    "refused_origins": Keep(why="addresses of sites, of nobody who talks"),
    "stored_settings": Keep(why="an operator's configuration; secrets are sealed"),
    "site_secrets": Keep(why="an operator's configuration, sealed"),
    "telegram_bots": Keep(why="an operator's configuration"),
    "deployment": Keep(why="about this installation"),
    "push_keys": Keep(why="about this installation, sealed"),
    "workers": Keep(why="about processes"),
    "process_faults": Keep(why="about processes: ids, and places in the code"),
    "alerts": Keep(why="numbers, fixed words and ids: facts by kind, never words of people"),
    "compaction_hooks": Keep(why="numbers, ids and fixed words about jobs"),
    "alert_sends": Keep(why="states of messages to operators"),
    "leases": Keep(why="about processes"),
    "mcp_tool_lists": Keep(why="names and hashes of tools of servers"),
    "duties": Keep(why="about processes, with errors in the server's words"),
    "job_kinds": Keep(why="an operator's configuration"),
    "hourly_stats": Keep(why="numbers by the hour, of nobody in particular"),
    "hour_turns": Keep(why="numbers of turns, for seconds"),
    "hour_jobs": Keep(why="kinds of jobs, for seconds"),
    "hour_open": Keep(why="numbers of turns that wait for an answer"),
    "hour_people": Keep(why="numbers of people, for three days: each is counted once a day"),
    "hour_marks": Keep(why="how far is counted"),
    "canned_replies": Keep(why="an operator's configuration"),
    "macros": Keep(why="an operator's configuration"),
    "operators": Keep(why="operators are not people who talk"),
    "operator_pictures": Keep(why="operators are not people who talk"),
    "operator_factors": Keep(why="operators are not people who talk; sealed keys and hashes"),
    "operator_steps": Keep(why="operators are not people who talk"),
    "operator_sessions": Keep(why="operators are not people who talk"),
    "login_tries": Keep(why="hashes of operators' names and addresses, for a day"),
    "login_places": Keep(why="keyed hashes of where operators logged in, for 90 days"),
    "login_links": Keep(why="operators are not people who talk"),
    "api_keys": Keep(why="an operator's configuration: names of programs, and hashes"),
    "audit": Keep(why="ids and numbers, never words; a chain of hashes"),
}
"""Action of each table of the schema, in the order of erasure."""
AT_ONCE: tuple[str, ...] = tuple(
    table for table, action in ACTIONS.items() if isinstance(action, Delete | Blank) and action.at_once
)
"""Tables that the first transaction of an erasure erases completely."""
STEPS: tuple[str, ...] = tuple(table for table, action in ACTIONS.items() if not isinstance(action, Keep))
"""Tables in the order of their erasure; an erasure in progress stores its position here."""
