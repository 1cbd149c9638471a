/** Every summary of a session: its saving, its cost, its text and the original messages, and a button to undo it. */
import { ask } from "./net.js";
import { DASH, empty, h, money, number, pct, problem, show, t, tabs, time, tokens, ts } from "./parts.js";
import { duration } from "./figures.js";
import { diffView } from "./diff.js";
import { markdown, transcript } from "./transcript.js";
import { adoptMd as dress } from "../widget/md.js";

const TRIGGERS = { auto: t("automatic"), limit: t("automatic"), turns: t("after so many turns"), manual: t("manually"), overflow: t("overflow"), idle: t("while idle"), upgrade: t("better words later") };

/** @typedef {{path: `/sessions/${string}`, me: Api["Me"], signal: AbortSignal, say: (words: string) => void, reload: () => void, open: Set<string>}} Tools */

/** @param {Api["Compaction"]} compaction */
function bars(compaction) {
  const share = compaction.tokens_before ? (compaction.tokens_after ?? 0) / compaction.tokens_before : 0;
  return h("span", { class: "before-after" }, h("span", { class: "bars", "aria-hidden": "true" }, h("i"), h("i", { vars: { "--share": Math.min(share, 1) } })),
    h("span", { dir: "ltr" }, `${tokens(compaction.tokens_before)} → ${tokens(compaction.tokens_after)}`));
}

/** Returns nested findings as lines of text. @param {any} value @returns {string} */
function plain(value) {
  if (value === null || value === undefined) return DASH;
  if (Array.isArray(value)) return value.length ? value.map(plain).join(", ") : t("none");
  if (typeof value === "object") return Object.entries(value).map(([key, item]) => `${key}: ${plain(item)}`).join(", ") || DASH;
  if (typeof value === "boolean") return value ? t("yes") : t("no");
  return typeof value === "number" ? number(Math.round(value * 1000) / 1000) : String(value);
}

/** @param {Api["Compaction"]} compaction */
function audit(compaction) {
  const entries = Object.entries(compaction.audit ?? {});
  if (!entries.length) return null;
  return h("details", null, h("summary", null, t("Audit")), h("dl", { class: "pairs", translate: "no" }, entries.map(([name, value]) => h("div", null, h("dt", null, name.replaceAll("_", " ")), h("dd", { dir: "auto" }, plain(value))))));
}

/** @param {Api["Compaction"]} compaction @param {Tools} tools */
function actions(compaction, tools) {
  if (!tools.me.can_run_commands) return null;
  const [verb, path, possible, reason] = compaction.active ? [t("Undo"), "undo", compaction.can_undo, compaction.undo_reason] : [t("Restore"), "restore", compaction.can_restore, compaction.restore_reason];
  const note = h("span", { class: "muted small", id: `why-${compaction.id}` }, reason ? ts(reason) : (compaction.active ? t("The originals come back into the conversation.") : t("The summary takes the place of the originals again.")));
  const button = h("button", { type: "button", class: "line", disabled: !possible, "aria-describedby": `why-${compaction.id}`, onclick: async () => {
    button.disabled = true;
    try {
      await ask(`/compactions/${compaction.id}/${path}`, { method: "POST", body: {} });
      tools.say(compaction.active ? t("The summary is undone.") : t("The summary is restored."));
      tools.reload();
    } catch (error) { show(note, problem(error)); button.disabled = false; }
  } }, verb);
  return h("p", { class: "actions" }, button, note);
}

/** @param {Api["Compaction"]} compaction @param {Tools} tools */
function inside(compaction, tools) {
  return [tabs(t("Summary, original or diff"), [
    { name: t("Summary"), make: () => compaction.summary ? h("div", { class: "summary-text", dir: "auto" }, markdown(compaction.summary)) : empty(t("The summary is empty.")) },
    { name: t("Original"), make: () => {
      const list = transcript({ path: `/compactions/${compaction.id}/messages`, label: t("Turns {first} – {last}", { first: compaction.from_turn, last: compaction.through_turn }), signal: tools.signal, empty: t("The originals are gone: retention or erasure removed them.") });
      list.load(false);
      return list.node;
    } },
    { name: t("Diff"), make: () => diffView(compaction.id, tools.signal) }]), audit(compaction), compaction.focus && h("p", { class: "small" }, t("Focus: {focus}", { focus: compaction.focus })), actions(compaction, tools)];
}

