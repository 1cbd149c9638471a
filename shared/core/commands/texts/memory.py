"""What the commands of memory answer, in English and German."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shared.core.commands.texts.shown import Markdown, excerpt
from shared.core.context.notes import KeptNote

_ROW_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTexts:
    title: Markdown = "**What I remember**"
    nothing: Markdown = "I remember nothing yet. `/remember` keeps a sentence; I also note things as we talk."
    how_to_forget: Markdown = "`/forget` with a number of this list, or with a word, lets go of it."
    remember_what: Markdown = "Send `/remember` with what I shall keep, in one sentence."
    known_before: Markdown = "I know this already."
    left_out: Markdown = "I left the secret out of it: passwords and keys are never kept."
    forget_what: Markdown = (
        "Send `/forget` with a word that stands in it, or with a number that `/memory` shows."
    )
    preview_title: Markdown = "**This would be erased for good**"
    confirm_one: Markdown = "To erase it, send `/forget yes` within ten minutes."
    confirm_some: Markdown = (
        "To erase all of these, send `/forget yes` within ten minutes, or `/forget` with a number for one."
    )
    no_list: Markdown = (
        "I do not know which you mean: a list serves once, for ten minutes. Nothing was erased."
    )
    stays: Markdown = (
        "I will not note it again by myself. What was said in our conversation, and its summaries, stay."
    )
    everything_too: Markdown = "`/forget everything` erases those, too."
    marks: Mapping[str, str] = field(
        default_factory=lambda: {
            "tool": "from a tool",
            "replaced": "out of date",
            "put_away": "put away",
        }
    )
    kinds: Mapping[str, str] = field(default_factory=dict)

    def listed(self, notes: Sequence[KeptNote], *, total: int) -> Markdown:
        parts = [self.title, self.rows(notes), *self.and_more(total - len(notes)), self.how_to_forget]
        return "\n\n".join(parts)

    def preview(self, notes: Sequence[KeptNote], *, total: int) -> Markdown:
        confirm = self.confirm_one if len(notes) == 1 else self.confirm_some
        return "\n\n".join(
            [self.preview_title, self.rows(notes), *self.and_more(total - len(notes)), confirm]
        )

    def rows(self, notes: Sequence[KeptNote]) -> Markdown:
        return "\n".join(f"{number}. {self.row(note)}" for number, note in enumerate(notes, 1))

    def row(self, note: KeptNote) -> Markdown:
        kind = self.kinds.get(note.kind, note.kind)
        about = [kind, f"{note.observed_at:%Y-%m-%d}"]
        about += [self.marks[mark] for mark in (note.state, note.authority) if mark in self.marks]
        return f"{excerpt(note.text, most=_ROW_CHARS)} ({', '.join(about)})"

    def and_more(self, more: int) -> list[Markdown]:
        return [self.more(more)] if more > 0 else []

    def more(self, count: int) -> Markdown:
        return f"… and {count:,} more; a word behind the command finds them."

    def nothing_about(self, words: str) -> Markdown:
        return f"I remember nothing about “{excerpt(words)}”."

    def noted(self, text: str) -> Markdown:
        return f"I will remember: “{excerpt(text, most=_ROW_CHARS)}”"

    def erased(self, count: int) -> Markdown:
        notes = "1 note" if count == 1 else f"{count:,} notes"
        return f"Erased for good: {notes}."


@dataclass(frozen=True, slots=True, kw_only=True)
class GermanMemoryTexts(MemoryTexts):
    title: Markdown = "**Was ich noch weiß**"
    nothing: Markdown = (
        "Ich habe mir noch nichts gemerkt. `/remember` merkt einen Satz; manches merke ich mir beim Reden."
    )
    how_to_forget: Markdown = "`/forget` mit einer Nummer dieser Liste, oder mit einem Wort, löscht etwas."
    remember_what: Markdown = "Schick `/remember` mit dem, was ich mir merken soll, in einem Satz."
    known_before: Markdown = "Das weiß ich schon."
    left_out: Markdown = (
        "Das Geheimnis darin habe ich weggelassen: Passwörter und Schlüssel merke ich mir nie."
    )
    forget_what: Markdown = (
        "Schick `/forget` mit einem Wort, das darin vorkommt, oder mit einer Nummer aus `/memory`."
    )
    preview_title: Markdown = "**Das würde für immer gelöscht**"
    confirm_one: Markdown = "Zum Löschen schick innerhalb von zehn Minuten `/forget yes`."
    confirm_some: Markdown = (
        "Um alles davon zu löschen, schick innerhalb von zehn Minuten `/forget yes`, für eines `/forget` mit "
        "seiner Nummer."
    )
    no_list: Markdown = (
        "Ich weiß nicht, was gemeint ist: Eine Liste gilt einmal und zehn Minuten. Es wurde nichts gelöscht."
    )
    stays: Markdown = (
        "Von selbst merke ich es mir nicht wieder. Was im Gespräch gesagt wurde, bleibt, samt den "
        "Zusammenfassungen."
    )
    everything_too: Markdown = "`/forget everything` löscht auch die."
    marks: Mapping[str, str] = field(
        default_factory=lambda: {
            "tool": "aus einem Werkzeug",
            "replaced": "überholt",
            "put_away": "weggelegt",
        }
    )
    kinds: Mapping[str, str] = field(
        default_factory=lambda: {
            "profile": "Person",
            "preference": "Vorliebe",
            "fact": "Tatsache",
            "decision": "Entscheidung",
            "event": "Ereignis",
            "plan": "Plan",
            "relation": "Beziehung",
            "instruction": "Anweisung",
        }
    )

    def more(self, count: int) -> Markdown:
        return f"… und {count:,} weitere; ein Wort hinter dem Befehl findet sie.".replace(",", ".")

    def nothing_about(self, words: str) -> Markdown:
        return f"Zu „{excerpt(words)}“ weiß ich nichts."

    def noted(self, text: str) -> Markdown:
        return f"Gemerkt: „{excerpt(text, most=_ROW_CHARS)}“"

    def erased(self, count: int) -> Markdown:
        return f"Für immer gelöscht: {'1 Notiz' if count == 1 else f'{count} Notizen'}."
