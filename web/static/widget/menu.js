/** Menu of a conversation, and its dialogs; loaded when first opened. */
import english from "../locales/en/chat_parts.json" with { type: "json" };
import { h, set, show } from "../shared/h.js";
import { adoptMd, render } from "./md.js";
import { adopt } from "./styles.js";
import { ask } from "./acts.js";
import { reach } from "./rare.js";
import { newId } from "./storage.js";
import { wordsOf } from "./words.js";

const t = wordsOf("menu", english.menu);
const LOOKS = ["auto", "light", "dark"];
const MENU_LOOK = /* css */ `
.menu { position: absolute; z-index: 3; top: 52px; inset-inline-end: 10px; min-width: 220px; max-width: calc(100% - 20px); max-height: calc(100% - 66px); overflow: auto; padding: 5px; background: var(--card); border: 1px solid var(--line); border-radius: var(--radius-m); box-shadow: 0 12px 32px rgb(0 0 0 / .18); }
.menu button { display: block; width: 100%; min-height: 38px; padding: 6px 12px; text-align: start; }
.menu button:hover, .menu button:focus-visible { background: var(--soft); outline-offset: -2px; }
.menu .danger { color: var(--crit); } .action.danger { background: var(--crit); color: var(--card); }
.root[data-mode="page"] .menu { inset-inline-end: max(14px, env(safe-area-inset-right)); }
.question { all: unset; box-sizing: border-box; position: fixed; display: none; left: var(--x); top: var(--y); width: var(--w); max-height: var(--h); overflow: auto; padding: 18px; background: var(--card); color: var(--fg); border: 1px solid var(--line); border-radius: var(--radius-l); box-shadow: 0 16px 48px rgb(0 0 0 / .3); }
.question[open] { display: grid; gap: 12px; }
.question::backdrop { background: rgb(0 0 0 / .3); }
.question h2 { font-size: 16px; font-weight: 640; }
.question .action { min-height: 38px; }
@media (forced-colors: active) { .menu, .question { border: 1px solid; } }
`;

/** @typedef {import("./chat.js").Chat} Chat */

/** Returns the entries that this visitor may use. @param {Chat} chat @returns {[string, () => void, string?][]} */
function offers(chat) {
  const names = new Set(chat.commands().map((/** @type {any} */ one) => one.name));
  const { state } = chat.chat.handover ?? {};
  /** @type {[string, boolean, () => void, string?][]} */
  const all = [
    ["new_chat", names.has("new"), () => begin(chat)],
    ["talks", chat.many && !chat.side?.shown, () => chat.later((one) => one.look(chat, "talks"))],
    ["remembered", names.has("memory"), () => chat.later((one) => one.look(chat))],
    ["pins", names.has("pins"), () => chat.later((one) => one.look(chat, "pins"))],
    ["find", names.has("search"), () => chat.later((one) => one.look(chat, "find"))],
    ["go_day", chat.chat.items.length > 0, () => chat.later((one) => one.look(chat, "dates"))],
    ["human", names.has("human") && !state, () => void chat.command("human", "")],
    ["bot", names.has("human") && Boolean(state), () => void chat.command("human", "cancel")],
    ["keep", !chat.options.identity, () => void import("./keep.js").then((one) => one.keep(chat)).catch(() => chat.warn(t("lost")))],
    ["imports", Boolean(chat.chat.settings.limits.imports), () => chat.later((one) => one.look(chat, "imports"))],
    ["export_md", names.has("export"), () => save(chat, "md")],
    ["export_json", names.has("export"), () => save(chat, "json")],
    [chat.store.get("push") ? "notify_off" : "notify_on", Boolean(chat.options.page) && "PushManager" in window, () => void import("./notify.js").then((one) => one.turn(chat)).catch(() => chat.warn(t("lost")))],
    [docked(chat) ? "undock" : "dock", !chat.options.page && matchMedia("(min-width: 900px)").matches, () => void dockOrRelease(chat)],
    ["look", true, () => dye(chat)],
    ["forget", names.has("forget"), () => void forget(chat), "danger"],
  ];
  const begun = Boolean(chat.chat.session);
  return all.filter(([key, offered]) => offered && (begun || /^(human|look|dock|undock)$/.test(key))).map(([key, , run, look]) => [key, run, look]);
}

