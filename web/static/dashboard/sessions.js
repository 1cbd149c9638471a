/** The list of sessions with search, filters, sorting and pages, whose whole state is in the address. */
import { beyond, pagesOf, placeOf } from "./lists.js";
import { keepFresh } from "./net.js";
import { DASH, channelBadge, chatButton, empty, h, keepFocus, level, liveMark, meter, money, number, pct, personOf, problem, repaintTimes, show, skeleton, stateBadge, t, table, time, tn, tokens } from "./parts.js";
import { savedViews } from "./views.js";

const COLUMNS = [
  { key: "person", label: t("Person") }, { key: "channel", label: t("Channel") }, { key: "agent", label: t("Agent") },
  { key: "turns", label: t("Turns"), num: true }, { key: "context", label: t("Context now"), num: true }, { key: "input", label: t("In"), num: true, text: t("Tokens in") },
  { key: "output", label: t("Out"), num: true, text: t("Tokens out") }, { key: "cost", label: t("Cost"), num: true }, { key: "cache", label: t("Cache hit"), num: true },
  { key: "compactions", label: t("Summaries"), num: true }, { key: "active", label: t("Last active") }, { key: "state", label: t("State") },
];
const TEXTUAL = new Set(["person", "channel", "agent", "state"]);
const NARROWING = ["q", "channel", "state", "min_pct", "agent", "site", "from", "to"];
const VIEW = [...NARROWING, "sort", "limit"];
const FILTERS = [...VIEW, "cursor"];

/** Draws the list of sessions and refreshes it until `signal` aborts. @param {Page} page */
export function sessionsPage({ root, me, say, go, entitle, signal }) {
  entitle(t("Sessions"));
  const params = new URLSearchParams(location.search);
  const body = h("div", { class: "list" }, skeleton(8));
  const mark = liveMark();
  const bar = filterBar(params, change);
  const views = savedViews({ of: `sessions:${me.name}`, path: "/dashboard/sessions", names: VIEW, params, say, signal });
  const pages = pagesOf("/sessions", signal);
  let shown = "";
  let typing = 0;

  /** @param {Record<string, string>} changes */
  function change(changes) {
    for (const [name, value] of Object.entries({ cursor: "", at: "", ...changes })) value ? params.set(name, value) : params.delete(name);
    const words = params.toString();
    go(`/dashboard/sessions${words ? `?${words}` : ""}`, { quiet: true });
    views.draw();
    body.setAttribute("aria-busy", "true");
    load().catch(failed);
  }

  /** @param {boolean} [refresh] */
  async function load(refresh = false) {
    const asked = params.toString();
    const query = new URLSearchParams([...params].filter(([name]) => FILTERS.includes(name)));
    const page = await pages(query, refresh);
    if (asked !== params.toString()) return;
    body.removeAttribute("aria-busy");
    const next = JSON.stringify([page, asked]);
    if (next === shown) return repaintTimes(body);
    shown = next;
    keepFocus(body, () => show(body, list(page, params, change)));
    if (!refresh) say(tn("{count} session", "{count} sessions", page.sessions.length));
  }

  /** @param {unknown} error */
  function failed(error) {
    if (!signal.aborted) { body.removeAttribute("aria-busy"); shown = ""; show(body, problem(error, () => load().catch(failed))); }
  }

  bar.addEventListener("input", (/** @type {any} */ event) => {
    clearTimeout(typing);
    if (event.target.type === "search") typing = setTimeout(() => change({ q: event.target.value.trim() }), 250);
  });
  show(root, h("div", { class: "page-head" }, h("div", null, h("h1", null, t("Sessions")), h("p", { class: "facts" }, mark.node)), h("div", { class: "actions head-actions" }, h("a", { class: "line", href: "/dashboard/search" }, t("Search messages")))), bar, views.node, body);
  load().catch(failed);
  keepFresh(() => load(true), mark.tell, signal);
}

