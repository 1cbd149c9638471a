/** “Memory”: notes to read, search, correct and archive; the list on the server is authoritative. */
import { h, set, show } from "../shared/h.js";
import { tongue } from "./i18n.js";
import { state, t } from "./sheet-parts.js";
import { history } from "./versions.js";

const PATH = "api/v1/memory";
/** Maximum characters of a note. */
export const MOST_CHARS = 600;
const KINDS = new Set(["profile", "preference", "fact", "decision", "event", "plan", "relation", "instruction"]);

/**
 * @typedef {{id: string, text: string, kind: string, authority: string, observed_at: string, event_date: string | null}} Note
 * @typedef {{node: HTMLElement, update: (note: Note) => void, leave: () => boolean, focus: () => void}} Row
 */

/** Returns the day of a moment in the visitor's language. @param {string} moment */
export const day = (moment) => new Date(moment).toLocaleDateString(tongue(), { dateStyle: "medium" });
/** Returns a text shortened to 60 characters, for labels. @param {string} text */
export const short = (text) => (text.length > 60 ? `${text.slice(0, 59)}…` : text);

/** Returns the view of the sheet with the person's notes. @param {import("./sheet-parts.js").SheetTools} tools */
export function notes(tools) {
  const search = h("input", { class: "search", type: "search", "aria-label": t("search"), placeholder: t("search"), maxlength: 300, dir: "auto", autocomplete: "off", oninput: () => later(250) });
  const status = h("p", { class: "state", role: "status", dir: "auto" });
  const list = h("ul", { class: "notes" });
  const toast = h("div", { class: "toast", role: "status", hidden: true });
  const node = h("div", { class: "view" }, h("div", { class: "search-row" }, search), h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": t("remembered") }, status, list), toast);
  /** @type {Map<string, Row>} */
  const rows = new Map();
  let asked = 0;
  let timer = 0;
  /** Id of the note that gets the focus as soon as it is drawn again. */
  let back = "";

  /** @param {number} [ms] */
  function later(ms = 120) {
    clearTimeout(timer);
    timer = setTimeout(() => void load(), ms);
  }

  async function load() {
    const mine = ++asked;
    const words = search.value.trim();
    if (!rows.size) state(status, t("loading"));
    set(list, { "aria-busy": "true" });
    try {
      const answer = await tools.reach(words ? `${PATH}?q=${encodeURIComponent(words)}` : PATH);
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      const found = await answer.json();
      if (mine === asked) draw(found.notes, found.total, words);
    } catch {
      if (mine === asked) state(status, t("notes_failed"), () => void load());
    }
    if (mine === asked) set(list, { "aria-busy": null });
  }

  /** Updates rows in place, so that text being typed is kept. @param {Note[]} found @param {number} total @param {string} words */
  function draw(found, total, words) {
    const ids = new Set(found.map((note) => note.id));
    for (const [id, row] of rows) if (!ids.has(id) && !row.node.dataset.editing) { row.node.remove(); rows.delete(id); }
    // A moved node loses the focus, so only nodes out of place are moved.
    let next = list.firstElementChild;
    for (const note of found) {
      const row = rows.get(note.id) ?? make(note);
      row.update(note);
      while (next instanceof HTMLElement && next.dataset.editing && next !== row.node) next = next.nextElementSibling;
      if (row.node === next) next = next.nextElementSibling;
      else list.insertBefore(row.node, next);
    }
    const more = total - found.length;
    state(status, t(!total ? (words ? "found_none" : "notes_none") : more > 0 ? "notes_more" : "notes", { words, more, count: total }));
    if (back) (rows.get(back) ?? search).focus();
    back = "";
  }

  /** @param {Note} first @returns {Row} */
  function make(first) {
    let note = first;
    const text = h("p", { class: "note-text", dir: "auto" });
    const meta = h("p", { class: "note-meta", dir: "auto" });
    const edit = h("button", { class: "quiet", type: "button", onclick: open }, t("edit"));
    const away = h("button", { class: "quiet", type: "button", onclick: () => void putAway(note, item) }, t("delete"));
    const before = h("button", { class: "quiet", type: "button", "aria-expanded": "false", onclick: () => void history(tools, note.id, before, () => later(0)) }, t("versions"));
    const item = h("li", { class: "note" }, text, meta, h("div", { class: "note-acts" }, edit, away, before));
    /** @type {HTMLFormElement | null} */
    let form = null;
    const row = { node: item, update, leave, focus: () => edit.focus() };
    rows.set(note.id, row);

    /** @param {Note} next */
    function update(next) {
      note = next;
      show(text, note.text);
      show(meta, [t(KINDS.has(note.kind) ? `kind_${note.kind}` : "kind_fact"), day(note.observed_at), note.event_date && t("about", { date: note.event_date })].filter(Boolean).join(" · "),
        note.authority === "tool" && h("span", { class: "tag" }, t("from_tool")));
      set(edit, { "aria-label": `${t("edit")}: ${short(note.text)}` });
      set(away, { "aria-label": `${t("delete")}: ${short(note.text)}` });
      set(before, { "aria-label": `${t("versions")}: ${short(note.text)}` });
    }

    function open() {
      const area = h("textarea", { class: "note-area", "aria-label": t("edit"), maxlength: MOST_CHARS, dir: "auto", onkeydown: (/** @type {KeyboardEvent} */ event) => {
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); form?.requestSubmit(); }
      } });
      const hint = h("p", { class: "note-hint", role: "alert", hidden: true });
      const save = h("button", { class: "action solid", type: "submit" }, t("save"));
      form = h("form", { class: "note-form", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); void keep(area, hint, save); } },
        area, hint, h("div", { class: "row" }, save, h("button", { class: "action line", type: "button", onclick: leave }, t("cancel"))));
      item.dataset.editing = "true";
      item.append(/** @type {HTMLFormElement} */ (form));
      area.value = note.text;
      area.focus();
    }

    /** @returns {boolean} whether there was anything to leave */
    function leave() {
      if (!form) return false;
      form.remove();
      form = null;
      delete item.dataset.editing;
      edit.focus();
      later(0);
      return true;
    }

    /** @param {HTMLTextAreaElement} area @param {HTMLElement} hint @param {HTMLElement} save */
    async function keep(area, hint, save) {
      const words = area.value.trim();
      if (words === note.text) return leave();
      set(save, { "aria-disabled": "true" });
      const { status: code, body } = await ask("PUT", note.id, "", { text: words });
      set(save, { "aria-disabled": null });
      const newer = body.details?.note ?? (code === 200 ? body.note : null);
      if (newer) {
        rows.delete(note.id);
        rows.get(newer.id)?.node.remove();
        rows.set(newer.id, row);
        update(newer);
      }
      if (code === 200) return leave();
      hint.hidden = false;
      show(hint, t(code === 409 && newer ? "newer" : code === 400 ? "bad_note" : code === 404 || code === 409 ? "note_gone" : "note_failed"),
        code === 400 && body.details?.advice ? ` ${body.details.advice}` : "");
      area.focus();
    }
    return row;
  }

  /** @param {Note} note @param {HTMLElement} item */
  async function putAway(note, item) {
    const { status: code } = await ask("DELETE", note.id);
    if (code !== 200 && code !== 404) return tell(t("note_failed"));
    const next = item.nextElementSibling ?? item.previousElementSibling;
    rows.delete(note.id);
    item.remove();
    if (code === 404) tell(t("note_gone"));
    else {
      const undo = h("button", { class: "quiet", type: "button", onclick: () => void restore(note) }, t("undo"));
      tell(t("gone", { text: short(note.text) }), undo);
      undo.focus();
    }
    if (code === 404) (/** @type {HTMLElement | null} */ (next?.querySelector("button")) ?? search).focus();
    void load();
  }

  /** @param {Note} note */
  async function restore(note) {
    const { status: code } = await ask("POST", note.id, "/restore");
    if (code !== 200) return tell(t(code === 410 || code === 404 ? "too_late" : "note_failed"));
    tell("");
    back = note.id;
    void load();
  }

  /** @param {string} method @param {string} id @param {string} [more] @param {object} [body] @returns {Promise<{status: number, body: any}>} */
  async function ask(method, id, more = "", body) {
    try {
      const answer = await tools.reach(`${PATH}/${id}${more}`, { method, ...(body && { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } }) });
      return { status: answer.status, body: await answer.json().catch(() => ({})) };
    } catch {
      return { status: 0, body: {} };
    }
  }

  /** @param {string} words @param {...any} more */
  function tell(words, ...more) {
    toast.hidden = !words;
    show(toast, words && h("span", { dir: "auto" }, words), more);
  }

  return {
    node, load, later,
    /** Escape first closes the form that is being filled in. */
    cancel: () => [...rows.values()].some((row) => row.leave()),
    rest() { clearTimeout(timer); asked++; back = ""; tell(""); },
  };
}
