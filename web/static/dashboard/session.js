/** The page of one session, in tabs: transcript, context over its turns, summaries, requests with their costs, and memory. */
import { ask, keepFresh } from "./net.js";
import { DASH, NAMES, SOURCES, card, channelBadge, joinWithDots, empty, h, kpi, level, liveMark, meter, notFoundPage, money, number, pct, personOf, problem, repaintTimes, set, show, skeleton, splitTokens, stateBadge, t, tabPanels, table, time, tn, tokens, ts } from "./parts.js";
import { contextChart } from "./chart.js";
import { compactionList } from "./compactions.js";
import { operatorControls } from "./operator_controls.js";
import { exportMenu } from "./exporting.js";
import { memoryCard } from "./remembered.js";
import { replay } from "./replay.js";
import { transcript } from "./transcript.js";
import { presetView, upkeepButtons, windowView } from "./upkeep.js";

const TALKING_MS = 2000;
const SPANS = [50, 500];
/** Names of agents that have a page. */
const AGENT = /^[a-z0-9][a-z0-9_-]{0,39}$/;
/** Tabs in order, with their names in the address; the first one is not named there. */
const TABS = [["conversation", t("Conversation")], ["context", t("Context")], ["summaries", t("Summaries")], ["requests", t("Requests")], ["memory", t("Memory")]];
const PURPOSES = { chat: t("Answers"), flush: t("Saving memory"), compact: t("Summarising"), repair: t("Repair"), delegate: t("Delegated"), transcribe: t("Voice messages"), picture: t("Pictures"), speech: t("Spoken answers") };

/** Returns the tab of an address: a named one, or the tab of its target. @param {boolean} inspects */
function tabOfAddress(inspects) {
  const query = new URLSearchParams(location.search);
  const led = [["#c-", "summaries"], ["#add", "memory"], ["#reply", "conversation"], ["#turn-", "conversation"]].find(([start]) => location.hash.startsWith(start))?.[1];
  const named = led ?? query.get("tab") ?? (query.get("turn") && inspects ? "requests" : "");
  return TABS.some(([name]) => name === named) ? named : TABS[0][0];
}

/** Returns the turn in the address `#turn-N`; undefined or "" without one. */
const turnOfAddress = () => /^#turn-(\d{1,15})$/.exec(location.hash)?.[1] ?? "";

