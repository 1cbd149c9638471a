/** Jobs that wait, run or have failed, with actions on them, and the running processes. */
import { outcome, confirm } from "./acting.js";
import { ask, keepFresh } from "./net.js";
import { DASH, card, empty, h, kpi, liveMark, money, number, pct, personOf, problem, repaintTimes, show, skeleton, t, table, time, tn, ts, formatWhen } from "./parts.js";
import { duration } from "./figures.js";
import { beyond, pagesOf, placeOf } from "./lists.js";
import { JOBS, JOB_KINDS, seriesPart } from "./series.js";
import { reasonOf } from "./reasons.js";

const STATES = { due: t("Waiting"), running: t("Running"), failing: t("Retrying"), dead: t("Failed"), done: t("Done") };
const COUNTED = ["due", "running", "dead", "done"];
const HINTS = { due: t("nothing waits"), running: t("now"), done: t("in the last day"), dead: t("failed or cancelled (last 30 days)") };
const LOOKS = { due: "waiting", running: "answering", done: "idle", dead: "problem" };
const ASKED = ["state", "kind", "session", "before"];
const TOPICS = ["jobs", "deliveries"];

/** Draws jobs, imports, bots, duties and processes, and refreshes them until `signal` aborts. @param {Page} page */
export function jobsPage({ root, go, entitle, signal, troubles, say, me }) {
  entitle(t("Jobs"));
  const params = new URLSearchParams(location.search);
  const acts = me.role !== "viewer";
  const strip = h("dl", { class: "kpis four" });
  const told = h("div", { class: "told", role: "status", hidden: true });
  const body = h("div", { class: "stack" }, skeleton(8));
  const mark = liveMark();
  const kinds = h("div");
  const pages = pagesOf("/jobs", signal);
  const numbers = seriesPart({ panels: JOBS, params, change, usual: "7d", signal });
  let shown = "";
  /** @type {any[]} */
  let known = [];

  /** @param {Record<string, string>} changes */
  function change(changes) {
    for (const [name, value] of Object.entries({ before: "", at: "", ...changes })) value ? params.set(name, value) : params.delete(name);
    const words = params.toString();
    go(`/dashboard/jobs${words ? `?${words}` : ""}`, { quiet: true });
    load().catch(failed);
  }

  /** @param {"retry" | "cancel"} verb @param {any} wish @param {{title: string, words: string[], yes: string}} question */
  async function act(verb, wish, question) {
    if (!await confirm(question)) return;
    try {
      const done = await ask(`/jobs/${verb}`, { method: "POST", body: wish });
      show(told, outcome(done, {
        changed: (count) => verb === "retry" ? tn("{count} job will run again.", "{count} jobs will run again.", count) : tn("{count} job cancelled.", "{count} jobs cancelled.", count),
        none: t("No job was changed."), left: (count) => tn("{count} job is left: repeat this for it.", "{count} jobs are left: repeat this for the next ones.", count),
      }));
      told.hidden = false;
      shown = "";
      await load(true);
    } catch (error) { if (!signal.aborted) { show(told, problem(error)); told.hidden = false; } }
  }

  /** @param {Api["JobKind"]} one @param {{paused: boolean, concurrency: number | null}} wish */
  async function setKind(one, wish) {
    if (wish.paused && !one.paused && !await confirm(pausing(one))) return;
    try {
      const page = await ask(`/jobs/kinds/${one.kind}`, { method: "PUT", body: wish, match: one.version, signal });
      const kind = JOB_KINDS[/** @type {keyof typeof JOB_KINDS} */ (one.kind)];
      show(told, wish.paused ? t("{kind}: paused in all workers.", { kind }) : t("{kind}: running, {limit}.", { kind, limit: wish.concurrency ? number(wish.concurrency) : t("no limit") }));
      drawKinds(page.kinds);
    } catch (/** @type {any} */ error) {
      if (signal.aborted) return;
      show(told, problem(error));
      const theirs = error.details.theirs;
      if (theirs) drawKinds(known.map((kind) => kind.kind === theirs.kind ? theirs : kind), { [theirs.kind]: wish.concurrency });
    }
    told.hidden = false;
  }

  /** @param {Api["JobKind"][]} found @param {Record<string, number | null>} [typed] */
  function drawKinds(found, typed = {}) {
    known = found;
    show(kinds, kindsCard(found, acts ? setKind : null, typed));
  }

  /** @param {boolean} [refresh] */
  async function load(refresh = false) {
    numbers.load(refresh).catch(() => mark.tell("stale"));
    const query = new URLSearchParams([...params].filter(([name]) => ASKED.includes(name)));
    const page = await pages(query, refresh);
    troubles(page.dead_lately);
    const next = JSON.stringify([page, params.toString()]);
    if (next === shown) return repaintTimes(root);
    shown = next;
    show(strip, COUNTED.map((state) => kpi(STATES[/** @type {keyof typeof STATES} */ (state)], h("span", { class: state === "dead" && page.states[/** @type {keyof Api["JobStates"]} */ (state)] ? "crit-text" : null }, upTo(page.states[/** @type {keyof Api["JobStates"]} */ (state)], page.counted_to)),
      state === "due" && page.oldest_due ? h("span", null, t("oldest {time}", { time: time(page.oldest_due) })) : HINTS[/** @type {keyof typeof HINTS} */ (state)])));
    if (!kinds.contains(document.activeElement)) drawKinds(page.kinds);
    show(body, jobsCard(page, params, change, acts ? act : null), page.imports.length > 0 && importsCard(page.imports), dutiesCard(page.duties), workersCard(page.workers), page.bots.length > 0 && botsCard(page.bots));
    if (!refresh) say(tn("{count} job", "{count} jobs", page.jobs.length));
  }

  /** @param {unknown} error */
  const failed = (error) => { if (!signal.aborted) { shown = ""; show(body, problem(error, () => load().catch(failed))); } };
  show(root, h("div", { class: "page-head" }, h("div", null, h("h1", null, t("Jobs")), h("p", { class: "facts" }, mark.node))), strip, h("div", { class: "stack" }, told, kinds, body, h("section", { "aria-label": t("Numbers over time") }, numbers.bar, numbers.body)));
  load().catch(failed);
  keepFresh(() => load(true), mark.tell, signal, undefined, TOPICS);
}

