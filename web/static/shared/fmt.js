/** Formats numbers and times for people; an unknown value is a dash, never a zero. */

/** Sign for an unknown value. */
export const DASH = "–";
/** The locale of a page that has one language throughout; undefined elsewhere. @type {string | undefined} */
export let spoken;
/** Sets the locale in which the whole page formats numbers and times. @param {string} locale */
export function speak(locale) { spoken = locale; }
/** Returns whether a value is unknown: null, undefined, empty, or no number. @param {any} value */
export const isMissing = (value) => value === null || value === undefined || value === "" || Number.isNaN(Number(value));

/**
 * Returns a whole number with separators; a dash for null.
 * @param {number | null | undefined} value @param {string} [locale]
 */
export function number(value, locale = spoken) {
  return isMissing(value) ? DASH : Number(value).toLocaleString(locale);
}

/**
 * Returns a short count of tokens: 950, 8.5k, 85k, 1.2M; a dash for null.
 * @param {number | null | undefined} value
 */
export function tokens(value) {
  if (isMissing(value)) return DASH;
  const count = Math.round(Number(value));
  if (count < 1000) return short(count, 0);
  if (count < 9950) return `${short(count / 1000)}k`;
  if (count < 999500) return `${short(count / 1000, 0)}k`;
  return `${short(count / 1e6)}M`;
}

/** Returns a number with at most `digits` decimals, in English where `spoken` is not set. @param {number} value @param {number} [digits] @param {Intl.NumberFormatOptions} [how] */
export const short = (value, digits = 1, how = {}) => value.toLocaleString(spoken ?? "en", { maximumFractionDigits: digits, ...how });
/** Returns whether numbers are formatted in English, also if no locale is set. */
export const english = () => !spoken || /^en\b/.test(spoken);

/**
 * Returns a percentage with at most `digits` decimals, such as "72 %" or "90.1 %"; a dash for null.
 * @param {number | null | undefined} value @param {number} [digits]
 */
export function percent(value, digits = 1) {
  return isMissing(value) ? DASH : english() ? `${short(Number(value), digits)} %` : short(Number(value) / 100, digits, { style: "percent" });
}

/**
 * Returns date and time in full, for tooltips; a dash for null.
 * @param {string | Date | null | undefined} moment @param {string} [locale]
 */
export function stamp(moment, locale = spoken) {
  const at = moment ? new Date(moment) : null;
  if (!at || Number.isNaN(at.getTime())) return DASH;
  return at.toLocaleString(locale, { dateStyle: "medium", timeStyle: "short" });
}

/**
 * Returns the time of day; "" for null.
 * @param {string | Date | null | undefined} moment @param {string} [locale]
 */
export function clock(moment, locale = spoken) {
  const at = moment ? new Date(moment) : null;
  if (!at || Number.isNaN(at.getTime())) return "";
  return at.toLocaleTimeString(locale, { hour: "2-digit", minute: "2-digit" });
}
