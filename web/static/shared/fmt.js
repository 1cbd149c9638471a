/** Turns numbers and moments into the words people read; what is unknown is a dash, never a zero. */

export const DASH = "–";
/** The locale of a page that speaks one language throughout. @type {string | undefined} */
export let spoken;
/** @param {string} locale */
export function speak(locale) { spoken = locale; }
/** @param {any} value */
export const isMissing = (value) => value === null || value === undefined || value === "" || Number.isNaN(Number(value));

/**
 * A whole number with separators.
 * @param {number | null | undefined} value @param {string} [locale]
 */
export function number(value, locale = spoken) {
  return isMissing(value) ? DASH : Number(value).toLocaleString(locale);
}

/**
 * A short count of tokens: 950, 8.5k, 85k, 1.2M.
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

/** With one decimal at most; English where no locale is spoken. @param {number} value @param {number} [digits] @param {Intl.NumberFormatOptions} [how] */
export const short = (value, digits = 1, how = {}) => value.toLocaleString(spoken ?? "en", { maximumFractionDigits: digits, ...how });
export const english = () => !spoken || /^en\b/.test(spoken);

/**
 * A percentage with at most one decimal: "72 %", "90.1 %".
 * @param {number | null | undefined} value @param {number} [digits]
 */
export function percent(value, digits = 1) {
  return isMissing(value) ? DASH : english() ? `${short(Number(value), digits)} %` : short(Number(value) / 100, digits, { style: "percent" });
}

/**
 * Date and time in full, for titles.
 * @param {string | Date | null | undefined} moment @param {string} [locale]
 */
export function stamp(moment, locale = spoken) {
  const at = moment ? new Date(moment) : null;
  if (!at || Number.isNaN(at.getTime())) return DASH;
  return at.toLocaleString(locale, { dateStyle: "medium", timeStyle: "short" });
}

/**
 * The time of day alone.
 * @param {string | Date | null | undefined} moment @param {string} [locale]
 */
export function clock(moment, locale = spoken) {
  const at = moment ? new Date(moment) : null;
  if (!at || Number.isNaN(at.getTime())) return "";
  return at.toLocaleTimeString(locale, { hour: "2-digit", minute: "2-digit" });
}
