/** Words that come with a rare part of the chat: English with the part, another language when it is spoken. */
import { load, say, t } from "./i18n.js";

/** Without them the part speaks English. */
const spoken = await load("chat_parts");

/**
 * Works like `t`; texts that are missing here are taken from the whole chat's.
 * @param {string} part @param {Record<string, string>} english @returns {typeof t}
 */
export function wordsOf(part, english) {
  const own = { ...english, ...spoken?.[part] };
  return (key, values = {}) => say(own, key, values) ?? t(key, values);
}
