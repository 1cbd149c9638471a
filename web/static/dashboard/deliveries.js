/** Parts of answers that may be missing in their chat or will never arrive, and actions on them. */
import { outcome, confirm } from "./acting.js";
import { beyond, pagesOf, placeOf } from "./lists.js";
import { ask, keepFresh } from "./net.js";
import { DASH, card, empty, h, kpi, liveMark, number, personOf, problem, repaintTimes, show, skeleton, t, table, time, tn, ts } from "./parts.js";

const WORDS = { uncertain: t("Uncertain"), dead: t("Not delivered"), waiting: t("Waiting") };
const HINTS = { uncertain: t("may or may not be in the chat"), dead: t("refused, not retried"), waiting: t("until the chat accepts messages again") };

/** Draws the parts of answers whose delivery is doubtful; operators can mark one as arrived or send it again. @param {Page} page */
export function deliveriesPage({ root, go, entitle, signal, say, me }) {
  entitle(t("Delivery problems"));
  const params = new URLSearchParams(location.search);
  const acts = me.role !== "viewer";
  const strip = h("dl", { class: "kpis four" });
  const told = h("div", { class: "told", role: "status", hidden: true });
  const body = h("div", { class: "stack" }, skeleton(6));
  const mark = liveMark();
  const pages = pagesOf("/deliveries", signal);
  let shown = "";

  /** @param {Record<string, string>} changes */
  function change(changes) {
    for (const [name, value] of Object.entries({ cursor: "", at: "", ...changes })) value ? params.set(name, value) : params.delete(name);
    const words = params.toString();
    go(`/dashboard/deliveries${words ? `?${words}` : ""}`, { quiet: true });
    load().catch(failed);
  }

  /** @param {"arrived" | "send-again"} verb @param {Api["DoubtedPart"]} part */
  async function act(verb, part) {
    const which = { turn: part.turn, part: part.part + 1 };
    const question = verb === "arrived"
      ? { title: t("Mark as delivered?"), words: [t("Confirms that turn {turn}, part {part} is in the chat. Nothing is sent.", which)], yes: t("It was delivered") }
      : { title: t("Send again?"), words: [t("The bot sends turn {turn}, part {part} once more.", which), part.state === "uncertain" ? t("If it was delivered, the person reads it twice.") : t("It was refused before, and may be refused again."), t("It appears below newer messages.")], yes: t("Send again") };
    if (!await confirm(question)) return;
    try {
      const done = await ask(`/deliveries/${verb}`, { method: "POST", body: { parts: [{ session: part.session, turn: part.turn, part: part.part }] } });
      show(told, outcome(done, {
        changed: (count) => verb === "arrived" ? tn("{count} part marked as delivered.", "{count} parts marked as delivered.", count) : tn("{count} part is being sent.", "{count} parts are being sent.", count),
        none: t("No part was changed."), left: (count) => tn("{count} part is left: repeat this for it.", "{count} parts are left: repeat this for the next ones.", count),
      }));
      told.hidden = false;
      shown = "";
      await load(true);
    } catch (error) { if (!signal.aborted) { show(told, problem(error)); told.hidden = false; } }
  }

  /** @param {boolean} [refresh] */
  async function load(refresh = false) {
    const page = await pages(params, refresh);
    const next = JSON.stringify([page, params.toString()]);
    if (next === shown) return repaintTimes(root);
    shown = next;
    show(strip, Object.entries(WORDS).map(([state, words]) => kpi(words, h("span", { class: page.states[/** @type {keyof Api["DeliveryStates"]} */ (state)] ? "crit-text" : null }, number(page.states[/** @type {keyof Api["DeliveryStates"]} */ (state)])), HINTS[/** @type {keyof typeof HINTS} */ (state)])),
      kpi(t("Sending"), number(page.on_their_way), page.oldest ? h("span", null, t("oldest {time}", { time: time(page.oldest) })) : t("nothing waits")));
    show(body, partsCard(page, params, change, acts ? act : null));
    if (!refresh) say(tn("{count} delivery", "{count} deliveries", page.deliveries.length));
  }

  /** @param {unknown} error */
  const failed = (error) => { if (!signal.aborted) { shown = ""; show(body, problem(error, () => load().catch(failed))); } };
  show(root, h("div", { class: "page-head" }, h("div", null, h("h1", null, t("Delivery problems")), h("p", { class: "facts" }, mark.node, h("span", null, t("Answers that Telegram has not confirmed. Web chats read stored answers, so none is lost there."))))), strip, h("div", { class: "stack" }, told, body));
  load().catch(failed);
  keepFresh(() => load(true), mark.tell, signal, undefined, ["deliveries"]);
}

