/** Canned replies: chosen in the composer by `/` and a few letters, filled in with known values, and managed by operators. */
import { h, set, show } from "../shared/h.js";
import { drawIcon } from "./icons.js";
import { ask } from "./net.js";
import { problem, t } from "./parts.js";

/** Returns the canned replies of a conversation: `choices` offers them in a composer, `about` sets the values of their variables. @param {{me: any, signal: AbortSignal, say: (words: string) => void}} of */
export function cannedReplies({ me, signal, say }) {
  /** @type {any[] | null} */
  let known = null;
  /** Values of variables; an unknown one stays visible, so that it is not sent by mistake. @type {Record<string, string>} */
  let values = {};

  /** @param {boolean} [again] */
  async function load(again = false) {
    if (!known || again) known = (await ask("/handover-choices", { signal })).canned;
    return /** @type {any[]} */ (known);
  }

  /** @param {string} body */
  const filled = (body) => body.replace(/\{\{\s*([a-z_.]+)\s*\}\}/g, (whole, /** @type {string} */ name) => values[name] || whole);

  /** Adds the list of replies below a composer. @param {HTMLTextAreaElement} input @param {() => void} changed */
  function choices(input, changed) {
    let places = /** @type {any[]} */ ([]);
    let at = 0;
    const list = h("ul", { role: "listbox", id: "canned-choices", class: "canned-list", "aria-label": t("Canned replies"), hidden: true });
    set(input, { "aria-autocomplete": "list", "aria-controls": "canned-choices" });
    const button = h("button", { type: "button", class: "line icon-button", title: t("Canned replies"), onclick: () => manage(load, { me, signal, say }) }, drawIcon("canned"), h("span", { class: "unseen" }, t("Canned replies")));

    /** @param {Api["CannedReply"][]} next */
    function draw(next) {
      places = next;
      at = Math.min(at, Math.max(0, places.length - 1));
      list.hidden = !places.length;
      set(input, { "aria-activedescendant": places.length ? `canned-${at}` : null });
      show(list, places.map((one, index) => h("li", { role: "option", id: `canned-${index}`, "aria-selected": String(index === at), onclick: () => take(one) }, h("b", null, `/${one.name}`), h("span", { class: "muted", dir: "auto" }, one.body))));
    }

    async function typed() {
      const word = /^\/([a-z0-9_-]*)$/.exec(input.value)?.[1];
      if (word === undefined) return draw([]);
      try {
        const all = await load();
        if (/^\/([a-z0-9_-]*)$/.exec(input.value)?.[1] === word) draw(all.filter((one) => one.name.includes(word)).sort((one, other) => Number(other.name.startsWith(word)) - Number(one.name.startsWith(word))).slice(0, 8));
      } catch { /* the words are sent as they are typed */ }
    }

    /** @param {Api["CannedReply"]} one */
    function take(one) {
      input.value = filled(one.body);
      draw([]);
      changed();
      input.focus();
    }

    /** Handles a key; returns whether the list has used it. @param {KeyboardEvent} event */
    function pressed(event) {
      if (!places.length || event.isComposing) return false;
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step) { at = (at + step + places.length) % places.length; draw(places); return true; }
      if (event.key === "Escape") { draw([]); return true; }
      if ((event.key !== "Enter" && event.key !== "Tab") || event.shiftKey) return false;
      take(places[at]);
      return true;
    }
    return { node: list, button, typed, pressed };
  }

  return {
    choices, filled,
    /** @param {Api["SessionWhole"]} session */
    about(session) { values = { name: session.person ?? "", operator: me.display_name || "Support", site: session.site ?? "" }; },
  };
}

/** @param {(again?: boolean) => Promise<any[]>} load @param {{me: any, signal: AbortSignal, say: (words: string) => void}} of */
async function manage(load, { signal, say }) {
  const list = h("div", { class: "stack" });
  const note = h("div", { role: "status" });
  const name = h("input", { name: "name", required: true, maxlength: 40, pattern: "[a-z0-9][a-z0-9_\\-]*", title: t("a-z, 0-9, _ and -, no mark first"), autocomplete: "off", autocapitalize: "none", spellcheck: "false" });
  const body = h("textarea", { name: "body", required: true, rows: 4, maxlength: 4000 });
  const dialog = h("dialog", { class: "card help canned", "aria-label": t("Canned replies") }, h("h2", null, t("Canned replies")), list,
    h("form", { class: "stack", onsubmit: save }, h("label", null, h("span", null, t("Name")), name), h("label", null, h("span", null, t("Text")), body),
      h("p", { class: "muted small" }, t("{variables} are filled in.", { variables: h("code", null, "{{name}} {{operator}} {{site}}") })), note,
      h("p", { class: "actions" }, h("button", { type: "submit", class: "solid" }, t("Save")), h("button", { type: "button", class: "line", onclick: () => dialog.close() }, t("Close")))));
  let version = 0;

  /** @param {Api["CannedReply"]} one */
  const edit = (one) => { [name.value, body.value, version] = [one.name, one.body, one.version]; show(note); body.focus(); };

  async function draw() {
    const all = await load(true);
    show(list, all.length ? h("ul", { class: "plain-list" }, all.map((one) => h("li", null, h("p", null, h("b", null, `/${one.name}`), " ", h("span", { class: "muted", dir: "auto" }, one.body)), h("p", { class: "actions" },
      h("button", { type: "button", class: "line", "aria-label": t("Edit {name}", { name: one.name }), onclick: () => edit(one) }, t("Edit")), h("button", { type: "button", class: "line", "aria-label": t("Remove {name}", { name: one.name }), onclick: () => remove(one) }, t("Remove")))))) : null);
  }

  /** @param {() => Promise<any>} act @param {string} words */
  async function change(act, words) {
    show(note);
    try { await act(); await draw(); say(words); return true; } catch (error) { if (!signal.aborted) show(note, problem(error)); return false; }
  }

  /** @param {Event} event */
  async function save(event) {
    event.preventDefault();
    if (await change(() => ask(`/canned-replies/${name.value}`, { method: "PUT", body: { body: body.value, version }, signal }), t("Saved."))) { name.value = body.value = ""; version = 0; name.focus(); }
  }

  /** @param {Api["CannedReply"]} one */
  const remove = (one) => change(() => ask(`/canned-replies/${one.name}`, { method: "DELETE", signal }), t("Saved."));

  name.addEventListener("input", () => { version = 0; });
  dialog.addEventListener("close", () => dialog.remove());
  signal.addEventListener("abort", () => dialog.close(), { once: true });
  document.body.append(dialog);
  dialog.showModal();
  try { await draw(); } catch (error) { show(note, problem(error)); }
}
