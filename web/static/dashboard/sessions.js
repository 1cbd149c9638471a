/** The list of sessions: searched, filtered, sorted and paged, with all of it in the address. */
import { ask, keepFresh } from "./net.js";
import { DASH, channelBadge, empty, h, keepFocus, level, liveMark, meter, money, number, pct, personOf, problem, repaintTimes, set, show, skeleton, stateBadge, table, time, tokens } from "./parts.js";
import { savedViews } from "./views.js";

const COLUMNS = [
  { key: "person", label: "Person" }, { key: "channel", label: "Channel" }, { key: "agent", label: "Agent" },
  { key: "turns", label: "Turns", num: true }, { key: "context", label: "Context now", num: true }, { key: "input", label: "In", num: true, text: "Tokens in" },
  { key: "output", label: "Out", num: true, text: "Tokens out" }, { key: "cost", label: "Cost", num: true }, { key: "cache", label: "Cache hit", num: true },
  { key: "compactions", label: "Summaries", num: true }, { key: "active", label: "Last active" }, { key: "state", label: "State" },
];
const TEXTUAL = new Set(["person", "channel", "agent", "state"]);
const NARROWING = ["q", "channel", "state", "min_pct", "agent", "site", "from", "to"];
const VIEW = [...NARROWING, "sort", "limit"];
const FILTERS = [...VIEW, "cursor"];

/** @param {any} page */
export function sessionsPage({ root, me, say, go, entitle, signal }) {
  entitle("Sessions");
  const params = new URLSearchParams(location.search);
  const body = h("div", { class: "list" }, skeleton(8));
  const mark = liveMark();
  const bar = filterBar(params, change);
  const views = savedViews({ of: `sessions:${me.name}`, path: "/dashboard/sessions", names: VIEW, params, say, signal });
  let shown = "";
  let typing = 0;

  /** @param {Record<string, string>} changes */
  function change(changes) {
    for (const [name, value] of Object.entries({ cursor: "", ...changes })) value ? params.set(name, value) : params.delete(name);
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
    const page = await ask(`/sessions?${query}`, { refresh, signal });
    if (asked !== params.toString()) return;
    body.removeAttribute("aria-busy");
    const next = JSON.stringify([page, asked]);
    if (next === shown) return repaintTimes(body);
    shown = next;
    keepFocus(body, () => show(body, list(page, params, change)));
    if (!refresh) say(`${page.sessions.length} sessions`);
  }

  /** @param {any} error */
  function failed(error) {
    if (!signal.aborted) { body.removeAttribute("aria-busy"); shown = ""; show(body, problem(error, () => load().catch(failed))); }
  }

  bar.addEventListener("input", (/** @type {any} */ event) => {
    clearTimeout(typing);
    if (event.target.type === "search") typing = setTimeout(() => change({ q: event.target.value.trim() }), 250);
  });
  show(root, h("div", { class: "page-head" }, h("div", null, h("h1", null, "Sessions"), h("p", { class: "facts" }, mark.node)), h("div", { class: "actions head-actions" }, h("a", { class: "line", href: "/dashboard/search" }, "Search messages"))), bar, views.node, body);
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
  return h("form", { class: "filters", role: "search", "aria-label": "Filter sessions", onsubmit: (/** @type {Event} */ event) => event.preventDefault() },
    h("label", { class: "grow" }, h("span", { class: "unseen" }, "Search person, agent or id"),
      h("input", { type: "search", name: "q", placeholder: "Search person, agent or id   /", value: params.get("q") ?? "", autocomplete: "off", spellcheck: "false" })),
    choose("channel", "Channel", [["", "All channels"], ["web", "Web"], ["telegram", "Telegram"]]),
    choose("state", "State", [["", "All states"], ["answering", "Answering"], ["waiting", "Waiting"], ["tidying", "Tidying up"], ["problem", "Problem"], ["idle", "Idle"]]),
    choose("min_pct", "Context", [["", "Any context"], ["70", "70 % and more"], ["90", "90 % and more"]]),
    h("details", { class: "more-filters", open: ["agent", "site", "from", "to", "limit"].some((name) => params.get(name)) }, h("summary", null, "More filters"), h("div", null,
      day("from", "Active since"), day("to", "Active before"), words("agent", "Agent"), words("site", "Site"),
      choose("limit", "Rows", [["", "50 rows"], ["100", "100 rows"], ["200", "200 rows"]]))));
}

/** @param {any} page @param {URLSearchParams} params @param {(changes: Record<string, string>) => void} change */
function list(page, params, change) {
  const filtered = NARROWING.some((name) => params.get(name));
  if (!page.sessions.length) {
    if (params.get("cursor")) return empty("Nothing more.", firstPage(change));
    if (filtered) return empty("No session matches.", h("button", { type: "button", class: "line", onclick: () => location.assign("/dashboard/sessions") }, "Clear the filters"));
    return empty("No conversation yet.", h("p", { class: "muted" }, "The first one appears here as soon as somebody writes: ", h("a", { href: "/chat" }, "open the chat"), "."));
  }
  return [
    h("div", { class: "card flush-card" }, table({ caption: "Sessions", className: "wide-grid", columns: COLUMNS.map((column) => header(column, params, change)), rows: page.sessions.map(cells) })),
    h("div", { class: "pager" }, h("a", { class: "line sheet", href: `/api/v1/export/sessions.csv?${sheetQuery(params)}`, download: "evertalk-sessions.csv" }, "CSV"), params.get("cursor") && firstPage(change),
      page.next && h("button", { type: "button", class: "line", onclick: () => { change({ cursor: page.next }); scrollTo(0, 0); } }, "Next page")),
  ];
}

/** All that the filters leave, not this page alone. @param {URLSearchParams} params */
const sheetQuery = (params) => new URLSearchParams([...params].filter(([name]) => name === "sort" || NARROWING.includes(name))).toString();

/** @param {(changes: Record<string, string>) => void} change */
const firstPage = (change) => h("button", { type: "button", class: "line", onclick: () => change({}) }, "First page");

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

/** @param {any} session */
function cells(session) {
  const share = session.context_pct;
  const sentence = share === null ? "Context unknown" : `${tokens(session.context_tokens)} of ${tokens(session.context_limit)}`;
  return [
    h("a", { class: "row-link", href: `/dashboard/sessions/${session.id}`, dir: "auto" }, personOf(session), session.title && ` · ${session.title}`),
    channelBadge(session.channel), session.agent, number(session.turns),
    share === null ? DASH : h("span", { class: "context", title: sentence }, meter(share, sentence), h("span", { class: `${level(share)}-text` }, pct(share))),
    tokens(session.input_tokens), tokens(session.output_tokens), money(session.cost_micro, session.cost_unknown_calls), pct(session.cache_hit_pct),
    number(session.compactions), time(session.last_active_at), stateBadge(session.state),
  ];
}
