/** The inbox: conversations that wait for a human or are with one, next to the open conversation. Everything has a key. */
import { bulkBar } from "./bulk.js";
import { contactCard } from "./contact.js";
import { labelsOf, operatorControls } from "./operator_controls.js";
import { drawIcon } from "./icons.js";
import { ask, keepFresh } from "./net.js";
import { addressOf } from "./named.js";
import { channelBadge, empty, h, keepFocus, liveMark, personOf, problem, repaintTimes, set, show, skeleton, t, time, tn, formatWhen } from "./parts.js";
import { stars, transcript } from "./transcript.js";
import { needsAttention } from "./watch.js";

const TALKING_MS = 2000;
const OPEN_AFTER_MS = 120;
/** Filters of the views, for the operator `me`. @type {Record<string, [string, (one: any, me: any) => boolean]>} */
const VIEWS = {
  mine: [t("Mine"), (one, me) => !one.snoozed_until && one.state === "human" && one.operator === me.name],
  unassigned: [t("Unassigned"), (one) => !one.snoozed_until && one.state === "waiting"],
  all: [t("All"), (one) => !one.snoozed_until],
  snoozed: [t("Snoozed"), (one) => Boolean(one.snoozed_until)],
  resolved: [t("Resolved"), () => true],
};
/** Returns what kind of conversation this is, in one line. @param {Api["ListedHandover"]} one */
const kindOf = (one) => personOf({ ...one, person: one.who });

