/** Translates the dashboard; the English text is the key, as in gettext. */
import { speak } from "../shared/fmt.js";

/** Language that the server has chosen: the operator's setting, else the browser's preference. */
export const language = document.documentElement.lang || "en";
/** Locale with the region that the browser names for this language; en-GB writes dates differently from en-US. */
const locale = navigator.languages.find((one) => one.toLowerCase().split("-")[0] === language) ?? language;
/** @type {Record<string, string | Record<string, string>>} */
const words = language === "en" ? {} : await fetch(`/dashboard/words/${language}`).then((answer) => answer.ok ? answer.json() : {}, () => ({}));
const plurals = new Intl.PluralRules(language);
const english = new Intl.PluralRules("en");
const figures = new Intl.NumberFormat(locale);
speak(locale);

/** Languages of the dashboard by tag: native name and translator. @returns {Promise<Record<string, {name: string, translated: string}>>} */
export const languages = () => fetch("/dashboard/words").then((answer) => answer.json());

/** @typedef {Record<string, any>} Values numbers are written as the language does; with a node among them, children come back instead of a text */

/** @param {string} text @param {Values} values @returns {any} */
function fill(text, values) {
  const pieces = text.split(/\{(\w+)\}/).map((piece, at) => at % 2 === 0 ? piece : typeof values[piece] === "number" ? figures.format(values[piece]) : values[piece] ?? "");
  return pieces.some((piece) => typeof piece === "object") ? pieces : pieces.join("");
}

/** Returns a text in the operator's language. @param {string} text in English @param {Values} [values] of its {placeholders} @returns {any} */
export function t(text, values = {}) {
  const found = words[text];
  return fill(typeof found === "string" ? found : text, values);
}

/** Returns a text that depends on a number, its {count}, in the operator's language. @param {string} one @param {string} other the key @param {number} count @param {Values} [values] @returns {any} */
export function tn(one, other, count, values = {}) {
  const found = words[other];
  const text = typeof found === "object" ? found[plurals.select(count)] ?? found.other : english.select(count) === "one" ? one : other;
  return fill(text, { count, ...values });
}

/** Sentences of the server with places such as `{1}`, as patterns with their translations. @type {[RegExp, string][]} */
const filled = Object.entries(words).filter(([text]) => /\{\d\}/.test(text)).map(([text, said]) =>
  [new RegExp(`^${text.split(/\{\d\}/).map((piece) => piece.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("(.+)")}$`), /** @type {string} */ (said)]);

/** Translates a text of the server, if the catalogue has it. @param {string | null | undefined} text @returns {string} */
export function translate(text) {
  for (const [whole, said] of text && !(text in words) ? filled : []) {
    const found = whole.exec(/** @type {string} */ (text));
    if (found) return fill(said, found);
  }
  return text ? t(text) : "";
}

/** Joins several things in one line, as the language lists them. @param {string[]} items */
export const listItems = (items) => new Intl.ListFormat(locale, { type: "unit" }).format(items);
