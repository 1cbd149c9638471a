/** A sheet over the chat with search, notes and earlier conversations; loaded when first opened. */
import { h, icon, show } from "../shared/h.js";
import { reach } from "./rare.js";
import { drawer, edit } from "./edit.js";
import { adoptMd } from "./md.js";
import { SHEET_LOOK } from "./sheet-look.js";
import { pin } from "./acts.js";
import { adopt } from "./styles.js";
import { t } from "./sheet-parts.js";
import { notes } from "./notes.js";
import { earlier } from "./earlier.js";
import { dates } from "./dates.js";
import { finding } from "./find.js";
import { pinned } from "./pins.js";
import { because } from "./why.js";
import { imports } from "./imports.js";
import { talks } from "./talks.js";
import { enter, jump, start } from "./menu.js";

const NEWS = new Set(["memory", "erased", "welcome"]);
const CROSS = "M6 6l12 12M18 6L6 18";

/** @typedef {"notes" | "earlier" | "find" | "talks" | "pins" | "dates" | "why" | "imports"} Name @typedef {import("./sheet-parts.js").SheetTools} SheetTools */

/** @typedef {ReturnType<typeof sheet>} Sheet @typedef {import("./chat.js").Chat} Chat */

/** Opens the sheet over a chat. @param {Chat} chat @param {Name} [name] @param {string} [words] to search for */
export function look(chat, name = "notes", words) {
  chat.sheet ??= over(chat);
  chat.sheet.toggle(true, name, words);
}

/** Shows, until it is dismissed, that the conversation from before is still there to read. @param {Chat} chat */
export function tellMove(chat) {
  chat.say(t("moved"));
  if (chat.chat.settings.audience === "public") return;
  const bar = h("div", { class: "bar" }, h("span", { class: "grow" }, t("moved")), h("button", { class: "quiet", type: "button", onclick: () => { bar.remove(); look(chat, "earlier"); } }, t("read_it")));
  chat.link.after(bar);
}

/** @param {Chat} chat */
function over(chat) {
  const made = sheet({
    reach: (path, init) => reach(chat, path, init), closed: () => chat.more.focus(), session: () => chat.chat.session, jump: (mid) => { chat.sheet?.toggle(false); void jump(chat, mid); },
    reword: async (mid) => {
      chat.sheet?.toggle(false);
      const node = await jump(chat, mid), item = chat.chat.items.find((one) => one.mid === mid);
      if (node && item) await edit(chat, item, node);
    }, title: () => made.title,
    pins: () => [...chat.chat.pinned].map((mid) => ({ mid, text: chat.chat.items.find((one) => one.mid === mid)?.text })), unpin: (mid) => { pin(chat, { mid }); chat.chat.pinned.delete(mid); },
    leap: async (since) => { const past = await chat.log.lookBack(); if (!past) throw new Error("not loaded"); await past.leap(since); chat.sheet?.toggle(false); chat.log.node.focus({ preventScroll: true }); },
    open: (session) => { chat.sheet?.toggle(false); enter(chat, session); }, begin: () => { chat.sheet?.toggle(false); void start(chat); },
    markdown: drawer(chat),
  });
  chat.node.append(made.node);
  adoptMd(chat.node);
  adopt(chat.node, SHEET_LOOK);
  return made;
}

/** @param {SheetTools} tools */
function sheet(tools) {
  const title = h("h2", { id: "evt-sheet-title", tabindex: -1 });
  const other = h("button", { class: "quiet", type: "button", onclick: () => choose(shown === "notes" ? "earlier" : "notes") });
  const close = h("button", { class: "icon", type: "button", "aria-label": t("sheet_close"), title: t("sheet_close"), onclick: () => toggle(false) }, icon(CROSS));
  const find = finding(tools, (hit) => { if (!hit.here) return choose("earlier"); tools.jump(hit.mid); });
  const views = { notes: notes(tools), earlier: earlier(tools), find, talks: talks(tools), pins: pinned(tools), dates: dates(tools), why: because(tools, () => choose("earlier")), imports: imports(tools) };
  const node = h("section", { class: "sheet", role: "dialog", "aria-modal": "true", "aria-labelledby": "evt-sheet-title", hidden: true, onkeydown: key },
    h("div", { class: "head" }, title, h("span", { class: "grow" }), other, close), Object.values(views).map((view) => view.node));
  /** @type {Name} */
  let shown = "notes";

  /** @param {Name} name @param {string} [words] */
  function choose(name, words) {
    shown = name;
    for (const [one, view] of Object.entries(views)) view.node.hidden = one !== name;
    show(title, t({ notes: "remembered", earlier: "earlier", find: "find", talks: "talks", pins: "pins", dates: "go_day", why: "why", imports: "imports" }[name]));
    show(other, t(name === "notes" ? "earlier" : "remembered"));
    other.hidden = !/notes|earlier/.test(name);
    title.focus({ preventScroll: true });
    void /** @type {any} */ (views[name]).load(words);
  }

  /** Shows or hides the sheet; the chat below it cannot be reached while it is open. @param {boolean} wanted @param {Name} [name] @param {string} [words] */
  function toggle(wanted, name = "notes", words) {
    if (wanted !== node.hidden) return wanted ? choose(name, words) : undefined;
    node.hidden = !wanted;
    for (const under of node.parentElement?.children ?? []) if (under !== node && !under.matches(".hidden")) under.toggleAttribute("inert", wanted);
    if (wanted) return choose(name, words);
    views.notes.rest();
    tools.closed();
  }

  /** @param {KeyboardEvent} event */
  function key(event) {
    if (event.key === "Escape" && !event.isComposing) {
      event.stopPropagation();
      if (shown !== "notes" || !views.notes.cancel()) toggle(false);
    } else if (event.key === "Tab") trap(event);
  }

  /** @param {KeyboardEvent} event */
  function trap(event) {
    const all = [...node.querySelectorAll("button, input, textarea, a[href], [tabindex='0']")].filter((one) => one.checkVisibility?.() ?? one.offsetParent);
    const active = /** @type {ShadowRoot} */ (node.getRootNode()).activeElement;
    const edge = event.shiftKey ? all[0] : all[all.length - 1];
    if (active !== edge && !(event.shiftKey && active === title)) return;
    event.preventDefault();
    (event.shiftKey ? all[all.length - 1] : all[0]).focus();
  }

  return {
    node, toggle, title,
    get shown() { return !node.hidden; },
    /** Reloads the notes after they may have changed, here or in another tab. @param {any} frame */
    changed(frame) {
      if (frame?.t === "erased") find.clear();
      if (!node.hidden && shown === "notes" && NEWS.has(frame?.t)) views.notes.later();
    },
  };
}
