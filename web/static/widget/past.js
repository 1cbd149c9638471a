/** Earlier messages, loaded page by page while the reader scrolls up; only few nodes exist at a time. */
import english from "../locales/en/chat_parts.json" with { type: "json" };
import { h, set, show } from "../shared/h.js";
import { tongue } from "./i18n.js";
import { Conversation } from "./state.js";
import { adopt } from "./styles.js";
import { wordsOf } from "./words.js";

const t = wordsOf("past", english.past);
const LOOK = /* css */ `
.items .day { align-self: center; font-size: 12px; font-weight: 400; }
.day button { min-height: 26px; padding: 0 12px; color: var(--muted); border: 1px solid var(--line); border-radius: 13px; background: var(--card); }
.day button:hover { color: var(--fg); background: var(--soft); }
.gap, .start { min-height: 28px; text-align: center; font-size: 13px; color: var(--muted); }
.gap .quiet { color: var(--accent); }
.start { padding: 10px 0 2px; }
.space { pointer-events: none; height: var(--tall, 0); overflow-anchor: none; }
`;
/** Most rows drawn at a time; distant ones are removed, and drawn again when the reader comes near. */
const MOST = 240;
const SPAN = 120;
const STEP = 40;
const PAGE = 100;
const SPACE = 14;
/** Milliseconds after the End key in which an ending animation counts as started by that key. */
const SLIDE_MS = 800;

/**
 * @typedef {import("./state.js").Item} Item
 * @typedef {{events: any[], before: number | null, after: number | null}} Page
 * @typedef {object} PastTools
 * @property {Conversation} chat
 * @property {HTMLElement} node the log, that scrolls
 * @property {HTMLElement} list
 * @property {Map<string, {node: HTMLElement, rev: number, update: (item: any) => void}>} views
 * @property {() => void} update
 * @property {(wanted?: boolean) => boolean} follow
 * @property {(query: string) => Promise<Page>} page asks the server
 * @property {(words: string) => void} say
 * @property {(at?: string) => void} dates asks which day to go to
 */

/* ---- what is known of the past ---- */

/** Returns the events of a page as items in order. @param {Conversation} chat @param {any[]} events */
function read(chat, events) {
  const told = new Conversation({ changed() {}, said() {}, gap() {} });
  told.settings = chat.settings;
  for (const event of events) told.durable(chat.forgotten.has(event.mid) ? { ...event, text: "[erased]", attachments: undefined } : event, false, true);
  // A page may repeat messages sent here, and summaries.
  const waiting = chat.items.filter((item) => item.kind === "card" || item.cid);
  for (const item of waiting) {
    const twin = told.items.find((one) => one.key === item.key || (one.cid && one.cid === item.cid));
    if (!twin) continue;
    const { items } = item.kind === "card" ? told : chat;
    items.splice(items.indexOf(item.kind === "card" ? twin : item), 1);
  }
  for (const [mid, newer] of told.wanted) {
    const former = chat.items.find((one) => one.mid === mid);
    if (former) fold(chat, former, newer);
    else chat.wanted.set(mid, newer);
  }
  for (const former of [...told.items]) {
    const newer = chat.wanted.get(former.mid ?? "");
    if (newer && newer !== former) fold(told, former, newer, chat);
  }
  return told;
}

/** Places an answer that was replaced with the answer that replaced it. @param {Conversation} where @param {Item} former @param {Item} newer @param {Conversation} [chat] */
function fold(where, former, newer, chat = where) {
  where.items.splice(where.items.indexOf(former), 1);
  newer.earlier = [...(former.earlier ?? []), { mid: former.mid, text: former.text ?? "", at: former.at }, ...(newer.earlier ?? [])];
  newer.rev++;
  chat.wanted.delete(former.mid ?? "");
  for (const [mid, one] of chat.wanted) if (one === former) chat.wanted.set(mid, newer);
}

/** Puts the events of a page into a gap, at its upper or its lower end. @param {Conversation} chat @param {Item} gap @param {Page} page @param {boolean} up */
function fill(chat, gap, page, up) {
  const { after = 0, until = Infinity } = gap;
  const fresh = page.events.filter((event) => event.event_seq > after && event.event_seq < until);
  const met = fresh.length < page.events.length;
  chat.items.push(...read(chat, fresh).items);
  const end = up ? page.before : page.after;
  const closed = met || end === null || (up ? end <= after + 1 : end >= until - 1);
  if (end !== null) gap[up ? "until" : "after"] = end;
  gap.place = (gap.after ?? 0) + 0.1;
  if (closed) chat.items.splice(chat.items.indexOf(gap), 1, ...(up && !after ? [startMark()] : []));
  // A summary stands at the top while no message that it covers is loaded.
  for (const item of chat.items) if (item.card) item.place = chat.boundary(item.card);
  chat.moved();
  gap.rev++;
}

