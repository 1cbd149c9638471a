"""Answers to commands in English, which are those for every language that has none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shared.core.commands.commands import Command
from shared.core.commands.texts.memory import MemoryTexts
from shared.core.commands.texts.shown import (
    BudgetShown,
    ContextShown,
    FoundShown,
    LimitShown,
    LinkListed,
    Markdown,
    PinShown,
    ReminderShown,
    ReminderVerb,
    SettingsShown,
    UsageShown,
    bar,
    choices,
    columns,
    excerpt,
    in_full,
    with_hits,
)
from shared.core.tools.repeating import WEEKDAYS, Repeat


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandTexts:
    """Fields are fixed sentences; methods put numbers and names in."""

    language: str = "en"
    descriptions: Mapping[str, str] = field(default_factory=dict)
    """By a command's name, where the table's own English does not serve."""
    argument_descriptions: Mapping[str, str] = field(default_factory=dict)
    """By `command.argument`, likewise."""
    example: str = "Example"
    part_names: Mapping[str, str] = field(
        default_factory=lambda: {
            "history": "Conversation",
            "summary": "Summary",
            "memory": "Memories",
            "system": "Instructions",
            "tools": "Tools",
        }
    )

    sections: Mapping[str, str] = field(
        default_factory=lambda: {
            "talk": "Talking",
            "context": "What I see",
            "memory": "What I remember",
            "manner": "How I behave",
            "data": "Your data and channels",
        }
    )
    erase_all: str = "Erase all of it"
    erase_these: str = "Erase these"

    hello: Markdown = (
        "Hello! Write to me about anything; I remember what we talk about. `/help` shows what else I can do."
    )
    stopped: Markdown = "Stopped."
    nothing_to_stop: Markdown = "Nothing is being written at the moment."
    answering_again: Markdown = "I answer your last message again."
    trying_again: Markdown = "Your message waits for its answer. I try again now."
    nothing_to_retry: Markdown = "There is no message that I could answer again."
    still_answering: Markdown = "I am still answering. Stop that first, or wait for its end."
    fresh_start: Markdown = (
        "We begin afresh. What I know about you stays, and everything above can still be read."
    )
    new_already: Markdown = "This conversation is new already."
    separated: Markdown = "From here on I look only at what follows. Everything above can still be read."
    separated_already: Markdown = "There is nothing above that I still look at."

    organizing: str = "Organizing conversation…"
    compact_running: Markdown = "It was being done already; please look again."
    compact_goes_on: Markdown = "This takes a while; it goes on in the background and will show up here."
    compact_failed: Markdown = "It did not work; nothing was changed. Please try again later."
    nothing_to_compact: Mapping[str, str] = field(
        default_factory=lambda: {
            "nothing_old": "there are only the newest messages, and they stay as they are",
            "open_turn_too_big": "the message that I am answering takes most of the room",
            "pins": "all older messages are pinned",
            "gain_too_small": "it would save too little. `/compact --force` does it all the same",
            "unanswered": "an older message has no answer yet. `/compact --force` does it all the same",
            "grows": "its summary would be longer than what it replaces",
            "busy": "the conversation kept changing; please try again in a moment",
        }
    )

    context_empty: Markdown = "Nothing was sent to the model yet, so the context is empty."

    pinned_before: Markdown = "This is pinned already."
    not_pinned: Markdown = "This is not pinned."
    no_pins: Markdown = "Nothing is pinned. What is pinned I keep word for word, however long we talk."
    pin_unknown: Markdown = "I do not have this message, so I cannot pin it."
    pin_too_long: Markdown = "This is too long to keep word for word. Please pin something shorter."
    which_pin: Markdown = "Several messages are pinned. Send `/unpin` with a number of `/pins`."

    feedback_how: Markdown = "Write what you think behind it: `/feedback <text>`"
    feedback_kept: Markdown = "Thank you. I have noted this beside my last answer."
    feedback_of_nothing: Markdown = "There is no answer yet that this could be about."

    memory: MemoryTexts = field(default_factory=MemoryTexts)
    comes_once: Markdown = "This reminder comes only once. `/reminders cancel` removes it."

    search_what: Markdown = "Send `/search` with the words you are looking for."
    found_head: Markdown = "**Found, newest first**"
    found_more: Markdown = "There are older ones. More words narrow the search."
    speakers: Mapping[str, str] = field(
        default_factory=lambda: {"person": "You", "assistant": "Assistant", "operator": "Team"}
    )

    no_reminders: Markdown = "No reminders wait. Ask me in your own words to remind you of something."
    no_such_reminder: Markdown = "There is no such reminder. Send `/reminders` to see their numbers."
    reminders_head: Markdown = "**⏰ I will remind you**"
    reminders_failed: Markdown = "**Could not be told, because this chat was closed to me then**"

    link_refusals: Mapping[str, Markdown] = field(
        default_factory=lambda: {
            "no_code": "This code does not work. A code is good for ten minutes and once: please get a "
            "new one with `/link` on the other channel. After several wrong ones, wait ten minutes.",
            "own_code": "This is a code of your own. Type it on the *other* channel.",
            "too_many_codes": "You have had three codes within an hour; that is enough for now. "
            "One that you got less than ten minutes ago still works.",
            "busy": "An answer is still being written. Please try again when it is there.",
            "with_human": "Somebody of the team was asked for or is writing here. Please try again "
            "when the assistant answers again.",
            "group": "This works only where you talk with me alone, not in a group.",
            "not_here": "This is not possible here.",
            "moved": "This conversation goes on elsewhere by now. Please look there.",
        }
    )
    no_humans: Markdown = (
        "I am sorry: there is nobody here who could take over, only me. What can I do for you?"
    )
    human_asked: Markdown = (
        "I have asked for somebody of our team. They will write to you here; that may take some minutes. "
        "What you write meanwhile is kept and read. `/human cancel` takes it back."
    )
    human_asked_before: Markdown = "Somebody was asked for already. They will write to you here."
    human_too_often: Markdown = "Somebody was asked for several times just now. Please try again in an hour."
    human_taken_back: Markdown = "All right, I answer here again."
    human_not_asked: Markdown = "Nobody was asked for: I am the one who answers here."
    not_linked: Markdown = "This conversation is not joined with another channel."
    linked_before: Markdown = "Done already: both channels are one conversation."

    forgettable: Mapping[str, tuple[str, str]] = field(
        default_factory=lambda: {
            "entries": ("message", "messages"),
            "links": ("summary", "summaries"),
            "notes": ("memory", "memories"),
            "artifacts": ("long result", "long results"),
            "attachments": ("file", "files"),
            "pins": ("pin", "pins"),
        }
    )
    """One and many, by the names of `core.forgetting`."""
    forget_how: Markdown = "Send `/forget everything` to see what I would forget."
    nothing_to_forget: Markdown = "There is nothing of you that I could forget."
    forget_unasked: Markdown = (
        "Nothing was forgotten. Send `/forget everything` first: it shows what would go, and for ten minutes "
        "`/forget everything yes` does it."
    )
    on_hold: Markdown = (
        "Nothing was deleted: whoever runs this bot has to keep what is here for the time being, for a legal "
        "reason. Please ask them; they can lift that."
    )
    forgetting_goes_on: Markdown = (
        "Everything is out of use from now on. There is so much that its removal goes on in the background."
    )
    export_ready: Markdown = "Here is everything I have of you. The download begins by itself."
    nothing_to_export: Markdown = "We have not talked yet, so there is nothing to put into a file."

    no_goal: Markdown = "This conversation has no goal. Say what it is for: `/goal Plan our trip to Lisbon`"
    goal_cleared: Markdown = "The goal is taken back."

    refusals: Mapping[str, str] = field(default_factory=dict)
    """Why an undo or a restore was refused, by its reason; else the refusal's own advice."""

    def unknown_command(self, name: str, nearest: Sequence[str]) -> Markdown:
        """`name` as it was typed; `nearest`: what may have been meant."""
        return f"Unknown command /{name}. {self.did_you_mean(nearest)}"

    def command_help(self, command: Command) -> Markdown:
        """One command: how it is typed, what it does, its arguments, an example."""
        lines = [f"`{f'/{command.name} {command.args}'.rstrip()}`"]
        lines.append(self.descriptions.get(command.name, command.description))
        if command.arguments:
            told = {f"{command.name}.{one.name}": one.description for one in command.arguments}
            told |= {
                name: self.argument_descriptions[name]
                for name in told.keys() & self.argument_descriptions.keys()
            }
            shown = zip(command.arguments, told.values(), strict=True)
            lines.append("\n".join(f"- `{one.shown}` {about}" for one, about in shown))
            lines.append(f"{self.example}: `/{command.name} {command.example}`")
        return "\n\n".join(lines)

    def did_you_mean(self, nearest: Sequence[str]) -> Markdown:
        names = " or ".join(f"/{name}" for name in nearest)
        return f"Did you mean {names}? /help shows them all." if names else "/help shows what I know."

    def number(self, value: int) -> str:
        return f"{value:,}"

    def thousands(self, tokens: int) -> str:
        return f"{tokens / 1000:.1f}k" if tokens >= 1000 else str(tokens)

    def dollars(self, amount: float | None) -> str:
        """Unknown is shown as unknown."""
        return "–" if amount is None else f"${amount:.2f}" if amount >= 0.005 or not amount else "< $0.01"

    def gauge(self, *, percent: float, used: int, limit: int) -> str:
        return f"{percent:.0f} % · ~{self.thousands(used)}/{self.thousands(limit)}"

    def undone(self, *, after: int) -> Markdown:
        return (
            f"The older messages are back, word for word: the context holds {self.thousands(after)} tokens."
        )

    def restored(self, *, before: int, after: int) -> Markdown:
        return f"The summary is in use again: {self.thousands(before)} → {self.thousands(after)} tokens."

    def nothing_compacted(self, *, reason: str, detail: str) -> Markdown:
        words = self.nothing_to_compact.get(reason) or detail or reason
        return f"Nothing to summarise: {words}{self.sizes_of(reason, detail)}."

    def sizes_of(self, reason: str, detail: str) -> str:
        """Who insisted is told the numbers."""
        return f" ({detail})" if reason == "grows" and detail else ""

    def compacted(self, *, turns: int, before: int, after: int) -> Markdown:
        gain = "." if after < before else ": they were so short that nothing was saved."
        what = "1 turn" if turns == 1 else f"{turns:,} turns"
        sizes = f"{self.thousands(before)} → {self.thousands(after)} tokens"
        return f"Summarised {what}, {sizes}{gain} `/undo` brings them back."

    def excerpted(self, *, turns: int, before: int, after: int) -> Markdown:
        what = "1 turn" if turns == 1 else f"{turns:,} turns"
        sizes = f"{self.thousands(before)} → {self.thousands(after)} tokens"
        return (
            f"A mechanical excerpt of {what} for now, {sizes}: no model could write a summary. One takes its "
            "place when that works again. `/undo` brings them back."
        )

    def status(self, *, model: str, turns: int, hidden: int, summaries: int, gauge: str) -> Markdown:
        return "\n".join(
            (
                f"- Model: {excerpt(model)}",
                f"- Turns: {turns:,}, of which {hidden:,} are summarised",
                f"- Summaries so far: {summaries:,}",
                f"- Context: {gauge}",
            )
        )

    def context(self, shown: ContextShown) -> Markdown:
        rows = {
            self.part_names.get(name, name): self.number(size) for name, size in shown.parts.items() if size
        }
        rows[self.free_name] = self.number(max(0, shown.limit - shown.used))
        block = f"```\n{bar(shown.percent)} {shown.percent:.0f} %\n{columns(rows)}\n```"
        lines = "\n".join(f"- {line}" for line in self.context_lines(shown))
        return "\n\n".join([self.context_head(shown), block, *([lines] if lines else [])])

    @property
    def free_name(self) -> str:
        return "Free"

    def context_head(self, shown: ContextShown) -> Markdown:
        about = "about " if shown.estimated else ""
        of = f"{self.number(shown.used)} of {self.number(shown.limit)} tokens"
        return f"**What I have in view**: {about}{of}"

    def context_lines(self, shown: ContextShown) -> list[str]:
        lines = [f"The next summary is made at about {self.number(shown.limit)} tokens"]
        if shown.summarised_turns:
            lines.insert(0, f"{self.number(shown.summarised_turns)} older turns are summarised")
        if shown.recall:
            lines.append(f"Up to {self.number(shown.recall)} of it are recalled to fit your question")
        if shown.pins:
            lines.append(f"Pinned: {shown.pins}")
        if shown.cached_percent is not None:
            lines.append(f"{shown.cached_percent} % of the last request was read before, which costs a tenth")
        if shown.spent_usd is not None:
            lines.append(f"This conversation has cost {self.dollars(shown.spent_usd)} so far")
        return lines

    def usage(self, shown: UsageShown) -> Markdown:
        cached = "" if shown.cached_percent is None else f" ({shown.cached_percent} % of it read before)"
        upkeep = self.dollars(shown.upkeep_usd)
        cap = "" if shown.today_cap_usd is None else f" of {self.dollars(shown.today_cap_usd)}"
        return "\n".join(
            (
                "**What this conversation has used**",
                "",
                f"- Turns: {self.number(shown.turns)}, summaries: {self.number(shown.summaries)}",
                f"- Sent: {self.number(shown.input_tokens)} tokens{cached}",
                f"- Written: {self.number(shown.output_tokens)} tokens",
                f"- Cost: {self.dollars(shown.spent_usd)}, of which {upkeep} for summaries and memory",
                f"- Today: {self.dollars(shown.today_usd)}{cap}",
            )
        )

    scope_names: Mapping[str, str] = field(
        default_factory=lambda: {
            "party": "You",
            "session": "This conversation",
            "total": "Everybody together",
        }
    )

    def budget(self, shown: BudgetShown) -> Markdown:
        lines = [self.limit_line(limit) for limit in shown.limits] or ["No limit is set."]
        lines.append(f"This conversation today: {self.dollars(shown.session_usd)}")
        if shown.unknown_calls:
            lines[-1] += f", and {self.number(shown.unknown_calls)} calls of unknown price"
        if shown.limits:
            lines.append(f"It begins anew at {shown.anew}")
        if shown.unpriced_model:
            lines.append(f"The price of {excerpt(shown.unpriced_model)} is not known, so it is not counted")
        if shown.old_price:
            lines.append(f"Prices are those of {excerpt(shown.old_price)} and may have changed")
        return "\n".join(("**What may be spent today**", "", *(f"- {line}" for line in lines)))

    def limit_line(self, limit: LimitShown) -> str:
        name = self.scope_names.get(limit.scope, limit.scope)
        used = f"{self.dollars(limit.spent_usd)} of {self.dollars(limit.cap_usd)} ({limit.percent} %)"
        return f"{name}: {used} {limit.sign}".rstrip()

    def channel(self, name: str) -> str:
        return {"telegram": "Telegram", "web": "the web page"}.get(name, name or "another channel")

    def link_code(self, *, code: str, minutes: int) -> Markdown:
        return (
            f"Your code: `{code}`\n\nWithin {minutes} minutes, send `/link {code}` to me on the other "
            "channel. The conversation where you *type* it goes on, for both; the one here is kept, to be "
            "read and exported. What I remember becomes one. "
            "Give the code to nobody: whoever types it reads along."
        )

    def linked(self, *, channel: str, agent: str, other_agent: str) -> Markdown:
        other = self.channel(channel)
        words = (
            f"Joined with {other}: from now on this is one conversation, here and there. "
            "Your earlier conversation there is kept as it is; you find it in the export. "
            "`/unlink` parts them again."
        )
        return words if agent == other_agent else f"{words}\n\n{self.agent_stays(agent)}"

    def agent_stays(self, agent: str) -> Markdown:
        return f"On both, the assistant of this conversation answers: {excerpt(agent)}."

    def unlinked(self, *, channel: str, here: bool) -> Markdown:
        where = "here" if here else f"on {self.channel(channel)}"
        return (
            f"Parted. The conversation from before goes on {where}. What was said and remembered since then "
            "stays with the one that went on."
        )

    def which_link(self, links: Sequence[LinkListed]) -> Markdown:
        rows = "\n".join(f"{number}. {self.listed(link)}" for number, link in enumerate(links, 1))
        return f"Several channels are joined. Send `/unlink` with a number:\n\n{rows}"

    def listed(self, link: LinkListed) -> Markdown:
        title = f" “{excerpt(link.title)}”" if link.title else ""
        return f"{self.channel(link.channel)}{title}, since {link.day}"

    def feedback_too_long(self, *, most: int) -> Markdown:
        return f"This is too long to be noted: {self.number(most)} characters are the most."

    def pinned(self, *, words: str) -> Markdown:
        return f"📌 Pinned: “{excerpt(words)}” I keep this word for word, however long we talk."

    def unpinned(self, *, words: str) -> Markdown:
        return f"No longer pinned: “{excerpt(words)}”"

    def amounts(self, counts: Mapping[str, int]) -> str:
        shown = [
            f"- {self.number(counts[name])} {one if counts[name] == 1 else many}"
            for name, (one, many) in self.forgettable.items()
            if counts.get(name)
        ]
        return "\n".join(shown)

    def forget_preview(self, *, counts: Mapping[str, int]) -> Markdown:
        return (
            f"**This would be gone for good**\n\n{self.amounts(counts)}\n\n"
            "and everything else that holds your words, in all our conversations. `/export` gives you a copy "
            "first. To go on, send `/forget everything yes` within ten minutes."
        )

    def forgotten(self, *, counts: Mapping[str, int], telegram: bool) -> Markdown:
        rows = self.amounts(counts)
        there = (
            " What stands in this chat lies with Telegram: delete it there, I cannot do that for you."
            if telegram
            else ""
        )
        listed = f"\n\n{rows}\n\n" if rows else " "
        return f"**Forgotten**{listed}Only numbers are kept, such as what was spent. We begin anew.{there}"

    def pins(self, pins: Sequence[PinShown]) -> Markdown:
        rows = "\n".join(f"{number}. “{excerpt(pin.text)}”" for number, pin in enumerate(pins, 1))
        return f"**📌 Pinned: I keep these word for word**\n\n{rows}"

    def reminders(self, waiting: Sequence[ReminderShown], failed: Sequence[ReminderShown]) -> Markdown:
        numbered = [f"{number}. {self.reminder(one)}" for number, one in enumerate(waiting, 1)]
        lost = [f"- {self.reminder(one)}" for one in failed]
        blocks = (self.reminders_head, "\n".join(numbered)) if numbered else ()
        more = (self.reminders_failed, "\n".join(lost)) if lost else ()
        return "\n\n".join((*blocks, *more))

    def reminder(self, one: ReminderShown) -> Markdown:
        again = f", {self.repeats(one.repeat)}" if one.repeat else ""
        paused = f" ⏸ {self.paused}" if one.paused else ""
        return f"{one.due} ({excerpt(one.zone)}){again}: “{excerpt(one.text)}”{paused}"

    paused: str = "paused"
    weekday_names: Sequence[str] = (
        "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday",
    )  # fmt: skip

    def repeats(self, rule: Repeat) -> str:
        """When something comes again, without the time, which stands before it."""
        if rule.unit == "month":
            if rule.every % 12 == 0:
                return "every year" if rule.every == 12 else f"every {rule.every // 12} years"
            return "every month" if rule.every == 1 else f"every {rule.every} months"
        if rule.unit == "day":
            return "every day" if rule.every == 1 else f"every {rule.every} days"
        days = ", ".join(self.weekday_names[WEEKDAYS.index(day)] for day in rule.weekdays)
        return f"every {days}" if rule.every == 1 else f"every {rule.every} weeks on {days}"

    def nothing_found(self, *, words: str) -> Markdown:
        return f"Nothing was found for “{excerpt(words)}”."

    def found(self, hits: Sequence[FoundShown], *, more: bool) -> Markdown:
        rows = "\n".join(
            f"{number}. {one.day}, {self.speakers.get(one.author, one.author)}: {with_hits(one.excerpt)}"
            for number, one in enumerate(hits, 1)
        )
        return "\n\n".join([self.found_head, rows, *([self.found_more] if more else [])])

    def human_is_here(self, *, name: str) -> Markdown:
        return f"{excerpt(name)} is here and reads what you write."

    def reminder_choice(self, *, verb: ReminderVerb, number: int) -> str:
        return f"{verb.capitalize()} {number}"

    def reminder_paused(self, *, words: str) -> Markdown:
        return f"Paused: “{excerpt(words)}” `/reminders resume` and its number starts it again."

    def reminder_resumed(self, *, one: ReminderShown) -> Markdown:
        return f"On again: {self.reminder(one)}"

    def reminder_cancelled(self, *, words: str) -> Markdown:
        return f"Cancelled: “{excerpt(words)}”"

    def goal(self, *, words: str) -> Markdown:
        return f"The goal of this conversation: “{in_full(words)}” `/goal -` takes it back."

    def goal_set(self, *, words: str) -> Markdown:
        return f"From now on I keep this in view: “{in_full(words)}”"

    def goal_too_long(self, *, chars: int, most: int) -> Markdown:
        return f"The goal has {self.number(chars)} characters; {most} is the most. Nothing was changed."

    def modes(self, *, mode: str, modes: Sequence[str]) -> Markdown:
        return f"I answer in the mode `{mode}`. There are {choices(modes)}: send `/mode` with one of them."

    def mode_set(self, *, mode: str) -> Markdown:
        return f"From now on I answer in the mode `{mode}`."

    def mode_unknown(self, *, name: str, modes: Sequence[str]) -> Markdown:
        return f"There is no mode “{excerpt(name)}”. There are {choices(modes)}."

    def models(self, *, model: str, models: Sequence[str]) -> Markdown:
        if not models:
            return f"The model {choices([model])} answers here. There is no other to choose."
        return (
            f"The model {choices([model])} answers here. "
            f"You can choose {choices(models)}: send `/model` and its name."
        )

    def model_set(self, *, model: str) -> Markdown:
        return f"From the next message on {choices([model])} answers here."

    def model_unknown(self, *, name: str, models: Sequence[str]) -> Markdown:
        offered = f"You can choose {choices(models)}." if models else "There is none to choose here."
        return f"“{excerpt(name)}” is not among the models here. {offered}"

    def settings(self, shown: SettingsShown) -> Markdown:
        goal = f"“{in_full(shown.goal)}”" if shown.goal else "none"
        models = f"; `/model` and one of {choices(shown.models)}" if shown.models else ""
        return "\n".join(
            (
                "**How I behave in this conversation**",
                "",
                f"- Goal: {goal}; `/goal` and your words, `/goal -` for none",
                f"- Mode: `{shown.mode}`; `/mode` and one of {choices(shown.modes)}",
                f"- Model: {choices([shown.model])}{models}",
            )
        )
