/** "Compact now" and "Flush now": what it would do and cost, said before; how it goes; what came of it. */
import { h, set, show } from "../shared/h.js";
import { follow } from "./live.js";
import { ask } from "./net.js";
import { empty, money, number, problem, skeleton, tokens } from "./parts.js";

const COMMAND_SECONDS = 210;
const REASONS = {
  nothing_old: "There are only the newest messages, and they stay as they are.",
  open_turn_too_big: "The message that is being answered takes most of the room.",
  pins: "All older messages are pinned.",
  gain_too_small: "It would save too little.",
  unanswered: "An older message has no answer yet.",
  grows: "The summary would be longer than what it replaces.",
  all_read: "Everything was read already.",
};
const INSISTS = new Set(["gain_too_small", "unanswered", "grows"]);

/** @param {any} found */
const turnsOf = (found) => found.from_turn === found.through_turn ? `turn ${number(found.from_turn)}` : `${number(found.through_turn - found.from_turn + 1)} turns (${number(found.from_turn)} – ${number(found.through_turn)})`;
/** @param {any} found */
const costOf = (found) => `${found.model} reads about ${tokens(found.reads)} tokens in ${found.calls === 1 ? "one call" : `${number(found.calls)} calls`}, ${found.cost_micro === null ? "at an unknown price" : `at most about ${money(found.cost_micro)}`}`;

/** @param {any} found @param {string} what */
function expected(found, what) {
  if (!found.possible) return h("p", null, REASONS[/** @type {keyof typeof REASONS} */ (found.reason)] ?? found.reason, found.detail && h("span", { class: "muted block small" }, found.detail));
  if (what === "flush") return h("dl", { class: "pairs" }, pair("Reads", turnsOf(found)), pair("With", costOf(found)), pair("Then", "what is worth keeping is saved as notes; nobody sees it in the conversation"));
  return h("dl", { class: "pairs" }, pair("Summarises", turnsOf(found)), pair("Context", `${tokens(found.before)} → about ${tokens(found.after)} tokens`), pair("With", costOf(found)),
    found.flush && pair("Before that", `saves ${turnsOf(found.flush)} to memory: ${costOf(found.flush)}`));
}

/** @param {string} name @param {any} words */
const pair = (name, words) => h("div", null, h("dt", null, name), h("dd", null, words));

/**
 * @param {{path: string, me: any, say: (words: string) => void, signal: AbortSignal, reload: () => void, running: () => any}} of
 */
export function upkeepButtons({ path, me, say, signal, reload, running }) {
  if (!me.can_run_commands || !me.can_inspect) return null;
  const dialog = h("dialog", { class: "card upkeep", "aria-labelledby": "upkeep-title", onclose: () => { closed = true; } });
  let closed = true;

  /** @param {"compact" | "flush"} what */
  async function open(what) {
    const title = what === "compact" ? "Compact now" : "Flush now";
    const told = h("div", null, skeleton(3));
    const note = h("div", { role: "status" });
    const focus = h("input", { type: "text", maxlength: 300, autocomplete: "off" });
    const force = h("input", { type: "checkbox", onchange: () => look() });
    const insists = h("label", { class: "check", hidden: true }, force, h("span", null, "All the same"));
    const start = h("button", { type: "button", class: "solid", disabled: true, onclick: () => run() }, title);
    const end = h("button", { type: "button", class: "line", onclick: () => dialog.close() }, "Cancel");
    show(dialog, h("h2", { id: "upkeep-title" }, title), told, what === "compact" && h("label", null, h("span", null, "What matters most (may stay empty)"), focus), insists, note, h("div", { class: "actions" }, start, end));
    closed = false;
    dialog.showModal();

    async function look() {
      try {
        const found = await ask(`${path}/estimate?do=${what}${force.checked ? "&force=1" : ""}`, { signal });
        show(told, expected(found, what));
        if (INSISTS.has(found.reason)) insists.hidden = false;
        set(start, { disabled: !found.possible });
      } catch (error) { if (!signal.aborted) show(told, problem(error, look)); }
    }

    async function run() {
      for (const control of [start, focus, force]) set(control, { disabled: true });
      show(end, "Close");
      const began = Date.now();
      const words = h("span", null, "It is asked for.");
      const bar = h("span", { class: "bar", role: "progressbar", "aria-label": title });
      show(note, h("p", { class: "working" }, bar, words));
      /** @type {number | null} */
      let percent = null;
      const tell = () => {
        const kind = running()?.kind;
        const stage = kind === "compact" ? "Summarising" : kind === "flush" ? "Saving to memory" : percent === null ? "Waiting for a worker" : what === "flush" ? "Saving to memory" : "Summarising";
        show(words, [stage, percent !== null && `${percent} %`, `${Math.round((Date.now() - began) / 1000)} s`].filter(Boolean).join(" · "));
      };
      const over = new AbortController();
      howFar(path, (now) => {
        percent = now;
        set(bar, { class: "bar known", "aria-valuenow": percent, vars: { "--share": percent / 100 } });
        tell();
      }, AbortSignal.any([signal, over.signal]));
      const clock = setInterval(() => { tell(); reload(); }, 2000);
      try {
        const done = await ask(`${path}/${what}`, { method: "POST", body: what === "compact" ? { focus: focus.value.trim(), force: force.checked } : {}, signal, seconds: COMMAND_SECONDS });
        show(note, h("p", { class: "done" }, done.result || "Done."));
        say(done.result || `${title}: done.`);
      } catch (error) {
        if (signal.aborted) return;
        show(note, problem(error));
        if (closed) say(/** @type {Error} */ (error).message);
      } finally { clearInterval(clock); over.abort(); }
      reload();
    }
    look();
  }
  signal.addEventListener("abort", () => dialog.remove());
  return [h("button", { type: "button", class: "line", onclick: () => open("flush") }, "Flush now"), h("button", { type: "button", class: "solid", onclick: () => open("compact") }, "Compact now"), dialog];
}

