/** Texts of the chat by t(): English is built in, another language is loaded when it is chosen. */
import english from "../locales/en/chat.json" with { type: "json" };

/** Folders of shared/locales; the server fills them in. */
const LANGUAGES = "[[languages]]".split(" ");
const RTL = /^(ar|fa|he|ur|yi|ps|sd|ug|dv)\b/i;

/** @type {Record<string, string>} */
let words = english;
let locale = "en";
/** Folder of the language in use. */
let language = "en";

/** Returns the longest folder that begins a language tag, or a folder of the same language; `pt` gives Brazilian Portuguese. @param {string} tag */
function folder(tag) {
  const whole = `${tag.toLowerCase().replace(/^zh-(tw|hk|mo)/, "zh-hant")}-`;
  return LANGUAGES.filter((one) => whole.startsWith(`${one}-`)).pop() ?? LANGUAGES.find((one) => one.startsWith(whole.replace(/-.*/, "-"))) ?? "en";
}

/**
 * Chooses the language; without a translation, texts stay English, but the direction follows the tag.
 * @param {string} wanted
 */
export async function speak(wanted) {
  try { [locale] = Intl.getCanonicalLocales(wanted.replaceAll("_", "-")); } catch { locale = "en"; }
  language = folder(locale);
  const own = await load("chat");
  if (!own) language = "en";
  words = { ...english, ...own };
}

/** Loads a file of texts in the language; null in English or if the load fails. @param {string} file @returns {Promise<any>} */
export const load = async (file) => language === "en" ? null : fetch(new URL(`../locales/${language}/${file}.json`, import.meta.url)).then((answer) => (answer.ok ? answer.json() : null)).catch(() => null);

/** Returns the locale in use. */
export const lang = () => locale;
/** Returns the language that the texts are really in, for screen readers. */
export const spokenLang = () => (language === "en" ? "en" : locale);
/** Returns the locale for dates and numbers: the one in use if texts are in its language, else English, since scripts must not be mixed. */
export const tongue = () => (locale.slice(0, 2) === spokenLang().slice(0, 2) ? locale : "en");
/** Returns the writing direction of the locale, `rtl` or `ltr`. */
export const dir = () => (RTL.test(locale) ? "rtl" : "ltr");

/**
 * Returns the text of a key, or its plural form for a `count`, with {names} filled in.
 * @param {Record<string, string>} all @param {string} key @param {Record<string, any>} values @returns {string | undefined}
 */
export function say(all, key, values) {
  const { count } = values;
  const text = all[key] ?? (count === undefined ? count : all[`${key}_${new Intl.PluralRules(tongue()).select(count)}`] ?? all[`${key}_other`]);
  return text?.replace(/\{(\w+)\}/g, (/** @type {string} */ _all, /** @type {string} */ name) => typeof values[name] === "number" ? values[name].toLocaleString(tongue()) : values[name] ?? "");
}

/** Returns the text of a key; the key itself if there is none. @param {string} key @param {Record<string, any>} [values] @returns {string} */
export const t = (key, values = {}) => say(words, key, values) ?? key;
