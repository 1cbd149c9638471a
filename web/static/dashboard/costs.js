/** What was spent: by model, day, agent, person or purpose, in a period, with the prices it was counted by. */
import { dayBars } from "./bars.js";
import { ask, keepFresh } from "./net.js";
import { DASH, card, empty, h, kpi, liveMark, money, number, pct, problem, show, skeleton, table, tokens } from "./parts.js";

const GROUPS = { model: "Model", day: "Day", agent: "Agent", person: "Person", purpose: "Purpose" };
const PURPOSES = { chat: "Answers", flush: "Saving memory", compact: "Summaries", repair: "Repairs", delegate: "Delegated", tidy: "Tidying" };
const FILTERS = ["group", "from", "to"];
const EVERY_MS = 30_000;

/** @param {any} page */
export function costsPage({ root, go, entitle, signal, say }) {
  entitle("Costs");
  const params = new URLSearchParams(location.search);
  const bar = h("div", { class: "filters" });
  const strip = h("dl", { class: "kpis four" });
  const body = h("div", { class: "stack" }, skeleton(8));
  const mark = liveMark();
  let shown = "";

  /** @param {Record<string, string>} changes */
  function change(changes) {
    for (const [name, value] of Object.entries(changes)) value ? params.set(name, value) : params.delete(name);
    const words = params.toString();
    go(`/dashboard/costs${words ? `?${words}` : ""}`, { quiet: true });
    load().catch(failed);
  }

  /** @param {boolean} [refresh] */
  async function load(refresh = false) {
    const query = new URLSearchParams([...params].filter(([name]) => FILTERS.includes(name))).toString();
    const page = await ask(`/costs?${query}`, { refresh, signal });
    const next = JSON.stringify(page);
    if (next === shown) return;
    shown = next;
    if (!bar.contains(document.activeElement) || !refresh) drawBar(page, query);
    show(strip, totals(page.total));
    show(body, card("By day", [dayBars(page.days)]), rowsCard(page), pricesCard(page.prices));
    if (!refresh) say(`${page.rows.length} rows`);
  }

  /** @param {any} page @param {string} query */
  function drawBar(page, query) {
    const focused = /** @type {any} */ (document.activeElement)?.dataset?.keep;
    const day = (/** @type {string} */ name, /** @type {string} */ label) => h("label", { class: "day" }, h("span", null, label),
      h("input", { type: "date", value: page[name], data: { keep: name }, onchange: (/** @type {any} */ event) => change({ [name]: event.target.value }) }));
    show(bar,
      h("div", { class: "segments", role: "group", "aria-label": "Sum up by" }, Object.entries(GROUPS).map(([group, words]) =>
        h("button", { type: "button", "aria-pressed": String(page.group === group), data: { keep: group }, onclick: () => change({ group }) }, words))),
      day("from", "From"), day("to", "to"),
      h("div", { class: "segments", role: "group", "aria-label": "Period" },
        h("button", { type: "button", data: { keep: "month" }, onclick: () => change({ from: "", to: "" }) }, "This month"),
        h("button", { type: "button", data: { keep: "week" }, onclick: () => change(lately(7)) }, "7 days"),
        h("button", { type: "button", data: { keep: "days" }, onclick: () => change(lately(30)) }, "30 days")),
      h("a", { class: "line", href: `/api/v1/export/costs.csv?${query}`, download: "evertalk-costs.csv" }, "CSV"));
    if (focused) /** @type {HTMLElement | null} */ (bar.querySelector(`[data-keep="${focused}"]`))?.focus();
  }

  /** @param {any} error */
  const failed = (error) => { if (!signal.aborted) { shown = ""; show(body, problem(error, () => load().catch(failed))); } };
  show(root, h("div", { class: "page-head" }, h("div", null, h("h1", null, "Costs"), h("p", { class: "facts" }, mark.node))), bar, strip, body);
  load().catch(failed);
  keepFresh(() => load(true), mark.tell, signal, () => EVERY_MS);
}

