/** Alerts: open and past ones, and whether notices reach their recipients. */
import { beyond, pagesOf, placeOf } from "./lists.js";
import { ask, keepFresh } from "./net.js";
import { DASH, card, empty, h, keepFocus, linked, liveMark, money, named, number, problem, repaintTimes, show, skeleton, t, table, time, tn, ts } from "./parts.js";

const WORDS = { due: t("to be sent"), sending: t("being sent"), sent: t("sent"), failed: t("failed"), uncertain: t("uncertain") };
const LOOKS = { due: "waiting", sending: "answering", sent: "idle", failed: "problem", uncertain: "problem" };
const PAST = [{ label: t("Alert") }, { label: t("Started") }, { label: t("Resolved") }, { label: t("Notified") }];
const TARGETS = [{ label: t("Goes to") }, { label: t("Last message") }, { label: t("Last delivered") }, { label: t("What to do") }];
const WAYS = { telegram: "Telegram", webhook: t("webhook"), email: t("mail") };
/** Pages on which an alert can be examined, by kind of alert. */
const PLACES = { spend_source: ["/dashboard/costs", t("Costs")], dead_job: ["/dashboard/jobs?state=dead", t("Jobs")], uncertain_delivery: ["/dashboard/deliveries", t("Delivery problems")], no_worker: ["/dashboard/jobs", t("Jobs")], duty_late: ["/dashboard/jobs", t("Jobs")] };

/** Draws open and past alerts and their recipients into `root`, and refreshes them until `signal` aborts. @param {Page} page */
export function alertsPage({ root, go, entitle, signal, say, toldAlerts }) {
  entitle(t("Alerts"));
  const params = new URLSearchParams(location.search);
  const note = h("div", { class: "list" });
  const body = h("div", { class: "stack" }, skeleton(6));
  const mark = liveMark();
  const test = h("button", { type: "button", class: "line send-test", hidden: true, onclick: sendTest }, t("Send a test"));
  const pages = pagesOf("/alerts", signal);
  let shown = "";

  /** @param {Record<string, string>} changes */
  function change(changes) {
    for (const [name, value] of Object.entries({ at: "", ...changes })) value ? params.set(name, value) : params.delete(name);
    const words = params.toString();
    go(`/dashboard/alerts${words ? `?${words}` : ""}`, { quiet: true });
    load().catch(failed);
  }

  /** @param {boolean} [refresh] */
  async function load(refresh = false) {
    const page = await pages(params, refresh);
    toldAlerts?.(page.unseen);
    const next = JSON.stringify([page, params.toString()]);
    if (next === shown) return repaintTimes(root);
    shown = next;
    test.hidden = !page.can_test || !page.targets.length;
    if (!refresh && location.hash === "#test") test.focus();
    keepFocus(body, () => show(body, openCard(page, see), targetsCard(page), pastCard(page, params, change)));
    if (!refresh) say(tn("{count} open alert", "{count} open alerts", page.open.length));
  }

  async function sendTest() {
    test.disabled = true;
    show(note);
    try {
      await ask("/alerts/test", { method: "POST", signal });
      show(note, h("p", { class: "done", role: "status" }, t("A test is on its way; what becomes of it appears below.")));
      await load(true);
    } catch (error) { if (!signal.aborted) show(note, problem(error)); }
    test.disabled = false;
  }

  /** @param {Api["Alert"]} alert @param {HTMLButtonElement} button */
  async function see(alert, button) {
    button.disabled = true;
    show(note);
    try {
      await ask(`/alerts/${alert.id}/seen`, { method: "POST", signal });
      await load(true);
      root.querySelector("h1")?.focus({ preventScroll: true });
      say(t("Seen: {alert}", { alert: ts(alert.title) }));
    } catch (error) {
      if (signal.aborted) return;
      button.disabled = false;
      show(note, problem(error));
    }
  }

  /** @param {unknown} error */
  const failed = (error) => { if (!signal.aborted) { shown = ""; show(body, problem(error, () => load().catch(failed))); } };
  show(root, h("div", { class: "page-head" }, h("div", null, h("h1", { tabindex: -1 }, t("Alerts")), h("p", { class: "facts" }, t("You are notified when a problem starts and when it ends."), mark.node)), test), note, body);
  load().catch(failed);
  keepFresh(() => load(true), mark.tell, signal, undefined, ["alerts"]);
}