/** Returns the dialog for pausing a kind of job, with its effects. @param {Api["JobKind"]} one */
const pausing = (one) => ({ title: t("Pause {kind}?", { kind: JOB_KINDS[/** @type {keyof typeof JOB_KINDS} */ (one.kind)] }), yes: t("Pause"), words: [t("Running jobs finish. Due jobs wait until you resume. This applies to all workers at once."),
  one.kind === "compact" && t("Meanwhile, a conversation near its hard limit is handled without a worker: old tool results are shortened, and finally an excerpt replaces the summary."), one.kind === "flush" && t("Meanwhile, nothing is saved to memory. Turns that are summarised before that are read later.")].filter(Boolean) });

/** @param {Api["JobKind"][]} kinds @param {((one: any, wish: {paused: boolean, concurrency: number | null}) => void) | null} set @param {Record<string, number | null>} typed what is not stored */
function kindsCard(kinds, set, typed) {
  const columns = [{ label: t("Kind") }, { label: t("State") }, { label: t("Running"), num: true }, { label: t("Waiting"), num: true }, { label: t("Parallel limit") }, ...(set ? [{ label: t("Actions"), num: true }] : [])];
  const rows = kinds.map((one) => {
    const name = JOB_KINDS[/** @type {keyof typeof JOB_KINDS} */ (one.kind)];
    const most = h("input", { type: "number", min: 1, max: 100, value: typed[one.kind] ?? one.concurrency ?? "", placeholder: t("no limit"), "aria-label": t("{kind}: parallel jobs in all workers", { kind: name }) });
    const form = h("form", { class: "at-once", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); set?.(one, { paused: one.paused, concurrency: most.value ? Number(most.value) : null }); } }, most, h("button", { type: "submit", class: "line", "aria-label": t("Save the limit of {kind}", { kind: name }) }, t("Save")));
    return [name, h("span", { class: `state ${one.paused ? "waiting" : "answering"}`, title: one.changed_by ? `${one.changed_by} · ${formatWhen(one.changed_at)}` : null }, one.paused ? t("Paused") : t("Running")), number(one.running), number(one.due), set ? form : one.concurrency ? number(one.concurrency) : t("no limit"),
      ...(set ? [h("button", { type: "button", class: "line", "aria-label": one.paused ? t("Resume {kind}", { kind: name }) : t("Pause {kind}", { kind: name }), onclick: () => set(one, { paused: !one.paused, concurrency: one.concurrency }) }, one.paused ? t("Resume") : t("Pause"))] : [])];
  });
  return card(t("Job types"), [table({ caption: t("Job types"), className: "wide-grid", columns, rows })]);
}

