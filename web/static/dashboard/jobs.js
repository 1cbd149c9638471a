/** Jobs that wait, run or failed, what can be done about them, and the processes that are alive. */
import { counted, outcome, sure } from "./acting.js";
import { ask, keepFresh } from "./net.js";
import { DASH, card, empty, h, kpi, liveMark, number, personOf, problem, repaintTimes, show, skeleton, table, time } from "./parts.js";
import { duration } from "../shared/fmt.js";

const STATES = { due: "Waiting", running: "Running", failing: "Trying again", dead: "Failed", done: "Done" };
const COUNTED = ["due", "running", "dead", "done"];
const HINTS = { due: "nothing waits", running: "at work now", done: "in the last day", dead: "gave up or cancelled, while they are kept" };
const KINDS = { flush: "Save memory", compact: "Summarise", tidy: "Tidy" };
const LOOKS = { due: "waiting", running: "answering", done: "idle", dead: "problem" };
const TOPICS = ["jobs", "deliveries"];

/** @param {any} page */
export function jobsPage({ root, go, entitle, signal, troubles, say, me }) {
  entitle("Jobs");
  const params = new URLSearchParams(location.search);
  const acts = me.role !== "viewer";
  const strip = h("dl", { class: "kpis four" });
  const told = h("div", { class: "told", role: "status", hidden: true });
  const body = h("div", { class: "stack" }, skeleton(8));
  const mark = liveMark();
  let shown = "";

  /** @param {Record<string, string>} changes */
  function change(changes) {
    for (const [name, value] of Object.entries({ before: "", ...changes })) value ? params.set(name, value) : params.delete(name);
    const words = params.toString();
    go(`/dashboard/jobs${words ? `?${words}` : ""}`, { quiet: true });
    load().catch(failed);
  }

  /** @param {"retry" | "cancel"} verb @param {any} wish @param {{title: string, words: string[], yes: string}} question */
  async function act(verb, wish, question) {
    if (!await sure(question)) return;
    try {
      const done = await ask(`/jobs/${verb}`, { method: "POST", body: wish });
      show(told, outcome(done, verb === "retry" ? "will begin again" : "cancelled", "job", "jobs"));
      told.hidden = false;
      shown = "";
      await load(true);
    } catch (error) { if (!signal.aborted) { show(told, problem(error)); told.hidden = false; } }
  }

  /** @param {boolean} [refresh] */
  async function load(refresh = false) {
    const page = await ask(`/jobs?${params}`, { refresh, signal });
    troubles(page.dead_lately);
    const next = JSON.stringify([page, params.toString()]);
    if (next === shown) return repaintTimes(root);
    shown = next;
    show(strip, COUNTED.map((state) => kpi(STATES[/** @type {keyof typeof STATES} */ (state)], h("span", { class: state === "dead" && page.states[state] ? "crit-text" : null }, upTo(page.states[state], page.counted_to)),
      state === "due" && page.oldest_due ? h("span", null, "oldest ", time(page.oldest_due)) : HINTS[/** @type {keyof typeof HINTS} */ (state)])));
    show(body, jobsCard(page, params, change, acts ? act : null), workersCard(page.workers), page.bots.length > 0 && botsCard(page.bots));
    if (!refresh) say(`${page.jobs.length} jobs`);
  }

  /** @param {any} error */
  const failed = (error) => { if (!signal.aborted) { shown = ""; show(body, problem(error, () => load().catch(failed))); } };
  show(root, h("div", { class: "page-head" }, h("div", null, h("h1", null, "Jobs"), h("p", { class: "facts" }, mark.node))), strip, h("div", { class: "stack" }, told, body));
  load().catch(failed);
  keepFresh(() => load(true), mark.tell, signal, undefined, TOPICS);
}

/** What is counted so far only is told as such. @param {number} count @param {number} most */
const upTo = (count, most) => count < most ? number(count) : `${number(most)}+`;

/** How many a button is about: empty for none. @param {{jobs: number, more: boolean}} found */
const allOf = ({ jobs, more }) => more ? (jobs ? `${number(jobs)}+ jobs` : "older jobs") : jobs ? counted(jobs, "job", "jobs") : "";

/** On the button a number stands alone. @param {string} told */
const bare = (told) => told.replace(/([\d+]) jobs?$/, "$1");

/** @typedef {(verb: "retry" | "cancel", wish: any, question: {title: string, words: string[], yes: string}) => void} Act */

/** @param {any} page @param {URLSearchParams} params @param {(changes: Record<string, string>) => void} change @param {Act | null} act */
function jobsCard(page, params, change, act) {
  const filtered = params.get("state") || params.get("kind") || params.get("session");
  const columns = [{ label: "Job" }, { label: "State" }, { label: "Session" }, { label: "Trigger" }, { label: "Attempt", num: true }, { label: "Took", num: true }, { label: "When" }, { label: "Error" }, ...(act ? [{ label: "Do", num: true }] : [])];
  const content = page.jobs.length ? table({ caption: "Jobs", className: "wide-grid work-grid", columns, rows: page.jobs.map((/** @type {any} */ job) => cells(job, change, act)) })
    : filtered ? empty("No job fits these filters.", h("button", { type: "button", class: "line", onclick: () => change({ state: "", kind: "", session: "" }) }, "Clear the filters"))
      : empty("No job yet: they come with the first long conversation.");
  return card("Queue", [filters(params, change), act && forAll(page, params, act), content,
    h("div", { class: "pager" }, params.get("before") && h("button", { type: "button", class: "line", onclick: () => change({}) }, "Newest"),
      page.before && h("button", { type: "button", class: "line", onclick: () => change({ before: page.before }) }, "Older"))]);
}

