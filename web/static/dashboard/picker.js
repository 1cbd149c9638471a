/** A dialog to choose one of several things by a few letters: an operator, a label, a time. */
import { h, set, show } from "../shared/h.js";
import { ask } from "./net.js";
import { ago, t, formatWhen } from "./parts.js";

/** @typedef {{words: string, value: any, on?: boolean}} Choice */

/**
 * Resolves with the value of the chosen entry; null if the dialog was closed.
 * @param {{title: string, choices: Choice[], free?: (words: string) => Choice | null, more?: (pick: (value: any) => void) => any, signal: AbortSignal}} of
 *   `free` is what typed words mean that are none of the choices; `more` stands below the list
 * @returns {Promise<any>}
 */
export function pick({ title, choices, free, more, signal }) {
  let places = choices;
  let at = 0;
  /** @type {any} */
  let picked = null;
  const list = h("ul", { role: "listbox", id: "picker-choices", "aria-label": title });
  const input = h("input", { type: "text", role: "combobox", "aria-label": title, "aria-expanded": "true", "aria-controls": "picker-choices", "aria-autocomplete": "list", placeholder: title, autocomplete: "off", spellcheck: "false", maxlength: 100, oninput: () => { at = 0; draw(); }, onkeydown: pressed });
  const dialog = h("dialog", { class: "card palette", "aria-label": title, onclick: (/** @type {MouseEvent} */ event) => { if (event.target === dialog) dialog.close(); } }, input, list, more?.(choose));

  function draw() {
    const words = input.value.trim();
    const parts = words.toLowerCase().split(/\s+/);
    const found = choices.filter((one) => parts.every((/** @type {string} */ part) => one.words.toLowerCase().includes(part)));
    const own = words && !choices.some((one) => one.words.toLowerCase() === words.toLowerCase()) && free?.(words);
    places = own ? [...found, own] : found;
    at = Math.max(0, Math.min(at, places.length - 1));
    show(list, places.map((one, index) => h("li", { role: "option", id: `picker-${index}`, "aria-selected": String(index === at), onclick: () => choose(one.value) }, h("span", { dir: "auto" }, one.words), one.on && h("span", null, "✓"))));
    set(input, { "aria-activedescendant": places.length ? `picker-${at}` : null });
  }

  /** @param {any} value */
  function choose(value) { picked = value; dialog.close(); }

  /** @param {KeyboardEvent} event */
  function pressed(event) {
    if (event.isComposing) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && places.length) { at = (at + step + places.length) % places.length; draw(); list.children[at].scrollIntoView({ block: "nearest" }); }
    else if (event.key === "Enter" && places[at]) choose(places[at].value);
    else return;
    event.preventDefault();
  }

  document.body.append(dialog);
  draw();
  dialog.showModal();
  input.focus();
  return new Promise((done) => {
    dialog.addEventListener("close", () => { dialog.remove(); done(signal.aborted ? null : picked); });
    signal.addEventListener("abort", () => dialog.close(), { once: true });
  });
}

/** Resolves with the name of the chosen assignee; null if the dialog was closed. @param {any} held @param {AbortSignal} signal */
export async function askAssignee(held, signal) {
  const { assignees } = await ask("/handover-choices", { signal });
  return pick({ title: t("Assign"), choices: assignees.map((/** @type {string} */ name) => ({ words: name, value: name, on: name === held.operator })), signal });
}

/** Resolves with all labels after the choice: the chosen one is added, or removed if it was there. @param {string[]} labels @param {AbortSignal} signal */
export async function askLabel(labels, signal) {
  const { labels: known } = await ask("/handover-choices", { signal });
  const all = [...labels, ...known.filter((/** @type {string} */ one) => !labels.includes(one))];
  const label = await pick({ title: t("Labels"), choices: all.map((one) => ({ words: one, value: one, on: labels.includes(one) })), free: (words) => ({ words: t("Add “{label}”", { label: words }), value: words }), signal });
  return label && (labels.includes(label) ? labels.filter((one) => one !== label) : [...labels, label]);
}

const HOUR = 3_600_000;
/** Returns 9 o'clock of the day that many days from now. @param {number} days */
function morning(days) {
  const at = new Date();
  at.setDate(at.getDate() + days);
  at.setHours(9, 0, 0, 0);
  return at;
}

/** Resolves with `{until}`, the chosen time in ISO form; null if the dialog was closed. @param {AbortSignal} signal */
export async function askSnooze(signal) {
  // five seconds later, so that a whole hour is still shown as one when it is drawn
  const now = Date.now() + 5000;
  const times = [new Date(now + HOUR), new Date(now + 4 * HOUR), morning(1), morning((8 - new Date().getDay()) % 7 || 7)];
  const choices = times.map((at) => at.toISOString()).map((at) => ({ words: `${ago(at)} · ${formatWhen(at)}`, value: at }));
  const until = await pick({ title: t("Snooze until"), choices, signal, more: (choose) => {
    const field = h("input", { type: "datetime-local", required: true, "aria-label": t("Snooze until") });
    return h("form", { class: "actions", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); choose(new Date(field.value).toISOString()); } }, field, h("button", { type: "submit", class: "line" }, t("Snooze")));
  } });
  return until && { until };
}
