/** Who waits for a human, who is with one, and since when. */
import { ask, keepFresh } from "./net.js";
import { DASH, channelBadge, empty, h, keepFocus, liveMark, personOf, problem, repaintTimes, show, skeleton, t, table, time, tn } from "./parts.js";
import { needsAnEye } from "./watch.js";

const COLUMNS = [{ label: t("Person") }, { label: t("State") }, { label: t("Waits since") }, { label: t("Channel") }, { label: t("Agent") }, { label: t("Reason") }, { label: t("Asked by") }, { label: h("span", { class: "unseen" }, t("Action")), text: "" }];
const ASKERS = { person: t("the person"), assistant: t("the assistant"), operator: t("an operator") };

/** @param {any} page */
export function waitingPage({ root, me, say, go, entitle, look, signal, told }) {
  entitle(t("Waiting"));
  const note = h("div", { class: "list" });
  const body = h("div", { class: "list" }, skeleton(4));
  const mark = liveMark();
  let shown = "";

  /** @param {boolean} [refresh] */
  async function load(refresh = false) {
    const page = await ask("/handovers", { refresh, signal });
    told(page.handovers);
    const next = JSON.stringify(page);
    if (next === shown) return repaintTimes(body);
    shown = next;
    keepFocus(body, () => show(body, list(page, me, take)));
    if (!refresh) say(tn("{count} waiting", "{count} waiting", page.handovers.filter((/** @type {any} */ one) => one.state === "waiting").length));
  }

  /** Takes it and goes there; who was slower is told who was faster. @param {string} session @param {HTMLButtonElement} button */
  async function take(session, button) {
    button.disabled = true;
    show(note);
    try {
      await ask(`/sessions/${session}/handover`, { method: "POST", body: { action: "take" }, signal });
      look();
      go(`/dashboard/sessions/${session}#reply`);
    } catch (error) {
      if (signal.aborted) return;
      button.disabled = false;
      show(note, problem(error));
      load(true).catch(() => {});
    }
  }

  /** @param {any} error */
  const failed = (error) => { if (!signal.aborted) { shown = ""; show(body, problem(error, () => load().catch(failed))); } };
  show(root, h("div", { class: "page-head" }, h("div", null, h("h1", null, t("Waiting")), h("p", { class: "facts" }, t("People who asked for a human, and those who have one"), mark.node))), note, body);
  load().catch(failed);
  keepFresh(() => load(true), mark.tell, signal, undefined, ["handovers"]);
}

/** @param {any} page @param {any} me @param {(session: string, button: any) => void} take */
function list(page, me, take) {
  if (!page.handovers.length) {
    return page.enabled ? empty(t("Nobody waits for a human."), h("p", { class: "muted" }, t("Whoever asks for one, by {command} or through the assistant, appears here at once.", { command: "/human" })))
      : empty(t("Hand-over is switched off."), h("p", { class: "muted" }, t("{setting} lets people and the assistant ask for a human.", { setting: "EVERTALK_HANDOVER=on" })));
  }
  const order = (/** @type {any} */ one) => needsAnEye(one, me) ? 0 : 1;
  const rows = [...page.handovers].sort((one, other) => order(one) - order(other));
  return h("div", { class: "card flush-card" }, table({ caption: t("Hand-overs"), className: "wide-grid waiting-grid", columns: COLUMNS, rows: rows.map((one) => cells(one, me, take)) }));
}

/** @param {any} one @param {any} me @param {(session: string, button: any) => void} take */
function cells(one, me, take) {
  const waits = one.state === "waiting";
  const who = personOf({ ...one, person: one.who });
  const mine = one.operator === me.name;
  const words = one.waits_since ? (mine ? t("with you, awaits a word") : t("with {operator}, awaits a word", { operator: one.operator || t("an operator") })) : mine ? t("with you") : t("with {operator}", { operator: one.operator || t("an operator") });
  return [
    h("a", { class: "row-link", href: `/dashboard/sessions/${one.session}`, dir: "auto" }, who),
    waits ? h("span", { class: "state waiting" }, t("waits for a human")) : h("span", { class: `state ${one.waits_since ? "waiting" : "answering"}` }, words),
    waits ? time(one.asked_at) : one.waits_since ? time(one.waits_since) : DASH,
    channelBadge(one.channel), one.agent,
    one.reason ? h("span", { class: "reason", dir: "auto", title: one.reason }, one.reason) : DASH,
    ASKERS[/** @type {keyof typeof ASKERS} */ (one.asked_by)] ?? one.asked_by,
    waits && me.can_take ? h("button", { type: "button", class: "line over", "aria-label": t("Take {person}", { person: who }), onclick: (/** @type {any} */ event) => take(one.session, event.currentTarget) }, t("Take")) : null,
  ];
}