/** Draws the page of the session `id` in tabs, and refreshes the open tab until `signal` aborts. @param {Page} page */
export function sessionPage({ root, id, me, say, go, entitle, look, signal }) {
  entitle(t("Session"));
  const path = /** @type {const} */ (`/sessions/${id}`);
  const mark = liveMark();
  const facts = h("div", null, skeleton(2));
  /** @type {any} */
  let session = null;
  let tab = tabOfAddress(me.can_inspect);
  const head = h("div", { class: "page-head session-head" }, facts,
    h("div", { class: "actions head-actions" }, h("a", { class: "line", href: `/dashboard/search?session=${id}` }, t("Search messages")), exportMenu(id, signal), upkeepButtons({ path, me, say, signal, reload: () => load(true).catch(() => {}), running: () => session?.running ?? null, chosen: () => session })));
  const strip = h("dl", { class: "kpis four strip" });
  const numbers = h("p", { class: "muted small" });
  const chart = h("div", { class: "chart-box" }, skeleton(5));
  const summaries = h("div", null, skeleton(3));
  const flushes = h("div");
  const notes = h("div");
  /** @type {ReturnType<typeof memoryCard> | null} */
  let memory = null;
  const now = h("div");
  const spend = h("div");
  const preset = h("div");
  const audit = auditPages({ path, signal, see: (turn) => seeTurn(turn) });
  const replayed = replay({ path, id, signal, moved: (turn, call) => { if (tab === "requests") remember({ turn: String(turn), call: call ? String(call) : null }); } });
  const replayCard = card(t("Replay: what the model saw"), [replayed.node]);
  const spans = h("div", { class: "segments", role: "group", "aria-label": t("Turns shown") });
  const talk = transcript({ path: `${path}/messages`, label: t("Messages"), signal, drop: (note) => controls.drop(note), empty: t("Nothing was said yet."), at: turnOfAddress() || (new URLSearchParams(location.search).get("at") ?? "") });
  const controls = operatorControls({ id, me, say, signal, reload: () => { look(); return load(true).catch(() => {}); }, taken: () => { choose("conversation"); toReply(); } });
  const wanted = h("input", { type: "number", min: 1, step: 1, required: true, inputmode: "numeric", placeholder: t("Turn"), "aria-label": t("Turn number") });
  const jump = h("form", { class: "jump", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); jumpTo(Number(wanted.value)); } }, wanted, h("button", { type: "submit", class: "line" }, t("Go to")));
  const talkCard = card(t("Transcript"), [talk.node, controls.types, controls.notes?.node, controls.composer.node], jump);
  const tools = { path, me, signal, say, open: new Set(openFromAddress()), reload: () => load(false).catch(() => {}) };
  const seen = new Map();
  const chartCard = card(t("Context per turn"), [chart, numbers], spans);
  /** Places of the chart, which exists once: next to the transcript, and above the breakdown. @type {Record<string, HTMLElement>} */
  const places = { conversation: h("div"), context: h("div") };

  /** Parts of each tab and their loaders; a tab loads when it is first shown. @type {Record<string, {make: () => any, fill: (refresh: boolean) => Promise<any>}>} */
  const parts = {
    conversation: { make: () => h("div", { class: "columns" }, talkCard, places.conversation), fill: (refresh) => Promise.all([talk.load(refresh), drawLine(session.turns, refresh).catch((error) => { if (!signal.aborted) show(chart, problem(error)); })]) },
    context: { make: () => [places.context, h("div", { class: "columns" }, card(t("Context breakdown"), [now]), card(t("Preset"), [preset]))],
      fill: (refresh) => Promise.all([drawLine(session.turns, refresh), drawNow(refresh)]) },
    summaries: { make: () => card(t("Summaries"), [summaries]), fill: async (refresh) => {
      const compactions = await ask(`${path}/compactions`, { refresh, signal });
      when("compactions", compactions, () => show(summaries, compactionList(compactions, tools)));
    } },
    requests: { make: () => [me.can_inspect && replayCard, card(t("Requests"), [audit.node]), card(t("Spend"), [spend])],
      fill: (refresh) => { when("spend", session.spend, () => show(spend, spendTable(session.spend))); return audit.load(refresh); } },
    memory: { make: () => h("div", { class: "columns" }, card(t("Memory saved"), [flushes]), notes), fill: async (refresh) => {
      if (!memory) show(notes, (memory = memoryCard({ session, me, say, signal })).node);
      when("flushes", session.flushes, () => show(flushes, flushList(session.flushes)));
      when("notes", session.notes, () => memory?.update(session.notes, refresh));
    } },
  };
  const pages = tabPanels(t("Session"), TABS.map(([name, words]) => ({ name: words, make: parts[name].make })), { first: TABS.findIndex(([name]) => name === tab), moved: (place) => {
    tab = TABS[place][0];
    if (location.hash) history.replaceState(null, "", location.pathname + location.search);
    remember({ tab: place ? tab : null, ...(tab === "requests" ? {} : { turn: null, call: null }) });
    fill(false).catch(failed);
  } });

  /** Draws a part only when its data changed. @param {string} name @param {any} data @param {() => void} draw */
  function when(name, data, draw) {
    const text = JSON.stringify(data);
    if (seen.get(name) === text) return;
    seen.set(name, text);
    draw();
  }

  /** @param {Record<string, string | null>} changes */
  function remember(changes) {
    const query = new URLSearchParams(location.search);
    for (const [name, value] of Object.entries(changes)) if (value) query.set(name, value); else query.delete(name);
    const words = query.toString();
    if (!signal.aborted) go(`/dashboard/sessions/${id}${words ? `?${words}` : ""}`, { quiet: true, replace: true });
  }

  /** @param {string} name */
  function choose(name) { if (name !== tab) pages.choose(TABS.findIndex(([one]) => one === name)); }

  /** @param {number} turn */
  function seeTurn(turn) {
    if (!me.can_inspect) return;
    choose("requests");
    replayCard.scrollIntoView({ block: "start" });
    replayed.see(turn, null);
  }

  /** Goes to a turn, and puts its number into the address so that it can be shared. @param {number} turn */
  function jumpTo(turn) {
    const hash = `#turn-${Math.max(1, Math.min(turn, session?.turns || 1))}`;
    if (location.hash === hash) talk.jump(turnOfAddress()); else location.hash = hash;
  }

  const spanNow = () => SPANS.find((span) => String(span) === new URLSearchParams(location.search).get("span")) ?? 0;

  /** @param {number} turns */
  function spanButtons(turns) {
    const chosen = spanNow();
    show(spans, turns > SPANS[0] && [...SPANS.filter((span) => span < turns), 0].map((span) => h("button", { type: "button", "aria-pressed": String(span === chosen), onclick: () => {
      remember({ span: span ? String(span) : null });
      drawLine(turns, false).catch((error) => show(chart, problem(error, () => drawLine(turns, false))));
    } }, span ? tn("{count} turn", "{count} turns", span) : t("All"))));
  }

  /** @param {number} turns @param {boolean} refresh */
  async function drawLine(turns, refresh) {
    const span = spanNow();
    when("numbers", session, () => show(numbers, cacheLine(session)));
    const line = await ask(`${path}/timeline?max_points=500${span && span < turns ? `&from_turn=${turns - span + 1}` : ""}`, { refresh, signal });
    spanButtons(turns);
    when("timeline", line, () => show(chart, contextChart(line, seeTurn)));
  }

  /** Draws the context window now; if the next request cannot be built, the last call is shown instead. @param {boolean} refresh */
  async function drawNow(refresh) {
    const built = me.can_inspect && await ask(`${path}/now`, { refresh, signal }).catch((error) => { if (signal.aborted) throw error; return null; });
    when("now", built ?? [session.now, session.context_tokens], () => { show(now, built ? windowView(built, SOURCES, NAMES) : contextTable(session)); show(preset, built ? presetView(built) : empty(t("Not known just now."))); });
  }

  /** Returns the version of the session's data; an unchanged tab is not loaded again. */
  const versionOf = () => JSON.stringify([session.turns, session.answered_turn, session.view_epoch, session.compactions, session.undone, session.running, session.state, session.flushes.length,
    tab === "conversation" && [session.newest_seq, session.handover?.state, session.handover?.taken_at, session.private_notes], tab === "memory" && session.notes]);

  /** @param {boolean} refresh */
  async function fill(refresh) {
    if (!session) return;
    const [of, version] = [tab, versionOf()];
    if (places[of] && chartCard.parentElement !== places[of]) places[of].append(chartCard);
    if (seen.get(`tab ${of}`) === version) return;
    await parts[of].fill(refresh);
    seen.set(`tab ${of}`, version);
  }

  /** @param {boolean} refresh */
  async function load(refresh) {
    session = await ask(path, { refresh, signal });
    entitle(personOf(session));
    controls.update(session);
    root.classList.toggle("replying", !controls.composer.node.hidden);
    when("head", [session.person, session.channel, session.turns, session.state, session.held, session.compaction, session.compact_at, session.running], () => show(facts, heading(session, mark.node)));
    when("strip", [session.context_tokens, session.context_reserved, session.context_limit, session.input_tokens, session.output_tokens, session.cost_micro, session.compactions, session.undone],
      () => show(strip, cards(session, () => choose("summaries"))));
    set(wanted, { max: Math.max(session.turns, 1), disabled: session.turns < 1 });
    replayed.update(session.turns);
    repaintTimes(root);
    await fill(refresh);
  }

  /** @param {any} error */
  function failed(error) {
    if (signal.aborted) return;
    if (error.status === 404) show(root, notFoundPage(t("There is no such session."), "/dashboard/sessions", t("All sessions")));
    else show(facts, problem(error, () => load(false).catch(failed)));
  }

  /** Scrolls so that the newest messages and the composer are visible. */
  function toReply() {
    talk.low();
    talkCard.scrollIntoView({ block: "nearest" });
    controls.composer.input.focus({ preventScroll: true });
  }

  /** Opens the target of an address within the page, in its tab. */
  async function arrive() {
    const [turn, [summary]] = [turnOfAddress(), openFromAddress()];
    const hash = location.hash;
    if (summary) tools.open.add(summary);
    const led = tabOfAddress(me.can_inspect);
    if (led !== tab) {
      choose(led);
      history.replaceState(null, "", location.pathname + location.search + hash);
    }
    await fill(false);
    if (turn) await talk.jump(turn);
    const opened = document.getElementById(hash.slice(1));
    if (summary && opened instanceof HTMLDetailsElement) { opened.open = true; opened.scrollIntoView({ block: "nearest" }); }
  }

  show(root, head, controls.bar, strip, pages.node);
  signal.addEventListener("abort", () => root.classList.remove("replying"));
  addEventListener("hashchange", () => { arrive().catch(failed); }, { signal });
  load(false).then(() => { if (location.hash === "#reply" && !controls.composer.node.hidden) toReply();
    const asked = new URLSearchParams(location.search);
    if (tab === "requests" && asked.get("turn") && me.can_inspect) { replayed.see(Number(asked.get("turn")), Number(asked.get("call")) || null); replayCard.scrollIntoView({ block: "start" }); } }).catch(failed);
  keepFresh(() => load(true), mark.tell, signal, () => session?.handover ? TALKING_MS : 5000);
}

