/** Turns numbers and moments into the words people read; what is unknown is a dash, never a zero. */

const DASH = "–";
/** The locale of a page that speaks one language throughout. @type {string | undefined} */
let spoken;
/** @param {string} locale */
export function speak(locale) { spoken = locale; }
/** @param {any} value */
const missing = (value) => value === null || value === undefined || value === "" || Number.isNaN(Number(value));

/**
 * A whole number with separators.
 * @param {number | null | undefined} value @param {string} [locale]
 */
export function number(value, locale = spoken) {
  return missing(value) ? DASH : Number(value).toLocaleString(locale);
}

/**
 * A short count of tokens: 950, 8.5k, 85k, 1.2M.
 * @param {number | null | undefined} value
 */
export function tokens(value) {
  if (missing(value)) return DASH;
  const count = Math.round(Number(value));
  if (count < 1000) return short(count, 0);
  if (count < 9950) return `${short(count / 1000)}k`;
  if (count < 999500) return `${short(count / 1000, 0)}k`;
  return `${short(count / 1e6)}M`;
}

/** With one decimal at most; English where no locale is spoken. @param {number} value @param {number} [digits] @param {Intl.NumberFormatOptions} [how] */
const short = (value, digits = 1, how = {}) => value.toLocaleString(spoken ?? "en", { maximumFractionDigits: digits, ...how });
const english = () => !spoken || /^en\b/.test(spoken);

/**
 * A percentage with at most one decimal: "72 %", "90.1 %".
 * @param {number | null | undefined} value @param {number} [digits]
 */
export function percent(value, digits = 1) {
  return missing(value) ? DASH : english() ? `${short(Number(value), digits)} %` : short(Number(value) / 100, digits, { style: "percent" });
}

/**
 * Money; small sums keep their significant digits.
 * @param {number | string | null | undefined} value
 */
export function usd(value) {
  if (missing(value)) return DASH;
  const sum = Number(value);
  const digits = sum !== 0 && Math.abs(sum) < 0.1 ? 4 : 2;
  return short(sum, digits, { minimumFractionDigits: digits, style: "currency", currency: "USD", currencyDisplay: "narrowSymbol" });
}

/**
 * A length of time from milliseconds: "340 ms", "4.2 s", "3 min", "2 h".
 * @param {number | null | undefined} ms
 */
export function duration(ms) {
  if (missing(ms)) return DASH;
  const value = Number(ms);
  if (value < 1000) return unit(value, 0, "ms", "millisecond");
  if (value < 60_000) return unit(value / 1000, 1, "s", "second");
  if (value < 3_600_000) return unit(value / 60_000, 0, "min", "minute");
  return unit(value / 3_600_000, 1, "h", "hour");
}

/** @param {number} value @param {number} digits @param {string} sign @param {string} name */
const unit = (value, digits, sign, name) => english() ? `${short(value, digits)} ${sign}` : short(value, digits, { style: "unit", unit: name, unitDisplay: "short" });

/**
 * How long ago, in the words of the locale.
 * @param {string | Date | null | undefined} moment @param {string} [locale] @param {number} [now]
 */
export function ago(moment, locale = spoken, now = Date.now()) {
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
export function when(moment, locale = spoken) {
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