/** @param {URLSearchParams} params @param {(changes: Record<string, string>) => void} change */
function filters(params, change) {
  /** @param {string} name @param {string} label @param {[string, string][]} choices */
  const segments = (name, label, choices) => h("div", { class: "segments", role: "group", "aria-label": label }, choices.map(([value, words]) =>
    h("button", { type: "button", "aria-pressed": String((params.get(name) ?? "") === value), onclick: () => change({ [name]: value }) }, words)));
  const session = params.get("session");
  return h("div", { class: "work-filters" }, segments("state", "State", [["", "All"], ...Object.entries(STATES)]), segments("kind", "Kind", [["", "All kinds"], ...Object.entries(KINDS)]),
    session && h("span", { class: "chip" }, `Session ${session.slice(0, 8)}`, h("button", { type: "button", class: "line", "aria-label": "All sessions", onclick: () => change({ session: "" }) }, "×")));
}

/** What can be done with all that the filters show. @param {any} page @param {URLSearchParams} params @param {Act} act */
function forAll(page, params, act) {
  const match = Object.fromEntries(["state", "kind", "session"].map((name) => [name, params.get(name) ?? ""]));
  const wish = { match, through: page.newest };
  const again = allOf(page.retry_all);
  const away = allOf(page.cancel_all);
  if (!again && !away) return null;
  return h("div", { class: "work-all" },
    again && h("button", { type: "button", class: "line", onclick: () => act("retry", wish, { title: `Retry ${again}?`, words: ["They begin at once, with all their attempts. What has moved on meanwhile is skipped."], yes: `Retry ${again}` }) }, `Retry all ${bare(again)}`),
    away && h("button", { type: "button", class: "line", onclick: () => act("cancel", wish, { title: `Cancel ${away}?`, words: ["They will not run. A conversation that still needs one asks again with its next message."], yes: `Cancel ${away}` }) }, `Cancel all ${bare(away)}`));
}

/** @param {any} job @param {(changes: Record<string, string>) => void} change @param {Act | null} act */
function cells(job, change, act) {
  const name = `${KINDS[/** @type {keyof typeof KINDS} */ (job.kind)] ?? job.kind} #${job.id}`;
  const doing = act && h("span", { class: "act" },
    h("button", { type: "button", class: "line", title: "Only jobs of this session", "aria-label": `Filter: only jobs of the session of ${name}`, onclick: () => change({ session: job.session }) }, "Filter"),
    job.can_retry && h("button", { type: "button", class: "line", "aria-label": `Retry ${name}`, onclick: () => act("retry", { ids: [job.id] }, { title: `Retry ${name}?`, words: ["It begins at once, with all its attempts."], yes: "Retry" }) }, "Retry"),
    job.can_cancel && h("button", { type: "button", class: "line", "aria-label": `Cancel ${name}`, onclick: () => act("cancel", { ids: [job.id] }, { title: `Cancel ${name}?`, words: ["It will not run. A conversation that still needs it asks again with its next message."], yes: "Cancel it" }) }, "Cancel"));
  return [
    h("span", null, KINDS[/** @type {keyof typeof KINDS} */ (job.kind)] ?? job.kind, h("span", { class: "muted" }, ` #${job.id}`)),
    h("span", { class: `state ${job.cancelled ? "idle" : LOOKS[/** @type {keyof typeof LOOKS} */ (job.state)] ?? ""}` }, job.cancelled ? "Cancelled" : job.state === "due" && job.error ? "Trying again" : STATES[/** @type {keyof typeof STATES} */ (job.state)]),
    h("a", { class: "row-link", href: `/dashboard/sessions/${job.session}`, dir: "auto" }, personOf({ ...job, kind: job.session_kind })),
    job.trigger, number(job.attempt), duration(job.duration_ms), time(job.ended_at ?? job.started_at ?? job.due_at),
    job.error ? h("span", { class: "error-text" }, job.error) : DASH, ...(act ? [doing] : []),
  ];
}

/** @param {any[]} bots */
function botsCard(bots) {
  const columns = [{ label: "Bot" }, { label: "State" }, { label: "Updates by" }, { label: "Who may write" }, { label: "Waiting", num: true }, { label: "Last heard" }];
  const rows = bots.map((bot) => [bot.username ? `@${bot.username}` : String(bot.id),
    h("span", { class: `state ${bot.problem ? "problem" : bot.served_by ? "answering" : "waiting"}` }, bot.problem ? h("span", { class: "error-text" }, bot.problem) : bot.served_by ? `served by ${bot.served_by}` : "nobody serves it"),
    bot.mode, bot.access, number(bot.waiting), bot.heard_at ? time(bot.heard_at) : DASH]);
  return card("Telegram", [table({ caption: "Bots", className: "wide-grid", columns, rows })]);
}

/** @param {any[]} workers */
function workersCard(workers) {
  const columns = [{ label: "Process" }, { label: "State" }, { label: "Last beat" }, { label: "Started" }, { label: "Works on" }];
  const rows = workers.map((worker) => [`${worker.role} · ${worker.pid}`,
    h("span", { class: `state ${worker.alive ? "answering" : worker.stopped_at ? "idle" : "problem"}` }, worker.alive ? "alive" : worker.stopped_at ? "stopped" : "silent"),
    time(worker.beat), time(worker.started_at), worker.job ? `#${worker.job}` : DASH]);
  return card("Processes", [rows.length ? table({ caption: "Processes of the last hour", className: "wide-grid", columns, rows }) : empty("No process has beaten in the last hour.")]);
}