/** @param {Chat} chat */
const look = (chat) => /** @type {HTMLElement} */ (chat.node.closest(".root")).dataset.theme ?? "auto";

/** @param {Chat} chat */
const docked = (chat) => /** @type {HTMLElement} */ (chat.node.closest(".root")).dataset.dock === "true";

/** Docks the panel at the side of the page, or releases it, also on later visits. @param {Chat} chat */
async function dockOrRelease(chat) {
  const wanted = !docked(chat);
  try {
    (await import("./dock.js")).dock(chat, wanted);
    chat.store.put("dock", String(wanted));
  } catch {
    chat.warn(t("lost"));
  }
}

/** Opens or closes the menu. @param {Chat} chat */
export function toggle(chat) {
  adopt(chat.node, MENU_LOOK);
  const open = chat.node.querySelector(".menu");
  if (open) return open.remove();
  // it may load late: the next key of a person who is writing must choose nothing
  if (chat.composer.input.matches(":focus")) return;
  const items = offers(chat).map(([key, run, danger]) => h("button", { type: "button", role: "menuitem", tabindex: -1, class: danger, data: { key }, onclick: () => { close(true); run(); } }, t(key, { look: t(`look_${look(chat)}`) })));
  const node = h("div", { class: "menu", role: "menu", "aria-label": t("menu"), onkeydown: key, onfocusout: (/** @type {FocusEvent} */ event) => { if (event.relatedTarget && !node.contains(event.relatedTarget)) close(); } }, items);
  const root = /** @type {ShadowRoot} */ (chat.node.getRootNode());
  const outside = (/** @type {Event} */ event) => { const path = event.composedPath(); if (!path.includes(node) && !path.includes(chat.more)) close(); };
  node.remove = () => close();

  /** @param {boolean} [back] */
  function close(back = false) {
    document.removeEventListener("pointerdown", outside, true);
    set(chat.more, { "aria-expanded": "false" });
    Element.prototype.remove.call(node);
    if (back) chat.more.focus();
  }

  /** @param {KeyboardEvent} event */
  function key(event) {
    const at = items.indexOf(root.activeElement);
    const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 }[event.key];
    if (next !== undefined) items.at(next % items.length).focus();
    else if (event.key === "Escape") close(true);
    else return event.key === "Tab" ? close(true) : undefined;
    event.preventDefault();
    event.stopPropagation();
  }

  document.addEventListener("pointerdown", outside, true);
  set(chat.more, { "aria-expanded": "true" });
  chat.more.after(node);
  items[0]?.focus();
}

/** Shows a dialog over the panel; the page behind it cannot be reached. @param {Chat} chat @param {string} title @param {...any} body */
function question(chat, title, ...body) {
  adoptMd(chat.node);
  adopt(chat.node, MENU_LOOK);
  const box = chat.node.getBoundingClientRect();
  const wide = Math.min(box.width - 24, 420);
  const node = h("dialog", {
    class: "question", "aria-labelledby": "evt-question", onclose: () => node.remove(), onkeydown: (/** @type {Event} */ event) => event.stopPropagation(),
    vars: { "--x": `${box.left + (box.width - wide) / 2}px`, "--y": `${Math.max(box.top + 70, 12)}px`, "--w": `${wide}px`, "--h": `${box.height - 90}px` },
  }, h("h2", { id: "evt-question" }, title), body);
  chat.node.append(node);
  node.showModal();
  return node;
}

/** @param {string} words @param {string} look @param {() => void} run */
const act = (words, look, run) => h("button", { class: `action ${look}`, type: "button", onclick: run }, words);

/** Opens another conversation of the same person. @param {Chat} chat @param {string} session */
export function enter(chat, session) {
  chat.store.enter(session);
  chat.asked.clear();
  chat.chat.silent.clear();
  chat.files?.clear();
  chat.chat.clear();
  void import("./rare.js").then((one) => one.sweep(chat));
  chat.net.reconnect();
  chat.draw();
}

