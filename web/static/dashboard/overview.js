/** The first page: three numbers, current problems, and the newest conversations; all other numbers are folded. */
import { alertFacts } from "./alerts.js";
import { checklistCard } from "./checklist.js";
import { ask, keepFresh } from "./net.js";
import { DASH, card, channelBadge, chatButton, empty, h, joinWithDots, keepFocus, kpi, level, liveMark, meter, money, number, pct, personOf, problem, repaintTimes, show, skeleton, stateBadge, t, table, time, tn, tokens, ts } from "./parts.js";
import { duration } from "./figures.js";
import { OVERVIEW, seriesPart } from "./series.js";

const LEDGER_EVERY_MS = 60_000;
const PROVIDER = { closed: t("Responding"), open: t("Failing"), refused: t("Refused our requests") };

/** Draws the first page into `root` and refreshes it until `signal` aborts. @param {Page} page */
export function overviewPage({ root, me, go, entitle, signal, troubles, say }) {
  entitle(t("Overview"));
  const params = new URLSearchParams(location.search);
  const body = h("div", { class: "stack" }, skeleton(8));
  const mark = liveMark();
  const numbers = numbersPart({ params, change, signal, failed: () => mark.tell("stale") });
  let shown = "";

  /** @param {Record<string, string>} changes */
  function change(changes) {
    for (const [name, value] of Object.entries(changes)) value ? params.set(name, value) : params.delete(name);
    go(`/dashboard${params.size ? `?${params}` : ""}`, { quiet: true });
  }

  async function hide() {
    try {
      await ask("/checklist", { method: "PUT", body: { hidden: true }, signal });
      await load();
      say(t("Hidden. The page Settings shows the checklist again."));
    } catch (error) { failed(error); }
  }

  /** @param {boolean} [refresh] */
  async function load(refresh = false) {
    const [now, checklist, newest] = await Promise.all([ask("/overview", { refresh, signal }), me.role === "admin" ? ask("/checklist", { refresh, signal }) : null, ask("/sessions?limit=5", { refresh, signal })]);
    troubles(now.jobs_dead);
    const next = JSON.stringify([now, checklist, newest.sessions]);
    if (next === shown) repaintTimes(root);
    else keepFocus(body, () => show(body,
      now.alerts.length > 0 && alertsCard(now.alerts),
      checklist && !checklist.hidden ? checklistCard(checklist, hide) : now.demo && demoCard(me),
      h("dl", { class: "kpis overview-cards" }, firstTiles(now), troubleTiles(now)),
      isTroubled(now) && providersCard(now.providers, now.learned),
      newestCard(newest.sessions), numbers.node));
    shown = next;
    await numbers.load(now, refresh);
    if (!refresh && !signal.aborted) say(t("Overview loaded."));
  }

  /** @param {unknown} error */
  const failed = (error) => { if (!signal.aborted) { shown = ""; show(body, problem(error, () => load().catch(failed))); } };
  show(root, h("div", { class: "page-head" }, h("div", null, h("h1", null, t("Overview")), h("p", { class: "facts" }, mark.node))), body);
  load().catch(failed);
  keepFresh(() => load(true), mark.tell, signal);
}

/**
 * Makes the `details` with all numbers, which are requested once it is open; the address holds whether it is.
 * @param {{params: URLSearchParams, change: (changes: Record<string, string>) => void, signal: AbortSignal, failed: () => void}} how
 */