/** @param {URLSearchParams} params @param {(changes: Record<string, string>) => void} change */
function filterBar(params, change) {
  /** @param {string} name @param {string} label @param {[string, string][]} options */
  const choose = (name, label, options) => h("label", null, h("span", { class: "unseen" }, label),
    h("select", { name, onchange: (/** @type {any} */ event) => change({ [name]: event.target.value }) },
      options.map(([value, words]) => h("option", { value, selected: (params.get(name) ?? "") === value }, words))));
  /** @param {string} name @param {string} label */
  const day = (name, label) => h("label", { class: "day" }, h("span", null, label), h("input", { type: "date", name, value: params.get(name) ?? "", onchange: (/** @type {any} */ event) => change({ [name]: event.target.value }) }));
  /** @param {string} name @param {string} label */
  const words = (name, label) => h("label", { class: "day" }, h("span", null, label), h("input", { name, value: params.get(name) ?? "", maxlength: 200, autocomplete: "off", spellcheck: "false", onchange: (/** @type {any} */ event) => change({ [name]: event.target.value.trim() }) }));
  return h("form", { class: "filters", role: "search", "aria-label": t("Filter sessions"), onsubmit: (/** @type {Event} */ event) => event.preventDefault() },
    h("label", { class: "grow" }, h("span", { class: "unseen" }, t("Search person, agent or id")),
      h("input", { type: "search", name: "q", placeholder: `${t("Search person, agent or id")}   /`, value: params.get("q") ?? "", autocomplete: "off", spellcheck: "false" })),
    choose("channel", t("Channel"), [["", t("All channels")], ["web", t("Web")], ["telegram", "Telegram"]]),
    choose("state", t("State"), [["", t("All states")], ["answering", t("Answering")], ["waiting", t("Waiting")], ["tidying", t("Cleaning up")], ["problem", t("Problem")], ["idle", t("Idle")]]),
    choose("min_pct", t("Context"), [["", t("Any context")], ...["70", "90"].map((least) => /** @type {[string, string]} */ ([least, t("{percent} and more", { percent: pct(Number(least)) })]))]),
    h("details", { class: "more-filters", open: ["agent", "site", "from", "to", "limit"].some((name) => params.get(name)) }, h("summary", null, t("More filters")), h("div", null,
      day("from", t("Active since")), day("to", t("Active before")), words("agent", t("Agent")), words("site", t("Site")),
      choose("limit", t("Rows"), /** @type {[string, string][]} */ ([["", 50], ["100", 100], ["200", 200]].map(([value, rows]) => [value, tn("{count} row", "{count} rows", Number(rows))]))))));
}

/** @param {Api["Sessions"]} page @param {URLSearchParams} params @param {(changes: Record<string, string>) => void} change */
function list(page, params, change) {
  const filtered = NARROWING.some((name) => params.get(name));
  if (!page.sessions.length) {
    if (params.get("cursor")) return empty(t("Nothing more."), firstPage(change));
    if (filtered) return empty(t("No session matches."), h("button", { type: "button", class: "line", onclick: () => location.assign("/dashboard/sessions") }, t("Clear the filters")));
    return empty(t("No conversation yet."), [h("p", null, t("The first conversation appears here as soon as somebody writes.")), chatButton()]);
  }
  return [
    h("div", { class: "card flush-card" }, table({ caption: t("Sessions"), className: "wide-grid sessions-grid", columns: COLUMNS.map((column) => header(column, params, change)), rows: page.sessions.map(cells) })),
    h("div", { class: "pager" }, h("a", { class: "line sheet", href: `/api/v1/export/sessions.csv?${sheetQuery(params)}`, download: "evertalk-sessions.csv" }, "CSV"), placeOf(params, page.sessions.length, page.total ?? null), params.get("cursor") && firstPage(change),
      page.next && h("button", { type: "button", class: "line", onclick: () => { change({ cursor: page.next ?? "", at: beyond(params, page.sessions.length) }); scrollTo(0, 0); } }, t("Next page"))),
  ];
}

/** Returns the query for a download of all rows that pass the filters, not only this page. @param {URLSearchParams} params */
const sheetQuery = (params) => new URLSearchParams([...params].filter(([name]) => name === "sort" || NARROWING.includes(name))).toString();

/** @param {(changes: Record<string, string>) => void} change */
const firstPage = (change) => h("button", { type: "button", class: "line", onclick: () => change({}) }, t("First page"));

/** @param {any} column @param {URLSearchParams} params @param {(changes: Record<string, string>) => void} change */
function header(column, params, change) {
  const sort = params.get("sort") || "-active";
  const active = sort.replace(/^-/, "") === column.key;
  const falling = sort.startsWith("-");
  const next = active ? (falling ? column.key : `-${column.key}`) : (TEXTUAL.has(column.key) ? column.key : `-${column.key}`);
  const label = h("button", { type: "button", class: `sorter${active ? " on" : ""}`, onclick: () => change({ sort: next }) },
    column.label, h("span", { "aria-hidden": "true" }, active ? (falling ? " ↓" : " ↑") : ""));
  return { ...column, label, text: column.text ?? column.label, sort: active ? (falling ? "descending" : "ascending") : undefined };
}

/** @param {Api["Session"]} session */
function cells(session) {
  const share = session.context_pct;
  const sentence = share === null ? t("Context unknown") : t("{tokens} of {limit}", { tokens: tokens(session.context_tokens), limit: tokens(session.context_limit) });
  return [
    h("a", { class: "row-link", href: `/dashboard/sessions/${session.id}`, dir: "auto", title: session.title }, personOf(session), session.title && h("span", { class: "row-title muted small", dir: "auto" }, session.title)),
    channelBadge(session.channel), session.agent, number(session.turns),
    share === null ? DASH : h("span", { class: "context", title: sentence }, meter(share, sentence), h("span", { class: `${level(share)}-text` }, pct(share))),
    tokens(session.input_tokens), tokens(session.output_tokens), money(session.cost_micro, session.cost_unknown_calls ?? 0), pct(session.cache_hit_pct),
    number(session.compactions), time(session.last_active_at), stateBadge(session.state),
  ];
}
