/** Parts of answers that may not be in their chat, or never will be, and what an operator can do about it. */
import { outcome, sure } from "./acting.js";
import { ask, keepFresh } from "./net.js";
import { DASH, card, empty, h, kpi, liveMark, number, personOf, problem, repaintTimes, show, skeleton, table, time } from "./parts.js";

const WORDS = { uncertain: "Uncertain", dead: "Never arrived" };
const HINTS = { uncertain: "may be in the chat, or not", dead: "refused, and not tried again" };

/** @param {any} page */
export function deliveriesPage({ root, go, entitle, signal, say, me }) {
  entitle("Deliveries");
  const params = new URLSearchParams(location.search);
  const acts = me.role !== "viewer";
  const strip = h("dl", { class: "kpis three" });
  const told = h("div", { class: "told", role: "status", hidden: true });
  const body = h("div", { class: "stack" }, skeleton(6));
  const mark = liveMark();
  let shown = "";

  /** @param {Record<string, string>} changes */
  function change(changes) {
    for (const [name, value] of Object.entries({ cursor: "", ...changes })) value ? params.set(name, value) : params.delete(name);
    const words = params.toString();
    go(`/dashboard/deliveries${words ? `?${words}` : ""}`, { quiet: true });
    load().catch(failed);
  }

  /** @param {"arrived" | "send-again"} verb @param {any} part */
  async function act(verb, part) {
    const which = `turn ${part.turn}, part ${part.part + 1}`;
    const question = verb === "arrived"
      ? { title: "Mark as arrived?", words: [`You have seen ${which} in the chat. Nothing is sent.`], yes: "It arrived" }
      : { title: "Send again?", words: [`The bot sends ${which} once more.`, part.state === "uncertain" ? "If it did arrive, the person reads it twice." : "It was refused before, and may be refused again.", "It comes below what was said since."], yes: "Send again" };
    if (!await sure(question)) return;
    try {
      const done = await ask(`/deliveries/${verb}`, { method: "POST", body: { parts: [{ session: part.session, turn: part.turn, part: part.part }] } });
      show(told, outcome(done, verb === "arrived" ? "marked as arrived" : "on its way", "part", "parts"));
      told.hidden = false;
      shown = "";
      await load(true);
    } catch (error) { if (!signal.aborted) { show(told, problem(error)); told.hidden = false; } }
  }

  /** @param {boolean} [refresh] */
  async function load(refresh = false) {
    const page = await ask(`/deliveries?${params}`, { refresh, signal });
    const next = JSON.stringify([page, params.toString()]);
    if (next === shown) return repaintTimes(root);
    shown = next;
    show(strip, Object.entries(WORDS).map(([state, words]) => kpi(words, h("span", { class: page.states[state] ? "crit-text" : null }, number(page.states[state])), HINTS[/** @type {keyof typeof HINTS} */ (state)])),
      kpi("On their way", number(page.on_their_way), page.oldest ? h("span", null, "oldest ", time(page.oldest)) : "nothing waits"));
    show(body, partsCard(page, params, change, acts ? act : null));
    if (!refresh) say(`${page.deliveries.length} deliveries`);
  }

  /** @param {any} error */
  const failed = (error) => { if (!signal.aborted) { shown = ""; show(body, problem(error, () => load().catch(failed))); } };
  show(root, h("div", { class: "page-head" }, h("div", null, h("h1", null, "Deliveries"), h("p", { class: "facts" }, mark.node, h("span", null, "Answers on their way to Telegram. On the web nothing can be lost: screens read what is stored.")))), strip, h("div", { class: "stack" }, told, body));
  load().catch(failed);
  keepFresh(() => load(true), mark.tell, signal, undefined, ["deliveries"]);
}

/** @param {any} page @param {URLSearchParams} params @param {(changes: Record<string, string>) => void} change @param {((verb: "arrived" | "send-again", part: any) => void) | null} act */
function partsCard(page, params, change, act) {
  const chosen = params.get("state") ?? "";
  const session = params.get("session");
  const columns = [{ label: "Answer" }, { label: "State" }, { label: "Session" }, { label: "Bot" }, { label: "When" }, { label: "Attempt", num: true }, { label: "Reason" }, ...(act ? [{ label: "Do", num: true }] : [])];
  const filter = h("div", { class: "work-filters" }, h("div", { class: "segments", role: "group", "aria-label": "State" }, [["", "All"], ...Object.entries(WORDS)].map(([state, words]) =>
    h("button", { type: "button", "aria-pressed": String(chosen === state), onclick: () => change({ state }) }, words))),
    session && h("span", { class: "chip" }, `Session ${session.slice(0, 8)}`, h("button", { type: "button", class: "line", "aria-label": "All sessions", onclick: () => change({ session: "" }) }, "×")));
  const content = page.deliveries.length ? table({ caption: "Deliveries", className: "wide-grid work-grid", columns, rows: page.deliveries.map((/** @type {any} */ part) => cells(part, act)) })
    : empty(chosen || session ? "No delivery fits these filters." : "Everything arrived.");
  return card("In doubt", [filter, content, h("div", { class: "pager" }, params.get("cursor") && h("button", { type: "button", class: "line", onclick: () => change({}) }, "Newest"),
    page.next && h("button", { type: "button", class: "line", onclick: () => change({ cursor: page.next }) }, "Older"))]);
}

/** @param {any} part @param {((verb: "arrived" | "send-again", part: any) => void) | null} act */
function cells(part, act) {
  const name = `turn ${part.turn}, part ${part.part + 1}`;
  const doing = act && h("span", { class: "act" },
    h("button", { type: "button", class: "line", "aria-label": `Arrived: ${name}`, onclick: () => act("arrived", part) }, "Arrived"),
    part.can_send && h("button", { type: "button", class: "line", "aria-label": `Send again: ${name}`, onclick: () => act("send-again", part) }, "Send again"));
  return [h("span", null, `turn ${part.turn}`, h("span", { class: "muted" }, ` part ${part.part + 1} of ${part.parts}`)),
    h("span", { class: "state problem" }, WORDS[/** @type {keyof typeof WORDS} */ (part.state)] ?? part.state),
    h("a", { class: "row-link", href: `/dashboard/sessions/${part.session}`, dir: "auto" }, personOf(part)),
    part.bot ? `@${part.bot}` : DASH, time(part.at), number(part.attempt),
    h("span", { class: "error-text" }, part.error ?? DASH, part.told && h("span", { class: "block muted" }, "The person was told, and has a button that brings it"), part.unreachable_since && h("span", { class: "block muted" }, "The chat cannot be reached since ", time(part.unreachable_since))),
    ...(act ? [doing] : [])];
}
