"""The bot's own words in German."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bot.telegram.texts.english import Texts
from bot.telegram.texts.markdown_text import Markdown, Plain, escape_markdown

_UNSUPPORTED_MEDIA = {
    "voice": "Sprachnachrichten kann ich noch nicht anhören.",
    "audio": "Tondateien kann ich noch nicht anhören.",
    "video": "Videos kann ich nicht ansehen.",
    "video_note": "Videonachrichten kann ich nicht ansehen.",
    "animation": "Animationen kann ich nicht ansehen.",
    "sticker": "Schöner Sticker! Ich kann aber nur Worte, Bilder und Dokumente lesen.",
    "location": "Karten kann ich nicht lesen.",
    "contact": "Kontakte kann ich nicht lesen.",
    "poll": "An Umfragen kann ich nicht teilnehmen.",
}
_CAP_REACHED = (
    "Für heute ist das Budget aufgebraucht{}. Deine Nachricht ist aufbewahrt; schreib bitte nach "
    "Mitternacht wieder, oder bitte den Betreiber, mehr zu erlauben. Befehle wie /budget gehen weiter."
)
_USED = re.compile(r"\$(\d+\.\d\d) of \$(\d+\.\d\d) used")
"""In the error's own words, which alone tell the figures."""
_ADVICE = {
    "bad_input": "Das konnte ich nicht lesen. Bitte schick es noch einmal als einfachen Text.",
    "empty_message": "Die Nachricht ist leer. Schreib bitte zuerst etwas.",
    "message_too_long": "Die Nachricht ist zu lang. Bitte teile sie auf.",
    "unreadable_message": "Das konnte ich nicht lesen. Bitte schick es noch einmal als einfachen Text.",
    "bad_arguments": "Damit kann der Befehl nichts anfangen. /help zeigt, wie man ihn schreibt.",
    "session_moved": "Dieses Gespräch geht inzwischen anderswo weiter. Schreib mir, dann siehst du es.",
    "unknown_session": "Dieses Gespräch habe ich nicht gefunden. Schreib mir, dann beginnt ein neues.",
    "stale_view": "Das Gespräch hat sich inzwischen verändert. Bitte versuch es noch einmal.",
    "cap_reached": _CAP_REACHED.format(""),
    "hour_cap_reached": (
        "Was Besucher in einer Stunde ausgeben dürfen, ist aufgebraucht. Deine Nachricht ist aufbewahrt; "
        "schreib bitte in der nächsten Stunde wieder."
    ),
    "cap_held": (
        "Was vom Budget für heute noch übrig ist, brauchen gerade Antworten, an denen ich schreibe. Deine "
        "Nachricht ist aufbewahrt, ich antworte in Kürze."
    ),
    "budget_warning": (
        "Das Budget für heute ist zum größten Teil aufgebraucht. Ich mache weiter, bis es zu Ende ist; "
        "/budget zeigt, wie viel noch übrig ist."
    ),
    "context_budget_exceeded": (
        "Das ist zu viel für eine Antwort. Bitte kürze die Nachricht oder löse etwas Angeheftetes."
    ),
    "on_hold": (
        "Was von dieser Person aufbewahrt ist, darf gerade nicht weg; nichts wurde gelöscht. Wer den Bot "
        "betreibt, kann das aufheben."
    ),
    "storage_unavailable": (
        "Ich konnte die Nachricht gerade nicht speichern. Das wird von selbst noch einmal versucht."
    ),
    "model_unavailable": (
        "Das Modell ist gerade nicht erreichbar. Deine Nachricht ist aufbewahrt; ich versuche es von selbst "
        "wieder, jeweils in höchstens einer halben Minute. /stop beendet das Warten."
    ),
    "model_busy": (
        "Das Modell ist ausgelastet. Deine Nachricht ist aufbewahrt; ich versuche es von selbst wieder, "
        "jeweils in höchstens einer Minute. /stop beendet das Warten."
    ),
    "content_refused": (
        "Der Anbieter des Modells lässt das nicht beantworten: Etwas darin oder in der Antwort verstößt "
        "gegen seine Regeln für Inhalte. Bitte sag es mit anderen Worten. Liegt es nicht an der neuesten "
        "Nachricht, beginnt /new ohne die älteren."
    ),
    "no_room": (
        "Das Modell, das hier antwortet, nimmt gerade zu wenig auf einmal. Bitte versuch es in ein paar "
        "Minuten noch einmal; der Betreiber kann sehen, woran es liegt."
    ),
    "model_refused_account": (
        "Das Konto beim Anbieter des Modells braucht Aufmerksamkeit. Der Betreiber weiß davon; "
        "deine Nachricht ist aufbewahrt und wird beantwortet, sobald es wieder geht."
    ),
    "handover_returned": "Ab jetzt antwortet hier wieder der Assistent.",
    "handover_unanswered": (
        "Es tut mir leid: Gerade war niemand frei. Deine Nachrichten sind aufbewahrt, und ab jetzt antwortet "
        "wieder der Assistent."
    ),
    "handover_silent": (
        "Es tut mir leid: Von uns kam eine Weile keine Antwort. Deine Nachrichten sind aufbewahrt, und ab "
        "jetzt antwortet wieder der Assistent."
    ),
    "file_too_large": "Die Datei ist zu groß.",
}
_PUBLIC_ADVICE = {
    "context_budget_exceeded": "Das ist mir auf einmal zu viel. Bitte mach es kürzer.",
    "content_refused": (
        "Darauf darf ich nicht antworten. Bitte sag es mit anderen Worten, oder frag mich etwas anderes."
    ),
    "no_room": "Ich kann gerade nicht antworten. Bitte versuch es in ein paar Minuten noch einmal.",
    "model_refused_account": (
        "Ich kann im Moment nicht antworten. Deine Nachricht ist aufbewahrt, ich antworte später."
    ),
    "model_unavailable": (
        "Ich kann gerade nicht antworten. Deine Nachricht ist aufbewahrt; in spätestens einer halben Minute "
        "versuche ich es wieder."
    ),
    "model_busy": (
        "Gerade schreiben mir viele. Deine Nachricht ist aufbewahrt; in spätestens einer Minute versuche ich "
        "es wieder."
    ),
    "hour_cap_reached": (
        "Viele haben mit mir geredet. Deine Nachricht ist aufbewahrt; schreib bitte in einer Stunde wieder."
    ),
    "cap_held": "Gerade schreiben mir viele. Deine Nachricht ist aufbewahrt, ich antworte in Kürze.",
    "budget_warning": "Wir haben heute viel geredet. Vielleicht brauche ich bald eine Pause bis morgen.",
    "cap_reached": (
        "Für heute habe ich genug geredet. Deine Nachricht ist aufbewahrt; schreib bitte morgen wieder."
    ),
}
_EXAMPLES = (
    "Was kann ich heute Abend mit Eiern und Spinat kochen?",
    "Erklär mir Ebbe und Flut, als wäre ich zehn.",
    "Hilf mir, einen Kunden freundlich zu erinnern.",
)
_SOMETHING_WRONG = (
    "Bei mir ist etwas schiefgegangen. Deine Nachricht ist aufbewahrt; bitte versuch es noch einmal."
)
_SETTINGS = {
    "language": "Sprache",
    "notices": "Sagen, wenn Älteres zusammengefasst wurde",
    "drafts": "Antworten mit Stopp-Knopf",
    "rich": "Tabellen und Formeln",
    "receipts": "Gelesenes markieren",
    "model": "Modell",
}