function openFromAddress() {
  return location.hash.startsWith("#c-") ? [location.hash.slice(3)] : [];
}

/** @param {Api["SessionWhole"]} session @param {Node} mark */
function heading(session, mark) {
  return h("div", null, h("nav", { "aria-label": t("Where you are"), class: "crumbs" }, h("a", { href: "/dashboard/sessions" }, t("Sessions")), ` / ${session.id.slice(0, 8)}`),
    h("h1", { dir: "auto" }, personOf(session)), session.title && h("p", { class: "muted", dir: "auto" }, session.title),
    h("p", { class: "facts" }, channelBadge(session.channel), session.for_owner && h("span", { class: "badge", dir: "auto" }, t("for {owner}", { owner: session.for_owner })), AGENT.test(session.agent) ? h("a", { href: `/dashboard/agents/${session.agent}` }, session.agent) : h("span", null, session.agent), h("span", null, tn("{count} turn", "{count} turns", session.turns)),
      h("span", null, t("started {time}", { time: time(session.created_at) })), h("span", null, t("active {time}", { time: time(session.last_active_at) })), stateBadge(session.state),
      session.held && h("span", { class: "badge", title: t("After an undo it waits for the next overflow") }, t("summaries on hold")),
      session.compaction === "off" && h("span", { class: "badge", title: t("Switched off by /compact off; /compact on switches them on") }, t("summaries off")),
      session.compact_at && h("span", { class: "badge", title: t("Chosen for this conversation") }, t("summaries above {tokens}", { tokens: tokens(session.compact_at) })), mark,
      h("a", { href: `/dashboard/people/${session.contact}` }, session.kind === "group" ? t("The group") : session.anonymous ? t("The visitor") : t("The person")),
      h("a", { href: `/dashboard/jobs?session=${session.id}` }, t("Jobs")), session.channel === "telegram" && h("a", { href: `/dashboard/deliveries?session=${session.id}` }, t("Delivery problems"))));
}

