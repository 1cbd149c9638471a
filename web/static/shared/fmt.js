/** Turns numbers and moments into the words people read; what is unknown is a dash, never a zero. */

const DASH = "–";
/** @param {any} value */
const missing = (value) => value === null || value === undefined || value === "" || Number.isNaN(Number(value));

/**
 * A whole number with separators.
 * @param {number | null | undefined} value @param {string} [locale]
 */
export function number(value, locale) {
  return missing(value) ? DASH : Number(value).toLocaleString(locale);
}

/**
 * A short count of tokens: 950, 8.5k, 85k, 1.2M.
 * @param {number | null | undefined} value
 */
export function tokens(value) {
  if (missing(value)) return DASH;
  const count = Math.round(Number(value));
  if (count < 1000) return String(count);
  if (count < 9950) return `${trim((count / 1000).toFixed(1))}k`;
  if (count < 999500) return `${Math.round(count / 1000)}k`;
  return `${trim((count / 1e6).toFixed(1))}M`;
}

/** @param {string} text */
const trim = (text) => text.replace(/\.0$/, "");

/**
 * A percentage with at most one decimal: "72 %", "90.1 %".
 * @param {number | null | undefined} value
 */
export function percent(value) {
  return missing(value) ? DASH : `${trim(Number(value).toFixed(1))} %`;
}

/**
 * Money; small sums keep their significant digits.
 * @param {number | string | null | undefined} value
 */
export function usd(value) {
  if (missing(value)) return DASH;
  const sum = Number(value);
  return `$${sum.toFixed(sum !== 0 && Math.abs(sum) < 0.1 ? 4 : 2)}`;
}

/**
 * A length of time from milliseconds: "340 ms", "4.2 s", "3 min", "2 h".
 * @param {number | null | undefined} ms
 */
export function duration(ms) {
  if (missing(ms)) return DASH;
  const value = Number(ms);
  if (value < 1000) return `${Math.round(value)} ms`;
  if (value < 60_000) return `${trim((value / 1000).toFixed(1))} s`;
  if (value < 3_600_000) return `${Math.round(value / 60_000)} min`;
  return `${trim((value / 3_600_000).toFixed(1))} h`;
}

/**
 * How long ago, in the words of the locale.
 * @param {string | Date | null | undefined} moment @param {string} [locale] @param {number} [now]
 */
export function ago(moment, locale, now = Date.now()) {
  const at = moment ? new Date(moment).getTime() : NaN;
  if (Number.isNaN(at)) return DASH;
  const words = new Intl.RelativeTimeFormat(locale, { numeric: "auto", style: "short" });
  const seconds = (at - now) / 1000;
  /** @type {[Intl.RelativeTimeFormatUnit, number][]} */
  const units = [["day", 86400], ["hour", 3600], ["minute", 60]];
  for (const [unit, size] of units) if (Math.abs(seconds) >= size) return words.format(Math.trunc(seconds / size), unit);
  return words.format(Math.trunc(seconds), "second");
}

/**
 * Date and time in full, for titles.
 * @param {string | Date | null | undefined} moment @param {string} [locale]
 */
export function when(moment, locale) {
  const at = moment ? new Date(moment) : null;
  if (!at || Number.isNaN(at.getTime())) return DASH;
  return at.toLocaleString(locale, { dateStyle: "medium", timeStyle: "short" });
}

/**
 * The time of day alone.
 * @param {string | Date | null | undefined} moment @param {string} [locale]
 */
export function clock(moment, locale) {
  const at = moment ? new Date(moment) : null;
  if (!at || Number.isNaN(at.getTime())) return "";
  return at.toLocaleTimeString(locale, { hour: "2-digit", minute: "2-digit" });
}
