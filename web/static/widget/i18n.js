/** Every word of the chat goes through t(): English is built in, another language loads when it is spoken. */
import english from "../locales/en/chat.json" with { type: "json" };

/** The folders of shared/locales: the server writes them here. */
const LANGUAGES = "[[languages]]".split(" ");
const RTL = /^(ar|fa|he|ur|yi|ps|sd|ug|dv)\b/i;

/** @type {Record<string, string>} */
let words = english;
let locale = "en";
/** The folder of the words. */
let language = "en";

/** The longest that a tag begins with, or one of the same language: `pt` is written as in Brazil. @param {string} tag */
function folder(tag) {
  const whole = `${tag.toLowerCase().replace(/^zh-(tw|hk|mo)/, "zh-hant")}-`;
  return LANGUAGES.filter((one) => whole.startsWith(`${one}-`)).pop() ?? LANGUAGES.find((one) => one.startsWith(whole.replace(/-.*/, "-"))) ?? "en";
}

/**
 * Chooses the language; an unknown one keeps English words and its own direction.
 * @param {string} wanted
 */
export async function speak(wanted) {
  try { [locale] = Intl.getCanonicalLocales(wanted.replaceAll("_", "-")); } catch { locale = "en"; }
  language = folder(locale);
  const own = await load("chat");
  if (!own) language = "en";
  words = { ...english, ...own };
}

/** Words of the language; none in English, or where they do not come. @param {string} file @returns {Promise<any>} */
export const load = async (file) => language === "en" ? null : fetch(new URL(`../locales/${language}/${file}.json`, import.meta.url)).then((answer) => (answer.ok ? answer.json() : null)).catch(() => null);

/** The locale in use. */
export const lang = () => locale;
/** The language the words really are in, for screen readers. */
export const spokenLang = () => (language === "en" ? "en" : locale);
/** Dates and numbers are written as the words beside them: in another script they would be torn apart. */
export const tongue = () => (locale.slice(0, 2) === spokenLang().slice(0, 2) ? locale : "en");
/** The direction of the locale. */
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

/** The words for a key. @param {string} key @param {Record<string, any>} [values] @returns {string} */
export const t = (key, values = {}) => say(words, key, values) ?? key;