/** @param {number} count */
function lately(count) {
  const day = (/** @type {number} */ ago) => { const at = new Date(); at.setDate(at.getDate() - ago); return `${at.getFullYear()}-${String(at.getMonth() + 1).padStart(2, "0")}-${String(at.getDate()).padStart(2, "0")}`; };
  return { from: day(count - 1), to: day(0) };
}

/** @param {any} total */
function totals(total) {
  const into = total.calls ? total.input_tokens + total.cache_read_tokens + total.cache_write_tokens : 0;
  return [
    kpi("Spent", money(total.cost_micro, total.unknown_calls), total.unknown_calls ? `${number(total.unknown_calls)} calls of unknown price` : `${number(total.calls)} calls`),
    kpi("Tokens in", tokens(into), `${tokens(total.input_tokens ?? 0)} new · ${tokens(total.cache_write_tokens ?? 0)} written to the cache`),
    kpi("Tokens out", tokens(total.output_tokens ?? 0), total.uncounted_calls ? `${number(total.uncounted_calls)} calls were not counted` : "as providers counted"),
    kpi("Cache hit", pct(total.cache_hit_pct), `${tokens(total.cache_read_tokens ?? 0)} tokens read from caches`),
  ];
}

/** @param {any} page */
function rowsCard(page) {
  const name = GROUPS[/** @type {keyof typeof GROUPS} */ (page.group)];
  const columns = [{ label: name }, { label: "Calls", num: true }, { label: "New", num: true, text: "New tokens in" }, { label: "Cache read", num: true }, { label: "Cache written", num: true }, { label: "Out", num: true, text: "Tokens out" }, { label: "Cache hit", num: true }, { label: "Cost", num: true }];
  const rows = page.rows.map((/** @type {any} */ row) => [named(page.group, row), number(row.calls), tokens(row.input_tokens), tokens(row.cache_read_tokens), tokens(row.cache_write_tokens), tokens(row.output_tokens), pct(row.cache_hit_pct), money(row.cost_micro, row.unknown_calls)]);
  const more = page.groups > page.rows.length ? h("p", { class: "muted small" }, `The ${number(page.rows.length)} dearest of ${number(page.groups)}; the CSV has them all.`) : null;
  return card(`By ${name.toLowerCase()}`, [rows.length ? table({ caption: `Costs by ${name.toLowerCase()}`, className: "wide-grid", columns, rows }) : empty("No model was called in this period."), more]);
}

/** @param {string} group @param {any} row */
function named(group, row) {
  if (group === "purpose") return PURPOSES[/** @type {keyof typeof PURPOSES} */ (row.key)] ?? row.key;
  if (group === "person" && row.key) return h("span", { class: "name", dir: "auto" }, row.label ?? `Person ${row.key.slice(0, 6)}`);
  return row.label ?? row.key ?? DASH;
}

/** @param {any[]} prices */
function pricesCard(prices) {
  const dollars = (/** @type {number | null} */ value) => value === null ? DASH : `$${Number(value.toFixed(4))}`;
  const columns = [{ label: "Model" }, { label: "Input", num: true }, { label: "Output", num: true }, { label: "Cache read", num: true }, { label: "Cache write", num: true }, { label: "Holds from" }, { label: "Read" }, { label: "Source" }];
  const rows = prices.map((price) => [h("span", null, price.model, price.above ? h("span", { class: "muted" }, ` ×${price.above_factor} above ${tokens(price.above)}`) : null),
    dollars(price.input), dollars(price.output), dollars(price.cache_read), dollars(price.cache_write),
    price.source === null ? DASH : price.starts ?? "always", price.dated ? h("span", { class: price.old ? "warn-text" : null }, price.dated, price.old ? " (old)" : "") : DASH,
    price.source === null ? "unknown" : price.current ? price.source : `${price.source}, not now`]);
  return card("Prices", [h("p", { class: "muted small" }, "Dollars per million tokens. What a call has cost was stored when it was made and does not change with these."),
    rows.length ? table({ caption: "Prices", className: "wide-grid", columns, rows }) : empty("No model was called in this period.")]);
}
