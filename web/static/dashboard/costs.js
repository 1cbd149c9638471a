/** Costs by model, day, agent, person or purpose in a period, with the prices used. */
import { ask, keepFresh } from "./net.js";
import { DASH, card, empty, h, kpi, liveMark, money, nameOf, number, pct, problem, show, skeleton, t, table, tn, tokens, ts, usd } from "./parts.js";
import { MONEY, rangeOf, seriesPart } from "./series.js";

const GROUPS = { model: t("Model"), day: t("Day"), agent: t("Agent"), person: t("Person"), purpose: t("Purpose") };
const PURPOSES = { chat: t("Answers"), flush: t("Saving memory"), compact: t("Summaries"), repair: t("Repairs"), delegate: t("Delegated"), tidy: t("Cleanup"), playground: t("Playground"), transcribe: t("Voice messages"), picture: t("Pictures"), speech: t("Spoken answers") };
const TITLES = { model: t("By model"), day: t("By day"), agent: t("By agent"), person: t("By person"), purpose: t("By purpose") };
const EVERY_MS = 30_000;

/** Draws costs in a period, grouped as the address says, and refreshes them until `signal` aborts. @param {Page} page */
export function costsPage({ root, go, entitle, signal, say }) {
  entitle(t("Costs"));
  const params = new URLSearchParams(location.search);
  const grouped = h("div", { class: "filters" });
  const numbers = seriesPart({ panels: MONEY, params, change, usual: "30d", signal });
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
    numbers.load(refresh).catch(() => mark.tell("stale"));
    const query = new URLSearchParams([["group", params.get("group") ?? "model"], ...new URLSearchParams(rangeOf(params, "30d"))]).toString();
    const page = await ask(`/costs?${query}`, { refresh, signal });
    const next = JSON.stringify(page);
    if (!refresh) drawGroups(page, query);
    if (next === shown) return;
    shown = next;
    show(strip, totals(page.total));
    show(body, rowsCard(page), page.group === "model" && page.rows.length > 0 && peoplePart(query), pricesCard(page.prices));
    if (!refresh) say(tn("{count} row", "{count} rows", page.rows.length));
  }

  /** Returns the part with the most expensive people, which is loaded when it is scrolled into view. @param {string} query */
  function peoplePart(query) {
    const place = h("div", { class: "costs-people" });
    const seen = new IntersectionObserver(async ([first]) => {
      if (!first.isIntersecting) return;
      seen.disconnect();
      try { show(place, rowsCard(await ask(`/costs?${query.replace("group=model", "group=person")}`, { signal }), MOST_PEOPLE)); }
      catch (error) { if (!signal.aborted) show(place, problem(error)); }
    });
    seen.observe(place);
    signal.addEventListener("abort", () => seen.disconnect(), { once: true });
    return place;
  }

  /** @param {Api["CostsByGroup"]} page @param {string} query */
  function drawGroups(page, query) {
    const focused = /** @type {any} */ (document.activeElement)?.dataset?.keep;
    show(grouped, h("div", { class: "segments", role: "group", "aria-label": t("Group by") }, Object.entries(GROUPS).map(([group, words]) =>
      h("button", { type: "button", "aria-pressed": String(page.group === group), data: { keep: group }, onclick: () => change({ group }) }, words))),
    h("a", { class: "line", href: `/api/v1/export/costs.csv?${query}`, download: "evertalk-costs.csv" }, "CSV"));
    if (focused) /** @type {HTMLElement | null} */ (grouped.querySelector(`[data-keep="${focused}"]`))?.focus();
  }

  /** @param {unknown} error */
  const failed = (error) => { if (!signal.aborted) { shown = ""; show(body, problem(error, () => load().catch(failed))); } };
  show(root, h("div", { class: "page-head" }, h("div", null, h("h1", null, t("Costs")), h("p", { class: "facts" }, mark.node))), numbers.bar, strip, numbers.body, grouped, body);
  load().catch(failed);
  keepFresh(() => load(true), mark.tell, signal, () => EVERY_MS);
}

