/** The words of the menu and its questions, which come with it. */
import { wordsOf } from "./words.js";

/** @type {Record<string, string>} */
export const MENU_WORDS = {
  new_chat: "New conversation", remembered: "What I remember", pins: "Pinned messages", find: "Search…", go_day: "Go to a date…", human: "Talk to a person", bot: "Back to the assistant", keep: "Keep this conversation",
  export_md: "Save as text", export_json: "Save as data (JSON)", forget: "Forget me…", look: "Appearance: {look}", auto: "as the device", light: "light", dark: "dark",
  begin: "Begin a new conversation?", begin_why: "The assistant looks only at what follows. Everything above stays here to be read, and what it remembers about you stays, too. This cannot be taken back.",
  begin_do: "Begin afresh", forget_title: "Forget everything about you?", forget_why: "This cannot be taken back.", forget_do: "Erase all of it", erasing: "Erasing…", done: "Close",
  pins_none: "Nothing is pinned. Pin under an answer keeps it word for word.", pin_old: "An earlier message", show: "Show", show_failed: "This message could not be loaded.", export_failed: "The file could not be made. Try again in a moment.",
};

export const t = wordsOf("menu", MENU_WORDS);
