/** Macros: labels, an assignee, a reply and resolving under one name, run by one press; managed by operators. */
import { area, choice, code, formOf, line, tick } from "./forms.js";
import { ask } from "./net.js";
import { h, problem, show, t } from "./parts.js";
import { pick } from "./picker.js";

const RUNNER = "*";
const EDIT = "edit";
/** A control for labels, separated by commas, since labels may contain blanks. @type {import("./forms.js").Kind} */
const labels = {
  ...line({ maxlength: 450 }), fill: (field, value) => { field.value = (value ?? []).join(", "); },
  read: (field) => field.value.split(",").map((/** @type {string} */ one) => one.trim()).filter(Boolean),
};

/** Returns the actions of a macro in one line. @param {Api["Macro"]} one @returns {string} */
const actionsOf = (one) => [...one.labels, one.assignee === RUNNER ? t("Assign to me") : one.assignee && t("Assign to {name}", { name: one.assignee }), one.reply && `“${one.reply.slice(0, 40)}”`, one.resolve && t("Resolve")].filter(Boolean).join(" · ");

/**
 * Lets the operator choose a macro, and returns it; null if none was chosen.
 * @param {{signal: AbortSignal, say: (words: string) => void}} of @returns {Promise<Api["Macro"] | null>}
 */
export async function chooseMacro(of) {
  for (;;) {
    const { macros, assignees } = await ask("/handover-choices", { refresh: true, signal: of.signal });
    const found = macros.length === 0 ? EDIT : await pick({ title: t("Macros"), signal: of.signal, choices: macros.map((one) => ({ words: `${one.name} · ${actionsOf(one)}`, value: one })),
      more: (choose) => h("p", { class: "actions" }, h("button", { type: "button", class: "line", onclick: () => choose(EDIT) }, t("Edit macros"))) });
    if (found !== EDIT) return found;
    if (!await edit(macros, assignees, of)) return null;
  }
}

/** Shows the form of macros; resolves with true once one was saved. @param {Api["Macro"][]} macros @param {string[]} assignees @param {{signal: AbortSignal, say: (words: string) => void}} of @returns {Promise<boolean>} */
function edit(macros, assignees, { signal, say }) {
  /** @type {any} */
  const draft = {};
  /** The macro with which the form was opened; null for a new one. @type {Api["Macro"] | null} */
  let begun = null;
  let saved = false;
  const list = h("div", { class: "stack" });
  const note = h("div", { role: "status" });
  const form = formOf(draft, { id: "macro" });
  const fields = [
    { path: "name", label: t("Name"), kind: code({ required: true, maxlength: 40, pattern: "[a-z0-9][a-z0-9_\\-]*", title: t("a-z, 0-9, _ and -, no mark first") }) },
    { path: "labels", label: t("Labels"), kind: labels, help: t("Separated by commas.") },
    { path: "assignee", label: t("Assign"), kind: choice([["", t("no change")], [RUNNER, t("Assign to me")], ...assignees.map((name) => [name, name])]) },
    { path: "reply", label: t("Reply"), kind: area({ rows: 3, maxlength: 4000 }), help: t("{variables} are filled in.", { variables: h("code", { class: "whole" }, "{{name}} {{operator}} {{site}}") }) },
    { path: "resolve", label: t("Resolve"), kind: tick() },
  ];
  const dialog = h("dialog", { class: "card help canned", "aria-label": t("Macros") }, h("h2", null, t("Macros")), list,
    h("form", { class: "stack site-form", onsubmit: save }, fields.map(form.draw), note, h("p", { class: "actions" }, h("button", { type: "submit", class: "solid" }, t("Save")), h("button", { type: "button", class: "line", onclick: () => dialog.close() }, t("Close")))));

  function draw() {
    show(list, macros.length > 0 && h("ul", { class: "plain-list" }, macros.map((one) => h("li", null, h("p", null, h("b", null, one.name), " ", h("span", { class: "muted", dir: "auto" }, actionsOf(one))), h("p", { class: "actions" },
      h("button", { type: "button", class: "line", "aria-label": t("Edit {name}", { name: one.name }), onclick: () => begin(one) }, t("Edit")), h("button", { type: "button", class: "line", "aria-label": t("Remove {name}", { name: one.name }), onclick: () => remove(one) }, t("Remove")))))));
  }

  /** @param {Api["Macro"]} one */
  function begin(one) {
    begun = one;
    Object.assign(draft, { name: one.name, labels: one.labels, assignee: one.assignee, reply: one.reply, resolve: one.resolve });
    form.refill();
    dialog.querySelector("input")?.focus();
  }

  /** @param {Event} event */
  async function save(event) {
    event.preventDefault();
    const { name, ...body } = draft;
    try {
      await ask(`/macros/${name}`, { method: "PUT", body: { ...body, version: begun?.name === name ? begun?.version ?? 0 : 0 }, signal });
      saved = true;
      say(t("Saved."));
      dialog.close();
    } catch (error) { if (!signal.aborted) show(note, problem(error)); }
  }

  /** @param {Api["Macro"]} one */
  async function remove(one) {
    try {
      await ask(`/macros/${one.name}`, { method: "DELETE", signal });
      macros = macros.filter((other) => other !== one);
      draw();
      say(t("Saved."));
    } catch (error) { if (!signal.aborted) show(note, problem(error)); }
  }

  signal.addEventListener("abort", () => dialog.close(), { once: true });
  document.body.append(dialog);
  draw();
  dialog.showModal();
  return new Promise((done) => { dialog.addEventListener("close", () => { dialog.remove(); done(saved); }); });
}
