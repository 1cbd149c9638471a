/** Small pieces that several pages share: cards, badges, meters, tables, and the mark of live data. */
import { h, set, show } from "../shared/h.js";
import { DASH, number, percent, tokens, stamp } from "../shared/fmt.js";
import { ago, usd } from "./figures.js";
import { listItems, t, tn } from "./i18n.js";
import { labelOf, linked, named, ts } from "./named.js";
import { Failure } from "./net.js";

/** Sources of the text in a context, in the order in which they are drawn. */
export const SOURCES = ["system", "memory", "summary", "history", "tools"];
/** Names of the parts of a context by source, with the reserved and the free part. */
export const NAMES = { system: t("System"), memory: t("Memory"), summary: t("Summary"), history: t("History"), tools: t("Tools"), reserved: t("Kept free for recall"), free: t("Free") };

/** Returns the level of a percentage: "crit" above 90, "warn" from 70, else "ok"; "unknown" for null. @param {number | null | undefined} pct */
export const level = (pct) => pct === null || pct === undefined ? "unknown" : pct > 90 ? "crit" : pct >= 70 ? "warn" : "ok";

/** Returns a whole percentage; a small share is never shown as zero. @param {number | null | undefined} pct */
export function pct(pct) {
  if (pct === null || pct === undefined) return DASH;
  return (pct > 0 && pct < 1 ? "<" : "") + percent(pct > 0 && pct < 1 ? 1 : pct, 0).replace(" ", "\u202f");
}

/** Returns an amount given in millionths of a dollar. With `unknown` calls of unknown price it is a lower bound; if only such calls exist, a dash. @param {number | null | undefined} micro @param {number} [unknown] */
export function money(micro, unknown = 0) {
  if (micro === null || micro === undefined || (unknown > 0 && micro === 0)) return DASH;
  return (unknown > 0 ? "≥ " : "") + usd(micro / 1e6);
}

/** Returns a moment as the time since then, with the full date as tooltip; a dash for null. @param {string | null | undefined} at */
export const time = (at) => at ? h("time", { datetime: at, title: stamp(at), data: { at } }, ago(at)) : DASH;

/** Repaints every relative time in a part of the page. @param {ParentNode} root */
export function repaintTimes(root) {
  for (const node of root.querySelectorAll("time[data-at]")) node.textContent = ago(/** @type {any} */ (node).dataset.at);
}

/** Returns a titled section; `aside` is placed next to the title. @param {string} title @param {any[]} content @param {any} [aside] */
export function card(title, content, aside = null) {
  return h("section", { class: "card", "aria-label": title }, h("div", { class: "card-head" }, h("h2", null, title), aside), content);
}

/** Returns the tile of one number: its label, value and detail. @param {string} label @param {any} value @param {any} detail @param {any} [extra] */
export const kpi = (label, value, detail, extra = null) =>
  h("div", { class: "kpi card" }, h("dt", null, label), h("dd", null, h("b", null, value), h("span", { class: "muted" }, detail), extra));

/** Returns a bar that is filled to `share` percent, coloured by its level; empty for null. @param {number | null | undefined} share @param {string} label */
export function meter(share, label) {
  const known = share !== null && share !== undefined;
  return h("span", { class: `meter ${level(share)}`, role: "img", "aria-label": label },
    h("span", { class: "fill", vars: { "--share": known ? Math.max(0, Math.min(share, 100)) / 100 : 0 } }));
}

const STATES = { answering: t("answering"), waiting: t("waiting"), tidying: t("cleaning up"), problem: t("problem"), idle: t("idle") };
/** Returns the badge of a session's state; a state without a translation is shown as it is. @param {string} state */
export const stateBadge = (state) => h("span", { class: `state ${state}` }, STATES[/** @type {keyof typeof STATES} */ (state)] ?? state);

/** Returns the badge of a channel; a dash for null. @param {string | null} channel */
export const channelBadge = (channel) => channel ? h("span", { class: "badge" }, { web: t("Web"), telegram: "Telegram" }[channel] ?? channel) : DASH;

