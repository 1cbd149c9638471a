/** Words that come with a rare part of the chat: English with the part, other languages when they are spoken. */
import { spokenLang, t } from "./i18n.js";

/** @type {Record<string, () => Promise<{MORE: Record<string, Record<string, string>>}>>} */
const RARE = { de: () => import("./more-de.js") };
/** Without them the part speaks English. */
const more = await RARE[spokenLang().slice(0, 2).toLowerCase()]?.().then((one) => one.MORE, () => null);

/**
 * As `t`; what is not among these words is looked for among those of the whole chat.
 * @param {string} part @param {Record<string, string>} own in English @returns {typeof t}
 */
export function wordsOf(part, own) {
  return (key, values = {}) => {
    const found = (more?.[part] ?? own)[key];
    return found === undefined ? t(key, values) : found.replace(/\{(\w+)\}/g, (_all, name) => String(values[name] ?? ""));
  };
}
