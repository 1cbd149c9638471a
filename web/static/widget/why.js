/** Notes and messages that an answer was based on, each with buttons to show, correct and delete it. */
import { h, set, show } from "../shared/h.js";
import { stamp } from "../shared/fmt.js";
import { tongue } from "./i18n.js";
import { MOST_CHARS, day, short } from "./notes.js";
import { state, t } from "./sheet-parts.js";
import { history } from "./versions.js";

/**
 * @typedef {{id: string, text: string, state: string, authority: string, observed_at: string, mid: string | null}} Held
 * @typedef {{mid: string, role: string, at: string, text: string, here: boolean, forgettable: boolean}} Recalled
 */

/** Returns the view of the sheet with the notes and messages behind an answer. @param {import("./sheet-parts.js").SheetTools} tools @param {() => void} before shows earlier conversations */
export function because(tools, before) {
  const status = h("p", { class: "state", role: "status", dir: "auto" });
  const body = h("div");
  const node = h("div", { class: "view" }, h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": t("why") }, status, body));
  let shown = "";
  let asked = 0;

  /** Shows an answer's notes and messages, or after a change those that are open. @param {string} [mid] the answer */
  async function load(mid) {
    const mine = ++asked;
    // The rows of an earlier look would be replaced under a click.
    if (mid) show(body);
    shown = mid ?? shown;
    state(status, t("loading"));
    try {
      const answer = await tools.reach(`api/v1/sessions/${encodeURIComponent(tools.session())}/messages/${shown}/memory`);
      if (mine !== asked) return;
      if (answer.status === 410) return state(status, t("why_gone"));
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      draw(await answer.json());
    } catch {
      if (mine === asked) state(status, t("why_failed"), () => void load(shown));
    }
  }

  /** @param {any} found */
  function draw({ notes, messages, files, tools: names, summary, whole }) {
    /** @param {string} key @param {any[]} rows */
    const part = (key, rows) => rows[0] && h("section", null, h("h3", null, t(key)), h("ul", { class: "notes" }, rows));
    const also = [files[0] && t("why_files", { names: files.join(", ") }), names[0] && t("why_tools", { names: names.join(", ") }), summary && t("why_summary"), !whole && t("why_missing")].filter(Boolean);
    state(status, notes.length + messages.length + also.length ? "" : t("why_none"));
    show(body, part("why_notes", notes.map(noted)), part("why_messages", messages.map(said)), also.map((words) => h("p", { class: "state", dir: "auto" }, words)));
  }

  /** @param {string} key @param {() => void} run @param {string} about */
  const act = (key, run, about) => h("button", { class: "quiet", type: "button", "aria-label": `${t(key)}: ${short(about)}`, onclick: run }, t(key));

  /** @param {Held} note */
  function noted(note) {
    const kept = note.state === "kept";
    const old = h("button", { class: "quiet", type: "button", "aria-expanded": "false", "aria-label": `${t("versions")}: ${short(note.text)}`, onclick: () => void history(tools, note.id, old, () => void load()) }, t("versions"));
    const { mid } = note;
    const hint = h("p", { class: "note-hint", role: "alert", hidden: true });
    const item = h("li", { class: "note", data: { note: note.id } }, h("p", { class: "note-text", dir: "auto" }, note.text),
      h("p", { class: "note-meta", dir: "auto" }, day(note.observed_at), !kept && h("span", { class: "tag" }, t(note.state === "replaced" ? "replaced" : "put_away")), note.authority === "tool" && h("span", { class: "tag" }, t("from_tool"))),
      h("div", { class: "note-acts" }, mid && act("show", () => tools.jump(mid), note.text), kept && act("edit", () => rewrite(note, item), note.text),
        kept && act("delete", () => void send("DELETE", `api/v1/memory/${note.id}`, hint), note.text), old), hint);
    return item;
  }

  /** @param {Held} note @param {HTMLElement} item */
  function rewrite(note, item) {
    const area = h("textarea", { class: "note-area", "aria-label": t("edit"), maxlength: MOST_CHARS, dir: "auto" });
    const hint = h("p", { class: "note-hint", role: "alert", hidden: true });
    const leave = () => { form.remove(); delete item.dataset.editing; item.querySelector("button")?.focus(); };
    const form = h("form", { class: "note-form", onsubmit: (/** @type {Event} */ event) => {
      event.preventDefault();
      const text = area.value.trim();
      if (text && text !== note.text) void send("PUT", `api/v1/memory/${note.id}`, hint, { text });
      else leave();
    } }, area, hint, h("div", { class: "row" }, h("button", { class: "action solid", type: "submit" }, t("save")), h("button", { class: "action line", type: "button", onclick: leave }, t("cancel"))));
    if (item.dataset.editing) return;
    item.dataset.editing = "true";
    item.append(form);
    area.value = note.text;
    area.focus();
  }

  /** @param {Recalled} one */
  function said(one) {
    const who = { person: t("you"), assistant: t("assistant"), summary: t("summary") }[one.role] ?? t("team");
    const hint = h("p", { class: "note-hint", role: "alert", hidden: true });
    let sure = false;
    const forget = () => {
      if (sure) return void send("DELETE", `api/v1/sessions/${encodeURIComponent(tools.session())}/messages/${one.mid}`, hint, undefined, () => item.remove());
      sure = true;
      hint.hidden = false;
      show(hint, t("forget_sure"));
    };
    const item = h("li", { class: "note", data: { mid: one.mid } }, h("p", { class: "note-meta" }, `${who} · ${stamp(one.at, tongue())}`), h("p", { class: "note-text", dir: "auto" }, one.text),
      h("div", { class: "note-acts" }, act("show", one.here ? () => tools.jump(one.mid) : before, one.text),
        one.forgettable && [act("edit", () => void tools.reword(one.mid), one.text), act("delete", forget, one.text)]), hint);
    return item;
  }

  /** Sends a change of one of them, and shows the remaining ones. @param {string} method @param {string} path @param {HTMLElement} hint @param {object} [body] @param {() => unknown} [then] */
  async function send(method, path, hint, body, then = load) {
    const answer = await tools.reach(path, { method, ...(body && { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } }) }).catch(() => null);
    if (answer?.ok) {
      await then();
      tools.title().focus({ preventScroll: true });
      return;
    }
    const { details } = await answer?.json().catch(() => ({})) ?? {};
    hint.hidden = false;
    show(hint, t(answer?.status === 400 ? "bad_note" : answer?.status === 404 ? "note_gone" : "note_failed"), details?.advice ? ` ${details.advice}` : "");
  }

  return { node, load };
}
