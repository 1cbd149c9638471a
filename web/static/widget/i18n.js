/** Every word of the chat goes through t(); English is built in, other languages load when asked for. */

const EN = {
  title: "Chat", open: "Open chat", close: "Close chat", log: "Conversation", message: "Message",
  placeholder: "Write a message…", send: "Send", attach: "Attach files", stop: "Stop answering", sending: "Sending…", queued: "Queued",
  failed: "Not sent", retry: "Retry", discard: "Discard", copy: "Copy", copied: "Copied", pin: "Pin", unpin: "Unpin",
  menu: "Menu", cancel: "Cancel",
  latest: "Jump to latest", thinking: "Assistant is replying", working: "Working…", stopped: "Stopped",
  answer_failed: "The answer could not be finished. Your message is kept.", you: "You", assistant: "Assistant", notice: "Notice",
  offline: "You are offline. Messages are kept and sent when you are back.",
  connecting: "Connecting…", reconnecting: "Connection lost. Trying again…", refused: "The chat is not available on this page.",
  back: "Connected again", welcome: "How can I help?", ai_line: "You are talking to an AI. It can make mistakes.",
  sign_in: "Please sign in to use the chat.",
  demo: "Demo", demo_hint: "The built-in demo model answers. It has no intelligence.",
  organizing: "Organizing conversation…", organize_failed: "The summary did not work out. Nothing was changed.",
  organized: "The earlier conversation was summarised.",
  undo: "Undo",
  loading: "Loading…", load_failed: "The original messages could not be loaded.", nothing: "There is nothing here.", part_before: "Earlier messages", part_after: "Later messages",
  unknown_role: "Message",
  context: "Context: {pct} · ~{used}/{limit}", context_unknown: "Context: not known yet", updating: "updating",
  ok: "plenty of room", warning: "filling up", critical: "nearly full",
  commands: "Commands", command_offline: "Not connected. Try the command again in a moment.",
  command_silent: "Done.", command_failed: "That did not work.",
  too_long: "{count} of {limit} characters: too long to send.", not_confirmed: "No answer from the server yet.",
  wait: "Try again in {seconds} s.", unread: "{count} unread", lost: "Connection lost",
};

const RTL = /^(ar|fa|he|ur|yi|ps|sd|ug|dv)\b/i;
/** @type {Record<string, () => Promise<{words: Record<string, string>}>>} */
const MORE = { de: () => import("./i18n-de.js") };

/** @type {Record<string, string>} */
let words = EN;
let locale = "en";

/**
 * Chooses the language; an unknown one keeps English words and its own direction.
 * @param {string} wanted
 */
export async function speak(wanted) {
  locale = wanted || "en";
  const load = MORE[locale.slice(0, 2).toLowerCase()];
  words = load ? { ...EN, ...(await load()).words } : EN;
}

/** The locale in use. */
export const lang = () => locale;
/** The language the words really are in, for screen readers. */
export const spokenLang = () => (words === EN ? "en" : locale);
/** The direction of the locale. */
export const dir = () => (RTL.test(locale) ? "rtl" : "ltr");

/**
 * The words for a key, with {names} filled in.
 * @param {string} key @param {Record<string, any>} [values] @returns {string}
 */
export function t(key, values = {}) {
  return (words[key] ?? key).replace(/\{(\w+)\}/g, (_all, name) => String(values[name] ?? ""));
}

export { EN };