/** Joins several facts in one line, without empty ones. @param {any[]} facts */
export const joinWithDots = (facts) => facts.filter(Boolean).flatMap((fact, at) => at ? [" · ", fact] : [fact]);

/** Returns the name of a person: their own, else the beginning of their id. @param {{id: string, name?: string | null, kind?: string, anonymous?: boolean}} person */
export function nameOf({ id, name, kind, anonymous }) {
  return name || (kind === "group" ? t("Group {id}", { id: id.slice(0, 6) }) : anonymous ? t("Visitor {id}", { id: id.slice(0, 6) }) : t("Person {id}", { id: id.slice(0, 6) }));
}
/** Returns the name of a conversation's person. @param {{person_id: string, person: string | null, anonymous: boolean, kind?: string, session_kind?: string}} session */
export const personOf = ({ person_id: id, person: name, session_kind: whose, kind = whose, anonymous }) => nameOf({ id, name, kind, anonymous });

/**
 * Returns a table whose cells name their column, so that a narrow screen can show it as cards.
 * @param {{caption: string, columns: {label: any, text?: string, num?: boolean, sort?: string}[], rows: any[][], className?: string}} table
 */
export function table({ caption, columns, rows, className = "" }) {
  return h("table", { class: `grid ${className}` }, h("caption", { class: "unseen" }, caption),
    h("thead", null, h("tr", null, columns.map((column) => h("th", { scope: "col", class: column.num ? "num" : null, "aria-sort": column.sort ?? null }, column.label)))),
    h("tbody", null, rows.map((cells) => row(columns, cells))));
}

/** Returns a table row of cells; each cell names its column for narrow screens. @param {any[]} columns @param {any[]} cells */
export const row = (columns, cells) => h("tr", null, cells.map((cell, index) =>
  h("td", { class: columns[index].num ? "num" : null, data: { label: columns[index].text ?? columns[index].label } }, typeof cell === "number" ? String(cell) : cell)));

/**
 * Shows what failed, in words for people, with a button to try again. The exception's text goes to the console only.
 * @param {unknown} error @param {() => void} [again]
 */
export function problem(error, again) {
  const failure = error instanceof Failure ? error : null;
  if (!failure) console.error(error);
  const retry = again ?? (failure ? null : () => location.reload());
  return h("div", { class: "trouble", role: "alert" }, h("p", null, failure ? linked(failure.message) : t("This part of the page cannot be shown just now.")),
    failure?.requestId && h("p", { class: "small" }, t("Request {id}", { id: failure.requestId })),
    retry && h("button", { type: "button", class: "line", onclick: retry }, t("Try again")));
}

/** Returns the note that a list is empty. @param {string} words @param {any} [more] */
export const empty = (words, more = null) => h("div", { class: "empty" }, h("p", null, words), more);

/** Returns the button of empty lists, which opens the chat in a new tab. */
export const chatButton = () => h("a", { class: "line button", href: "/chat", target: "_blank", rel: "noopener" }, t("Open the chat"));

/** Returns the page for an object that does not exist. @param {string} words @param {string} href @param {string} all */
export const notFoundPage = (words, href, all) => [h("div", { class: "page-head" }, h("h1", null, words)), h("p", { class: "actions" }, h("a", { class: "line button", href }, all))];

/** Redraws a list; the row that has the focus keeps it. @param {HTMLElement} body @param {() => void} draw */
export function keepFocus(body, draw) {
  const at = body.contains(document.activeElement) ? document.activeElement?.getAttribute("href") : null;
  draw();
  if (at) /** @type {HTMLElement | undefined} */ ([...body.querySelectorAll("a")].find((link) => link.getAttribute("href") === at))?.focus({ preventScroll: true });
}

/** Returns grey rows, shown only until the first load. @param {number} count */
export const skeleton = (count) => h("div", { class: "skeleton", "aria-hidden": "true" }, Array.from({ length: count }, () => h("i")));