/** @param {Api["Alerts"]} page @param {(alert: any, button: any) => void} see */
function openCard(page, see) {
  if (!page.open.length) return card(t("Open"), [empty(t("All clear."), h("p", { class: "muted" }, t("Open alerts appear here, and all recipients below are notified.")))]);
  return card(t("Open"), [h("ul", { class: "plain-list alert-list" }, page.open.map((one) => openItem(one, page, see)))]);
}

/** @param {Api["Alert"]} one @param {Api["Alerts"]} page @param {(alert: any, button: any) => void} see */
function openItem(one, page, see) {
  const session = one.detail.session;
  const [href, name] = session ? [`/dashboard/sessions/${session}`, t("Open the conversation")] : PLACES[/** @type {keyof typeof PLACES} */ (one.kind)] ?? [];
  return h("li", { class: `alert-item ${one.seen_at ? "seen" : ""}` },
    h("div", { class: "alert-words" },
      h("p", { class: "alert-title" }, h("b", null, ts(one.title)), one.facts && h("span", { class: "badge" }, alertFacts(one))),
      h("p", null, linked(one.advice)),
      h("p", { class: "muted small alert-facts" }, h("span", null, t("since {time}", { time: time(one.opened_at) })), sendsOf(one.sends), one.seen_at && h("span", null, t("seen by {operator} {time}", { operator: h("bdi", null, one.seen_by), time: time(one.seen_at) })))),
    h("div", { class: "actions" }, href && h("a", { class: "line button", href }, name),
      !one.seen_at && page.can_see && h("button", { type: "button", class: "line", "aria-label": t("Seen: {alert}", { alert: ts(one.title) }), onclick: (/** @type {any} */ event) => see(one, event.currentTarget) }, t("Seen"))));
}

/** @param {any} detail */
const spent = ({ used_micro: used, cap_micro: cap }) => t("{used} of {cap}", { used: money(used), cap: money(cap) });
/** @param {any} detail */
const ofAgent = ({ agent, count }) => t("{number} × {agent}, people and sessions", { agent, number: count });
/** @param {number} bytes */
const gib = (bytes) => number(Math.round(bytes / 2 ** 30 * 10) / 10);
/** Ids of the conversations that an alert names. @param {any} detail */
const sessionsOf = ({ sessions }) => sessions ? ` · ${sessions}` : "";
/** Facts of an alert, by its kind. @type {Record<string, (detail: any) => string>} */
const FACTS = {
  spend_80: spent, spend_100: spent, agent_cap_80: ofAgent, agent_cap_100: ofAgent, spend_source: (detail) => `${detail.source}: ${spent(detail)}`,
  provider_refused: (detail) => `${detail.provider}${sessionsOf(detail)}`, breaker_open: (detail) => `${detail.provider}${sessionsOf(detail)}`,
  window_narrowed: ({ model, window, expected, sessions }) => `${tn("{model}: {window} of {count} token", "{model}: {window} of {count} tokens", expected, { model, window })}${sessionsOf({ sessions })}`,
  uncertain_delivery: ({ count }) => tn("{count} in the last 24 hours", "{count} in the last 24 hours", count),
  disk_low: ({ free_bytes: free, total_bytes: all }) => t("{free} GiB of {all} GiB are free", { free: gib(free), all: gib(all) }),
  handover_waiting: ({ minutes }) => tn("for more than {count} minute", "for more than {count} minutes", minutes),
  no_worker: ({ seconds }) => tn("for more than {count} second", "for more than {count} seconds", seconds),
  database_lost: ({ seconds }) => tn("for more than {count} second", "for more than {count} seconds", seconds),
  model_rejects: ({ model, provider, wording, code, sessions }) => `${model} · ${provider}: ${wording || code}${sessionsOf({ sessions })}`,
  no_summaries: ({ sessions }) => sessions ?? "",
  duty_late: ({ duty }) => duty,
  process_stopped: ({ process, cause, turn, work, count }) => `${process}: ${cause.replaceAll("_", " ")}, ${turn ? t("turn {turn}", { turn }) : work}, ${count} ×`,
  stuck_turn: ({ count }) => t("{number} in total", { number: count }),
};
/** Returns the facts of an alert in the operator's language; the server's text for a kind without a translation. @param {{kind: string, facts: string, detail: any}} alert */
export const alertFacts = ({ kind, detail, facts }) => FACTS[kind]?.(detail) ?? facts;

