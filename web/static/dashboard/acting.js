/** Asks for confirmation before a change, carries it out once, and reports the result. */
import { h, t, ts } from "./parts.js";

/**
 * Asks a question in a dialog; resolves to whether the person agreed. Escape means no.
 * @param {{title: string, words: string[], yes: string}} question @returns {Promise<boolean>}
 */
export function confirm({ title, words, yes }) {
  return new Promise((resolve) => {
    const dialog = h("dialog", { class: "card sure", "aria-labelledby": "sure-title" }, h("h2", { id: "sure-title" }, title), words.map((line) => h("p", null, line)),
      h("form", { method: "dialog", class: "pager" }, h("button", { class: "line", value: "no" }, t("Not now")), h("button", { class: "solid", value: "yes" }, yes)));
    dialog.addEventListener("close", () => { dialog.remove(); resolve(dialog.returnValue === "yes"); });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Returns the result of a change in words. @param {Api["ChangedWork"]} done @param {{changed: (count: number) => string, none: string, left: (count: number) => string}} told */
export function outcome(done, { changed, none, left }) {
  const words = [done.changed ? changed(done.changed) : none];
  if (done.skipped) words.push(t("Skipped {number}: {reasons}.", { number: done.skipped, reasons: [...new Set(done.why.map((row) => ts(row.why)))].join("; ") }));
  if (done.left) words.push(left(done.left));
  return words.join(" ");
}
