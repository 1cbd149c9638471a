/** The words of the sheet, which come with it. */
import { lang, spokenLang, t as common } from "./i18n.js";

/** @type {Record<string, Record<string, string>>} */
export const WORDS = {
  en: {
    sheet_close: "Back to the chat", search: "Search", edit: "Edit", save: "Save", cancel: "Cancel", put_away: "Put away",
    about: "about {date}", from_tool: "from a tool", gone: "Put away; for 30 days you can have it back: “{text}”",
    notes_none: "Nothing yet. What matters is noted as you talk, and /remember keeps a sentence.", found_none: "Nothing about “{words}”.",
    notes_one: "1 note", notes_count: "{count} notes", notes_more: "{count} notes; a search finds the other {more}.",
    notes_failed: "The notes could not be loaded.", note_failed: "That did not work just now. Nothing was changed.",
    note_gone: "This note is not there any more.", too_late: "It is too late to bring this note back.",
    newer: "Somebody changed this note meanwhile; above is how it reads now. Save again to put your words in its place.",
    bad_note: "This cannot be kept.",
    kind_profile: "Profile", kind_preference: "Preference", kind_fact: "Fact", kind_decision: "Decision", kind_event: "Event", kind_plan: "Plan",
    kind_relation: "Relation", kind_instruction: "Instruction",
    moved: "Your conversation goes on here. The earlier one is kept.", read_it: "Read it", earlier: "Earlier conversations", earlier_none: "There are none. When you join two channels with /link, the earlier conversation is kept here.",
    until: "Until {date}",
  },
  de: {
    sheet_close: "Zurück zum Chat", search: "Suchen", edit: "Ändern", save: "Speichern", cancel: "Abbrechen", put_away: "Weglegen",
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
  },
};

/** Dates are written as the words beside them: in another script they would be torn apart. */
export const tongue = () => (lang().slice(0, 2) === spokenLang().slice(0, 2) ? lang() : spokenLang());

/**
 * The words for a key: of the sheet, or of the whole chat.
 * @param {string} key @param {Record<string, any>} [values] @returns {string}
 */
export function t(key, values = {}) {
  const words = WORDS[spokenLang().slice(0, 2).toLowerCase()] ?? WORDS.en;
  return key in words ? words[key].replace(/\{(\w+)\}/g, (_all, name) => String(values[name] ?? "")) : common(key, values);
}
