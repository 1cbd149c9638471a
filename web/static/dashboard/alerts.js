/** What needs an operator now, what did, and whether word of it reaches everybody it should. */
import { ask, keepFresh } from "./net.js";
import { DASH, card, empty, h, keepFocus, liveMark, problem, repaintTimes, show, skeleton, table, time } from "./parts.js";

const WORDS = { due: "to be sent", sending: "being sent", sent: "sent", failed: "failed", uncertain: "uncertain" };
const LOOKS = { due: "waiting", sending: "answering", sent: "idle", failed: "problem", uncertain: "problem" };
const PAST = [{ label: "Alert" }, { label: "Began" }, { label: "Over" }, { label: "Told" }];
const TARGETS = [{ label: "Goes to" }, { label: "Last message" }, { label: "Last arrived" }, { label: "What to do" }];
const WAYS = { telegram: "Telegram", webhook: "webhook", email: "mail" };
/** Where one looks further, by kind. */
const PLACES = { dead_job: ["/dashboard/jobs?state=dead", "Jobs"], uncertain_delivery: ["/dashboard/deliveries", "Deliveries"], no_worker: ["/dashboard/jobs", "Jobs"] };

/** @param {any} page */
export function alertsPage({ root, go, entitle, signal, say, toldAlerts }) {
  entitle("Alerts");
  const params = new URLSearchParams(location.search);
  const note = h("div", { class: "list" });
  const body = h("div", { class: "stack" }, skeleton(6));
  const mark = liveMark();
  const test = h("button", { type: "button", class: "line send-test", hidden: true, onclick: sendTest }, "Send a test");
  let shown = "";

  /** @param {Record<string, string>} changes */
  function change(changes) {
    for (const [name, value] of Object.entries(changes)) value ? params.set(name, value) : params.delete(name);
    const words = params.toString();
    go(`/dashboard/alerts${words ? `?${words}` : ""}`, { quiet: true });
    load().catch(failed);
  }

  /** @param {boolean} [refresh] */
  async function load(refresh = false) {
    const page = await ask(`/alerts?${params}`, { refresh, signal });
    toldAlerts?.(page.unseen);
    const next = JSON.stringify([page, params.toString()]);
    if (next === shown) return repaintTimes(root);
    shown = next;
    test.hidden = !page.can_test || !page.targets.length;
    keepFocus(body, () => show(body, openCard(page, see), targetsCard(page), pastCard(page, params, change)));
    if (!refresh) say(`${page.open.length} open`);
  }

  async function sendTest() {
    test.disabled = true;
    show(note);
    try {
      await ask("/alerts/test", { method: "POST", signal });
      show(note, h("p", { class: "done", role: "status" }, "A test is on its way; what becomes of it appears below."));
      await load(true);
    } catch (error) { if (!signal.aborted) show(note, problem(error)); }
    test.disabled = false;
  }

  /** @param {any} alert @param {HTMLButtonElement} button */
  async function see(alert, button) {
    button.disabled = true;
    show(note);
    try {
      await ask(`/alerts/${alert.id}/seen`, { method: "POST", signal });
      await load(true);
      root.querySelector("h1")?.focus({ preventScroll: true });
      say(`Seen: ${alert.title}`);
    } catch (error) {
      if (signal.aborted) return;
      button.disabled = false;
      show(note, problem(error));
    }
  }

  /** @param {any} error */
  const failed = (error) => { if (!signal.aborted) { shown = ""; show(body, problem(error, () => load().catch(failed))); } };
  show(root, h("div", { class: "page-head" }, h("div", null, h("h1", { tabindex: -1 }, "Alerts"), h("p", { class: "facts" }, "What needs somebody, told once and once more when it is over", mark.node)), test), note, body);
  load().catch(failed);
  keepFresh(() => load(true), mark.tell, signal, undefined, ["alerts"]);
}

