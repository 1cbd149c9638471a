/** The first page: what is spent, what needs an eye, how fast answers begin, and what was saved. */
import { counted } from "./acting.js";
import { dayBars } from "./bars.js";
import { ask, keepFresh } from "./net.js";
import { DASH, card, empty, h, kpi, liveMark, meter, money, number, pct, problem, repaintTimes, show, skeleton, table, time, tokens } from "./parts.js";
import { duration } from "../shared/fmt.js";

const LEDGER_EVERY_MS = 60_000;
const PROVIDER = { closed: "Answers", open: "Failing", refused: "Refused us" };

/** @param {any} page */
export function overviewPage({ root, entitle, signal, troubles, say }) {
  entitle("Overview");
  const eye = h("dl", { class: "kpis overview-cards" });
  const pace = h("dl", { class: "kpis overview-cards" });
  const alerts = h("div", { class: "stack" });
  const body = h("div", { class: "stack" }, skeleton(8));
  const asked = h("div", { class: "stack" });
  const mark = liveMark();
  /** @type {any} */
  let ledger = null;
  let readAt = 0;

  /** The ledger is summed up for the month, so it is asked for once a minute. @param {boolean} refresh */
  async function money_(refresh) {
    if (ledger && Date.now() - readAt < LEDGER_EVERY_MS) return ledger;
    const [costs, savings] = await Promise.all([ask("/costs?group=model", { refresh, signal }), ask("/savings", { refresh, signal })]);
    readAt = Date.now();
    return ledger = { costs, savings };
  }

  /** @param {boolean} [refresh] */
  async function load(refresh = false) {
    const before = ledger;
    const [now, month] = await Promise.all([ask("/overview", { refresh, signal }), money_(refresh)]);
    troubles(now.jobs_dead);
    show(eye, needsAnEye(now));
    show(pace, howItGoes(now, month.savings));
    show(alerts, now.alerts.length ? alertsCard(now.alerts) : []);
    show(asked, providersCard(now.providers));
    if (month !== before) show(body, modelsCard(month.costs), savingsCard(month.savings));
    else repaintTimes(root);
    if (!refresh) say("Overview loaded.");
  }

  /** @param {any} error */
  const failed = (error) => { if (!signal.aborted) { ledger = null; show(body, problem(error, () => load().catch(failed))); } };
  show(root, h("div", { class: "page-head" }, h("div", null, h("h1", null, "Overview"), h("p", { class: "facts" }, mark.node))), eye, pace, alerts, body, asked);
  load().catch(failed);
  keepFresh(() => load(true), mark.tell, signal);
}

/** @param {string} href @param {any} words */
const to = (href, words) => h("a", { href }, words);

/** @param {any} now */
function needsAnEye(now) {
  const used = now.cap_micro ? now.charged_micro * 100 / now.cap_micro : null;
  const caps = now.near_caps ? ` · ${now.near_caps} near caps of their own` : "";
  return [
    kpi("Spent today", money(now.spend_micro, now.spend_unknown_calls), now.cap_micro ? `${pct(used)} of the cap of ${money(now.cap_micro)} a day${caps}` : `no cap${caps}`,
      used === null ? null : meter(used, `${pct(used)} of today's cap, with what is set aside`)),
    kpi("Active", number(now.active), h("span", null, "in the last hour · ", to("/dashboard/sessions", "all sessions"))),
    kpi("Near the limit", number(now.near_limit), to("/dashboard/sessions?min_pct=90&sort=-context", "90 % and more, last day")),
    kpi("Waiting for a human", h("span", { class: now.handovers_waiting ? "warn-text" : null }, number(now.handovers_waiting)),
      now.oldest_waiting ? h("span", null, "oldest ", time(now.oldest_waiting), " · ", to("/dashboard/waiting", "see")) : to("/dashboard/waiting", "nobody waits")),
    kpi("Failed jobs", h("span", { class: now.jobs_dead ? "crit-text" : null }, number(now.jobs_dead)),
      h("span", null, to("/dashboard/jobs?state=dead", "last day"), now.jobs_retrying ? ` · ${now.jobs_retrying} retrying` : "")),
    kpi("Workers", h("span", { class: now.workers ? null : "crit-text" }, number(now.workers)), now.workers ? `alive · jobs due: ${now.jobs_due}` : "none is alive"),
  ];
}

/** @param {any} now @param {any} savings */
function howItGoes(now, savings) {
  return [
    kpi("Model provider", standing(now.providers), now.summaries_resting ? `${now.summaries_resting} sessions rest from failed summaries` : outs(now.providers)),
    kpi("Answer begins", duration(now.wait_p95_ms), now.turns_day ? `p95 of the newest ${counted(now.turns_day, "turn", "turns")}, last day` : "not measured in the last day"),
    kpi("Overhead of a turn", duration(now.overhead_p95_ms), now.overhead_turns ? `p95 without the model, newest ${counted(now.overhead_turns, "turn", "turns")}` : "not measured in the last day"),
    kpi("Saved by caching", saved(savings.caching.micro), `${tokens(savings.caching.tokens)} tokens read from caches this month`),
    kpi("Saved by summaries", saved(savings.summaries.micro), `${tokens(savings.summaries.tokens)} tokens not sent this month`),
    kpi("Being answered", number(now.waiting), "sessions with an open message"),
  ];
}

