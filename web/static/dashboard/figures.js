/** Formats money and lengths of time, which only the dashboard shows. */
import { DASH, english, isMissing, short, spoken } from "../shared/fmt.js";

/**
 * Returns an amount in US dollars; small amounts keep their significant digits.
 * @param {number | string | null | undefined} value
 */
export function usd(value) {
  if (isMissing(value)) return DASH;
  const sum = Number(value);
  const digits = sum !== 0 && Math.abs(sum) < 0.1 ? 4 : 2;
  return short(sum, digits, { minimumFractionDigits: digits, style: "currency", currency: "USD", currencyDisplay: "narrowSymbol" });
}

/**
 * Returns a length of time, given in milliseconds: "340 ms", "4.2 s", "3 min", "2 h".
 * @param {number | null | undefined} ms
 */
export function duration(ms) {
  if (isMissing(ms)) return DASH;
  const value = Number(ms);
  if (value < 1000) return unit(value, 0, "ms", "millisecond");
  if (value < 60_000) return unit(value / 1000, 1, "s", "second");
  if (value < 3_600_000) return unit(value / 60_000, 0, "min", "minute");
  return unit(value / 3_600_000, 1, "h", "hour");
}

/** @param {number} value @param {number} digits @param {string} sign @param {string} name */
const unit = (value, digits, sign, name) => english() ? `${short(value, digits)} ${sign}` : short(value, digits, { style: "unit", unit: name, unitDisplay: "short" });

/**
 * Returns how long ago a moment was, in the locale's words.
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
