/** A person's conversations where the site allows several: open, name or start one. */
import { h, set, show } from "../shared/h.js";
import { stamp } from "../shared/fmt.js";
import { tongue } from "./i18n.js";
import { state, t } from "./sheet-parts.js";

/** @typedef {{session_id: string, title: string, named: boolean, last_active_at: string, unread: boolean}} Talk */

/** Returns the view of the sheet with the person's conversations. @param {Pick<import("./sheet-parts.js").SheetTools, "reach" | "session" | "open" | "begin">} tools */
export function talks(tools) {
  const status = h("p", { class: "state", role: "status", dir: "auto" });
  const list = h("ul", { class: "found talks" });
  const more = h("button", { class: "action line", type: "button", hidden: true, onclick: () => void load(true) }, t("talks_older"));
  const fresh = h("button", { class: "action solid", type: "button", onclick: () => tools.begin() }, t("talk_new"));
  const node = h("div", { class: "view" }, h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": t("talks") }, h("p", { class: "row" }, fresh), status, list, more));
  /** @type {string | null} */
  let next = null;

  /** @param {boolean} [on] whether older ones join those that are there @param {boolean} [quiet] whether the list stays meanwhile */
  async function load(on = false, quiet = false) {
    if (on !== true && !quiet) state(status, t("loading"));
    try {
      const answer = await tools.reach(`api/v1/conversations${on === true && next ? `?before=${next}` : ""}`);
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      const page = await answer.json();
      const rows = page.conversations.map(row);
      if (on === true) list.append(...rows);
      else replace(rows, quiet && Boolean(page.next));
      if (on === true || !quiet || !page.next) next = page.next;
      more.hidden = !next;
      state(status, "");
    } catch {
      if (!quiet) state(status, t("talks_failed"), () => void load(on));
    }
  }

  /** Replaces rows; the conversation that had the focus keeps it. @param {HTMLElement[]} rows @param {boolean} keep whether older rows stay */
  function replace(rows, keep) {
    const { activeElement } = /** @type {ShadowRoot} */ (list.getRootNode());
    const held = list.contains(activeElement) && activeElement?.closest("li")?.dataset.talk;
    const known = new Set(rows.map((one) => one.dataset.talk));
    const older = keep ? [...list.children].filter((one) => !known.has(one.dataset.talk)) : [];
    show(list, rows, older);
    if (held) list.querySelector(`[data-talk="${held}"] button`)?.focus();
  }

  /** @param {Talk} talk */
  function row(talk) {
    const here = talk.session_id === tools.session();
    const title = talk.title || t("talk_untitled");
    const open = h("button", { type: "button", "aria-current": here ? "true" : null, onclick: () => tools.open(talk.session_id) }, h("span", { dir: "auto" }, title),
      h("span", { class: "muted small" }, [stamp(talk.last_active_at, tongue()), here && t("talk_here")].filter(Boolean).join(" · "), talk.unread && !here && [" · ", h("b", { class: "unread" }, t("talk_unread"))]));
    const line = h("li", { data: { talk: talk.session_id } }, open, h("button", { class: "quiet", type: "button", "aria-label": `${t("talk_name")}: ${title}`, onclick: () => name(talk, line) }, t("talk_name")));
    return line;
  }

  /** @param {Talk} talk @param {HTMLElement} line */
  function name(talk, line) {
    const field = h("input", { class: "search", maxlength: 60, dir: "auto", "aria-label": t("talk_name") });
    field.value = talk.title;
    const leave = (/** @type {Talk} */ now) => { const made = row(now); form.replaceWith(made); made.querySelector("button")?.focus(); };
    const form = h("li", { onkeydown: (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Escape") { event.stopPropagation(); leave(talk); }
      else if (event.key === "Enter" && !event.isComposing && event.target === field) { event.preventDefault(); void save(); }
    } }, field, h("p", { class: "row" }, h("button", { class: "action solid", type: "button", onclick: () => void save() }, t("save")), h("button", { class: "action line", type: "button", onclick: () => leave(talk) }, t("cancel"))));

    async function save() {
      set(field, { readonly: true });
      try {
        const answer = await tools.reach(`api/v1/sessions/${encodeURIComponent(talk.session_id)}`, { method: "PATCH", body: JSON.stringify({ title: field.value.trim() }), headers: { "Content-Type": "application/json" } });
        if (!answer.ok) throw new Error(`status ${answer.status}`);
        leave({ ...talk, title: field.value.trim() || talk.title });
        if (!field.value.trim()) void load();
      } catch {
        set(field, { readonly: null });
        state(status, t("note_failed"));
      }
    }
    line.replaceWith(form);
    field.focus();
    field.select();
  }
  return { node, load, refresh: () => load(false, true) };
}