/** @param {Api["SessionWhole"]} session */
const cacheLine = (session) => joinWithDots([`${t("Cache hit rate")}: ${pct(session.cache_hit_pct)}`, t("{read} read · {written} written", { read: tokens(session.cache_read_tokens), written: tokens(session.cache_write_tokens) })]);

/** Returns the cards at the top: the context now, and the conversation's consumption so far. @param {Api["SessionWhole"]} session @param {() => void} history shows the summaries */
function cards(session, history) {
  const share = session.context_pct;
  const total = session.input_tokens === null ? null : session.input_tokens + (session.output_tokens ?? 0);
  const perTurn = session.cost_micro !== null && session.turns > 0 && !session.cost_unknown_calls ? t("{sum} per turn", { sum: money(session.cost_micro / session.turns) }) : session.cost_unknown_calls ? tn("{count} call of unknown price", "{count} calls of unknown price", session.cost_unknown_calls) : "";
  return [
    kpi(t("Context now"), h("span", { class: `${level(share)}-text` }, pct(share)), share === null ? t("limit unknown") : joinWithDots([t("{tokens} of {limit}", { tokens: tokens(session.context_tokens), limit: tokens(session.context_limit) }), (session.context_reserved ?? 0) > 0 && `${t("Kept free for recall")}: ${tokens(session.context_reserved)}`]), share !== null && meter(share, t("Context {percent}", { percent: pct(share) }))),
    kpi(t("Lifetime tokens"), tokens(total), t("{into} in · {out} out", { into: tokens(session.input_tokens), out: tokens(session.output_tokens) })),
    kpi(t("Cost"), money(session.cost_micro, session.cost_unknown_calls ?? 0), perTurn),
    kpi(t("Summaries"), (session.compactions ?? 0) > 0 ? h("button", { type: "button", class: "link", "aria-label": `${t("Summaries")}: ${number(session.compactions)}`, onclick: history }, number(session.compactions)) : number(session.compactions), session.undone ? tn("{count} undone", "{count} undone", session.undone) : t("none undone")),
  ];
}

