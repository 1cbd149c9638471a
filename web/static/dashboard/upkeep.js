/** "Summarise now" and "Save memory now": shows effect and cost beforehand, then progress and result. */
import { h, set, show } from "../shared/h.js";
import { follow } from "./live.js";
import { Failure, ask } from "./net.js";
import { percent as percentage } from "../shared/fmt.js";
import { duration } from "./figures.js";
import { joinWithDots, empty, money, number, pct, problem, skeleton, t, tn, tokens, ts } from "./parts.js";
import { REASONS, WITHHELD } from "./reasons.js";

const COMMAND_SECONDS = 210;
const APART = t("Notes are saved by separate requests, as tools do not fit this model.");
/** @type {Record<string, string>} */
const MEMORY = { request: APART, lines: APART, code: t("Notes are saved as excerpts, as this model cannot write them.") };
const INSISTS = new Set(["gain_too_small", "unanswered", "grows"]);

/** @param {any} found */
const turnsOf = (found) => found.from_turn === found.through_turn ? t("turn {turn}", { turn: found.from_turn }) : tn("{count} turn ({first} – {last})", "{count} turns ({first} – {last})", found.through_turn - found.from_turn + 1, { first: found.from_turn, last: found.through_turn });
/** @param {any} found */
function costOf(found) {
  const values = { model: found.model, tokens: tokens(found.reads), sum: money(found.cost_micro) };
  return found.cost_micro === null ? tn("{model} reads about {tokens} tokens in one call, at an unknown price", "{model} reads about {tokens} tokens in {count} calls, at an unknown price", found.calls, values)
    : tn("{model} reads about {tokens} tokens in one call, at most about {sum}", "{model} reads about {tokens} tokens in {count} calls, at most about {sum}", found.calls, values);
}

/** @param {any} found @param {string} what */
function renderForecast(found, what) {
  if (!found.possible) return h("p", null, REASONS[found.reason] ?? ts(found.reason), found.detail && h("span", { class: "muted block small" }, ts(found.detail)));
  if (what === "flush") return h("dl", { class: "pairs" }, pair(t("Reads"), turnsOf(found)), pair(t("With"), costOf(found)), pair(t("Then"), t("facts worth keeping are saved as notes; nothing appears in the conversation")));
  return h("dl", { class: "pairs" }, pair(t("Summarises"), turnsOf(found)), pair(t("Context"), t("{before} → about {after} tokens", { before: tokens(found.before), after: tokens(found.after) })), pair(t("With"), costOf(found)),
    found.flush && pair(t("Before that"), [t("saved to memory: {turns}", { turns: turnsOf(found.flush) }), "; ", costOf(found.flush)]));
}

/** @typedef {{compaction: string, compact_at: number | null}} Choice */

/** @param {any} name @param {any} words */
const pair = (name, words) => h("div", null, h("dt", null, name), h("dd", null, words));

/**
 * Returns the buttons "Summarise now" and "Save memory now"; null if the operator may not run commands or inspect.
 * @param {{path: `/sessions/${string}`, me: Api["Me"], say: (words: string) => void, signal: AbortSignal, reload: () => void, running: () => any, chosen: () => Choice | null}} of
 */