function numbersPart({ params, change, signal, failed }) {
  const isOpen = () => ["numbers", "range", "from", "to"].some((name) => params.has(name));
  const pace = h("dl", { class: "kpis overview-cards" });
  const ledgers = h("div", { class: "stack" });
  const asked = h("div", { class: "stack" });
  const series = seriesPart({ panels: OVERVIEW, params, change: (changes) => { change(changes); series.load(); }, usual: "7d", signal });
  const node = h("details", { class: "numbers", open: isOpen(), ontoggle: opened }, h("summary", null, t("Numbers")),
    h("div", { class: "stack" }, pace, h("section", { "aria-label": t("Numbers over time") }, series.bar, series.body), ledgers, asked));
  /** @type {any} */
  let ledger = null;
  /** @type {any} */
  let latest = null;
  let readAt = 0;

  function opened() {
    if (node.open !== isOpen()) change({ numbers: node.open ? "1" : "", ...node.open ? {} : { range: "", from: "", to: "" } });
    first(latest);
  }

  /** Loads the numbers, and shows a failure in the place of the sums: the rest of the page stands. @param {Api["Overview"]} now @returns {Promise<void>} */
  const first = (now) => load(now).catch((error) => { if (!signal.aborted) show(ledgers, problem(error, () => first(latest))); });

  /** Loads the numbers while the details are open; the month's costs at most once a minute, since they are summed up from the ledger. @param {Api["Overview"]} now @param {boolean} [refresh] */
  async function load(now, refresh = false) {
    latest = now;
    if (!node.open || !now) return;
    series.load(refresh).catch(failed);
    if (!ledger || Date.now() - readAt >= LEDGER_EVERY_MS) {
      const [costs, savings] = await Promise.all([ask("/costs?group=model", { refresh, signal }), ask("/savings", { refresh, signal })]);
      readAt = Date.now();
      ledger = { costs, savings };
      show(ledgers, modelsCard(costs), savingsCard(savings));
    }
    show(pace, attentionTiles(now), healthTiles(now, ledger.savings));
    show(asked, isTroubled(now) ? [] : providersCard(now.providers, now.learned));
  }
  return { node, load: (/** @type {Api["Overview"]} */ now, /** @type {boolean} */ refresh) => refresh ? load(now, true) : first(now) };
}

/** @param {Api["Sessions"]["sessions"]} sessions */
function newestCard(sessions) {
  const columns = [{ label: t("Person") }, { label: t("Channel") }, { label: t("Context now"), num: true }, { label: t("Cost"), num: true }, { label: t("Last active") }, { label: t("State") }];
  const rows = sessions.map((one) => [h("a", { class: "row-link", href: `/dashboard/sessions/${one.id}`, dir: "auto", title: one.title }, personOf(one), one.title && h("span", { class: "row-title muted small", dir: "auto" }, one.title)),
    channelBadge(one.channel), one.context_pct === null ? DASH : h("span", { class: `${level(one.context_pct)}-text` }, pct(one.context_pct)), money(one.cost_micro, one.cost_unknown_calls ?? 0), time(one.last_active_at), stateBadge(one.state)]);
  return card(t("Newest conversations"), [sessions.length ? table({ caption: t("Newest conversations"), className: "wide-grid", columns, rows }) : empty(t("No conversation yet."), chatButton())],
    sessions.length > 0 && to("/dashboard/sessions", t("all sessions")));
}

/** @param {string} href @param {any} words */
const to = (href, words) => h("a", { href }, words);

/** Returns the tiles with the three numbers of the first page. @param {Api["Overview"]} now */
function firstTiles(now) {
  const used = now.cap_micro ? now.charged_micro * 100 / now.cap_micro : null;
  const caps = now.near_caps > 0 && tn("{count} near a cap of its own", "{count} near caps of their own", now.near_caps);
  return [
    kpi(t("Spent today"), money(now.spend_micro, now.spend_unknown_calls), joinWithDots([now.cap_micro ? t("{percent} of the cap of {sum} a day", { percent: pct(used), sum: money(now.cap_micro) }) : t("no cap"), caps]),
      used === null ? null : meter(used, t("{percent} of today's cap, including reservations", { percent: pct(used) }))),
    kpi(t("Active"), number(now.active), t("in the last hour")),
    kpi(t("Waiting for a human"), h("span", { class: now.handovers_waiting ? "warn-text" : null }, number(now.handovers_waiting)),
      now.oldest_waiting ? h("span", null, t("oldest {time}", { time: time(now.oldest_waiting) }), " · ", to("/dashboard/inbox", t("see"))) : to("/dashboard/inbox", t("nobody is waiting")), now.rating.count > 0 && [" · ", t("Rated {rating} of 5", { rating: number(now.rating.average) })]),
  ];
}

/** Returns whether a provider fails or refuses requests, or a model lacks an ability that requests need. @param {Api["Overview"]} now */
const isTroubled = (now) => now.learned.length > 0 || now.providers.some((one) => one.state !== "closed");

