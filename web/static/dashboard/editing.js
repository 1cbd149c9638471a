/** Shared parts of forms: checks while typing, lists of problems, and both versions after a conflict. */
import { card, empty, h, t, ts } from "./parts.js";

/** Runs a check after a pause in typing; a slow answer never replaces a newer one.
 * @param {HTMLElement} place @param {() => Promise<void>} check @param {AbortSignal} signal */
export function watchTyping(place, check, signal) {
  let timer = 0;
  place.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => check().catch(() => {}), 350);
  }, { signal });
  signal.addEventListener("abort", () => clearTimeout(timer));
}

/** Returns lists of problems and of remarks; the word "Valid" if there are neither. @param {string[]} problems @param {string[]} [remarks] */
export function problemList(problems, remarks = []) {
  if (!problems.length && !remarks.length) return h("p", { class: "done small" }, t("Valid"));
  return [problems.length > 0 && h("ul", { class: "findings crit-text", "aria-label": t("Problems") }, problems.map((one) => h("li", { dir: "auto" }, ts(one)))),
    remarks.length > 0 && h("ul", { class: "findings warn-text", "aria-label": t("Remarks") }, remarks.map((one) => h("li", { dir: "auto" }, ts(one))))];
}

/** Returns both versions of an object that someone else changed meanwhile, with a button to continue with each. @param {any} theirs @param {any} yours @param {() => void} takeTheirs @param {() => void} keepMine */
export function conflict(theirs, yours, takeTheirs, keepMine) {
  const both = [...new Set([...Object.keys(theirs), ...Object.keys(yours)])].filter((key) => JSON.stringify(theirs[key]) !== JSON.stringify(yours[key]));
  const lines = (/** @type {any} */ of) => h("pre", { class: "config", tabindex: 0 }, both.map((key) => `${key}: ${JSON.stringify(of[key] ?? null, null, 2)}`).join("\n"));
  if (!both.length) return empty(t("Both versions say the same."), h("button", { type: "button", class: "line", onclick: takeTheirs }, t("Continue with theirs")));
  return h("div", { class: "two-versions" }, card(t("Current version"), [lines(theirs)]), card(t("What you typed"), [lines(yours)]),
    h("p", { class: "actions" }, h("button", { type: "button", class: "line", onclick: takeTheirs }, t("Take theirs")), h("button", { type: "button", class: "line", onclick: keepMine }, t("Continue with mine"))));
}