/** @param {number | null} micro */
const saved = (micro) => micro !== null && micro < 0 ? `−${money(-micro)}` : money(micro);

/** @param {any[] | null} providers */
function standing(providers) {
  if (!providers?.length) return DASH;
  const worst = ["refused", "open", "closed"].find((state) => providers.some((one) => one.state === state)) ?? "closed";
  return h("span", { class: worst === "closed" ? null : "crit-text" }, PROVIDER[/** @type {keyof typeof PROVIDER} */ (worst)]);
}

/** @param {any} costs */
function modelsCard(costs) {
  const columns = [{ label: "Model" }, { label: "Calls", num: true }, { label: "In", num: true, text: "Tokens in" }, { label: "Out", num: true, text: "Tokens out" }, { label: "Cache hit", num: true }, { label: "Cost", num: true }];
  const rows = costs.rows.map((/** @type {any} */ row) => [row.label, number(row.calls), tokens(row.input_tokens + row.cache_read_tokens + row.cache_write_tokens), tokens(row.output_tokens), pct(row.cache_hit_pct), money(row.cost_micro, row.unknown_calls)]);
  return card("Cost by model this month", [dayBars(costs.days),
    rows.length ? table({ caption: "Cost by model this month", className: "wide-grid", columns, rows }) : empty("No model was called this month.")],
  to("/dashboard/costs", "All costs"));
}

/** @param {any} savings */
function savingsCard(savings) {
  const left = [["caching", savings.caching.unpriced_tokens], ["summaries", savings.summaries.unpriced_tokens]].filter(([, count]) => count);
  return card("How savings are computed", [
    h("dl", { class: "pairs" },
      pair("Caching", `${saved(savings.caching.micro)}: all tokens of this month at the price of plain input and output, less what was paid.`),
      pair("Summaries", `${saved(savings.summaries.micro)}: ${tokens(savings.summaries.tokens)} tokens that standing summaries took out of ${number(savings.summarised_turns)} turns, each turn counted once and at the price of reading a cache, less what making summaries cost (${money(savings.summaries_paid_micro)}).`),
      pair("Left out", left.length || savings.uncounted_calls ? [left.map(([what, count]) => `${tokens(/** @type {number} */ (count))} tokens of ${what} without a known price; `), `${number(savings.uncounted_calls)} calls whose cost nobody knows.`] : "Nothing: every price is known."))]);
}

/** @param {string} name @param {any} words */
const pair = (name, words) => h("div", null, h("dt", null, name), h("dd", null, words));

/** How many processes cannot ask one of them. @param {any[]} providers */
function outs(providers) {
  const out = providers.filter((one) => one.state !== "closed");
  if (!out.length) return providers.length ? "as all processes see it" : "not asked in the last 30 s";
  return out.map((one) => `${one.host}: ${one.out_of} of ${one.processes} processes`).join(" · ");
}

/** @param {any[]} providers */
function providersCard(providers) {
  if (!providers.length) return null;
  const columns = [{ label: "Provider" }, { label: "State" }, { label: "Processes" }, { label: "Calls", num: true, text: "Calls of 30 s" }, { label: "Failed", num: true }, { label: "Out since", num: true }, { label: "Reason" }];
  const rows = providers.map((one) => [one.host, h("span", { class: `state ${one.state === "closed" ? "idle" : "problem"}` }, PROVIDER[/** @type {keyof typeof PROVIDER} */ (one.state)]),
    one.out_of ? h("span", { class: "where-out" }, `${one.out_of} of ${one.processes} out (${one.out_in.join(", ")})`) : number(one.processes),
    number(one.calls), number(one.failures), one.state === "closed" ? DASH : duration(one.open_seconds * 1000), one.reasons.length ? h("ul", { class: "reasons" }, one.reasons.map((/** @type {any} */ why) => h("li", { class: "error-text" }, h("b", null, why.role), ` ${why.reason}`))) : DASH]);
  return card("Providers", [table({ caption: "Providers, as all processes see them", className: "wide-grid", columns, rows })]);
}

/** @param {any[]} alerts */
const alertsCard = (alerts) => card("Open alerts", [h("ul", { class: "plain-list" }, alerts.map((one) => h("li", null, h("b", null, one.text), one.facts && ` · ${one.facts}`, " · ", time(one.at))))], h("a", { href: "/dashboard/alerts" }, "All alerts"));