/** @param {Api["Compaction"]} compaction @param {Tools} tools */
function item(compaction, tools) {
  const body = h("div", { class: "fold-body" });
  const state = compaction.undone_at ? h("span", { class: "badge" }, t("undone")) : !compaction.active ? h("span", { class: "badge" }, t("replaced")) : compaction.stale ? h("span", { class: "badge", title: t("A message in it was edited later; the next summary will know.") }, t("stale")) : null;
  return h("details", { class: "fold-item", id: `c-${compaction.id}`, open: tools.open.has(compaction.id), ontoggle: (/** @type {any} */ event) => {
    tools.open[event.target.open ? "add" : "delete"](compaction.id);
    if (!event.target.open || body.firstChild) return;
    show(body, inside(compaction, tools));
    dress(body, ".drawn");
  } }, h("summary", null,
    h("span", { class: "fold-turns" }, t("Turns {first} – {last}", { first: compaction.from_turn, last: compaction.through_turn }), state), bars(compaction),
    h("b", { class: "saved" }, t("{percent} saved", { percent: pct(compaction.saved_pct) })),
    h("span", { class: "muted fold-facts" }, `${compaction.kind === "digest" ? t("without a model") : compaction.model ?? t("model unknown")} · ${TRIGGERS[/** @type {keyof typeof TRIGGERS} */ (compaction.trigger)] ?? compaction.trigger} · ${duration(compaction.duration_ms)} · ${money(compaction.cost_micro)} · `, time(compaction.at))), body);
}

/** @param {Api["FailedCompaction"]} failed */
function failedItem(failed) {
  return h("li", { class: "failed" }, h("b", { class: "crit-text" }, failed.state === "dead" ? t("Failed") : t("Retrying")),
    h("span", { class: "muted" }, " · ", t("job #{id}", { id: String(failed.id) }), ` · ${TRIGGERS[/** @type {keyof typeof TRIGGERS} */ (failed.trigger)] ?? failed.trigger} · `, t("attempt {number}", { number: failed.attempt }), " · ", time(failed.at)), failed.error && h("p", { class: "error-text" }, failed.error));
}

/** Returns the button that loads older summaries. @param {string} before @param {Tools} tools */
function olderButton(before, tools) {
  const note = h("span", { class: "small" });
  const button = h("button", { type: "button", class: "line", onclick: async () => {
    button.disabled = true;
    try {
      const page = await ask(`${tools.path}/compactions?before=${encodeURIComponent(before)}`, { signal: tools.signal });
      const items = pageOf(page, tools);
      place.replaceWith(...items);
      items[0]?.querySelector("summary")?.focus();
    } catch (error) { if (!tools.signal.aborted) { show(note, problem(error)); button.disabled = false; } }
  } }, t("Older summaries"));
  const place = h("p", { class: "actions" }, button, note);
  return place;
}

/** @param {Api["Compactions"]} page @param {Tools} tools @returns {HTMLElement[]} */
function pageOf(page, tools) {
  const items = page.compactions.map((compaction) => item(compaction, tools));
  return page.before ? [...items, olderButton(page.before, tools)] : items;
}

/** Returns the newest page of a session's summaries as nodes, with a button that loads older ones. @param {Api["Compactions"]} answer @param {Tools} tools */
export function compactionList(answer, tools) {
  if (!answer.compactions.length && !answer.failed.length) return empty(t("Nothing was summarised yet. It happens automatically when the context is nearly full."));
  return [(answer.total ?? 0) > 0 && h("p", { class: "muted small" }, t("{number} in total", { number: number(answer.total) })), pageOf(answer, tools), answer.failed.length > 0 && h("ul", { class: "failures" }, answer.failed.map(failedItem))];
}