/** @returns {Item} */
const startMark = () => ({ key: "start", kind: "start", rev: 1, place: -1 });

/** Puts a page into the gap that it belongs to, and leaves gaps on both sides of it. @param {Conversation} chat @param {Page} page */
function insert(chat, page) {
  const first = page.events[0]?.event_seq;
  const gap = chat.items.find((item) => item.kind === "gap" && first > (item.after ?? 0) && first < (item.until ?? 0));
  if (!gap) return;
  const { after = 0 } = gap;
  if (page.before !== null && page.before > after + 1) chat.items.splice(chat.items.indexOf(gap), 0, { key: `gap${page.before}`, kind: "gap", rev: 1, after, place: after + 0.1, until: page.before });
  else if (!after) chat.items.unshift(startMark());
  gap.after = first - 1;
  fill(chat, gap, page, false);
}

/* ---- what is drawn of it ---- */

/** Returns the part that loads earlier messages as the reader scrolls: what to draw, and functions to find and show a message. @param {PastTools} tools */
export function past(tools) {
  const { chat, node, list, views } = tools;
  const above = h("div", { class: "space", "aria-hidden": "true" });
  const below = h("div", { class: "space", "aria-hidden": "true" });
  adopt(node, LOOK);
  list.before(above);
  list.after(below);
  /** The first drawn item, and the last one unless that is the newest. @type {Item | null} */
  let top = null;
  /** @type {Item | null} */
  let bottom = null;
  /** @type {Item[]} */
  let drawn = [];
  let usual = 90;
  let ended = 0;
  node.addEventListener("keydown", key);
  node.addEventListener("wheel", () => (ended = 0), { passive: true });
  node.addEventListener("scrollend", () => { if (Date.now() - ended < SLIDE_MS) end(); });
  let printing = false;
  for (const name of ["beforeprint", "afterprint"]) addEventListener(name, () => { printing = name === "beforeprint"; if (node.isConnected) tools.update(); });

  /* -- days -- */

  const midnight = (/** @type {number | string} */ at) => new Date(at).setHours(0, 0, 0, 0);

  /** @param {string} at */
  function dayOf(at) {
    const day = midnight(at);
    const ago = Math.round((midnight(Date.now()) - day) / 86_400_000);
    if (ago === 0 || ago === 1) {
      const words = new Intl.RelativeTimeFormat(tongue(), { numeric: "auto" }).format(-ago, "day");
      return words.charAt(0).toLocaleUpperCase(tongue()) + words.slice(1);
    }
    const year = new Date(day).getFullYear() === new Date().getFullYear() ? undefined : "numeric";
    return new Date(day).toLocaleDateString(tongue(), { weekday: "long", day: "numeric", month: "long", year });
  }

  /* -- which rows -- */

  /** @param {Item[]} items @param {number} from @param {number} to */
  const tall = (items, from, to) => { let sum = 0; for (let at = from; at < to; at++) sum += items[at].tall ?? usual; return sum; };

  /** @param {Item[]} items @returns {[number, number]} */
  function bounds(items) {
    // paper cannot be scrolled
    if (printing) return [0, items.length];
    if (tools.follow()) bottom = null;
    // A removed item passes its place on to the item that was drawn next to it.
    if (top && !items.includes(top)) top = drawn.find((item) => items.includes(item)) ?? null;
    if (bottom && !items.includes(bottom)) bottom = [...drawn].reverse().find((item) => items.includes(item)) ?? null;
    let from = top ? items.indexOf(top) : -1;
    let to = bottom ? items.indexOf(bottom) + 1 : items.length;
    if (from < 0 || to <= from) { to = items.length; bottom = null; }
    if (from < 0 || (tools.follow() && to - from > MOST)) from = Math.max(0, to - SPAN);
    top = items[from] ?? null;
    return [from, to];
  }

  /** Returns the rows to draw, with days between them. @param {Item[]} items @returns {any[]} */
  function rows(items) {
    const [from, to] = bounds(items);
    const kept = new Set(items.slice(from, to));
    if (drawn.length) usual = list.offsetHeight / drawn.length;
    for (const item of drawn) {
      const view = kept.has(item) ? null : views.get(item.key);
      if (view) { item.tall = view.node.offsetHeight + SPACE; leave(view.node); }
    }
    drawn = [...kept];
    set(above, { vars: { "--tall": `${tall(items, 0, from)}px` } });
    set(below, { vars: { "--tall": `${tall(items, to, items.length)}px` } });
    const today = midnight(Date.now());
    let day = 0;
    for (let at = from - 1; at >= 0 && !day && items[at].kind !== "gap"; at--) if (items[at].at) day = midnight(items[at].at ?? "");
    const all = [];
    for (const item of drawn) {
      const its = item.at && item.kind !== "card" ? midnight(item.at) : 0;
      if (item.kind === "gap") day = 0;
      else if (its && its !== day) {
        if (day || its !== today) all.push({ key: `d${item.key}`, kind: "day", rev: today, at: item.at });
        day = its;
      }
      all.push(item);
    }
    return all;
  }

  /** Moves the focus from a node that is about to be removed to the conversation. @param {HTMLElement} leaving */
  function leave(leaving) {
    const { activeElement } = /** @type {ShadowRoot} */ (node.getRootNode());
    if (activeElement && leaving.contains(activeElement)) node.focus({ preventScroll: true });
  }

  /** Returns a row that is no message: a day, the beginning, or a note that loading continues or has failed. @param {any} first */
  function make(first) {
    if (first.kind === "day") {
      const words = h("button", { type: "button", title: t("go_day"), onclick: () => tools.dates(first.at) });
      return { node: h("h3", { class: "day" }, words), rev: -1, update: () => show(words, dayOf(first.at)) };
    }
    const line = h("p", { class: first.kind, dir: "auto" });
    /** @param {Item} item */
    const update = (item) => {
      if (item.kind === "start") return show(line, t("beginning"));
      if (!item.failed) return show(line, t("earlier_busy"));
      show(line, `${t("earlier_failed")} · `, h("button", { class: "quiet", type: "button", onclick: () => { item.failed = false; node.focus({ preventScroll: true }); void load(item); } }, t("try_again")));
    };
    return { node: line, rev: -1, update };
  }

  /** Remembers the first visible row, so that it can be put back to its place. */
  function hold() {
    const edge = node.getBoundingClientRect().top;
    let seen = null;
    for (const one of list.children) if (one.matches("article, .card") && one.getBoundingClientRect().bottom > edge) { seen = one; break; }
    const was = seen?.getBoundingClientRect().top ?? 0;
    return () => {
      const moved = seen?.isConnected ? seen.getBoundingClientRect().top - was : 0;
      if (Math.abs(moved) >= 1) node.scrollTop += moved;
    };
  }

  /** Draws more rows near the edge of the drawn ones, and removes distant ones. */
  function slide() {
    const { items } = chat;
    if (!drawn.length || !node.clientHeight) return;
    for (let turn = 0; turn < 8; turn++) {
      const view = node.getBoundingClientRect();
      const there = list.getBoundingClientRect();
      let from = items.indexOf(drawn[0]);
      let to = items.indexOf(drawn[drawn.length - 1]) + 1;
      if (from < 0 || to <= from) return;
      const before = `${from} ${to}`;
      const margin = view.height * 1.5 + 400;
      const over = view.top - there.top;
      const under = there.bottom - view.bottom;
      if (over < -view.height || under < -view.height) {
        // Far from all drawn rows, the place is found by the stored heights.
        let rest = node.scrollTop - above.offsetTop + node.offsetTop;
        let at = 0;
        while (at < items.length - 1 && rest > (items[at].tall ?? usual)) rest -= items[at++].tall ?? usual;
        from = Math.max(0, at - STEP);
        to = Math.min(items.length, at + SPAN - STEP);
      } else {
        if (over < margin) from = Math.max(0, from - STEP);
        if (under < margin) to = Math.min(items.length, to + STEP);
        if (to - from > MOST && over > under) from = to - MOST;
        else if (to - from > MOST) to = from + MOST;
      }
      if (before === `${from} ${to}`) break;
      top = items[from];
      bottom = to < items.length ? items[to - 1] : null;
      tools.update();
    }
    look();
  }

  /* -- asking for more -- */

  /** Loads the gaps that come near, from the side that the reader sees. */
  function look() {
    const view = node.getBoundingClientRect();
    if (!view.height) return;
    for (const item of drawn) {
      const box = item.kind === "gap" && views.get(item.key)?.node.getBoundingClientRect();
      if (box && !item.failed && box.bottom > view.top - 800 && box.top < view.bottom + 800) void load(item, !item.after || box.top < view.top + view.height / 2);
    }
  }

  /** @param {Item} gap @param {boolean} [up] */
  async function load(gap, up = true) {
    if (gap.busy) return;
    gap.busy = true;
    gap.rev++;
    set(node, { "aria-busy": "true" });
    try {
      const page = await tools.page(`limit=${PAGE}&${up ? `before=${gap.until}` : `after=${gap.after}`}`);
      if (!chat.items.includes(gap)) return;
      const at = chat.items.indexOf(gap);
      if (top === gap) top = chat.items[at + 1] ?? null;
      if (bottom === gap) bottom = chat.items[at - 1] ?? null;
      fill(chat, gap, page, up);
      if (!gap.after && !chat.items.includes(gap)) tools.say(t("beginning"));
    } catch {
      gap.failed = true;
      gap.rev++;
    } finally {
      gap.busy = false;
      set(node, { "aria-busy": null });
      tools.update();
      requestAnimationFrame(slide);
    }
  }

  /** Shows an item, even if it is not drawn yet. @param {Item} item @param {number} [room] above it */
  function reach(item, room = 60) {
    draw(item);
    const found = views.get(item.key)?.node;
    if (found) node.scrollTop += found.getBoundingClientRect().top - node.getBoundingClientRect().top - room;
    slide();
  }

  /** @param {Item} item */
  function draw(item) {
    const { items } = chat;
    const at = items.indexOf(item);
    if (at < 0 || drawn.includes(item)) return;
    tools.follow(false);
    top = items[Math.max(0, at - STEP)];
    bottom = items[at + SPAN - STEP] ?? null;
    tools.update();
  }

  /** Goes to a place that may not be loaded yet. @param {string} query @param {(item: Item) => boolean} is */
  async function go(query, is) {
    const { session } = chat;
    set(node, { "aria-busy": "true" });
    try {
      const page = await tools.page(`limit=${PAGE}&${query}`);
      if (chat.session !== session || !page.events.length) return undefined;
      insert(chat, page);
      const item = chat.items.find(is);
      tools.follow(false);
      if (item) reach(item);
      return item;
    } finally {
      set(node, { "aria-busy": null });
      tools.update();
    }
  }

  /** Returns the node of a message by its id, loaded if necessary; undefined if there is none. @param {string} mid @returns {Promise<HTMLElement | undefined>} */
  async function find(mid) {
    const item = await go(`around=${mid}`, (one) => one.mid === mid || Boolean(one.earlier?.some((former) => former.mid === mid)));
    return item && views.get(item.key)?.node;
  }

  async function home() {
    const [first] = chat.items;
    tools.follow(false);
    try {
      if (first?.kind === "gap") await go("after=0", (item) => item.kind === "start");
      else if (first) reach(first);
      node.scrollTop = 0;
      tools.say(t("beginning"));
    } catch {
      // A failure on the way up is shown at the top.
      node.scrollTop = 0;
    }
    slide();
  }

  /** @param {KeyboardEvent} event */
  function key(event) {
    ended = 0;
    const field = /** @type {HTMLElement} */ (event.composedPath()[0]).matches("input, textarea");
    if (event.defaultPrevented || field || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    if (event.key === "Home") void home();
    else if (event.key === "End") { ended = Date.now(); end(); }
    else return;
    event.preventDefault();
  }

  /** Scrolls to the end again after an animation that a key started. */
  function end() {
    tools.follow(true);
    tools.update();
    node.scrollTop = node.scrollHeight;
  }

  /* -- a day -- */

  /** Goes to the first message since a time, or to the end if there is none. @param {Date} since */
  async function leap(since) {
    const item = await go(`since=${encodeURIComponent(since.toISOString())}`, (one) => Boolean(one.seq && one.at && Date.parse(one.at) >= since.getTime()));
    if (item) return tools.say(t("shown", { date: dayOf(item.at ?? "") }));
    tools.follow(true);
    tools.update();
  }

  return { rows, make, hold, slide, draw, find, leap };
}
