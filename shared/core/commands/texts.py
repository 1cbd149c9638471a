"""Texts that answers of several commands share, and foreign text made safe for Markdown."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TypeAlias

from shared.core.commands.commands import Command
from shared.core.context.notes import KeptNote
from shared.locales import Catalogue

Markdown: TypeAlias = str
"""Markdown text, as the widget and the Telegram renderer read it."""

EXCERPT_CHARS = 80
"""Most characters of an excerpt."""
NOTE_SHOWN = 200
"""Most characters of a note that lists show."""
_MARKS = re.compile(r"[\\`*_~\[<>#|$&!]")
"""Characters escaped in foreign text. "]" is not: it is a mark only after an escaped bracket."""


def bullets(lines: Sequence[str]) -> Markdown:
    """Return lines as a Markdown bullet list; lines are not escaped."""
    return "\n".join(f"- {line}" for line in lines)


def number_lines(lines: Sequence[str], *, first: int = 1) -> Markdown:
    """Return lines as a Markdown numbered list that begins with the number `first`; lines are not escaped."""
    return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, first))


def excerpt(words: str, *, most: int = EXCERPT_CHARS) -> str:
    """Return the beginning of a text on one line, at most `most` characters, then escaped for Markdown."""
    line = " ".join(words.split())
    return escape(line if len(line) <= most else line[: most - 1].rstrip() + "…")


def escape(words: str) -> Markdown:
    """Return a text with all characters that Markdown could read as marks escaped by backslashes."""
    return _MARKS.sub(r"\\\g<0>", words)


def choices(names: Sequence[str]) -> Markdown:
    """Return names as inline code, separated by commas, without backticks in them."""
    return ", ".join(f"`{name.replace('`', '')}`" for name in names)


def command_help(command: Command, texts: Catalogue) -> Markdown:
    """Return the help of one command in Markdown, in the language of `texts`.

    It has how the command is typed, what it does, its arguments and an example.
    """
    language = texts.language
    lines = [f"`{f'/{command.name} {command.args}'.rstrip()}`", command.describe(language)]
    if command.arguments:
        told = [f"`{one.shown}` {command.describe_argument(one, language)}" for one in command.arguments]
        lines.append(bullets(told))
        typed = f"/{command.name} {command.show_example(language)}"
        lines.append(texts.say("example", command=typed))
    return "\n\n".join(lines)


def did_you_mean(nearest: Sequence[str], texts: Catalogue) -> Markdown:
    """Return a question that suggests the commands in `nearest`, or a reference to `/help` if there are
    none.
    """
    if not nearest:
        return texts.say("see_help")
    return texts.say("did_you_mean", commands=texts.either([f"/{name}" for name in nearest]))


def unknown_command(name: str, nearest: Sequence[str], texts: Catalogue) -> Markdown:
    """Return the answer to an unknown command, in Markdown; `nearest` are similar names to suggest, perhaps
    none.
    """
    return f"{texts.say('unknown_command', name=name)} {did_you_mean(nearest, texts)}"


def _note(note: KeptNote, texts: Catalogue) -> Markdown:
    keys = (f"note_kind_{note.kind}", f"note_mark_{note.state}", f"note_mark_{note.authority}")
    kind, *marks = [texts.say(key) if key in texts else "" for key in keys]
    about = [kind or note.kind, f"{note.observed_at:%Y-%m-%d}", *filter(None, marks)]
    return f"{excerpt(note.text, most=NOTE_SHOWN)} ({', '.join(about)})"


def group_by_subject(notes: Sequence[KeptNote]) -> tuple[KeptNote, ...]:
    """Return the notes with those of a shared subject next to each other, after notes whose subject is
    unique.

    Otherwise their order stays. Case and blanks of subjects do not count.
    """
    count = Counter(_subject(note) for note in notes)
    first = {_subject(note): at for at, note in reversed([*enumerate(notes)])}

    def place(note: KeptNote) -> int:
        return first[_subject(note)] if _is_shared(note, count) else -1

    return tuple(sorted(notes, key=place))


def note_list(
    title: Markdown,
    notes: Sequence[KeptNote],
    texts: Catalogue,
    *,
    first: int = 1,
    more: int = 0,
    by_subject: bool = False,
) -> Markdown:
    """Return a titled, numbered list of notes in Markdown.

    `first` is the first number, `more` the number of notes not shown, 0 for none. `by_subject` adds a heading
    for each subject with several notes; the notes must then come from `group_by_subject`.
    """
    rest = [texts.say("memory_more", count=more)] if more > 0 else []
    if not by_subject:
        return "\n\n".join([title, number_lines([_note(note, texts) for note in notes], first=first), *rest])
    count = Counter(_subject(note) for note in notes)
    parts: list[Markdown] = [title]
    for subject, group in groupby(notes, key=lambda note: _subject(note) if _is_shared(note, count) else ""):
        some = [*group]
        if subject:
            parts.append(f"**{excerpt(some[0].subject)}**")
        parts.append(number_lines([_note(note, texts) for note in some], first=first))
        first += len(some)
    return "\n\n".join([*parts, *rest])


def _subject(note: KeptNote) -> str:
    return " ".join(note.subject.casefold().split())


def _is_shared(note: KeptNote, count: Mapping[str, int]) -> bool:
    subject = _subject(note)
    return bool(subject) and count[subject] > 1
