/** Asks before something is changed, does it once, and says what became of it. */
import { h } from "./parts.js";

/**
 * Resolves to whether the person said yes; Escape is no.
 * @param {{title: string, words: string[], yes: string}} question @returns {Promise<boolean>}
 */
export function sure({ title, words, yes }) {
  return new Promise((resolve) => {
    const dialog = h("dialog", { class: "card sure", "aria-labelledby": "sure-title" }, h("h2", { id: "sure-title" }, title), words.map((line) => h("p", null, line)),
      h("form", { method: "dialog", class: "pager" }, h("button", { class: "line", value: "no" }, "Not now"), h("button", { class: "solid", value: "yes" }, yes)));
    dialog.addEventListener("close", () => { dialog.remove(); resolve(dialog.returnValue === "yes"); });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** @param {number} count @param {string} one @param {string} many */
export const counted = (count, one, many) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

/** What a change became, in words. @param {any} done @param {string} verb @param {string} one @param {string} many */
export function outcome(done, verb, one, many) {
  const words = [done.changed ? `${counted(done.changed, one, many)} ${verb}.` : `No ${one} was changed.`];
  if (done.skipped) words.push(`Skipped ${done.skipped}: ${[...new Set(done.why.map((/** @type {any} */ row) => row.why))].join("; ")}.`);
  if (done.left) words.push(`${counted(done.left, one, many)} left: do it again for the next.`);
  return words.join(" ");
}