const LIVE = { live: t("Live"), paused: t("Paused"), stale: t("Not up to date") };
/** Returns a mark that shows whether the data on the page is fresh. */
export function liveMark() {
  const node = h("span", { class: "live", data: { state: "live" } }, LIVE.live);
  return { node, tell(/** @type {keyof typeof LIVE} */ state) {
    if (node.dataset.state === state) return;
    set(node, { data: { state } });
    show(node, LIVE[state]);
  } };
}

/** Sign of the reading direction: 1 to the right, -1 to the left. */
const FORTH = document.documentElement.dir === "rtl" ? -1 : 1;

/**
 * Tabs by the WAI-ARIA pattern: arrow keys, Home and End; panels are made when they are first seen.
 * @param {string} label @param {{name: string, make: () => any}[]} tabs
 * @param {{first?: number, moved?: (place: number) => void}} [how] `moved` hears of each choice but that of the first
 */
export function tabPanels(label, tabs, { first = 0, moved = () => {} } = {}) {
  const id = `t${Math.random().toString(36).slice(2, 9)}`;
  const panels = tabs.map((_, index) => h("div", { class: "panel", role: "tabpanel", id: `${id}-${index}-panel`, "aria-labelledby": `${id}-${index}`, tabindex: 0, hidden: true }));
  const buttons = tabs.map((tab, index) => h("button", { type: "button", role: "tab", id: `${id}-${index}`, "aria-controls": `${id}-${index}-panel`, onclick: () => choose(index) }, tab.name));
  let now = -1;
  /** @param {number} index */
  function choose(index) {
    if (index === now) return;
    const begun = now < 0;
    now = index;
    if (!panels[index].firstChild) show(panels[index], tabs[index].make());
    buttons.forEach((button, place) => {
      set(button, { "aria-selected": String(place === index), tabindex: place === index ? 0 : -1 });
      set(panels[place], { hidden: place !== index });
    });
    if (!begun) moved(index);
  }
  const list = h("div", { role: "tablist", class: "tabs", "aria-label": label, onkeydown: (/** @type {KeyboardEvent} */ event) => {
    const next = /** @type {Record<string, number>} */ ({ ArrowRight: now + FORTH, ArrowLeft: now - FORTH, Home: 0, End: buttons.length - 1 })[event.key];
    if (next === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    choose((next + buttons.length) % buttons.length);
    buttons[now].focus();
  } }, buttons);
  choose(first);
  // on a narrow screen the tabs scroll sideways, so the chosen one is scrolled into view
  requestAnimationFrame(() => { const [line, tab] = [list, buttons[now]].map((one) => one.getBoundingClientRect()); list.scrollLeft += tab.left - line.left - (line.width - tab.width) / 2; });
  return { node: h("div", null, list, panels), choose };
}

/** Returns the node of `tabPanels`, for tabs that no code has to choose. @param {string} label @param {{name: string, make: () => any}[]} list */
export const tabs = (label, list) => tabPanels(label, list).node;

/** Splits a count by the shares of its estimated parts; the pieces add up to the count. @param {any} parts @param {number} count */
export function splitTokens(parts, count) {
  const shares = SOURCES.map((name) => Math.max(0, Number(parts?.[name] ?? 0)));
  const sum = shares.reduce((total, share) => total + share, 0);
  if (!sum) return null;
  const exact = shares.map((share) => share * count / sum);
  const whole = exact.map(Math.floor);
  const order = exact.map((value, index) => [value - whole[index], index]).sort((a, b) => b[0] - a[0]);
  for (let left = count - whole.reduce((a, b) => a + b, 0), turn = 0; left > 0; left--, turn++) whole[order[turn % order.length][1]]++;
  return Object.fromEntries(SOURCES.map((name, index) => [name, whole[index]]));
}

export { DASH, ago, h, labelOf, linked, named, listItems, number, set, show, t, tn, tokens, ts, usd, stamp as formatWhen };