/** Returns tiles of current problems, none on a good day. @param {Api["Overview"]} now */
const troubleTiles = (now) => [
  now.near_limit > 0 && contextTile(now), now.jobs_dead > 0 && jobsTile(now), !now.workers && workersTile(now), now.providers.some((one) => one.state !== "closed") && providerTile(now),
];

/** @param {Api["Overview"]} now */
const contextTile = (now) => kpi(t("Context over 90 %"), number(now.near_limit), [t("last 24 hours"), " · ", to("/dashboard/sessions?min_pct=90&sort=-context", t("see"))]);

/** @param {Api["Overview"]} now */
const jobsTile = (now) => kpi(t("Background jobs failed"), h("span", { class: now.jobs_dead ? "crit-text" : null }, number(now.jobs_dead)),
  h("span", null, to("/dashboard/jobs?state=dead", t("last day")), now.jobs_retrying > 0 && [" · ", tn("{count} retrying", "{count} retrying", now.jobs_retrying)]));

/** @param {Api["Overview"]} now */
const workersTile = (now) => kpi(t("Workers"), h("span", { class: now.workers ? null : "crit-text" }, number(now.workers)), now.workers ? joinWithDots([t("running"), t("jobs due: {number}", { number: now.jobs_due })]) : t("none is running"));

/** @param {Api["Overview"]} now */
const providerTile = (now) => kpi(t("Model provider"), standing(now.providers), now.summaries_deferred ? tn("{count} session pauses after failed summaries", "{count} sessions pause after failed summaries", now.summaries_deferred) : outs(now.providers));

/** @param {Api["Overview"]} now */
const attentionTiles = (now) => [contextTile(now), jobsTile(now), workersTile(now)];