/** Returns a count, with a plus if counting stopped there. @param {number} count @param {number} most */
const upTo = (count, most) => count < most ? number(count) : `${number(most)}+`;

/** Texts of the buttons for all jobs: label, question and confirmation, for exact and partial counts.
 * @type {Record<string, (many: number, count: string) => string[]>} */
const ALL = {
  retry: (many, count) => many ? [t("Retry all {count}", { count }), tn("Retry {count} job?", "Retry {count} jobs?", many, { count }), tn("Retry {count} job", "Retry {count} jobs", many, { count })] : [t("Retry all older jobs"), t("Retry older jobs?"), t("Retry older jobs")],
  cancel: (many, count) => many ? [t("Cancel all {count}", { count }), tn("Cancel {count} job?", "Cancel {count} jobs?", many, { count }), tn("Cancel {count} job", "Cancel {count} jobs", many, { count })] : [t("Cancel all older jobs"), t("Cancel older jobs?"), t("Cancel older jobs")],
};

/** @typedef {(verb: "retry" | "cancel", wish: any, question: {title: string, words: string[], yes: string}) => void} Act */

/** @param {Api["Jobs"]} page @param {URLSearchParams} params @param {(changes: Record<string, string>) => void} change @param {Act | null} act */
function jobsCard(page, params, change, act) {
  const filtered = params.get("state") || params.get("kind") || params.get("session");
  const columns = [{ label: t("Job") }, { label: t("State") }, { label: t("Session") }, { label: t("Trigger") }, { label: t("Attempt"), num: true }, { label: t("Duration"), num: true }, { label: t("When") }, { label: t("Error") }, ...(act ? [{ label: t("Actions"), num: true }] : [])];
  const content = page.jobs.length ? table({ caption: t("Jobs"), className: "wide-grid work-grid", columns, rows: page.jobs.map((job) => cells(job, change, act)) })
    : filtered ? empty(t("No job fits these filters."), h("button", { type: "button", class: "line", onclick: () => change({ state: "", kind: "", session: "" }) }, t("Clear the filters")))
      : empty(t("No job yet: they come with the first long conversation."));
  return card(t("Queue"), [filters(params, change), act && forAll(page, params, act), content,
    h("div", { class: "pager" }, placeOf(params, page.jobs.length, page.total ?? null), params.get("before") && h("button", { type: "button", class: "line", onclick: () => change({}) }, t("Newest")),
      page.before && h("button", { type: "button", class: "line", onclick: () => change({ before: page.before ?? "", at: beyond(params, page.jobs.length) }) }, t("Older")))]);
}

/** @param {URLSearchParams} params @param {(changes: Record<string, string>) => void} change */
function filters(params, change) {
  /** @param {string} name @param {string} label @param {[string, string][]} choices */
  const segments = (name, label, choices) => h("div", { class: "segments", role: "group", "aria-label": label }, choices.map(([value, words]) =>
    h("button", { type: "button", "aria-pressed": String((params.get(name) ?? "") === value), onclick: () => change({ [name]: value }) }, words)));
  const session = params.get("session");
  return h("div", { class: "work-filters" }, segments("state", t("State"), [["", t("All")], ...Object.entries(STATES)]), segments("kind", t("Kind"), [["", t("All kinds")], ...Object.entries(JOB_KINDS)]),
    session && h("span", { class: "chip" }, t("Session {id}", { id: session.slice(0, 8) }), h("button", { type: "button", class: "line", "aria-label": t("All sessions"), onclick: () => change({ session: "" }) }, "×")));
}