/** Starts a new conversation where a person may have several; the present one stays as it is. @param {Chat} chat */
export async function start(chat) {
  try {
    const answer = await reach(chat, "api/v1/conversations", { method: "POST" });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const { session_id: session } = await answer.json();
    if (session !== chat.chat.session) enter(chat, session);
    chat.composer.input.focus();
  } catch {
    chat.warn(t("begin_failed"));
  }
}

/** Opens a copy of the conversation up to a message. If that is a question, its text is put into the composer. @param {Chat} chat @param {any} item */
export async function fork(chat, item) {
  try {
    const path = `api/v1/sessions/${encodeURIComponent(chat.chat.session)}/messages/${item.mid}/fork`;
    const answer = await reach(chat, path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ cid: item.forking ??= newId() }) });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const { session_id: session, draft } = await answer.json();
    delete item.forking;
    enter(chat, session);
    const { input, changed, keep } = chat.composer;
    if (draft && !input.value) { input.value = draft; changed(); keep(); }
    input.focus();
  } catch {
    chat.warn(t("fork_failed"));
  }
}

/** Shows which conversation a copy was made from, with a button that opens it. @param {Chat} chat @param {any} item @param {HTMLElement} line */
export const forked = (chat, item, line) => show(line, h("bdi", null, t("forked"), " ", h("button", { class: "quiet", type: "button", onclick: () => enter(chat, item.card.from) }, t("fork_back"))));

/** Starts a new conversation: at once where a person may have several, else after a question. @param {Chat} chat */
export function begin(chat) {
  if (chat.many) return void start(chat);
  const node = question(chat, t("begin"), h("p", { class: "muted" }, t("begin_why")), h("div", { class: "row" },
    act(t("begin_do"), "solid", () => { node.close(); chat.command("new", ""); chat.composer.input.focus(); }), act(t("cancel"), "line", () => node.close())));
}

/** Asks before deletion, after it has shown what would be deleted. @param {Chat} chat */
async function forget(chat) {
  const words = h("div", { class: "md", role: "status", dir: "auto" }, t("loading"));
  const acts = h("div", { class: "row" }, act(t("cancel"), "line", () => node.close()));
  const node = question(chat, t("forget_title"), words, acts);
  const tools = { copy() {}, labels: { copy: t("copy") } };
  const first = await ask(chat, "forget", "everything");
  const asks = /[^.\n]*`\/forget everything yes`[^.\n]*\./;
  render(words, first.text.replace(asks, ""), tools);
  if (!first.good || !asks.test(first.text)) return;
  words.append(h("p", { dir: "auto" }, t("forget_why")));
  acts.prepend(act(t("forget_do"), "danger", async () => {
    show(acts);
    show(words, t("erasing"));
    const { text } = await ask(chat, "forget", "everything yes");
    render(words, text, tools);
    show(acts, act(t("done"), "line", () => node.close()));
    acts.firstChild.focus();
  }));
}

/** Scrolls to a message and gives it the focus. @param {HTMLElement | undefined} found */
function reveal(found) {
  if (!found) return;
  set(found, { tabindex: -1 });
  found.scrollIntoView({ block: "center" });
  found.focus({ preventScroll: true });
  return found;
}

/** Scrolls to a message of the conversation, and loads it if necessary. @param {Chat} chat @param {string} mid @returns {Promise<HTMLElement | void>} its node */
export async function jump(chat, mid) {
  const item = chat.chat.items.find((one) => one.mid === mid);
  if (item) return reveal(chat.log.of(item));
  const node = await chat.log.lookBack().then((one) => one.find(mid)).catch(() => undefined);
  return node ? reveal(node) : chat.warn(t("show_failed"));
}

/** @param {Chat} chat @param {string} format */
function save(chat, format) {
  void import("./rare.js").then((one) => one.download(chat, format)).catch(() => chat.warn(t("export_failed")));
}

/** Changes to the next theme: the device's, light, dark. @param {Chat} chat */
function dye(chat) {
  const next = LOOKS[(LOOKS.indexOf(look(chat)) + 1) % LOOKS.length];
  chat.store.put("theme", next === "auto" ? "" : next);
  set(/** @type {HTMLElement} */ (chat.node.closest(".root")), { data: { theme: next } });
  toggle(chat);
  /** @type {HTMLElement | null} */ (chat.node.querySelector(`.menu [data-key="look"]`))?.focus();
}