/** @param {Api["SessionWhole"]} session */
function contextTable(session) {
  const used = session.context_tokens;
  const now = session.now;
  const limit = session.context_limit ?? 0;
  const parts = used === null || !now ? null : splitTokens(now.parts, used);
  if (!parts || !now || used === null) return empty(t("Not known before the first answer."));
  const free = Math.max(limit - used, 0);
  const rows = /** @type {[string, number][]} */ ([...SOURCES.map((name) => [name, parts[name]]), ...(session.context_reserved ? [["reserved", session.context_reserved]] : []), ["free", free]]);
  return [h("div", { class: "stacked", "aria-hidden": "true" }, rows.filter(([, count]) => count > 0).map(([name, count]) => h("span", { class: `part ${name}`, vars: { "--share": count } }))),
    h("dl", { class: "fills" }, rows.map(([name, count]) => h("div", null, h("dt", null, h("span", { class: `dot ${name}`, "aria-hidden": "true" }), NAMES[/** @type {keyof typeof NAMES} */ (name)]),
      h("dd", null, h("span", null, tokens(count)), h("span", { class: "muted" }, name === "reserved" ? "" : pct(limit ? count * 100 / limit : null)))))),
    h("p", { class: "muted small" }, joinWithDots([now.model, t("window {tokens}", { tokens: tokens(now.window) }), t("no request above {tokens}", { tokens: tokens(now.hard) })]))];
}

/** @param {Api["SessionFlush"][]} flushes */
function flushList(flushes) {
  if (!flushes.length) return empty(t("Nothing was saved automatically yet. It happens before older messages are summarised."));
  const words = { running: t("running"), saved: t("saved"), nothing: t("nothing worth keeping"), failed: t("failed") };
  return h("ul", { class: "plain-list" }, flushes.map((flush) => h("li", null,
    h("p", null, h("b", { class: flush.outcome === "failed" ? "crit-text" : null }, flush.outcome === "saved" ? tn("{count} note", "{count} notes", flush.note_count) : words[/** @type {keyof typeof words} */ (flush.outcome)]),
      h("span", { class: "muted" }, " · ", joinWithDots([t("turns {first} – {last}", { first: flush.from_turn, last: flush.through_turn }), flush.model ?? t("model unknown"), tn("{count} token", "{count} tokens", flush.tokens ?? 0, { count: tokens(flush.tokens) }), money(flush.cost_micro), time(flush.at)]))),
    flush.error && h("p", { class: "error-text" }, ts(flush.error)),
    flush.notes.length > 0 && h("ul", { class: "notes" }, flush.notes.map((note) => h("li", { class: note.superseded || note.forgotten ? "gone" : null },
      h("span", { class: "badge" }, ts(note.kind)), h("span", { dir: "auto" }, note.forgotten ? t("forgotten") : note.text), note.superseded && h("span", { class: "muted" }, " ", t("(replaced)"))))))));
}