/** Returns the actions on all jobs of the filters. @param {Api["Jobs"]} page @param {URLSearchParams} params @param {Act} act */
function forAll(page, params, act) {
  const match = Object.fromEntries(["state", "kind", "session"].map((name) => [name, params.get(name) ?? ""]));
  const wish = { match, through: page.newest };
  /** @param {"retry" | "cancel"} verb @param {{jobs: number, more: boolean}} found @param {string} words */
  const button = (verb, { jobs, more }, words) => {
    if (!jobs && !more) return null;
    const [name, title, yes] = ALL[verb](jobs && more ? jobs + 1 : jobs, more ? `${number(jobs)}+` : number(jobs));
    return h("button", { type: "button", class: "line", onclick: () => act(verb, wish, { title, words: [words], yes }) }, name);
  };
  const both = [button("retry", page.retry_all, t("They begin at once, with all their attempts. Jobs that have moved on meanwhile are skipped.")),
    button("cancel", page.cancel_all, t("They will not run. A conversation that still needs one asks again with its next message."))];
  return both.some(Boolean) && h("div", { class: "work-all" }, both);
}

/** @param {Api["Job"]} job @param {(changes: Record<string, string>) => void} change @param {Act | null} act */
function cells(job, change, act) {
  const name = `${JOB_KINDS[/** @type {keyof typeof JOB_KINDS} */ (job.kind)] ?? job.kind} #${job.id}`;
  const doing = act && h("span", { class: "act" },
    h("button", { type: "button", class: "line", title: t("Only jobs of this session"), "aria-label": t("Filter: only jobs of the session of {name}", { name }), onclick: () => change({ session: job.session }) }, t("Filter")),
    job.can_retry && h("button", { type: "button", class: "line", "aria-label": t("Retry {name}", { name }), onclick: () => act("retry", { ids: [job.id] }, { title: t("Retry {name}?", { name }), words: [t("It begins at once, with all its attempts.")], yes: t("Retry") }) }, t("Retry")),
    job.can_cancel && h("button", { type: "button", class: "line", "aria-label": t("Cancel {name}", { name }), onclick: () => act("cancel", { ids: [job.id] }, { title: t("Cancel {name}?", { name }), words: [t("It will not run. A conversation that still needs it asks again with its next message.")], yes: t("Cancel it") }) }, t("Cancel")));
  return [
    h("span", null, JOB_KINDS[/** @type {keyof typeof JOB_KINDS} */ (job.kind)] ?? job.kind, h("span", { class: "muted" }, ` #${job.id}`)),
    h("span", { class: `state ${job.cancelled ? "idle" : LOOKS[/** @type {keyof typeof LOOKS} */ (job.state)] ?? ""}` }, job.cancelled ? t("Cancelled") : job.state === "due" && job.error ? t("Retrying") : STATES[/** @type {keyof typeof STATES} */ (job.state)]),
    h("a", { class: "row-link", href: `/dashboard/sessions/${job.session}`, dir: "auto" }, personOf({ ...job, kind: job.session_kind })),
    ts(job.trigger), number(job.attempt), duration(job.duration_ms), time(job.ended_at ?? job.started_at ?? job.due_at),
    job.error ? h("span", { class: "error-text" }, ts(job.error)) : reasonOf(job.reason) || DASH, ...(act ? [doing] : []),
  ];
}