export function upkeepButtons({ path, me, say, signal, reload, running, chosen }) {
  if (!me.can_run_commands || !me.can_inspect) return null;
  const dialog = h("dialog", { class: "card upkeep", "aria-labelledby": "upkeep-title", onclose: () => { closed = true; } });
  let closed = true;

  /** @param {"compact" | "flush"} what */
  async function open(what) {
    const title = what === "compact" ? t("Summarise now") : t("Save memory now");
    const told = h("div", null, skeleton(3));
    const note = h("div", { role: "status" });
    const focus = h("input", { type: "text", maxlength: 300, autocomplete: "off" });
    const force = h("input", { type: "checkbox", onchange: () => look() });
    const insists = h("label", { class: "check", hidden: true }, force, h("span", null, t("Do it anyway")));
    const start = h("button", { type: "button", class: "solid", disabled: true, onclick: () => run() }, title);
    const end = h("button", { type: "button", class: "line", onclick: () => dialog.close() }, t("Cancel"));
    show(dialog, h("h2", { id: "upkeep-title" }, title), told, what === "compact" && h("label", null, h("span", null, t("What matters most (optional)")), focus), insists, note, h("div", { class: "actions" }, start, end));
    closed = false;
    dialog.showModal();

    async function look() {
      try {
        const found = await ask(`${path}/estimate?do=${what}${force.checked ? "&force=1" : ""}`, { signal });
        show(told, renderForecast(found, what));
        if (INSISTS.has(found.reason)) insists.hidden = false;
        set(start, { disabled: !found.possible });
      } catch (error) { if (!signal.aborted) show(told, problem(error, look)); }
    }

    async function run() {
      for (const control of [start, focus, force]) set(control, { disabled: true });
      show(end, t("Close"));
      const began = Date.now();
      const words = h("span", null, t("Requested."));
      const bar = h("span", { class: "bar", role: "progressbar", "aria-label": title });
      show(note, h("p", { class: "working" }, bar, words));
      /** @type {number | null} */
      let percent = null;
      const tell = () => {
        const kind = running()?.kind;
        const stage = !kind && percent === null ? t("Waiting for a worker") : (kind ?? what) === "flush" ? t("Saving to memory") : t("Summarising");
        show(words, joinWithDots([stage, percent !== null && percentage(percent), duration(Math.round((Date.now() - began) / 1000) * 1000)]));
      };
      const over = new AbortController();
      watchProgress(path, (now) => {
        percent = now;
        set(bar, { class: "bar known", "aria-valuenow": percent, vars: { "--share": percent / 100 } });
        tell();
      }, AbortSignal.any([signal, over.signal]));
      const clock = setInterval(() => { tell(); reload(); }, 2000);
      try {
        const done = await ask(/** @type {`/sessions/${string}/compact`} */ (`${path}/${what}`), { method: "POST", body: what === "compact" ? { focus: focus.value.trim(), force: force.checked } : {}, signal, seconds: COMMAND_SECONDS });
        show(note, h("p", { class: "done" }, ts(done.result) || t("Done.")));
        say(ts(done.result) || t("Done."));
      } catch (error) {
        if (signal.aborted) return;
        show(note, problem(error));
        if (closed) say(error instanceof Failure ? error.message : t("That did not work."));
      } finally { clearInterval(clock); over.abort(); }
      reload();
    }
    look();
  }
  /** Opens the dialog with the switch and the limit of summaries. */
  async function choose() {
    const now = chosen();
    const automatic = h("input", { type: "checkbox", checked: now?.compaction !== "off" });
    const limit = h("input", { type: "text", inputmode: "numeric", dir: "ltr", maxlength: 8, autocomplete: "off", value: now?.compact_at ?? "", "aria-describedby": "upkeep-most" });
    const most = h("span", { class: "muted small block", id: "upkeep-most" }, t("If empty, the agent's setting applies."));
    const note = h("div", { role: "status" });
    const save = h("button", { type: "button", class: "solid", onclick: () => store() }, t("Save"));
    show(dialog, h("h2", { id: "upkeep-title" }, t("When to summarise")),
      h("label", { class: "tick" }, automatic, h("span", null, t("Summarise automatically"), h("span", { class: "muted small block" }, t("Otherwise the oldest messages are left out of requests once the context is full. Nothing is deleted.")))),
      h("label", null, h("span", null, t("Summarise above this many tokens")), limit, most), note,
      h("div", { class: "actions" }, save, h("button", { type: "button", class: "line", onclick: () => dialog.close() }, t("Cancel"))));
    dialog.showModal();
    ask(`${path}/now`, { signal }).then((built) => show(most, t("At most {most}. If empty, the agent's setting applies.", { most: number(built.hard) }))).catch(() => {});

    async function store() {
      const tokens = Number(limit.value.replace(/[\s.,'_]/g, "") || 0);
      set(save, { disabled: true });
      try {
        await ask(`${path}/compaction`, { method: "POST", body: { automatic: automatic.checked, limit: tokens }, signal });
        say(t("Saved."));
        dialog.close();
        reload();
      } catch (error) {
        if (!signal.aborted) show(note, problem(error));
      } finally { set(save, { disabled: false }); }
    }
  }
  signal.addEventListener("abort", () => dialog.remove());
  return [h("button", { type: "button", class: "line", onclick: () => choose() }, t("When to summarise")), h("button", { type: "button", class: "line", onclick: () => open("flush") }, t("Save memory now")), h("button", { type: "button", class: "solid", onclick: () => open("compact") }, t("Summarise now")), dialog];
}

/**
 * Reports the progress of a session's jobs. The stream names jobs only, so the job's session is requested once.
 * @param {string} path @param {(percent: number) => void} tell @param {AbortSignal} signal
 */
function watchProgress(path, tell, signal) {
  /** @type {Map<number, Promise<boolean>>} */
  const ours = new Map();
  /** @param {number} job */
  async function isOurs(job) {
    const found = await ask(`/jobs?limit=20&session=${path.split("/").pop()}`, { refresh: true, signal });
    return found.jobs.some((one) => Number(one.id) === job);
  }
  follow({
    changed() {}, moved() {},
    async progress({ job, percent }) {
      if (!ours.has(job)) ours.set(job, isOurs(job).catch(() => false));
      if (await ours.get(job) && !signal.aborted) tell(percent);
    },
  }, signal);
}

/** Returns the numbers of the session's agent, with a list of those that differ from the preset's. @param {Api["WindowNow"]} now */
export function presetView(now) {
  /** @param {any} value */
  const shown = (value) => value === null ? t("no limit") : typeof value === "boolean" ? (value ? t("yes") : t("no")) : typeof value === "number" ? number(value) : Array.isArray(value) ? value.map((one) => Array.isArray(one) ? one.join(" ") : String(one)).join(", ") || t("none") : String(value).trim();
  const plain = (/** @type {string} */ name) => h("span", { translate: "no" }, name.replaceAll("_", " "));
  return [h("p", null, h("b", null, now.preset), h("span", { class: "muted" }, ` · ${now.model}`)),
    h("dl", { class: "pairs numbers" }, pair(t("Saves memory above"), tn("{count} token", "{count} tokens", now.flush_at)), pair(t("Summarises above"), tn("{count} token", "{count} tokens", now.compact_at ?? 0)), pair(t("Hard limit"), tn("{count} token", "{count} tokens", now.hard)), pair(t("Fixed overhead"), tn("{count} token of system and tools", "{count} tokens of system and tools", now.fixed))),
    MEMORY[now.memory] && h("p", { class: "muted small" }, MEMORY[now.memory]),
    now.overrides.length ? h("ul", { class: "notes" }, now.overrides.map((one) => h("li", null, h("span", { class: "badge" }, one.by === "agent" ? t("agent") : t("setting")), plain(one.name), ": ", h("b", null, shown(one.effective)), h("span", { class: "muted" }, " ", t("(preset: {value})", { value: shown(one.preset) })))))
      : h("p", { class: "muted" }, t("All numbers are the preset’s own.")),
    h("details", null, h("summary", null, t("All numbers")), h("dl", { class: "pairs" }, Object.entries(now.numbers).map(([name, value]) => pair(plain(name), h("span", { translate: "no" }, shown(value))))))];
}

/** Returns when the next automatic summary comes, or why none does. @param {Api["NextSummary"]} next */
function nextSummary({ turns, soon, withheld }) {
  if (withheld) return WITHHELD[withheld];
  if (soon) return t("Earlier messages will soon be summarised.");
  return turns > 0 && t("Messages until the next summary: about {turns}", { turns });
}

/** Returns the contents of the session's next request, and the free part of the window. @param {Api["WindowNow"]} now @param {string[]} sources @param {Record<string, string>} names */
export function windowView(now, sources, names) {
  const parts = now.parts;
  if (now.used === null || !parts) return empty(t("Not known before the first answer."));
  const rows = /** @type {[string, number][]} */ ([...sources.map((name) => [name, parts[name] ?? 0]), ...(now.reserved ? [["reserved", now.reserved]] : []), ["free", now.free ?? 0]]);
  return [h("div", { class: "stacked", "aria-hidden": "true" }, rows.filter(([, count]) => count > 0).map(([name, count]) => h("span", { class: `part ${name}`, vars: { "--share": count } }))),
    h("dl", { class: "fills" }, rows.map(([name, count]) => h("div", null, h("dt", null, h("span", { class: `dot ${name}`, "aria-hidden": "true" }), names[name]), h("dd", null, h("span", null, tokens(count)), h("span", { class: "muted" }, name === "reserved" ? "" : pct(count * 100 / now.limit)))))),
    h("dl", { class: "fills rest" }, [[t("Limit"), now.limit], [t("Kept free for the answer"), now.answer], [t("Reserve beyond the limit"), now.beyond], [t("Window"), now.window]].map(([name, count]) => h("div", null, h("dt", null, name), h("dd", null, h("span", null, tokens(count)), h("span"))))),
    now.next && h("p", { class: "muted small" }, nextSummary(now.next)),
    now.unsent > 0 && h("p", { class: "muted small" }, tn("{count} token of older messages is not sent by this preset.", "{count} tokens of older messages are not sent by this preset.", now.unsent, { count: tokens(now.unsent) }))];
}