/** @param {Api["PurposeSpend"][]} spend */
function spendTable(spend) {
  if (!spend.length) return empty(t("No call yet."));
  const columns = [{ label: t("Purpose") }, { label: t("Calls"), num: true }, { label: t("In"), num: true }, { label: t("Out"), num: true }, { label: t("Cost"), num: true }];
  return table({ caption: t("Spend by purpose and model"), className: "plain", columns, rows: spend.map((row) => [
    h("span", null, PURPOSES[/** @type {keyof typeof PURPOSES} */ (row.purpose)] ?? row.purpose, h("span", { class: "muted small block" }, row.model)),
    h("span", { title: row.aborted ? tn("{count} discarded", "{count} discarded", row.aborted) : "" }, number(row.calls)), tokens(row.input_tokens + row.cache_read_tokens + row.cache_write_tokens), tokens(row.output_tokens), money(row.cost_micro, row.unknown_cost)]) });
}

/**
 * Returns the list of model calls, newest first, page by page.
 * @param {{path: `/sessions/${string}`, signal: AbortSignal, see: (turn: number) => void}} of
 */
function auditPages({ path, signal, see }) {
  const place = h("div");
  const before = /** @type {string[]} */ ([]);
  let shown = "";
  let next = /** @type {string | null} */ (null);
  const newer = h("button", { type: "button", class: "line", onclick: () => turnPage(() => { before.pop(); }) }, t("Newer calls"));
  const older = h("button", { type: "button", class: "line", onclick: () => turnPage(() => { if (next) before.push(next); }) }, t("Older calls"));
  const node = h("div", null, place, h("div", { class: "pager" }, newer, older));

  /** @param {() => void} move */
  function turnPage(move) { move(); load(false).catch((error) => { if (!signal.aborted) show(place, problem(error, () => turnPage(() => {}))); }); }

  /** @param {boolean} refresh */
  async function load(refresh) {
    const from = before[before.length - 1];
    const page = await ask(`${path}/context?limit=50${from ? `&before=${encodeURIComponent(from)}` : ""}`, { refresh, signal });
    next = page.before;
    set(newer, { hidden: !before.length });
    set(older, { hidden: !next });
    const text = JSON.stringify(page);
    if (text !== shown) show(place, auditTable(page, see));
    shown = text;
  }
  return { node, load };
}

/** @param {Api["ContextAudit"]} audit @param {(turn: number) => void} see */
function auditTable(audit, see) {
  if (!audit.calls.length) return empty(t("No model call yet."));
  const columns = [t("Turn"), t("Estimated"), t("After summary"), t("After trimming"), t("Reported"), t("Context"), t("Budget")].map((label) => ({ label, num: true }));
  const place = h("div", { class: "scroll calls", role: "region", "aria-label": t("Model calls"), tabindex: 0 });
  show(place, table({ caption: t("Input of each turn's call, newest first"), className: "plain", columns: [...columns, { label: t("Model") }, { label: t("Trimming applied") }, { label: t("When") }], rows: audit.calls.map((call) => [
    h("button", { type: "button", class: "link turn-link", "aria-label": t("Turn {turn}: what the model saw", { turn: call.turn }), onclick: () => see(call.turn) }, number(call.turn)), number(call.before), number(call.after_summary), number(call.after_prune), number(call.reported), number(call.context), number(call.budget), call.model,
    [call.summary && t("summarised"), call.prune && t("shortened"), call.overflow && t("refused")].filter(Boolean).join(", ") || DASH, time(call.at)]) }));
  return place;
}