/** @param {Api["ImportProgress"][]} imports */
function importsCard(imports) {
  const states = { off: DASH, due: t("Being summarised"), done: t("Summarised"), capped: t("Budget used up"), stopped: t("Stopped") };
  const columns = [{ label: t("Person") }, { label: t("Program") }, { label: t("Messages"), num: true }, { label: t("Summaries") }, { label: t("Progress"), num: true }, { label: t("Cost"), num: true }];
  const rows = imports.map((one) => [h("a", { class: "row-link", href: `/dashboard/sessions/${one.session}`, dir: "auto" }, personOf({ ...one, kind: one.session_kind })),
    h("span", { translate: "no" }, one.source), number(one.messages), states[/** @type {keyof typeof states} */ (one.summaries)], pct(one.summarised_percent), money(one.cost_micro)]);
  return card(t("Imports"), [table({ caption: t("The newest 20 imports"), className: "wide-grid", columns, rows })]);
}

/** @param {Api["ConnectedBot"][]} bots */
function botsCard(bots) {
  const columns = [{ label: t("Bot") }, { label: t("State") }, { label: t("Updates by") }, { label: t("Who may write") }, { label: t("Waiting"), num: true }, { label: t("Last heard") }];
  const rows = bots.map((bot) => [bot.username ? `@${bot.username}` : String(bot.id),
    h("span", { class: `state ${bot.problem ? "problem" : bot.served_by ? "answering" : "waiting"}` }, bot.problem ? h("span", { class: "error-text" }, ts(bot.problem)) : bot.served_by ? t("served by {process}", { process: bot.served_by }) : t("not served")),
    ts(bot.mode), ts(bot.access), number(bot.waiting), bot.heard_at ? time(bot.heard_at) : DASH]);
  return card("Telegram", [table({ caption: t("Bots"), className: "wide-grid", columns, rows })]);
}

/** Descriptions of duties, by their name in metrics and alerts. */
const DUTIES = () => ({
  session_list: t("Update the list of conversations"), erasures: t("Finish erasures"), reservations: t("Release reserved budget"),
  recall_index: t("Make conversations searchable"), hourly_stats: t("Count numbers by the hour"), owed_flushes: t("Save overdue memories"),
  contacts: t("Fill in contacts"), page_deliveries: t("Settle replies to closed pages"), consolidation: t("Consolidate notes"),
  partitions: t("Prepare tables of the next months"), retention: t("Delete expired data"),
});

/** @param {Api["Duty"][]} duties */
function dutiesCard(duties) {
  const states = { late: t("Late"), running: t("running"), failing: t("Retrying"), waiting: t("On schedule") };
  const looks = { late: "problem", running: "answering", failing: "waiting", waiting: "answering" };
  const names = /** @type {Record<string, string>} */ (DUTIES());
  const columns = [{ label: t("Task") }, { label: t("State") }, { label: t("Every"), num: true }, { label: t("Last success") }, { label: t("Duration"), num: true }, { label: t("Error") }];
  const rows = duties.map((one) => [h("span", { title: one.name }, names[one.name] ?? one.name),
    h("span", { class: `state ${looks[/** @type {keyof typeof looks} */ (one.state)]}` }, states[/** @type {keyof typeof states} */ (one.state)]),
    duration(one.seconds * 1000), one.succeeded_at ? time(one.succeeded_at) : DASH, duration(one.duration_ms), one.error ? h("span", { translate: "no" }, one.error) : DASH]);
  return card(t("Scheduled tasks"), [rows.length ? table({ caption: t("Scheduled tasks of the workers"), className: "wide-grid", columns, rows }) : empty(t("No worker has run yet. Its scheduled tasks appear here."))]);
}

/** @param {Api["Process"][]} workers */
function workersCard(workers) {
  const columns = [{ label: t("Process") }, { label: t("State") }, { label: t("Last heartbeat") }, { label: t("Started") }, { label: t("Current job") }];
  const rows = workers.map((worker) => [h("span", { translate: "no" }, `${worker.role} · ${worker.pid}`),
    h("span", { class: `state ${worker.alive ? "answering" : worker.stopped_at ? "idle" : "problem"}` }, worker.alive ? t("running") : worker.stopped_at ? t("stopped") : t("silent")),
    time(worker.beat), time(worker.started_at), worker.job ? `#${worker.job}` : DASH]);
  return card(t("Processes"), [rows.length ? table({ caption: t("Processes of the last hour"), className: "wide-grid", columns, rows }) : empty(t("No process has sent a heartbeat in the last hour."))]);
}
