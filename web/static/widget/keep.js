/** Moving a conversation to another browser: shows a code, or takes one. */
import english from "../locales/en/chat_parts.json" with { type: "json" };
import { h, icon, set, show } from "../shared/h.js";
import { reach } from "./rare.js";
import { adoptMd } from "./md.js";
import { SHEET_LOOK } from "./sheet-look.js";
import { adopt } from "./styles.js";
import { wordsOf } from "./words.js";

const CROSS_OUT = "M6 6l12 12M18 6L6 18";

const t = wordsOf("keep", english.keep);
/** @param {string} key */
const word = (key) => t(key in english.keep ? key : "failed");

/** Opens the chat panel, and the dialog over it. @param {import("./main.js").Widget} widget */
export async function unfold(widget) {
  await widget.open();
  if (widget.chat) keep(widget.chat);
}

/** Opens the dialog over a chat. @param {import("./chat.js").Chat} chat */
export function keep(chat) {
  const { page, site } = chat.options;
  const told = h("p", { class: "state", role: "status" });
  const shown = h("div", { class: "note-form", hidden: true });
  const make = h("button", { class: "action solid", type: "button", onclick: () => busy(issue) }, word("make"));
  const typed = h("input", { class: "search", id: "evt-code", autocomplete: "off", spellcheck: "false", autocapitalize: "characters", maxlength: 60, dir: "ltr" });
  const find = h("button", { class: "action line", type: "submit" }, word("open"));
  const close = h("button", { class: "icon", type: "button", "aria-label": word("back"), title: word("back"), onclick: leave }, icon(CROSS_OUT));
  const title = h("h2", { id: "evt-keep-title", tabindex: -1 }, word("title"));
  const node = h("section", { class: "sheet", role: "dialog", "aria-labelledby": "evt-keep-title", onkeydown: key },
    h("div", { class: "head" }, title, h("span", { class: "grow" }), close),
    h("div", { class: "view" }, h("div", { class: "scroll" }, told, h("div", { class: "note-form" }, h("p", { class: "muted small" }, word("why")), h("div", { class: "row" }, make), shown),
      h("form", { class: "note-form", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); busy(recover); } },
        h("label", { class: "small", for: "evt-code" }, word("have")), typed, h("div", { class: "row" }, find)))));
  let working = false;
  const under = [...chat.node.children].filter((one) => !one.matches(".hidden"));

  /** @param {() => Promise<void>} run */
  async function busy(run) {
    if (working) return;
    working = true;
    // not `disabled`, which would take the focus from the pressed button
    for (const button of [make, find]) set(button, { "aria-disabled": "true" });
    show(told);
    try { await run(); } catch { say("failed", true); }
    for (const button of [make, find]) set(button, { "aria-disabled": null });
    working = false;
  }

  /** @param {string} name @param {boolean} [bad] */
  function say(name, bad = false) {
    set(told, { data: { bad: String(bad) } });
    show(told, word(name));
  }

  /** @param {string} path @param {object} body */
  async function post(path, body) {
    const answer = await reach(chat, path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
    const told = await answer.json();
    if (answer.ok) return told;
    say(String(told.code), true);
    return null;
  }

  async function issue() {
    const made = await post("api/v1/recovery-code", {});
    if (!made) return;
    const copy = h("button", { class: "quiet", type: "button", onclick: () => void chat.copy(made.code, copy) }, t("copy"));
    show(shown, h("p", { class: "body" }, h("code", { dir: "ltr" }, made.code), " ", copy), h("p", { class: "small" }, word("once")));
    shown.hidden = false;
    chat.say(word("once"));
  }

  async function recover() {
    const code = typed.value.trim();
    if (!code) return typed.focus();
    const found = await post("api/v1/recover", { code, site, page });
    if (!found) return;
    if (found.token) chat.store.put("token", found.token);
    Object.assign(chat.chat, { last: 0, session: "" });
    chat.net.reconnect();
    leave();
    chat.say(word("opened"));
  }

  function leave() {
    for (const one of under) one.removeAttribute("inert");
    node.remove();
    chat.composer.input.focus({ preventScroll: true });
  }

  /** @param {KeyboardEvent} event */
  function key(event) {
    if (event.key !== "Escape" || event.isComposing) return;
    event.stopPropagation();
    leave();
  }

  for (const one of under) one.setAttribute("inert", "");
  adoptMd(chat.node);
  adopt(chat.node, SHEET_LOOK);
  chat.node.append(node);
  title.focus({ preventScroll: true });
}