/** @param {any} page @param {(alert: any, button: any) => void} see */
function openCard(page, see) {
  if (!page.open.length) return card("Open", [empty("Nothing needs you.", h("p", { class: "muted" }, "Whatever does, appears here and is told to everybody named below."))]);
  return card("Open", [h("ul", { class: "plain-list alert-list" }, page.open.map((/** @type {any} */ one) => openItem(one, page, see)))]);
}

/** @param {any} one @param {any} page @param {(alert: any, button: any) => void} see */
function openItem(one, page, see) {
  const session = one.detail.session;
  const [href, name] = session ? [`/dashboard/sessions/${session}`, "Open the conversation"] : PLACES[/** @type {keyof typeof PLACES} */ (one.kind)] ?? [];
  return h("li", { class: `alert-item ${one.seen_at ? "seen" : ""}` },
    h("div", { class: "alert-words" },
      h("p", { class: "alert-title" }, h("b", null, one.title), one.facts && h("span", { class: "badge" }, one.facts)),
      h("p", null, one.advice),
      h("p", { class: "muted small alert-facts" }, h("span", null, "since ", time(one.opened_at)), tellings(one.sends), one.seen_at && h("span", null, `seen by ${one.seen_by} `, time(one.seen_at)))),
    h("div", { class: "actions" }, href && h("a", { class: "line button", href }, name),
      !one.seen_at && page.can_see && h("button", { type: "button", class: "line", "aria-label": `Seen: ${one.title}`, onclick: (/** @type {any} */ event) => see(one, event.currentTarget) }, "Seen")));
}

/** Whom it was told to, in a few words; what did not arrive is named. @param {any[]} sends */
function tellings(sends) {
  if (!sends.length) return h("span", null, "told nobody");
  return h("span", { class: "tellings" }, sends.map((send) => h("span", { class: `state ${LOOKS[/** @type {keyof typeof LOOKS} */ (send.state)]}`, title: send.advice || null },
    `${WAYS[/** @type {keyof typeof WAYS} */ (send.target.split(":")[0])]}${send.phase === "ended" ? ", its end" : ""}: ${WORDS[/** @type {keyof typeof WORDS} */ (send.state)]}`)));
}

/** @param {any} page */
function targetsCard(page) {
  if (!page.targets.length) return card("Who is told", [empty("Nobody is told yet.", h("p", { class: "muted" }, "EVERTALK_ALERT_TELEGRAM_CHATS, EVERTALK_ALERT_WEBHOOK_URL and EVERTALK_ALERT_SMTP_URL say whom alerts go to; this page shows them all the same."))]);
  const rows = page.targets.map((/** @type {any} */ one) => [h("b", { class: "target-name" }, one.name),
    one.state ? h("span", null, h("span", { class: `state ${LOOKS[/** @type {keyof typeof LOOKS} */ (one.state)]}` }, WORDS[/** @type {keyof typeof WORDS} */ (one.state)]), " ", h("span", { class: "muted" }, time(one.at))) : h("span", { class: "muted" }, "nothing yet"),
    time(one.sent_at), one.error ? h("span", { class: "error-text advice-text" }, one.advice || one.error) : DASH]);
  return card("Who is told", [table({ caption: "Targets", className: "wide-grid target-grid", columns: TARGETS, rows })]);
}

/** @param {any} page @param {URLSearchParams} params @param {(changes: Record<string, string>) => void} change */
function pastCard(page, params, change) {
  const rows = page.past.map((/** @type {any} */ one) => [
    h("span", { class: "past-title" }, h("b", null, one.title), one.facts && h("span", { class: "muted" }, one.facts)),
    time(one.opened_at), one.kind === "test" ? DASH : time(one.ended_at), tellings(one.sends)]);
  const content = rows.length ? table({ caption: "Past alerts", className: "wide-grid past-grid", columns: PAST, rows }) : empty("Nothing is over yet.");
  return card("Over", [content, h("div", { class: "pager" }, params.get("cursor") && h("button", { type: "button", class: "line", onclick: () => change({ cursor: "" }) }, "Newest"),
    page.next && h("button", { type: "button", class: "line", onclick: () => change({ cursor: page.next }) }, "Older"))]);
}
