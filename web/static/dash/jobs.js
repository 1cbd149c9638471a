/** Jobs by state, newest first, and the processes that are alive. */
import { ask, keepFresh } from "./net.js";
import { DASH, card, empty, h, kpi, liveMark, number, personOf, problem, repaintTimes, show, skeleton, table, time } from "./parts.js";
import { duration } from "../shared/fmt.js";

const STATES = ["due", "running", "done", "dead"];
const WORDS = { due: "Waiting", running: "Running", done: "Done", dead: "Failed" };
const HINTS = { due: "nothing waits", running: "at work now", done: "in all", dead: "gave up after all attempts" };
const KINDS = { flush: "Save memory", compact: "Summarise", tidy: "Tidy" };
const COLUMNS = [{ label: "Job" }, { label: "State" }, { label: "Session" }, { label: "Trigger" }, { label: "Attempt", num: true }, { label: "Took", num: true }, { label: "When" }, { label: "Error" }];

/** @param {any} page */
export function jobsPage({ root, go, signal, troubles, say }) {
  document.title = "Jobs · Evertalk";
  const params = new URLSearchParams(location.search);
  const strip = h("dl", { class: "kpis four" });
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

  /** @param {boolean} [refresh] */
  async function load(refresh = false) {
    const page = await ask(`/jobs?${params}`, { refresh, signal });
    troubles(page.dead_lately);
    const next = JSON.stringify([page, params.toString()]);
    if (next === shown) return repaintTimes(root);
    shown = next;
    show(strip, STATES.map((state) => kpi(WORDS[/** @type {keyof typeof WORDS} */ (state)], h("span", { class: state === "dead" && page.states[state] ? "crit-text" : null }, number(page.states[state])),
      state === "due" && page.oldest_due ? h("span", null, "oldest ", time(page.oldest_due)) : HINTS[/** @type {keyof typeof HINTS} */ (state)])));
    show(body, jobsCard(page, params, change), workersCard(page.workers), ...(page.bots.length ? [botsCard(page.bots), lettersCard(page.uncertain)] : []));
    if (!refresh) say(`${page.jobs.length} jobs`);
  }

  /** @param {any} error */
  const failed = (error) => { if (!signal.aborted) { shown = ""; show(body, problem(error, () => load().catch(failed))); } };
  show(root, h("div", { class: "page-head" }, h("div", null, h("h1", null, "Jobs"), h("p", { class: "facts" }, mark.node))), strip, body);
  load().catch(failed);
  keepFresh(() => load(true), mark.tell, signal);
}

/** @param {any} page @param {URLSearchParams} params @param {(changes: Record<string, string>) => void} change */
function jobsCard(page, params, change) {
  const chosen = params.get("state") ?? "";
  const filter = h("div", { class: "segments", role: "group", "aria-label": "State" }, [["", "All"], ...STATES.map((state) => [state, WORDS[/** @type {keyof typeof WORDS} */ (state)]])].map(([state, words]) =>
    h("button", { type: "button", "aria-pressed": String(chosen === state), onclick: () => change({ state }) }, words)));
  const content = page.jobs.length ? table({ caption: "Jobs", className: "wide-grid", columns: COLUMNS, rows: page.jobs.map(cells) }) : empty(chosen ? "No job in this state." : "No job yet: they come with the first long conversation.");
  return card("Queue", [content, h("div", { class: "pager" }, params.get("before") && h("button", { type: "button", class: "line", onclick: () => change({}) }, "Newest"),
    page.before && h("button", { type: "button", class: "line", onclick: () => change({ before: page.before }) }, "Older"))], filter);
}

/** @param {any} job */
function cells(job) {
  return [
    h("span", null, KINDS[/** @type {keyof typeof KINDS} */ (job.kind)] ?? job.kind, h("span", { class: "muted" }, ` #${job.id}`)),
    h("span", { class: `state ${{ due: "waiting", running: "answering", done: "idle", dead: "problem" }[job.state] ?? ""}` }, WORDS[/** @type {keyof typeof WORDS} */ (job.state)]),
    h("a", { class: "row-link", href: `/dashboard/sessions/${job.session}`, dir: "auto" }, personOf({ person: job.person, id: job.session, kind: "session" })),
    job.trigger, number(job.attempt), duration(job.duration_ms), time(job.ended_at ?? job.started_at ?? job.due_at),
    job.error ? h("span", { class: "error-text" }, job.error) : DASH,
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

/** Parts of answers that may be in their chat or not: nobody sends them again by guess. @param {any[]} parts */
function lettersCard(parts) {
  const columns = [{ label: "Answer" }, { label: "State" }, { label: "Session" }, { label: "When" }, { label: "Reason" }];
  const rows = parts.map((part) => [`turn ${part.turn}, part ${part.part + 1}`,
    h("span", { class: "state problem" }, part.state === "dead" ? "never arrived" : "uncertain"),
    h("a", { class: "row-link", href: `/dashboard/sessions/${part.session}`, dir: "auto" }, personOf({ person: part.person, id: part.session, kind: "session" })),
    time(part.at), part.error ? h("span", { class: "error-text" }, part.error) : DASH]);
  return card("Deliveries", [rows.length ? table({ caption: "Uncertain deliveries of 30 days", className: "wide-grid", columns, rows }) : empty("Everything arrived.")]);
}

/** @param {any[]} workers */
function workersCard(workers) {
  const columns = [{ label: "Process" }, { label: "State" }, { label: "Last beat" }, { label: "Started" }];
  const rows = workers.map((worker) => [`${worker.role} · ${worker.pid}`,
    h("span", { class: `state ${worker.alive ? "answering" : worker.stopped_at ? "idle" : "problem"}` }, worker.alive ? "alive" : worker.stopped_at ? "stopped" : "silent"),
    time(worker.beat), time(worker.started_at)]);
  return card("Processes", [rows.length ? table({ caption: "Processes of the last hour", className: "wide-grid", columns, rows }) : empty("No process has beaten in the last hour.")]);
}
