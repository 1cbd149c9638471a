/** Who waits for a human, who is with one, and since when. */
import { ask, keepFresh } from "./net.js";
import { DASH, channelBadge, empty, h, keepFocus, liveMark, personOf, problem, repaintTimes, show, skeleton, table, time } from "./parts.js";
import { needsAnEye } from "./watch.js";

const COLUMNS = [{ label: "Person" }, { label: "State" }, { label: "Waits since" }, { label: "Channel" }, { label: "Agent" }, { label: "Reason" }, { label: "Asked by" }, { label: h("span", { class: "unseen" }, "Action"), text: "" }];
export const ASKERS = { person: "the person", assistant: "the assistant", operator: "an operator" };

/** @param {any} page */
export function waitingPage({ root, me, say, go, entitle, look, signal, told }) {
  entitle("Waiting");
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
    if (!refresh) say(`${page.handovers.filter((/** @type {any} */ one) => one.state === "waiting").length} waiting`);
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
  show(root, h("div", { class: "page-head" }, h("div", null, h("h1", null, "Waiting"), h("p", { class: "facts" }, "People who asked for a human, and those who have one", mark.node))), note, body);
  load().catch(failed);
  keepFresh(() => load(true), mark.tell, signal, undefined, ["handovers"]);
}

/** @param {any} page @param {any} me @param {(session: string, button: any) => void} take */
function list(page, me, take) {
  if (!page.handovers.length) {
    return page.enabled ? empty("Nobody waits for a human.", h("p", { class: "muted" }, "Whoever asks for one, by /human or through the assistant, appears here at once."))
      : empty("Hand-over is switched off.", h("p", { class: "muted" }, "EVERTALK_HANDOVER=on lets people and the assistant ask for a human."));
  }
  const order = (/** @type {any} */ one) => needsAnEye(one, me) ? 0 : 1;
  const rows = [...page.handovers].sort((one, other) => order(one) - order(other));
  return h("div", { class: "card flush-card" }, table({ caption: "Hand-overs", className: "wide-grid waiting-grid", columns: COLUMNS, rows: rows.map((one) => cells(one, me, take)) }));
}

/** @param {any} one @param {any} me @param {(session: string, button: any) => void} take */
function cells(one, me, take) {
  const waits = one.state === "waiting";
  const who = personOf({ ...one, person: one.who });
  const name = one.operator === me.name ? "you" : one.operator || "an operator";
  return [
    h("a", { class: "row-link", href: `/dashboard/sessions/${one.session}`, dir: "auto" }, who),
    waits ? h("span", { class: "state waiting" }, "waits for a human") : h("span", { class: `state ${one.waits_since ? "waiting" : "answering"}` }, `with ${name}${one.waits_since ? ", awaits a word" : ""}`),
    waits ? time(one.asked_at) : one.waits_since ? time(one.waits_since) : DASH,
    channelBadge(one.channel), one.agent,
    one.reason ? h("span", { class: "reason", dir: "auto", title: one.reason }, one.reason) : DASH,
    ASKERS[/** @type {keyof typeof ASKERS} */ (one.asked_by)] ?? one.asked_by,
    waits && me.can_take ? h("button", { type: "button", class: "line over", "aria-label": `Take ${who}`, onclick: (/** @type {any} */ event) => take(one.session, event.currentTarget) }, "Take") : null,
  ];
}
