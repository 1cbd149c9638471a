"""Answers to commands in German."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shared.core.commands.texts.english import CommandTexts
from shared.core.commands.texts.memory import GermanMemoryTexts, MemoryTexts
from shared.core.commands.texts.shown import (
    BudgetShown,
    ContextShown,
    LimitShown,
    LinkListed,
    Markdown,
    PinShown,
    ReminderShown,
    ReminderVerb,
    SettingsShown,
    UsageShown,
    choices,
    excerpt,
    in_full,
)
from shared.core.tools.repeating import WEEKDAYS, Repeat

_REMINDER_VERBS: Mapping[ReminderVerb, str] = {
    "cancel": "absagen", "pause": "anhalten", "resume": "fortsetzen",
}  # fmt: skip
_ARGUMENTS: Mapping[str, str] = {
    "help.command": "der Name eines Befehls, etwa compact",
    "compact.force": "auch wenn es wenig bringt",
    "compact.focus": "was die Zusammenfassung vor allem behalten soll",
    "pin.message": "die Nummer einer Nachricht, etwa m12; ohne sie die neueste Antwort",
    "unpin.message": "die Nummer einer Nachricht, etwa m12, oder ihre Nummer in /pins",
    "feedback.text": "was du denkst",
    "memory.words": "wonach gesucht wird",
    "remember.text": "der Satz",
    "forget.what": "Wörter, eine Nummer der Liste, oder `everything`",
    "search.words": "wonach gesucht wird",
    "reminders.cancel": "ihre Nummer in der Liste",
    "reminders.pause": "ihre Nummer in der Liste",
    "reminders.resume": "ihre Nummer in der Liste",
    "link.code": "was der andere Kanal gezeigt hat",
    "unlink.number": "seine Nummer in der Liste",
    "human.text": "worum es geht; `cancel` nimmt es zurück",
    "goal.text": "wofür das Gespräch da ist; `-` nimmt es zurück",
    "mode.name": "einer Art zu antworten; `-` nimmt sie zurück",
    "model.name": "eines Modells; `-` nimmt es zurück",
    "export.format": "ohne das Wort kommt Markdown",
}
_DESCRIPTIONS: Mapping[str, str] = {
    "help": "Zeigen, was du hier tun kannst, oder einen Befehl erklären",
    "start": "Begrüßung, und wie es geht",
    "new": "Neu anfangen; was gesagt wurde, bleibt",
    "stop": "Die Antwort anhalten, die gerade entsteht",
    "retry": "Deine letzte Nachricht noch einmal beantworten",
    "compact": "Ältere Nachrichten jetzt zusammenfassen",
    "undo": "Die letzte Zusammenfassung zurücknehmen",
    "status": "Zeigen, wie es um das Gespräch steht",
    "context": "Zeigen, was der Assistent im Blick hat",
    "usage": "Zeigen, was das Gespräch verbraucht hat",
    "budget": "Zeigen, was heute noch ausgegeben werden darf",
    "separator": "Alles darüber dem Assistenten nicht mehr zeigen",
    "pin": "Eine Nachricht Wort für Wort behalten; als Antwort senden",
    "unpin": "Angeheftetes wieder lösen; als Antwort senden",
    "pins": "Zeigen, was angeheftet ist",
    "feedback": "Sagen, was du von der letzten Antwort hältst",
    "memory": "Zeigen, was ich mir gemerkt habe; mit Worten auch suchen",
    "remember": "Einen Satz für immer merken",
    "forget": "Löschen, was du nennst, oder mit everything alles; zeigt zuerst, was es wäre",
    "search": "Alles durchsuchen, was hier gesagt wurde",
    "reminders": "Deine Erinnerungen zeigen, anhalten oder absagen",
    "link": "Dieses Gespräch auf einem anderen Kanal weiterführen: hier einen Code holen, dort eingeben",
    "unlink": "Zwei Kanäle wieder trennen, die mit /link verbunden wurden",
    "human": "Einen Menschen aus dem Team rufen; `cancel` nimmt es zurück",
    "export": "Das ganze Gespräch als Datei bekommen",
    "goal": "Sagen, wozu dieses Gespräch da ist; `-` nimmt es zurück",
    "mode": "Wählen, wie ich antworte: brief (kurz), thorough (gründlich) …",
    "model": "Wählen, welches Modell antwortet",
    "settings": "Wählen, wie ich mich in diesem Chat verhalte",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GermanCommandTexts(CommandTexts):
    language: str = "de"
    descriptions: Mapping[str, str] = field(default_factory=lambda: _DESCRIPTIONS)
    argument_descriptions: Mapping[str, str] = field(default_factory=lambda: _ARGUMENTS)
    example: str = "Beispiel"
    part_names: Mapping[str, str] = field(
        default_factory=lambda: {
            "history": "Gespräch",
            "summary": "Zusammenfassung",
            "memory": "Erinnerungen",
            "system": "Anweisungen",
            "tools": "Werkzeuge",
        }
    )

    memory: MemoryTexts = field(default_factory=GermanMemoryTexts)
    sections: Mapping[str, str] = field(
        default_factory=lambda: {
            "talk": "Reden",
            "context": "Was ich sehe",
            "memory": "Was ich mir merke",
            "manner": "Wie ich mich verhalte",
            "data": "Deine Daten und Kanäle",
        }
    )
    erase_all: str = "Alles löschen"
    erase_these: str = "Diese löschen"

    hello: Markdown = (
        "Hallo! Schreib mir, worüber du magst; ich weiß noch, was wir gesagt haben. "
        "`/help` zeigt, was ich noch kann."
    )
    stopped: Markdown = "Angehalten."
    nothing_to_stop: Markdown = "Ich schreibe gerade nichts."
    answering_again: Markdown = "Ich beantworte deine letzte Nachricht noch einmal."
    trying_again: Markdown = "Deine Nachricht wartet auf ihre Antwort. Ich versuche es jetzt wieder."
    nothing_to_retry: Markdown = "Es gibt keine Nachricht, die ich noch einmal beantworten könnte."
    still_answering: Markdown = "Ich antworte noch. Halte das erst an, oder warte das Ende ab."
    fresh_start: Markdown = "Wir fangen neu an. Was ich über dich weiß, bleibt, und alles oben bleibt lesbar."
    new_already: Markdown = "Dieses Gespräch ist schon neu."
    separated: Markdown = "Ab hier sehe ich mir nur noch an, was folgt. Alles oben bleibt lesbar."
    separated_already: Markdown = "Darüber steht nichts, was ich noch ansehe."

    link_refusals: Mapping[str, Markdown] = field(
        default_factory=lambda: {
            "no_code": "Dieser Code geht nicht. Ein Code gilt zehn Minuten und einmal: Hol dir bitte "
            "mit `/link` auf dem anderen Kanal einen neuen. Nach mehreren falschen warte zehn Minuten.",
            "own_code": "Das ist dein eigener Code. Gib ihn auf dem *anderen* Kanal ein.",
            "too_many_codes": "Du hast in einer Stunde drei Codes bekommen, das reicht fürs Erste. "
            "Einer, der keine zehn Minuten alt ist, gilt noch.",
            "busy": "Ich schreibe noch an einer Antwort. Bitte versuch es wieder, wenn sie da ist.",
            "with_human": "Hier ist jemand aus dem Team gerufen oder schreibt gerade. Bitte versuch es "
            "wieder, wenn der Assistent wieder antwortet.",
            "group": "Das geht nur, wo du mit mir allein sprichst, nicht in einer Gruppe.",
            "not_here": "Das geht hier nicht.",
            "moved": "Dieses Gespräch geht inzwischen anderswo weiter. Bitte sieh dort nach.",
        }
    )
    no_humans: Markdown = (
        "Es tut mir leid: Hier ist niemand, der übernehmen könnte, nur ich. Was kann ich tun?"
    )
    human_asked: Markdown = (
        "Ich habe jemanden aus unserem Team gerufen. Du bekommst hier Antwort; das kann einige Minuten "
        "dauern. Was du inzwischen schreibst, wird aufbewahrt und gelesen. `/human cancel` nimmt es zurück."
    )
    human_asked_before: Markdown = "Es ist schon jemand gerufen. Du bekommst hier Antwort."
    human_too_often: Markdown = (
        "Gerade eben ist mehrmals jemand gerufen worden. Bitte versuch es in einer Stunde wieder."
    )
    human_taken_back: Markdown = "Gut, dann antworte ich hier wieder."
    human_not_asked: Markdown = "Es ist niemand gerufen: Hier antworte ich."
    not_linked: Markdown = "Dieses Gespräch ist mit keinem anderen Kanal verbunden."
    linked_before: Markdown = "Schon geschehen: Beide Kanäle sind ein Gespräch."

    no_goal: Markdown = (
        "Dieses Gespräch hat kein Ziel. Sag, wozu es da ist: `/goal Unsere Reise nach Lissabon planen`"
    )
    goal_cleared: Markdown = "Das Ziel ist zurückgenommen."

    organizing: str = "Ich ordne das Gespräch …"
    compact_running: Markdown = "Das war schon im Gange; bitte sieh noch einmal nach."
    compact_goes_on: Markdown = "Das dauert etwas; es geht im Hintergrund weiter und erscheint dann hier."
    compact_failed: Markdown = (
        "Das hat nicht geklappt; nichts wurde verändert. Bitte versuch es später noch einmal."
    )
    nothing_to_compact: Mapping[str, str] = field(
        default_factory=lambda: {
            "nothing_old": "es gibt nur die neuesten Nachrichten, und die bleiben, wie sie sind",
            "open_turn_too_big": "die Nachricht, die ich gerade beantworte, nimmt den meisten Platz ein",
            "pins": "alle älteren Nachrichten sind angeheftet",
            "gain_too_small": "das würde zu wenig sparen. `/compact --force` macht es trotzdem",
            "unanswered": "etwas Älteres ist noch ohne Antwort. `/compact --force` macht es trotzdem",
            "grows": "die Zusammenfassung wäre länger als das, was sie ersetzt",
            "busy": "das Gespräch hat sich ständig verändert; bitte versuch es gleich noch einmal",
        }
    )

    context_empty: Markdown = "Es wurde noch nichts an das Modell geschickt, der Blick ist also leer."

    feedback_how: Markdown = "Schreib dahinter, was du meinst: `/feedback <text>`"
    feedback_kept: Markdown = "Danke. Das habe ich neben meiner letzten Antwort vermerkt."
    feedback_of_nothing: Markdown = "Es gibt noch keine Antwort, um die es gehen könnte."

    pinned_before: Markdown = "Das ist schon angeheftet."
    not_pinned: Markdown = "Das ist nicht angeheftet."
    no_pins: Markdown = (
        "Nichts ist angeheftet. Angeheftetes behalte ich Wort für Wort, egal wie lange wir reden."
    )
    pin_unknown: Markdown = "Diese Nachricht habe ich nicht und kann sie nicht anheften."
    pin_too_long: Markdown = (
        "Das ist zu lang, um es Wort für Wort zu behalten. Bitte hefte etwas Kürzeres an."
    )
    which_pin: Markdown = "Mehreres ist angeheftet. Schick `/unpin` mit einer Nummer aus `/pins`."

    comes_once: Markdown = "Diese Erinnerung kommt nur einmal. `/reminders cancel` sagt sie ab."

    search_what: Markdown = "Schick `/search` mit den Wörtern, nach denen du suchst."
    found_head: Markdown = "**Gefunden, das Neueste zuerst**"
    found_more: Markdown = "Es gibt noch ältere. Mehr Wörter grenzen die Suche ein."
    speakers: Mapping[str, str] = field(
        default_factory=lambda: {"person": "Du", "assistant": "Assistent", "operator": "Team"}
    )

    no_reminders: Markdown = "Es steht keine Erinnerung aus. Bitte mich einfach, dich an etwas zu erinnern."
    no_such_reminder: Markdown = "Diese Erinnerung gibt es nicht. `/reminders` zeigt die Nummern."
    reminders_head: Markdown = "**⏰ Ich erinnere dich**"
    reminders_failed: Markdown = "**Nicht überbracht, weil dieser Chat mir da verschlossen war**"

    forgettable: Mapping[str, tuple[str, str]] = field(
        default_factory=lambda: {
            "entries": ("Nachricht", "Nachrichten"),
            "links": ("Zusammenfassung", "Zusammenfassungen"),
            "notes": ("Erinnerung", "Erinnerungen"),
            "artifacts": ("langes Ergebnis", "lange Ergebnisse"),
            "attachments": ("Datei", "Dateien"),
            "pins": ("Angeheftetes", "Angeheftete"),
        }
    )
    forget_how: Markdown = "Schick `/forget everything`, und ich zeige, was ich vergessen würde."
    nothing_to_forget: Markdown = "Es gibt nichts von dir, was ich vergessen könnte."
    forget_unasked: Markdown = (
        "Nichts wurde vergessen. Schick erst `/forget everything`: das zeigt, was verschwände, und zehn "
        "Minuten lang tut `/forget everything yes` es dann."
    )
    on_hold: Markdown = (
        "Nichts wurde gelöscht: Wer diesen Bot betreibt, muss aus rechtlichen Gründen vorerst alles "
        "aufbewahren, was hier steht. Frag dort nach; es lässt sich wieder aufheben."
    )
    forgetting_goes_on: Markdown = (
        "Alles ist ab jetzt außer Gebrauch. Es ist so viel, dass das Entfernen im Hintergrund weitergeht."
    )
    export_ready: Markdown = "Hier ist alles, was ich von dir habe. Der Download beginnt von selbst."
    nothing_to_export: Markdown = "Wir haben noch nicht geredet, also gibt es nichts für eine Datei."

    refusals: Mapping[str, str] = field(
        default_factory=lambda: {
            "nothing_to_undo": "Es wurde noch nichts zusammengefasst.",
            "crosses_new": "Davor liegt ein Neuanfang; so weit geht es nicht zurück.",
            "would_not_fit": (
                "Die alten Nachrichten passen nicht mehr auf einmal in meinen Blick. Sie bleiben lesbar."
            ),
            "nothing_to_restore": "Es gibt keine Zusammenfassung, die zurückgeholt werden kann.",
            "newer_turns": "Inzwischen haben wir weitergeredet; das geht nicht mehr.",
        }
    )

    def unknown_command(self, name: str, nearest: Sequence[str]) -> Markdown:
        return f"Unbekannter Befehl /{name}. {self.did_you_mean(nearest)}"

    def did_you_mean(self, nearest: Sequence[str]) -> Markdown:
        names = " oder ".join(f"/{name}" for name in nearest)
        return f"Meintest du {names}? /help zeigt alle." if names else "/help zeigt, welche ich kenne."

    def number(self, value: int) -> str:
        return f"{value:,}".replace(",", ".")

    def thousands(self, tokens: int) -> str:
        return f"{tokens / 1000:.1f}k".replace(".", ",") if tokens >= 1000 else str(tokens)

    def dollars(self, amount: float | None) -> str:
        if amount is None:
            return "–"
        return f"{amount:.2f} $".replace(".", ",") if amount >= 0.005 or not amount else "< 0,01 $"

    def undone(self, *, after: int) -> Markdown:
        return (
            "Die älteren Nachrichten sind wieder da, Wort für Wort: "
            f"der Blick umfasst {self.thousands(after)} Token."
        )

    def restored(self, *, before: int, after: int) -> Markdown:
        return f"Die Zusammenfassung gilt wieder: {self.thousands(before)} → {self.thousands(after)} Token."

    def nothing_compacted(self, *, reason: str, detail: str) -> Markdown:
        words = self.nothing_to_compact.get(reason) or detail or reason
        return f"Nichts zusammenzufassen: {words}{self.sizes_of(reason, detail)}."

    def sizes_of(self, reason: str, detail: str) -> str:
        sizes = detail.replace(",", ".").replace("tokens", "Token")
        return f" ({sizes})" if reason == "grows" and detail else ""

    def compacted(self, *, turns: int, before: int, after: int) -> Markdown:
        gain = "." if after < before else ": sie waren so kurz, dass nichts gespart wurde."
        what = "1 Runde" if turns == 1 else f"{self.number(turns)} Runden"
        sizes = f"{self.thousands(before)} → {self.thousands(after)} Token"
        return f"{what} zusammengefasst, {sizes}{gain} `/undo` holt sie zurück."

    def excerpted(self, *, turns: int, before: int, after: int) -> Markdown:
        what = "1 Runde" if turns == 1 else f"{self.number(turns)} Runden"
        sizes = f"{self.thousands(before)} → {self.thousands(after)} Token"
        return (
            f"Fürs Erste ein mechanischer Auszug aus {what}, {sizes}: Kein Modell konnte eine "
            "Zusammenfassung schreiben. Sobald das wieder geht, tritt eine an seine Stelle. `/undo` holt sie "
            "zurück."
        )

    def status(self, *, model: str, turns: int, hidden: int, summaries: int, gauge: str) -> Markdown:
        return "\n".join(
            (
                f"- Modell: {excerpt(model)}",
                f"- Runden: {self.number(turns)}, davon {self.number(hidden)} zusammengefasst",
                f"- Zusammenfassungen bisher: {self.number(summaries)}",
                f"- Blick: {gauge}",
            )
        )

    @property
    def free_name(self) -> str:
        return "Frei"

    def context_head(self, shown: ContextShown) -> Markdown:
        about = "etwa " if shown.estimated else ""
        of = f"{self.number(shown.used)} von {self.number(shown.limit)} Token"
        return f"**Was ich im Blick habe**: {about}{of}"

    def context_lines(self, shown: ContextShown) -> list[str]:
        lines = [f"Die nächste Zusammenfassung kommt bei etwa {self.number(shown.limit)} Token"]
        if shown.summarised_turns:
            lines.insert(0, f"{self.number(shown.summarised_turns)} ältere Runden sind zusammengefasst")
        if shown.recall:
            lines.append(f"Bis zu {self.number(shown.recall)} davon werden passend zur Frage herausgesucht")
        if shown.pins:
            lines.append(f"Angeheftet: {shown.pins}")
        if shown.cached_percent is not None:
            lines.append(
                f"{shown.cached_percent} % der letzten Anfrage waren schon bekannt und kosten ein Zehntel"
            )
        if shown.spent_usd is not None:
            lines.append(f"Dieses Gespräch hat bisher {self.dollars(shown.spent_usd)} gekostet")
        return lines

    def usage(self, shown: UsageShown) -> Markdown:
        cached = "" if shown.cached_percent is None else f" (davon {shown.cached_percent} % schon bekannt)"
        spent = self.dollars(shown.spent_usd)
        upkeep = self.dollars(shown.upkeep_usd)
        cap = "" if shown.today_cap_usd is None else f" von {self.dollars(shown.today_cap_usd)}"
        return "\n".join(
            (
                "**Was dieses Gespräch verbraucht hat**",
                "",
                f"- Runden: {self.number(shown.turns)}, Zusammenfassungen: {self.number(shown.summaries)}",
                f"- Gesendet: {self.number(shown.input_tokens)} Token{cached}",
                f"- Geschrieben: {self.number(shown.output_tokens)} Token",
                f"- Kosten: {spent}, davon {upkeep} für Zusammenfassungen und Gedächtnis",
                f"- Heute: {self.dollars(shown.today_usd)}{cap}",
            )
        )

    scope_names: Mapping[str, str] = field(
        default_factory=lambda: {"party": "Du", "session": "Dieses Gespräch", "total": "Alle zusammen"}
    )

    def budget(self, shown: BudgetShown) -> Markdown:
        lines = [self.limit_line(limit) for limit in shown.limits] or ["Es gibt keine Grenze."]
        lines.append(f"Dieses Gespräch heute: {self.dollars(shown.session_usd)}")
        if shown.unknown_calls:
            lines[-1] += f", dazu {self.number(shown.unknown_calls)} Aufrufe mit unbekanntem Preis"
        if shown.limits:
            lines.append(f"Von vorn beginnt es um {shown.anew}")
        if shown.unpriced_model:
            lines.append(f"Der Preis von {excerpt(shown.unpriced_model)} ist unbekannt und zählt nicht mit")
        if shown.old_price:
            lines.append(f"Die Preise sind von {excerpt(shown.old_price)} und können sich geändert haben")
        return "\n".join(("**Was heute ausgegeben werden darf**", "", *(f"- {line}" for line in lines)))

    def limit_line(self, limit: LimitShown) -> str:
        name = self.scope_names.get(limit.scope, limit.scope)
        used = f"{self.dollars(limit.spent_usd)} von {self.dollars(limit.cap_usd)} ({limit.percent} %)"
        return f"{name}: {used} {limit.sign}".rstrip()

    def channel(self, name: str) -> str:
        return {"telegram": "Telegram", "web": "der Webseite"}.get(name, name or "einem anderen Kanal")

    def link_code(self, *, code: str, minutes: int) -> Markdown:
        return (
            f"Dein Code: `{code}`\n\nSchick mir innerhalb von {minutes} Minuten `/link {code}` auf dem "
            "anderen Kanal. Das Gespräch, in dem du ihn *eingibst*, geht für beide weiter; das hier bleibt "
            "erhalten, lesbar und im Export. Was ich mir gemerkt habe, wird eins. "
            "Gib den Code niemandem: Wer ihn eingibt, liest mit."
        )

    def linked(self, *, channel: str, agent: str, other_agent: str) -> Markdown:
        words = (
            f"Verbunden mit {self.channel(channel)}: Von jetzt an ist das ein Gespräch, hier und dort. "
            "Dein früheres Gespräch dort bleibt, wie es ist; du findest es im Export. "
            "`/unlink` trennt beide wieder."
        )
        return words if agent == other_agent else f"{words}\n\n{self.agent_stays(agent)}"

    def agent_stays(self, agent: str) -> Markdown:
        return f"Auf beiden antwortet der Assistent dieses Gesprächs: {excerpt(agent)}."

    def unlinked(self, *, channel: str, here: bool) -> Markdown:
        where = "hier" if here else f"auf {self.channel(channel)}"
        return (
            f"Getrennt. Das Gespräch von vorher geht {where} weiter. Was seitdem gesagt und gemerkt wurde, "
            "bleibt bei dem, das weiterging."
        )

    def which_link(self, links: Sequence[LinkListed]) -> Markdown:
        rows = "\n".join(f"{number}. {self.listed(link)}" for number, link in enumerate(links, 1))
        return f"Mehrere Kanäle sind verbunden. Schick `/unlink` mit einer Nummer:\n\n{rows}"

    def listed(self, link: LinkListed) -> Markdown:
        title = f" „{excerpt(link.title)}“" if link.title else ""
        return f"{self.channel(link.channel)}{title}, seit {link.day}"

    def feedback_too_long(self, *, most: int) -> Markdown:
        return f"Das ist zu lang zum Vermerken: Höchstens {self.number(most)} Zeichen gehen."

    def pinned(self, *, words: str) -> Markdown:
        return f"📌 Angeheftet: „{excerpt(words)}“ Das behalte ich Wort für Wort, egal wie lange wir reden."

    def unpinned(self, *, words: str) -> Markdown:
        return f"Nicht mehr angeheftet: „{excerpt(words)}“"

    def forget_preview(self, *, counts: Mapping[str, int]) -> Markdown:
        return (
            f"**Das wäre für immer weg**\n\n{self.amounts(counts)}\n\n"
            "und alles andere mit deinen Worten, in allen unseren Gesprächen. `/export` gibt dir vorher eine "
            "Kopie. Wenn du es willst, schick `/forget everything yes` in den nächsten zehn Minuten."
        )

    def forgotten(self, *, counts: Mapping[str, int], telegram: bool) -> Markdown:
        rows = self.amounts(counts)
        there = (
            " Was in diesem Chat steht, liegt bei Telegram: lösch es dort, ich kann es dir nicht abnehmen."
            if telegram
            else ""
        )
        listed = f"\n\n{rows}\n\n" if rows else " "
        return (
            f"**Vergessen**{listed}Nur Zahlen bleiben, etwa was ausgegeben wurde. Wir fangen neu an.{there}"
        )

    def pins(self, pins: Sequence[PinShown]) -> Markdown:
        rows = "\n".join(f"{number}. „{excerpt(pin.text)}“" for number, pin in enumerate(pins, 1))
        return f"**📌 Angeheftet: Das behalte ich Wort für Wort**\n\n{rows}"

    def reminder(self, one: ReminderShown) -> Markdown:
        again = f", {self.repeats(one.repeat)}" if one.repeat else ""
        paused = f" ⏸ {self.paused}" if one.paused else ""
        return f"{one.due} ({excerpt(one.zone)}){again}: „{excerpt(one.text)}“{paused}"

    paused: str = "angehalten"
    weekday_names: Sequence[str] = (
        "Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag", "Samstag", "Sonntag",
    )  # fmt: skip

    def repeats(self, rule: Repeat) -> str:
        if rule.unit == "month":
            if rule.every % 12 == 0:
                return "jedes Jahr" if rule.every == 12 else f"alle {rule.every // 12} Jahre"
            return "jeden Monat" if rule.every == 1 else f"alle {rule.every} Monate"
        if rule.unit == "day":
            return "jeden Tag" if rule.every == 1 else f"alle {rule.every} Tage"
        days = ", ".join(self.weekday_names[WEEKDAYS.index(day)] for day in rule.weekdays)
        return f"jeden {days}" if rule.every == 1 else f"alle {rule.every} Wochen am {days}"

    def nothing_found(self, *, words: str) -> Markdown:
        return f"Zu „{excerpt(words)}“ wurde nichts gefunden."

    def human_is_here(self, *, name: str) -> Markdown:
        return f"{excerpt(name)} ist da und liest, was du schreibst."

    def reminder_choice(self, *, verb: ReminderVerb, number: int) -> str:
        return f"{number} {_REMINDER_VERBS[verb]}"

    def reminder_paused(self, *, words: str) -> Markdown:
        return f"Angehalten: „{excerpt(words)}“ `/reminders resume` und die Nummer setzt sie fort."

    def reminder_resumed(self, *, one: ReminderShown) -> Markdown:
        return f"Geht weiter: {self.reminder(one)}"

    def reminder_cancelled(self, *, words: str) -> Markdown:
        return f"Abgesagt: „{excerpt(words)}“"

    def goal(self, *, words: str) -> Markdown:
        return f"Das Ziel dieses Gesprächs: „{in_full(words)}“ `/goal -` nimmt es zurück."

    def goal_set(self, *, words: str) -> Markdown:
        return f"Das habe ich ab jetzt im Blick: „{in_full(words)}“"

    def goal_too_long(self, *, chars: int, most: int) -> Markdown:
        return f"Das Ziel hat {self.number(chars)} Zeichen; höchstens {most} gehen. Nichts wurde verändert."

    def modes(self, *, mode: str, modes: Sequence[str]) -> Markdown:
        return f"Ich antworte im Modus `{mode}`. Es gibt {choices(modes)}: sende `/mode` mit einem davon."

    def mode_set(self, *, mode: str) -> Markdown:
        return f"Ab jetzt antworte ich im Modus `{mode}`."

    def mode_unknown(self, *, name: str, modes: Sequence[str]) -> Markdown:
        return f"Einen Modus „{excerpt(name)}“ gibt es nicht. Es gibt {choices(modes)}."

    def models(self, *, model: str, models: Sequence[str]) -> Markdown:
        if not models:
            return f"Hier antwortet das Modell {choices([model])}. Ein anderes steht nicht zur Wahl."
        return (
            f"Hier antwortet das Modell {choices([model])}. "
            f"Zur Wahl stehen {choices(models)}: sende `/model` und den Namen."
        )

    def model_set(self, *, model: str) -> Markdown:
        return f"Ab der nächsten Nachricht antwortet hier {choices([model])}."

    def model_unknown(self, *, name: str, models: Sequence[str]) -> Markdown:
        offered = f"Zur Wahl stehen {choices(models)}." if models else "Hier steht keines zur Wahl."
        return f"„{excerpt(name)}“ ist keines der Modelle hier. {offered}"

    def settings(self, shown: SettingsShown) -> Markdown:
        goal = f"„{in_full(shown.goal)}“" if shown.goal else "keines"
        models = f"; `/model` und eines von {choices(shown.models)}" if shown.models else ""
        return "\n".join(
            (
                "**Wie ich mich in diesem Gespräch verhalte**",
                "",
                f"- Ziel: {goal}; `/goal` und deine Worte, `/goal -` für keines",
                f"- Modus: `{shown.mode}`; `/mode` und einer von {choices(shown.modes)}",
                f"- Modell: {choices([shown.model])}{models}",
            )
        )
