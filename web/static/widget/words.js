/** Texts of rarely used parts of the chat: English comes with the part, other languages are loaded. */
import { load, say, t } from "./i18n.js";

/** Without a translation the part is in English. */
const spoken = await load("chat_parts");

/**
 * Returns a function like `t` for a part; texts that the part lacks are taken from the whole chat's.
 * @param {string} part @param {Record<string, string>} english @returns {typeof t}
 */
export function wordsOf(part, english) {
  const own = { ...english, ...spoken?.[part] };
  return (key, values = {}) => say(own, key, values) ?? t(key, values);
}