/** @param {Api["Sums"]} total */
function totals(total) {
  const into = (total.input_tokens ?? 0) + (total.cache_read_tokens ?? 0) + (total.cache_write_tokens ?? 0);
  return [
    kpi(t("Spent"), money(total.cost_micro, total.unknown_calls), total.unknown_calls ? tn("{count} call of unknown price", "{count} calls of unknown price", total.unknown_calls) : tn("{count} call", "{count} calls", total.calls ?? 0)),
    kpi(t("Tokens in"), tokens(into), t("{fresh} new · {written} written to the cache", { fresh: tokens(total.input_tokens ?? 0), written: tokens(total.cache_write_tokens ?? 0) })),
    kpi(t("Tokens out"), tokens(total.output_tokens ?? 0), total.uncounted_calls ? tn("{count} call was not counted", "{count} calls were not counted", total.uncounted_calls) : t("as providers counted")),
    kpi(t("Cache hit"), pct(total.cache_hit_pct), tn("{count} token read from caches", "{count} tokens read from caches", total.cache_read_tokens ?? 0, { count: tokens(total.cache_read_tokens ?? 0) })),
  ];
}

/** Most people in the list below the models; grouping by person shows all. */
const MOST_PEOPLE = 10;

/** @param {Api["CostsByGroup"]} page @param {number} [most] rows that are shown */
function rowsCard(page, most = page.rows.length) {
  const title = TITLES[/** @type {keyof typeof TITLES} */ (page.group)];
  const columns = [{ label: GROUPS[/** @type {keyof typeof GROUPS} */ (page.group)] }, { label: t("Calls"), num: true }, { label: t("Uncached input"), num: true }, { label: t("Cache read"), num: true }, { label: t("Cache written"), num: true }, { label: t("Out"), num: true, text: t("Tokens out") }, { label: t("Cache hit"), num: true }, { label: t("Cost"), num: true }];
  const rows = page.rows.slice(0, most).map((row) => [nameOfRow(page.group, row), number(row.calls), tokens(row.input_tokens), tokens(row.cache_read_tokens), tokens(row.cache_write_tokens), tokens(row.output_tokens), pct(row.cache_hit_pct), money(row.cost_micro, row.unknown_calls)]);
  const more = page.groups > rows.length ? h("p", { class: "muted small" }, t("The {shown} most expensive of {all}; the CSV has them all.", { shown: rows.length, all: page.groups })) : null;
  return card(title, [rows.length ? table({ caption: title, className: "wide-grid", columns, rows }) : empty(t("No model was called in this period.")), more]);
}

/** @param {string} group @param {Api["SumsOfOne"]} row */
function nameOfRow(group, row) {
  if (group === "purpose") return PURPOSES[/** @type {keyof typeof PURPOSES} */ (row.key)] ?? row.key;
  if (group === "person" && row.key) return h("span", { class: "name", dir: "auto" }, nameOf({ ...row, id: row.key, name: row.label }));
  return row.label ?? row.key ?? DASH;
}

/** @param {Api["ModelPrice"][]} prices */
function pricesCard(prices) {
  const dollars = (/** @type {number | null} */ value) => value === null ? DASH : usd(value);
  const columns = [{ label: t("Model") }, { label: t("Input"), num: true }, { label: t("Output"), num: true }, { label: t("Cache read"), num: true }, { label: t("Cache write"), num: true }, { label: t("Valid from") }, { label: t("Checked") }, { label: t("Source") }];
  const rows = prices.map((price) => [h("span", null, price.model, price.above ? h("span", { class: "muted" }, [" ", t("×{factor} above {tokens}", { factor: price.above_factor, tokens: tokens(price.above) })]) : null),
    dollars(price.input), dollars(price.output), dollars(price.cache_read), dollars(price.cache_write),
    price.source === null ? DASH : price.starts ?? t("always"), price.dated ? h("span", { class: price.old ? "warn-text" : null }, price.dated, price.old && [" ", t("(old)")]) : DASH,
    price.source === null ? t("unknown") : price.current ? ts(price.source) : t("{source}, not now", { source: ts(price.source) })]);
  return card(t("Prices"), [h("p", { class: "muted small" }, t("Dollars per million tokens. The cost of a call was stored when it was made and does not change with these.")),
    rows.length ? table({ caption: t("Prices"), className: "wide-grid", columns, rows }) : empty(t("No model was called in this period."))]);
}
