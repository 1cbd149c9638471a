/** German for the parts of the chat that come when they are needed; nobody else loads it. */

/** @type {Record<string, Record<string, string>>} By part. */
export const MORE = {
  acts: {
    again: "Nochmals antworten", pinned: "Angeheftet", unpinned: "Gelöst", earlier_answer: "Frühere Antwort", good: "Gute Antwort", poor: "Schlechte Antwort", joined: "{name} ist da", cut_new: "Neue Unterhaltung: Der Assistent sieht nicht mehr an, was darüber steht", cut_separator: "Der Assistent sieht nicht mehr an, was darüber steht", somebody: "Jemand aus unserem Team",
    waiting_person: "Wartet auf einen Menschen…", with_person: "Sie sprechen mit {name}.", person_writes: "{name} schreibt…", with_assistant: "Der Assistent antwortet wieder.",
    tool_fetch_url: "Sieht {subject} an…", tool_mcp: "Fragt {subject}…", tool_calculate: "Rechnet…", tool_current_time: "Sieht auf die Uhr…", tool_open_artifact: "Liest weiter…", tool_recall: "Blickt zurück…", tool_search_memory: "Erinnert sich…",
    handover_returned: "Hier antwortet wieder der Assistent.",
    handover_unanswered: "Es tut uns leid: Gerade war niemand frei. Ihre Nachrichten sind gespeichert, und der Assistent antwortet wieder.",
    handover_silent: "Es tut uns leid: Von unserer Seite kam eine Weile keine Antwort. Ihre Nachrichten sind gespeichert, und der Assistent antwortet wieder.",
  },
  card: {
    card_summary: "Frühere Unterhaltung zusammengefasst", card_digest: "Frühere Unterhaltung gekürzt", card_tabs: "Zusammenfassung oder Originale",
    tab_summary: "Zusammenfassung", tab_original: "Original", undoing: "Wird rückgängig gemacht…", undo_older: "Eine spätere Zusammenfassung baut auf dieser auf.", undo_no: "Das lässt sich nicht mehr rückgängig machen.",
  },
  files: {
    files: "Dateien zum Senden", drop_here: "Dateien hier ablegen", remove_file: "{name} entfernen", file_progress: "{name} wird gesendet",
    file_ready: "{name} ist bereit zum Senden.", file_failed: "{name}: {why}", file_removed: "{name} wurde entfernt.", file_waits: "wartet auf die Verbindung",
    sends_then: "Die Nachricht geht hinaus, sobald die Dateien da sind.", sends_online: "Sie sind offline. Die Dateien bleiben hier, und die Nachricht geht mit ihnen hinaus, wenn Sie wieder verbunden sind.",
    remove_first: "Entfernen Sie die Datei, mit der es nicht geklappt hat, oder versuchen Sie es nochmals.", most_files: "Mit einer Nachricht gehen höchstens {most} Dateien.",
    lost_files: "Beim Neuladen der Seite nicht behalten, bitte nochmals anfügen: {names}", save_file: "Speichern: {name} {words}", file_gone: "Diese Datei konnte nicht geladen werden.", file_cut: "nur der Anfang wird gelesen",
    file_too_large: "größer als {mb} MB", file_empty: "darin ist nichts zu lesen", file_unreadable: "beschädigt oder zu groß zum Öffnen", file_locked: "mit einem Passwort gesperrt",
    file_unknown_kind: "nur Bilder, Texte, PDF, Office-Dateien und E-Books können gelesen werden", rate_limited: "zu viele auf einmal, gleich nochmals versuchen", too_many_files: "zu viele Dateien für einen Tag",
    files_not_allowed: "Dateien können hier nicht gesendet werden", not_taken: "sie konnte nicht gesendet werden",
  },
  keep: {
    title: "Unterhaltung behalten", back: "Zurück zum Chat", why: "Diese Unterhaltung liegt in diesem Browser. Mit einem Code lässt sie sich in einem anderen öffnen. Wer den Code hat, kann sie lesen: Behalten Sie ihn für sich.",
    make: "Code erstellen", once: "Dieser Code wird nur einmal gezeigt. Schreiben Sie ihn auf; ein neuer ersetzt ihn.", copy: "Kopieren",
    have: "Ich habe einen Code", open: "Diese Unterhaltung öffnen", opened: "Ihre Unterhaltung ist jetzt hier offen.",
    unknown_code: "Dieser Code öffnet nichts. Bitte suchen Sie nach einem Tippfehler.", rate_limited: "Zu viele Versuche. Bitte warten Sie eine Minute.",
    signed_in: "Sie sind angemeldet: Melden Sie sich in einem beliebigen Browser an, um diese Unterhaltung wiederzufinden.", failed: "Das hat gerade nicht geklappt. Es wurde nichts geändert.",
  },
  menu: {
    new_chat: "Neue Unterhaltung", remembered: "Was ich noch weiß", pins: "Angeheftetes", find: "Suchen…", go_day: "Zu einem Datum…", human: "Mit einem Menschen sprechen", bot: "Zurück zum Assistenten", keep: "Unterhaltung behalten",
    export_md: "Als Text sichern", export_json: "Als Daten sichern (JSON)", forget: "Mich vergessen…", look: "Aussehen: {look}", auto: "wie das Gerät", light: "hell", dark: "dunkel",
    begin: "Neue Unterhaltung beginnen?", begin_why: "Der Assistent sieht nur noch, was folgt. Alles oben bleibt hier lesbar, und was er über Sie weiß, bleibt auch. Das lässt sich nicht rückgängig machen.",
    begin_do: "Neu beginnen", forget_title: "Alles über Sie vergessen?", forget_why: "Das lässt sich nicht rückgängig machen.", forget_do: "Alles löschen", erasing: "Wird gelöscht…", done: "Schließen",
    pins_none: "Nichts ist angeheftet. Anheften unter einer Antwort bewahrt sie Wort für Wort.", pin_old: "Eine frühere Nachricht", show: "Zeigen", show_failed: "Diese Nachricht konnte nicht geladen werden.", export_failed: "Die Datei gelang nicht. Versuchen Sie es gleich noch einmal.",
  },
  opinion: { why: "Was war falsch? (wenn Sie mögen)", skip: "Nein, danke", thanks: "Danke." },
  past: {
    beginning: "Beginn der Unterhaltung", earlier_busy: "Frühere Nachrichten werden geladen…", earlier_failed: "Frühere Nachrichten konnten nicht geladen werden",
    try_again: "Nochmals versuchen", go_day: "Zu einem Datum", day: "Datum", go: "Los", shown: "Nachrichten vom {date}", day_failed: "Dieser Tag konnte nicht geladen werden",
  },
  shares: {
    explain: "Das hat der Assistent beim Antworten vor Augen. Wird es voll, werden ältere Nachrichten zusammengefasst; Sie sehen weiterhin alle und können es rückgängig machen.",
    part_system: "Anweisungen", part_memory: "Gedächtnis", part_summary: "Zusammenfassung", part_history: "Unterhaltung", part_tools: "Werkzeuge",
    part_free: "Frei", saved: "Die letzte Zusammenfassung schuf Platz für {count} Tokens.", compact_now: "Jetzt zusammenfassen",
    new_chat: "Neue Unterhaltung", estimated: "Diese Zahlen sind geschätzt.",
  },
  sheet: {
    remembered: "Was ich noch weiß", sheet_close: "Zurück zum Chat", search: "Suchen", edit: "Ändern", save: "Speichern", put_away: "Weglegen",
    about: "um {date}", from_tool: "aus einem Werkzeug", gone: "Weggelegt; 30 Tage lang lässt es sich zurückholen: „{text}“",
    notes_none: "Noch nichts. Was wichtig ist, wird beim Reden notiert, und /remember merkt einen Satz.", found_none: "Nichts zu „{words}“.",
    notes_one: "1 Notiz", notes_count: "{count} Notizen", notes_more: "{count} Notizen; die anderen {more} findet eine Suche.",
    notes_failed: "Die Notizen konnten nicht geladen werden.", note_failed: "Das hat gerade nicht geklappt. Es wurde nichts geändert.",
    note_gone: "Diese Notiz gibt es nicht mehr.", too_late: "Diese Notiz lässt sich nicht mehr zurückholen.",
    newer: "Diese Notiz wurde inzwischen geändert; oben steht, wie sie jetzt lautet. Nochmals speichern setzt Ihre Worte an ihre Stelle.",
    bad_note: "Das lässt sich so nicht merken.",
    kind_profile: "Person", kind_preference: "Vorliebe", kind_fact: "Tatsache", kind_decision: "Entscheidung", kind_event: "Ereignis", kind_plan: "Plan",
    kind_relation: "Beziehung", kind_instruction: "Anweisung",
    moved: "Ihre Unterhaltung geht hier weiter. Die frühere bleibt erhalten.", read_it: "Lesen", earlier: "Frühere Unterhaltungen", earlier_none: "Es gibt keine. Wenn Sie mit /link zwei Kanäle verbinden, bleibt die frühere Unterhaltung hier erhalten.",
    until: "Bis {date}",
    find: "Suchen", find_what: "Diese Unterhaltung durchsuchen", found: "Ergebnisse", find_older: "Ältere Ergebnisse", find_none: "Zu „{words}“ wurde nichts gefunden.", find_further: "Noch nichts zu „{words}“; vielleicht in älteren Nachrichten.",
    find_one: "1 Nachricht", find_all: "{count} Nachrichten", find_some: "Die neuesten {count} Nachrichten", find_failed: "Die Suche hat nicht geklappt.", find_before: "bevor die Kanäle verbunden wurden", team: "Team",
  },
  toast: { notes: "Neue Notizen", noted: "Gemerkt: {text}", all: "Was ich noch weiß", dismiss: "Schließen", undone: "Zurückgenommen.", undo_failed: "Das hat gerade nicht geklappt." },
};