def _format_number(value: int) -> str:
    return f"{value:,}".replace(",", ".")


_STATUS_BY_TOOL = {
    "calculate": "Ich rechne …",
    "current_time": "Ich sehe auf die Uhr …",
    "open_artifact": "Ich lese weiter …",
    "recall": "Ich sehe nach, was gesagt wurde …",
    "search_memory": "Ich sehe nach, was ich weiß …",
}
_STATUS_WITH_SUBJECT = {"fetch_url": "Ich sehe mir {subject} an …", "mcp": "Ich frage {subject} …"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GermanTexts(Texts):
    language: str = "de"

    about: Plain = "Sprich mit mir über alles. Ich weiß noch, was wir gesagt haben."
    description: Plain = (
        "Hallo! Ich bin ein Assistent, mit dem du so lange reden kannst, wie du magst: Was wichtig ist, "
        "weiß ich noch, egal wie lange es her ist. Drück auf Start und schreib mir."
    )

    pairing_full: Markdown = (
        "Gerade warten zu viele auf Einlass. Bitte versuch es in einer Stunde noch einmal."
    )
    refused: Markdown = (
        "Es tut mir leid, ich darf hier nicht mit dir reden. Nur mein Besitzer kann das ändern."
    )
    allowed: Markdown = "Du kannst jetzt mit mir reden. Was beschäftigt dich?"
    owner_link_used: Markdown = (
        "Dieser Link wurde schon benutzt oder ist zu alt. Mein Besitzer kann einen neuen machen."
    )
    owner_now: Markdown = (
        "Hallo! Ich gehöre jetzt dir. Wenn mir jemand anderes schreibt, bekommt er einen Code, und du "
        "entscheidest, ob er mit mir reden darf."
    )
    allow: Plain = "Erlauben"
    deny: Plain = "Ablehnen"
    decided_before: Plain = "Das wurde schon entschieden."
    left_group: Markdown = (
        "Mein Besitzer hat mich für diese Gruppe nicht freigegeben, darum gehe ich. Auf Wiedersehen!"
    )

    picture_unseen: Markdown = "Bilder kann ich hier nicht ansehen. Bitte beschreib es mit Worten."
    nothing_to_read: Markdown = "Darin war nichts, was ich lesen kann."
    too_many_files: Markdown = "Das sind zu viele Dateien auf einmal. Bitte schick weniger."

    stopped: Plain = "⏹ Angehalten."
    interrupted: Plain = "⚠️ Hier wurde ich unterbrochen und konnte nicht weiterschreiben."
    whole_answer: Plain = "Die Antwort geht in dieser Datei weiter, in der sie ganz steht."

    uncertain: Plain = (
        "Die Verbindung brach ab, während ich dir eine Antwort schickte; vielleicht fehlt sie hier. Drück "
        "auf den Knopf, dann bringe ich sie."
    )
    bring: Plain = "Antwort bringen"
    bringing: Plain = "Hier kommt sie …"
    brought_before: Plain = "Diese Antwort ist schon unterwegs oder da."
    arrived: Plain = "Eine Antwort, die zu fehlen schien, ist angekommen."

    nothing_to_stop: Plain = "Ich schreibe gerade nichts."
    stopping: Plain = "Ich halte an …"
    nothing_to_retry: Markdown = "Es gibt keine Nachricht, die ich noch einmal beantworten könnte."
    answering_again: Plain = "Ich antworte noch einmal …"
    inline_start: Plain = "Schreib mir zuerst in unserem eigenen Chat"
    inline_later: Plain = "Die Antwort kommt in unserem Chat"
    unknown_button: Plain = "Dieser Knopf gilt nicht mehr."
    others_button: Plain = "Dieser Knopf ist für jemand anderen."
    admins_only: Markdown = "In einer Gruppe dürfen das nur die Administratoren."
    busy: Plain = "Einen Moment, ich bin noch dabei."
    not_now: Markdown = "Das ging gerade nicht. Bitte versuch es gleich noch einmal."

    summarising: Plain = "Ich fasse ältere Nachrichten zusammen …"
    summary_title: Markdown = "**Was ich von unseren älteren Nachrichten behalte**"
    view: Plain = "Ansehen"
    undo: Plain = "Rückgängig"

    unknown_message: Markdown = "Diese Nachricht habe ich nicht. Bitte schick sie noch einmal."
    nothing_to_export: Markdown = "Wir haben noch nicht geredet, also gibt es nichts für eine Datei."
    settings_title: Markdown = "**Einstellungen dieses Chats**\n\nDrück auf eine, um sie zu ändern."
    on: Plain = "an"
    off: Plain = "aus"
    close: Plain = "Schließen"
    saved: Plain = "Gespeichert."
    forgotten: Plain = "Weggelegt."
    back_again: Plain = "Wieder da."
    previous: Plain = "‹ Zurück"
    following: Plain = "Weiter ›"
    all_notes: Plain = "Alles zeigen"
    forget_all: Plain = "Ja, alles löschen"
    cancel: Plain = "Abbrechen"
    nothing_erased: Markdown = "Es wurde nichts gelöscht."
    answer_again: Markdown = "Du hast deine Nachricht geändert. Soll ich noch einmal antworten?"
    yes: Plain = "Noch einmal antworten"
    no: Plain = "Nein, lass es so"
    edit_noted: Markdown = "Ich habe mir die Änderung gemerkt."
    regenerate: Plain = "Noch einmal"
    longer: Plain = "Weiter"
    shorter: Plain = "Kürzer"
    stop: Plain = "Stopp"
    thanks_good: Plain = "Danke! Schön, dass es geholfen hat."
    thanks_bad: Plain = "Danke. Schade, dass es nicht gut war."
    opinion_gone: Plain = "Zurückgenommen."

    demo: Markdown = "Ganz ehrlich: Im Moment antwortet dir nur eine Demo ohne Verstand."
    demo_advice: Markdown = "Mein Besitzer kann mir mit `./evertalk setup` ein echtes Modell geben."

    def at_work(self, tool: str, subject: str) -> Plain:
        if subject and tool in _STATUS_WITH_SUBJECT:
            return _STATUS_WITH_SUBJECT[tool].replace("{subject}", subject)
        return _STATUS_BY_TOOL.get(tool, self.busy)

    def hello(self, *, name: str = "", demo: bool = False, public: bool = False) -> Markdown:
        greeting = f"Hallo {escape_markdown(name, most=40)}!" if name.strip() else "Hallo!"
        who = "Ich bin ein KI-Assistent" + ("." if public else " und weiß noch, worüber wir reden.")
        lines = [
            f"{greeting} {who} Schreib mir einfach, zum Beispiel:",
            "\n".join(f"- {example}" for example in _EXAMPLES),
            "/help zeigt, was ich noch kann.",
        ]
        if demo:
            lines.append(self.demo if public else f"{self.demo} {self.demo_advice}")
        return "\n\n".join(lines)

    def hello_group(self, *, username: str, hears_all: bool) -> Markdown:
        hint = self.group_hint(hears_all=hears_all)
        name = escape_markdown(username)
        return f"Hallo! Erwähnt mich als @{name} oder antwortet mir, dann antworte ich. {hint}"

    def group_hint(self, *, hears_all: bool) -> Markdown:
        if hears_all:
            return "Ich kann in der Gruppe alles lesen und antworte nur, wenn ich gefragt werde."
        return (
            "Telegrams Privatsphäre-Modus ist an: Ich sehe nur, was mich erwähnt, mir antwortet "
            "oder ein Befehl ist, sonst nichts aus der Gruppe."
        )

    def help(self, *, commands: Sequence[tuple[str, str]], groups: str = "") -> Markdown:
        rows = "\n".join(
            f"- {escape_markdown(call)} – {escape_markdown(what, most=200)}" for call, what in commands
        )
        head = "Schreib mir einfach; Bilder, PDFs und Textdateien gehen auch. Außerdem kannst du senden:"
        return "\n\n".join([head, rows, *([groups] if groups else [])])

    def pairing_code(self, *, code: str) -> Markdown:
        return (
            "Ich rede nur mit Menschen, die mein Besitzer eingelassen hat. Bitte gib ihm diesen Code:\n\n"
            f"`{code}`\n\nEr gilt eine Stunde. Schreib mir danach noch einmal."
        )

    def asks_for_access(self, *, name: str, username: str, code: str) -> Markdown:
        who = f"{escape_markdown(name)} (@{escape_markdown(username)})" if username else escape_markdown(name)
        return f"{who} möchte mit mir reden. Code: `{code}`"

    def let_in(self, *, name: str) -> Markdown:
        return f"{escape_markdown(name)} kann jetzt mit mir reden."

    def kept_out(self, *, name: str) -> Markdown:
        return f"{escape_markdown(name)} wurde abgelehnt."

    def cannot(self, *, kind: str) -> Markdown:
        words = _UNSUPPORTED_MEDIA.get(kind, "Diese Art von Nachricht kann ich nicht lesen.")
        return f"{words} Bitte schreib mir stattdessen."

    def file_too_large(self, *, name: str, limit_mb: int) -> Markdown:
        return f"{escape_markdown(name)} ist zu groß: Ich kann Dateien bis {limit_mb} MB lesen."

    def file_unreadable(self, *, name: str) -> Markdown:
        words = "Bilder, PDFs mit Text, Office-Dateien, E-Books und Textdateien gehen."
        return f"{escape_markdown(name)} kann ich nicht lesen. {words}"

    def file_locked(self, *, name: str) -> Markdown:
        return f"{escape_markdown(name)} ist mit einem Passwort gesperrt. Bitte schick die Datei ohne."

    def file_shortened(self, *, name: str) -> Markdown:
        return f"{escape_markdown(name)} ist lang, darum lese ich nur den Anfang."

    def advice(self, *, code: str, advice: str, public: bool) -> Markdown:
        special = _PUBLIC_ADVICE.get(code) if public else None
        if special is None and code == "cap_reached" and (told := _USED.search(advice)) is not None:
            used, cap = (dollars.replace(".", ",") for dollars in told.groups())
            special = _CAP_REACHED.format(f" ({used} $ von {cap} $; für eine Antwort reicht der Rest nicht)")
        return special or _ADVICE.get(code, _SOMETHING_WRONG)

    def try_later(self, *, seconds: int) -> Plain:
        return f"Das war viel auf einmal. Bitte versuch es in {seconds} Sekunden noch einmal."

    def summarised(self, *, messages: int) -> Markdown:
        if messages == 1:
            return "Ich habe eine ältere Nachricht zusammengefasst."
        return f"Ich habe {_format_number(messages)} ältere Nachrichten zusammengefasst."

    def export_caption(self, *, messages: int) -> Plain:
        return (
            "Unser Gespräch: eine Nachricht"
            if messages == 1
            else f"Unser Gespräch: {_format_number(messages)} Nachrichten"
        )

    def setting(self, *, name: str, value: str) -> Plain:
        return f"{_SETTINGS.get(name, name)}: {value}"

    def put_away(self, *, text: str) -> Markdown:
        return f"~~{escape_markdown(text, most=200)}~~ Weggelegt; 30 Tage lang kannst du es zurückholen."
