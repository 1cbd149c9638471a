/** The words of the sheet, which come with it. */
import { lang, spokenLang } from "./i18n.js";
import { wordsOf } from "./words.js";

/** @type {Record<string, string>} */
export const WORDS = {
  remembered: "What I remember", sheet_close: "Back to the chat", search: "Search", edit: "Edit", save: "Save", put_away: "Put away",
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
  find: "Search", find_what: "Search this conversation", found: "Results", find_older: "Older results", find_none: "Nothing was found for “{words}”.", find_further: "Nothing yet for “{words}”; older messages may have it.",
  find_one: "1 message", find_all: "{count} messages", find_some: "The newest {count} messages", find_failed: "The search did not work.", find_before: "before the channels were linked", team: "Team",
};

/** Dates are written as the words beside them: in another script they would be torn apart. */
export const tongue = () => (lang().slice(0, 2) === spokenLang().slice(0, 2) ? lang() : spokenLang());

export const t = wordsOf("sheet", WORDS);
