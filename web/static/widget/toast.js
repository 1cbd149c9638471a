/** “Saved: …” above the composer for a while, with a button to undo it; loaded with the first note. */
import english from "../locales/en/chat_parts.json" with { type: "json" };
import { h, icon, set, show } from "../shared/h.js";
import { reach } from "./rare.js";
import { adopt } from "./styles.js";
import { wordsOf } from "./words.js";

const STAYS_MS = 10_000;
const MOST = 3;
const PATH = "api/v1/memory";
const CLOSE = "M6 6l12 12M18 6L6 18";

const t = wordsOf("toast", english.toast);

const TOAST_LOOK = /* css */ `
.noted { display: flex; flex-direction: column; gap: 2px; margin: 0 10px 8px; padding-block: 5px; padding-inline: 12px 5px; font-size: 13.5px; line-height: 1.4; background: var(--soft); border: 1px solid var(--line); border-radius: var(--radius-m); animation: rise .16s ease-out; }
.noted-row { display: flex; align-items: center; gap: 6px; } .noted-row p { flex: 1; min-width: 0; overflow-wrap: anywhere; display: -webkit-box; -webkit-line-clamp: 2; -webkit-box-orient: vertical; overflow: hidden; }
.noted-row .icon { flex: none; width: 28px; height: 28px; } .noted .quiet { color: var(--accent); } .noted-all { margin-inline-start: -8px; }
.noted .quiet:hover, .noted .icon:hover { background: var(--card); }
.root[data-mode="page"] .noted { width: calc(100% - 20px); max-width: 780px; margin: 0 auto; }
`;

/**
 * @typedef {import("./chat.js").Chat} Chat
 * @typedef {{id: string, text: string, event_seq: number, change: string, replaces?: string, quiet?: boolean}} Memory
 */

/** @type {WeakMap<Chat, ReturnType<typeof toast>>} */
const toasts = new WeakMap();

/** Shows that something was remembered or forgotten. @param {Chat} chat @param {Memory} memory */
export function tell(chat, memory) {
  const known = toasts.get(chat);
  if (memory.change !== "saved") return known?.drop(memory.replaces ?? memory.id);
  // saved in the background, while the chat is hidden, or with the whole list open
  if (memory.quiet || chat.node.hidden || chat.sheet?.shown) return;
  const one = known ?? toast(chat);
  toasts.set(chat, one);
  one.add(memory);
}

/** @param {Chat} chat */
function toast(chat) {
  adopt(chat.node, TOAST_LOOK);
  /** @type {Map<string, HTMLElement>} */
  const rows = new Map();
  const told = new Set();
  let timer = 0;
  const close = h("button", { class: "icon", type: "button", "aria-label": t("dismiss"), title: t("dismiss"), onclick: () => leave(true) }, icon(CLOSE, 15));
  const all = h("button", { class: "quiet noted-all", type: "button", onclick: () => { leave(); chat.later((one) => one.look(chat)); } }, t("all"));
  const foot = h("div", { class: "noted-row" }, all, h("span", { class: "grow" }), close);
  const node = h("div", { class: "noted", role: "group", "aria-label": t("notes"), onkeydown: key, onpointerenter: rest, onpointerleave: wait, onfocusin: rest, onfocusout: wait }, foot);

  /** Keeps the toast while it is hovered or focused. */
  function rest() { clearTimeout(timer); }
  function wait() {
    rest();
    timer = setTimeout(() => { if (!node.matches(":hover, :focus-within")) leave(); }, STAYS_MS);
  }

  /** @param {Memory} memory */
  function add({ id, text, event_seq: seq }) {
    if (told.has(id)) return;
    told.add(id);
    // the former visitor's notes are gone
    if (!node.isConnected) rows.forEach((_row, old) => drop(old));
    if (rows.size === MOST) drop(/** @type {HTMLElement} */ (node.firstElementChild).dataset.id ?? "");
    const undo = h("button", { class: "quiet", type: "button", "aria-label": `${t("undo")}: ${text}`, onclick: () => void back(id, undo) }, t("undo"));
    const row = h("div", { class: "noted-row", data: { id, seq } }, h("p", { dir: "auto", title: text }, t("noted", { text })), undo);
    rows.set(id, row);
    // Events that waited for this file to load may come in any order.
    const next = [...node.children].find((one) => Number(/** @type {HTMLElement} */ (one).dataset.seq) > seq) ?? foot;
    next.before(row);
    if (!node.isConnected) chat.composer.node.before(node);
    chat.say(t("noted", { text }));
    chat.draw();
    wait();
  }

  /** @param {string} id @param {HTMLElement} undo */
  async function back(id, undo) {
    if (undo.getAttribute("aria-disabled")) return;
    set(undo, { "aria-disabled": "true" });
    let done = false;
    try { const { status } = await reach(chat, `${PATH}/${id}`, { method: "DELETE" }); done = status === 200 || status === 404; } catch { /* as if refused */ }
    if (done) drop(id);
    else { set(undo, { "aria-disabled": null }); show(undo, t("retry")); }
    chat.say(t(done ? "undone" : "undo_failed"));
  }

  /** @param {string} id */
  function drop(id) {
    const row = rows.get(id);
    if (!row) return;
    rows.delete(id);
    const held = row.contains(/** @type {ShadowRoot} */ (chat.node.getRootNode()).activeElement);
    row.remove();
    if (!rows.size) leave(held);
    else if (held) /** @type {HTMLElement} */ (node.querySelector("button")).focus();
  }

  /** @param {boolean} [back] whether the focus was here */
  function leave(back = false) {
    rest();
    for (const row of rows.values()) row.remove();
    rows.clear();
    node.remove();
    if (back) chat.composer.input.focus({ preventScroll: true });
  }

  /** @param {KeyboardEvent} event */
  function key(event) {
    if (event.key !== "Escape" || event.isComposing) return;
    event.stopPropagation();
    leave(true);
  }

  return { add, drop };
}