/** @param {string} way @param {string} state @param {boolean} ended */
const sentBy = (way, state, ended) => ended ? t("{way}, its end: {state}", { way, state }) : t("{way}: {state}", { way, state });

/** Returns the recipients of an alert in a few words; failed sends are named. @param {Api["Send"][]} sends */
function sendsOf(sends) {
  if (!sends.length) return h("span", null, t("nobody notified"));
  return h("span", { class: "tellings" }, sends.map((send) => h("span", { class: `state ${LOOKS[/** @type {keyof typeof LOOKS} */ (send.state)]}`, title: ts(send.advice) || null },
    sentBy(WAYS[/** @type {keyof typeof WAYS} */ (send.target.split(":")[0])], WORDS[/** @type {keyof typeof WORDS} */ (send.state)], send.phase === "ended"))));
}

/** @param {Api["Target"]} target */
const targetName = ({ target, name }) => target === "webhook" ? t("Webhook at {host}", { host: name.replace("Webhook at ", "") }) : target === "email" ? t("Mail to {people}", { people: name.replace("Mail to ", "") }) : t("Telegram chat {id}", { id: target.split(":")[1] });

/** Returns the card of recipients, with the newest send to each and the reason of a failure. @param {Api["Alerts"]} page */
export function targetsCard(page) {
  if (!page.targets.length) return card(t("Recipients"), [empty(t("No recipients configured."), h("p", null, h("a", { class: "line button", href: "/dashboard/settings?section=alerts" }, t("Enter recipients"))))]);
  const rows = page.targets.map((one) => [h("b", { class: "target-name" }, targetName(one)),
    one.state ? h("span", null, h("span", { class: `state ${LOOKS[/** @type {keyof typeof LOOKS} */ (one.state)]}` }, WORDS[/** @type {keyof typeof WORDS} */ (one.state)]), " ", h("span", { class: "muted" }, time(one.at))) : h("span", { class: "muted" }, t("nothing yet")),
    time(one.sent_at), one.error ? h("span", { class: "error-text advice-text" }, one.advice ? linked(ts(one.advice)) : one.error) : DASH]);
  return card(t("Recipients"), [table({ caption: t("Targets"), className: "wide-grid target-grid", columns: TARGETS, rows })]);
}

/** @param {Api["Alerts"]} page @param {URLSearchParams} params @param {(changes: Record<string, string>) => void} change */
function pastCard(page, params, change) {
  const rows = page.past.map((one) => [
    h("span", { class: "past-title" }, h("b", null, ts(one.title)), one.facts && h("span", { class: "muted" }, alertFacts(one))),
    time(one.opened_at), one.kind === "test" ? DASH : time(one.ended_at), sendsOf(one.sends)]);
  const content = rows.length ? table({ caption: t("Past alerts"), className: "wide-grid past-grid", columns: PAST, rows }) : empty(t("No resolved alerts."));
  return card(t("Resolved"), [content, h("div", { class: "pager" }, placeOf(params, page.past.length, page.total ?? null), params.get("cursor") && h("button", { type: "button", class: "line", onclick: () => change({ cursor: "" }) }, t("Newest")),
    page.next && h("button", { type: "button", class: "line", onclick: () => change({ cursor: page.next ?? "", at: beyond(params, page.past.length) }) }, t("Older")))]);
}