/** @param {Api["Overview"]} now @param {Api["Savings"]} savings */
function healthTiles(now, savings) {
  return [
    providerTile(now),
    kpi(t("Time to first token (p95)"), duration(now.first_token_p95_ms), now.turns_day ? tn("p95 of the newest {count} turn, last day", "p95 of the newest {count} turns, last day", now.turns_day) : t("not measured in the last day")),
    kpi(t("Processing overhead"), duration(now.overhead_p95_ms), now.overhead_turns ? tn("p95 without the model, newest {count} turn", "p95 without the model, newest {count} turns", now.overhead_turns) : t("not measured in the last day")),
    kpi(t("Saved by caching"), saved(savings.caching.micro), tn("{count} token read from caches this month", "{count} tokens read from caches this month", savings.caching.tokens, { count: tokens(savings.caching.tokens) })),
    kpi(t("Saved by summaries"), saved(savings.summaries.micro), tn("{count} token not sent this month", "{count} tokens not sent this month", savings.summaries.tokens, { count: tokens(savings.summaries.tokens) })),
    kpi(t("In progress"), number(now.waiting), t("sessions with an open message")),
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

/** @param {Api["CostsByGroup"]} costs */
function modelsCard(costs) {
  const columns = [{ label: t("Model") }, { label: t("Calls"), num: true }, { label: t("In"), num: true, text: t("Tokens in") }, { label: t("Out"), num: true, text: t("Tokens out") }, { label: t("Cache hit"), num: true }, { label: t("Cost"), num: true }];
  const rows = costs.rows.map((row) => [row.label, number(row.calls), tokens((row.input_tokens ?? 0) + (row.cache_read_tokens ?? 0) + (row.cache_write_tokens ?? 0)), tokens(row.output_tokens), pct(row.cache_hit_pct), money(row.cost_micro, row.unknown_calls)]);
  return card(t("Cost by model this month"), [
    rows.length ? table({ caption: t("Cost by model this month"), className: "wide-grid", columns, rows }) : empty(t("No model was called this month."))],
  to("/dashboard/costs", t("All costs")));
}

/** @param {Api["Savings"]} savings */
function savingsCard(savings) {
  const { caching: { unpriced_tokens: cached }, summaries: { unpriced_tokens: unsent }, uncounted_calls: calls } = savings;
  return card(t("How savings are computed"), [
    h("dl", { class: "pairs" },
      pair(t("Caching"), t("{sum}: all tokens of this month at the price of plain input and output, less what was paid.", { sum: saved(savings.caching.micro) })),
      pair(t("Summaries"), tn("{sum}: {tokens} tokens that standing summaries took out of {count} turn, counted once and at the price of reading a cache, less what making summaries cost ({paid}).", "{sum}: {tokens} tokens that standing summaries took out of {count} turns, each turn counted once and at the price of reading a cache, less what making summaries cost ({paid}).", savings.summarised_turns, { sum: saved(savings.summaries.micro), tokens: tokens(savings.summaries.tokens), paid: money(savings.summaries_paid_micro) })),
      pair(t("Left out"), joinWithDots([cached > 0 && tn("{count} token of caching without a known price", "{count} tokens of caching without a known price", cached, { count: tokens(cached) }), unsent > 0 && tn("{count} token of summaries without a known price", "{count} tokens of summaries without a known price", unsent, { count: tokens(unsent) }),
        calls > 0 && tn("{count} call of unknown cost", "{count} calls of unknown cost", calls), !cached && !unsent && !calls && t("Nothing: every price is known.")])))]);
}

/** @param {string} name @param {any} words */
const pair = (name, words) => h("div", null, h("dt", null, name), h("dd", null, words));

/** Returns the text that says how many processes cannot reach each provider. @param {Api["ProviderState"][]} providers */
function outs(providers) {
  const out = providers.filter((one) => one.state !== "closed");
  if (!out.length) return providers.length ? t("as all processes see it") : t("not asked in the last {duration}", { duration: duration(30_000) });
  return out.map((one) => tn("{host}: {out} of {count} process", "{host}: {out} of {count} processes", one.processes, { host: one.host, out: one.out_of })).join(" · ");
}

/** @param {Api["LearnedModel"][]} learned */
const lessons = (learned) => h("ul", { class: "plain-list" }, learned.map((one) => h("li", null, t("{model} does not take: {parts}", { model: one.model, parts: one.refused.join(", ") }))));

/** @param {Api["ProviderState"][]} providers @param {Api["LearnedModel"][]} learned */
function providersCard(providers, learned) {
  if (!providers.length && !learned.length) return null;
  const columns = [{ label: t("Provider") }, { label: t("State") }, { label: t("Processes") }, { label: t("Calls"), num: true, text: t("Calls of {duration}", { duration: duration(30_000) }) }, { label: t("Failed"), num: true }, { label: t("Out since"), num: true }, { label: t("Reason") }];
  const rows = providers.map((one) => [one.host, h("span", { class: `state ${one.state === "closed" ? "idle" : "problem"}` }, PROVIDER[/** @type {keyof typeof PROVIDER} */ (one.state)]),
    one.out_of ? h("span", { class: "where-out" }, t("{out} of {all} out ({processes})", { out: one.out_of, all: one.processes, processes: one.out_in.join(", ") })) : number(one.processes),
    number(one.calls), number(one.failures), one.state === "closed" ? DASH : duration(one.open_seconds * 1000), one.reasons.length ? h("ul", { class: "reasons" }, one.reasons.map((why) => h("li", { class: "error-text" }, h("b", null, why.role), " ", ts(why.reason)))) : DASH]);
  return card(t("Providers"), [table({ caption: t("Providers, as all processes see them"), className: "wide-grid", columns, rows }), learned.length ? lessons(learned) : null]);
}

/** Returns the card shown while no model is set: what answers instead, and how to change that. @param {Api["Me"]} me */
const demoCard = (me) => card(t("The built-in demo answers"), [h("p", null, t("No model is set, so people talk with the built-in demo, not a real AI model.")),
  me.role === "admin" && h("p", null, h("a", { href: "/dashboard/settings?section=model" }, t("Enter a model key")))],
h("a", { href: "/chat", target: "_blank", rel: "noopener" }, t("Try the demo")));

/** @param {Api["NewAlert"][]} alerts */
const alertsCard = (alerts) => card(t("Open alerts"), [h("ul", { class: "plain-list" }, alerts.map((one) => h("li", null, h("b", null, ts(one.text)), one.facts && ` · ${alertFacts(one)}`, " · ", time(one.at))))], h("a", { href: "/dashboard/alerts" }, t("All alerts")));