/**
 * Hears how far the work at one session is: the stream names jobs, and whose a job is, one question tells.
 * @param {string} path @param {(percent: number) => void} tell @param {AbortSignal} signal
 */
function howFar(path, tell, signal) {
  /** @type {Map<number, Promise<boolean>>} */
  const ours = new Map();
  /** @param {number} job */
  async function isOurs(job) {
    const found = await ask(`/jobs?limit=20&session=${path.split("/").pop()}`, { refresh: true, signal });
    return found.jobs.some((/** @type {any} */ one) => Number(one.id) === job);
  }
  follow({
    changed() {}, moved() {},
    async progress({ job, percent }) {
      if (!ours.has(job)) ours.set(job, isOurs(job).catch(() => false));
      if (await ours.get(job) && !signal.aborted) tell(percent);
    },
  }, signal);
}

/** The numbers that hold for this session's agent, and which of them are not the preset's own. @param {any} now */
export function presetView(now) {
  /** @param {any} value */
  const shown = (value) => value === null ? "no limit" : typeof value === "boolean" ? (value ? "yes" : "no") : typeof value === "number" ? number(value) : Array.isArray(value) ? value.map((one) => Array.isArray(one) ? one.join(" ") : String(one)).join(", ") || "none" : String(value).trim();
  /** @param {string} name */
  const plain = (name) => name.replaceAll("_", " ");
  return [h("p", null, h("b", null, now.preset), h("span", { class: "muted" }, ` · ${now.model}`)),
    h("dl", { class: "pairs numbers" }, pair("Saves memory above", `${number(now.flush_at)} tokens`), pair("Summarises above", `${number(now.compact_at)} tokens`), pair("No request above", `${number(now.hard)} tokens`), pair("In every request", `${number(now.fixed)} tokens of system and tools`)),
    now.overrides.length ? h("ul", { class: "notes" }, now.overrides.map((/** @type {any} */ one) => h("li", null, h("span", { class: "badge" }, one.by === "agent" ? "agent" : "setting"), `${plain(one.name)}: `, h("b", null, shown(one.effective)), h("span", { class: "muted" }, ` (preset: ${shown(one.preset)})`))))
      : h("p", { class: "muted" }, "All numbers are the preset’s own."),
    h("details", null, h("summary", null, "All numbers"), h("dl", { class: "pairs" }, Object.entries(now.numbers).map(([name, value]) => pair(plain(name), shown(value)))))];
}

/** What the session's next request is filled with, and what of the window is left. @param {any} now @param {string[]} sources @param {Record<string, string>} names @param {(share: number) => string} pct */
export function windowView(now, sources, names, pct) {
  if (now.used === null) return empty("Not known before the first answer.");
  const rows = [...sources.map((name) => [name, now.parts[name] ?? 0]), ["free", now.free]];
  return [h("div", { class: "stacked", "aria-hidden": "true" }, rows.filter(([, count]) => count > 0).map(([name, count]) => h("span", { class: `part ${name}`, vars: { "--share": count } }))),
    h("dl", { class: "fills" }, rows.map(([name, count]) => h("div", null, h("dt", null, h("span", { class: `dot ${name}`, "aria-hidden": "true" }), names[name]), h("dd", null, h("span", null, tokens(count)), h("span", { class: "muted" }, pct(count * 100 / now.limit)))))),
    h("dl", { class: "fills rest" }, [["Limit", now.limit], ["Kept free for the answer", now.answer], ["Reserve beyond the limit", now.beyond], ["Window", now.window]].map(([name, count]) => h("div", null, h("dt", null, name), h("dd", null, h("span", null, tokens(count)), h("span"))))),
    now.unsent > 0 && h("p", { class: "muted small" }, `${tokens(now.unsent)} tokens of older messages are not sent by this preset.`)];
}