/** @param {Api["Deliveries"]} page @param {URLSearchParams} params @param {(changes: Record<string, string>) => void} change @param {((verb: "arrived" | "send-again", part: any) => void) | null} act */
function partsCard(page, params, change, act) {
  const chosen = params.get("state") ?? "";
  const session = params.get("session");
  const columns = [{ label: t("Answer") }, { label: t("State") }, { label: t("Session") }, { label: t("Bot") }, { label: t("When") }, { label: t("Attempt"), num: true }, { label: t("Reason") }, ...(act ? [{ label: t("Actions"), num: true }] : [])];
  const filter = h("div", { class: "work-filters" }, h("div", { class: "segments", role: "group", "aria-label": t("State") }, [["", t("All")], ...Object.entries(WORDS)].map(([state, words]) =>
    h("button", { type: "button", "aria-pressed": String(chosen === state), onclick: () => change({ state }) }, words))),
    session && h("span", { class: "chip" }, t("Session {id}", { id: session.slice(0, 8) }), h("button", { type: "button", class: "line", "aria-label": t("All sessions"), onclick: () => change({ session: "" }) }, "×")));
  const content = page.deliveries.length ? table({ caption: t("Delivery problems"), className: "wide-grid work-grid", columns, rows: page.deliveries.map((part) => cells(part, act)) })
    : empty(chosen || session ? t("No delivery fits these filters.") : t("Everything was delivered."));
  return card(t("Unconfirmed answers"), [filter, content, h("div", { class: "pager" }, placeOf(params, page.deliveries.length, page.total ?? null), params.get("cursor") && h("button", { type: "button", class: "line", onclick: () => change({}) }, t("Newest")),
    page.next && h("button", { type: "button", class: "line", onclick: () => change({ cursor: page.next ?? "", at: beyond(params, page.deliveries.length) }) }, t("Older")))]);
}

/** @param {Api["DoubtedPart"]} part @param {((verb: "arrived" | "send-again", part: any) => void) | null} act */
function cells(part, act) {
  const name = t("turn {turn}, part {part}", { turn: part.turn, part: part.part + 1 });
  const doing = act && part.state !== "waiting" && h("span", { class: "act" },
    h("button", { type: "button", class: "line", "aria-label": t("Mark as delivered: {name}", { name }), onclick: () => act("arrived", part) }, t("Mark as delivered")),
    part.can_send && h("button", { type: "button", class: "line", "aria-label": t("Send again: {name}", { name }), onclick: () => act("send-again", part) }, t("Send again")));
  return [h("span", null, t("turn {turn}", { turn: part.turn }), h("span", { class: "muted" }, " ", t("part {part} of {parts}", { part: part.part + 1, parts: part.parts }))),
    h("span", { class: "state problem" }, WORDS[/** @type {keyof typeof WORDS} */ (part.state)] ?? part.state),
    h("a", { class: "row-link", href: `/dashboard/sessions/${part.session}`, dir: "auto" }, personOf(part)),
    part.bot ? `@${part.bot}` : DASH, time(part.at), number(part.attempt),
    h("span", { class: "error-text" }, part.error ? ts(part.error) : DASH, part.told && h("span", { class: "block muted" }, t("The person was notified, and has a button that brings it")), part.unreachable_since && h("span", { class: "block muted" }, t("The chat cannot be reached since {time}", { time: time(part.unreachable_since) }))),
    ...(act ? [doing || DASH] : [])];
}