/** Draws the list of hand-overs next to the open conversation; view, filters and conversation are in the address. @param {Page} page */
export function inboxPage({ root, me, say, go, entitle, look, signal, told }) {
  entitle(t("Inbox"));
  const params = new URLSearchParams(location.search);
  const list = h("div", { class: "inbox-list" }, skeleton(6));
  const views = h("div", { class: "segments", role: "group", "aria-label": t("State") });
  const search = h("input", { type: "search", "aria-label": t("Search"), placeholder: `${t("Search")}   /`, value: params.get("q") ?? "", autocomplete: "off", spellcheck: "false", oninput: () => change({ q: search.value.trim() }) });
  const byLabel = h("select", { "aria-label": t("Labels"), onchange: () => change({ label: byLabel.value }) });
  const pane = h("div", { class: "inbox-pane" });
  const bulk = bulkBar({ me, say, signal, chosen: () => rows().filter((one) => chosen.has(one.session)), nameOf: kindOf, done, clear: () => { chosen.clear(); draw(); } });
  /** Ids of the selected sessions. @type {Set<string>} */
  const chosen = new Set();
  const mark = liveMark();
  /** @type {{open: any[], resolved: any[] | null, enabled: boolean}} */
  const all = { open: [], resolved: null, enabled: true };
  let shown = "";
  let at = "";
  let opening = 0;
  /** @type {AbortController | null} */
  let talking = null;

  const viewOf = () => VIEWS[params.get("view") ?? ""] ? /** @type {string} */ (params.get("view")) : "all";

  /** @param {Record<string, string>} changes @param {boolean} [push] */
  function change(changes, push = false) {
    for (const [name, value] of Object.entries(changes)) value ? params.set(name, value) : params.delete(name);
    const words = params.toString();
    go(`/dashboard/inbox${words ? `?${words}` : ""}`, { quiet: true, replace: !push });
    if (viewOf() === "resolved" && !all.resolved) load().catch(failed);
    else draw();
  }

  /** Returns the rows that match view, label and search text; those that need this operator come first. */
  function rows() {
    const [view, label, words] = [viewOf(), params.get("label"), (params.get("q") ?? "").toLowerCase()];
    const rank = (/** @type {Api["ListedHandover"]} */ one) => needsAttention(one, me) ? 0 : 1;
    const found = (view === "resolved" ? all.resolved ?? [] : all.open).filter((one) => VIEWS[view][1](one, me) && (!label || one.labels.includes(label))
      && (!words || [kindOf(one), one.reason, one.excerpt, one.operator, ...one.labels].some((text) => text.toLowerCase().includes(words))));
    return view === "resolved" ? found : found.sort((one, other) => rank(one) - rank(other));
  }

  function draw() {
    const found = rows();
    const labels = [...new Set([...all.open, ...all.resolved ?? []].flatMap((one) => one.labels))].sort();
    for (const one of chosen) if (!found.some(({ session }) => session === one)) chosen.delete(one);
    bulk.update(chosen.size);
    const now = JSON.stringify([found, [...chosen], labels, viewOf(), at, all.enabled, Object.values(VIEWS).map(([, has]) => all.open.filter((one) => has(one, me)).length)]);
    if (now === shown) return repaintTimes(list);
    shown = now;
    show(views, Object.entries(VIEWS).map(([name, [words, has]]) => h("button", { type: "button", "aria-pressed": String(name === viewOf()), onclick: () => change({ view: name === "all" ? "" : name, at: "" }) }, words,
      name !== "resolved" && h("span", { class: "muted" }, ` ${all.open.filter((one) => has(one, me)).length}`))));
    show(byLabel, h("option", { value: "" }, t("All")), labels.map((label) => h("option", { value: label, selected: params.get("label") === label }, label)));
    byLabel.hidden = !labels.length && !params.get("label");
    keepFocus(list, () => show(list, found.length ? h("ul", { "aria-label": VIEWS[viewOf()][0] }, found.map(row)) : nothing()));
  }

  function nothing() {
    if (!all.enabled) return empty(t("Hand-over is switched off."), h("p", null, h("a", { class: "line button", href: addressOf("EVERTALK_HANDOVER") }, t("Switch it on"))));
    if (params.get("q") || params.get("label")) return empty(t("Nothing matches."), h("button", { type: "button", class: "line", onclick: () => { search.value = ""; change({ q: "", label: "" }); } }, t("Clear the filters")));
    return viewOf() === "all" ? empty(t("Nobody is waiting for a human."), h("p", { class: "muted" }, t("People who ask for one, with {command} or through the assistant, appear here immediately.", { command: "/human" }))) : empty(t("Nothing matches."));
  }

  /** @param {Api["ListedHandover"]} one */
  function row(one) {
    const eye = needsAttention(one, me);
    const who = one.state === "waiting" ? t("is waiting for a human") : one.ended_at ? t("with {operator}", { operator: one.operator || t("an operator") }) : one.operator === me.name ? t("with you") : t("with {operator}", { operator: one.operator || t("an operator") });
    return h("li", { class: eye ? "eye" : null },
      me.role !== "viewer" && !one.ended_at && h("input", { type: "checkbox", class: "pick", checked: chosen.has(one.session), "aria-label": t("Select {name}", { name: kindOf(one) }), onchange: (/** @type {any} */ event) => { event.target.checked ? chosen.add(one.session) : chosen.delete(one.session); redraw(one.session, document.activeElement === event.target); } }),
      h("a", { class: "row-link", href: addressOf(one.session), "aria-current": one.session === at ? "true" : null, data: { session: one.session }, dir: "auto" }, kindOf(one)),
      h("span", { class: "at" }, time(one.ended_at ?? one.waits_since ?? one.taken_at ?? one.asked_at)),
      h("span", { class: "excerpt", dir: "auto" }, one.excerpt || one.reason),
      h("span", { class: "facts" }, h("span", { class: `state ${eye ? "waiting" : "answering"}` }, who), channelBadge(one.channel), one.snoozed_until && h("span", null, t("snoozed until {time}", { time: formatWhen(one.snoozed_until) })), one.rating && stars(one.rating), labelsOf(one.labels)));
  }

  /** Draws the list again; the same box keeps the focus. @param {string} session @param {boolean} focused */
  function redraw(session, focused) {
    draw();
    if (focused) /** @type {HTMLElement | null | undefined} */ (list.querySelector(`a[data-session="${session}"]`)?.closest("li")?.querySelector(".pick"))?.focus({ preventScroll: true });
  }

  /** @param {string} session */
  function addressOf(session) {
    const query = new URLSearchParams(params);
    query.set("at", session);
    return `/dashboard/inbox?${query}`;
  }

  /** @param {string} session */
  function open(session) {
    clearTimeout(opening);
    if (session === at) return;
    at = session;
    change({ at: session }, !narrow() || Boolean(session));
    root.classList.toggle("inbox-open", Boolean(session));
    talking?.abort();
    talking = null;
    if (!session) return show(pane, empty(t("Choose a conversation.")));
    talking = new AbortController();
    signal.addEventListener("abort", () => talking?.abort(), { once: true });
    conversation(session, talking.signal);
  }
  const narrow = () => matchMedia("(max-width: 860px)").matches;

  /** Opens the next conversation after an action has moved one out of the view. @param {string} action */
  function moved(action) {
    if (!["resolve", "snooze", "return"].includes(action)) return;
    const before = [...list.querySelectorAll("a.row-link")].map((link) => /** @type {any} */ (link).dataset.session);
    const left = rows().map((one) => one.session);
    const next = before.slice(before.indexOf(at) + 1).find((one) => left.includes(one)) ?? left.at(-1) ?? "";
    if (left.includes(at) && action !== "resolve") return;
    open(narrow() ? "" : next);
    /** @type {HTMLElement | null} */ (list.querySelector("[aria-current]") ?? search)?.focus({ preventScroll: true });
  }

  /** Loads the list again after an action on several conversations; if the open one has left the view, the first is opened. */
  async function done() {
    look();
    await load(true).catch(failed);
    if (at && !rows().some((one) => one.session === at)) open(narrow() ? "" : rows()[0]?.session ?? "");
  }

  /** @param {string} id @param {AbortSignal} signal */
  function conversation(id, signal) {
    const head = h("div", { class: "inbox-head" }, skeleton(2));
    const talk = transcript({ path: `/sessions/${id}/messages`, label: t("Messages"), signal, drop: (note) => controls.drop(note), isPlain: true, empty: t("Nothing was said yet.") });
    const controls = operatorControls({ id, me, say, signal, reload: async () => { look(); await Promise.all([fill(true), load(true)]).catch(() => {}); }, taken: () => controls.composer.input.focus(), moved });
    const contact = contactCard({ id, me, signal });
    let drawn = "";
    let messages = "";
    /** @param {boolean} refresh */
    async function fill(refresh) {
      const session = await ask(`/sessions/${id}`, { refresh, signal });
      controls.update(session);
      const facts = JSON.stringify([session.person, session.contact, session.agent]);
      if (facts !== drawn) {
        drawn = facts;
        show(head, h("button", { type: "button", class: "line back", onclick: () => { open(""); } }, t("Back to the list")), h("h2", { dir: "auto" }, personOf(session)),
          h("a", { class: "icon-link", href: `/dashboard/sessions/${id}`, title: t("Session"), "aria-label": t("Session") }, drawIcon("open")));
        void contact.load(session);
      }
      const version = JSON.stringify([session.newest_seq, session.handover?.state, session.handover?.taken_at, session.private_notes, session.turns]);
      if (version !== messages) await talk.load(refresh);
      messages = version;
    }
    /** @param {unknown} error */
    const failed = (error) => { if (!signal.aborted) show(head, problem(error, () => fill(false).catch(failed))); };
    show(pane, h("div", { class: "inbox-talk card" }, h("div", { class: "inbox-top" }, head, controls.bar), talk.node, controls.types, controls.notes?.node, controls.composer.node), contact.node);
    fill(false).catch(failed);
    keepFresh(() => fill(true), () => {}, signal, () => TALKING_MS);
  }

  /** @param {boolean} [refresh] */
  async function load(refresh = false) {
    const [page, resolved] = await Promise.all([ask("/handovers", { refresh, signal }), viewOf() === "resolved" ? ask("/handovers?state=resolved", { refresh, signal }) : null]);
    told(page.handovers);
    [all.open, all.resolved, all.enabled] = [page.handovers, resolved ? resolved.handovers : all.resolved, page.enabled];
    draw();
    if (!refresh) say(tn("{count} waiting", "{count} waiting", page.handovers.filter((one) => one.state === "waiting").length));
  }

  /** @param {unknown} error */
  const failed = (error) => { if (!signal.aborted) { shown = ""; show(list, problem(error, () => load().catch(failed))); } };
  list.addEventListener("click", (/** @type {any} */ event) => {
    const link = /** @type {any} */ (event.target).closest?.("a.row-link");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    open(link.dataset.session);
  });
  // on a wide screen, moving through the list by keys opens each conversation
  list.addEventListener("focusin", (/** @type {any} */ event) => {
    const { session } = /** @type {any} */ (event.target).dataset;
    clearTimeout(opening);
    if (session && session !== at && !narrow()) opening = setTimeout(() => open(session), OPEN_AFTER_MS);
  });
  show(root, h("div", { class: "page-head" }, h("h1", null, t("Inbox")), h("p", { class: "facts" }, mark.node)),
    h("div", { class: "inbox" }, h("div", { class: "inbox-side" }, views, h("form", { class: "filters", role: "search", onsubmit: (/** @type {Event} */ event) => event.preventDefault() }, search, byLabel), bulk.node, list), pane));
  const first = params.get("at") ?? "";
  show(pane, empty(t("Choose a conversation.")));
  root.classList.remove("inbox-open");
  signal.addEventListener("abort", () => { clearTimeout(opening); root.classList.remove("inbox-open"); set(root, { "data-page": null }); });
  load().then(() => { if (/^[0-9a-f-]{36}$/.test(first)) open(first); }).catch(failed);
  keepFresh(() => load(true), mark.tell, signal, undefined, ["handovers"]);
  set(root, { "data-page": "inbox" });
}
