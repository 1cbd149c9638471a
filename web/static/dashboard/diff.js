/** Difference between a summary and the one before, and facts that it lacks, which can be kept. */
import { ask } from "./net.js";
import { empty, h, problem, show, skeleton, t, tn, ts } from "./parts.js";

const MARKS = { added: "+", removed: "−", same: "" };
const CHANGES = { added: t("new"), changed: t("changed"), closed: t("closed"), lost: t("removed without a reason") };
const SAME_SHOWN = 2;
const NEW_SHOWN = 8;

/** Draws lines of a difference; unchanged stretches are folded. @param {Api["DiffLine"][]} lines @param {(count: number) => string} [folded] */
export function linesOf(lines, folded = (count) => tn("{count} unchanged sentence", "{count} unchanged sentences", count)) {
  const nodes = [];
  for (let at = 0; at < lines.length;) {
    let end = at;
    while (end < lines.length && lines[end].change === "same") end++;
    if (end - at > SAME_SHOWN) {
      nodes.push(h("li", { class: "same" }, h("details", null, h("summary", null, folded(end - at)), lines.slice(at, end).map((line) => h("p", { dir: "auto" }, line.text)))));
      at = end;
    } else {
      const line = lines[at++];
      const words = { added: [t("added:"), " "], removed: [t("removed:"), " "], same: "" }[/** @type {"added" | "removed" | "same"} */ (line.change)];
      nodes.push(h("li", { class: line.change }, h("span", { class: "sign", "aria-hidden": "true" }, MARKS[/** @type {keyof typeof MARKS} */ (line.change)]), h("span", { class: "unseen" }, words),
        h(line.change === "added" ? "ins" : line.change === "removed" ? "del" : "span", { dir: "auto" }, line.text)));
    }
  }
  return h("ol", { class: "diff-lines" }, nodes);
}

/** @param {Api["ItemChange"]} item */
const itemNode = (item) => h("li", { class: item.change }, h("span", { class: "badge" }, CHANGES[/** @type {keyof typeof CHANGES} */ (item.change)]), h("span", { class: "badge" }, ts(item.kind)),
  item.former && [h("del", { dir: "auto" }, item.former), " "], h(item.change === "closed" || item.change === "lost" ? "del" : "span", { dir: "auto" }, item.text), item.reason && h("span", { class: "muted" }, ` · ${item.reason}`));

/** Shows changed and lost items; a long list of new ones is folded. @param {Api["SummaryComparison"]} diff */
function itemsOf({ items }) {
  const fresh = items.filter((item) => item.change === "added");
  const other = items.filter((item) => item.change !== "added");
  const list = (/** @type {any[]} */ some) => some.length > 0 && h("ul", { class: "notes" }, some.map(itemNode));
  return [list(other), fresh.length > NEW_SHOWN ? h("details", null, h("summary", null, tn("{count} item is new", "{count} items are new", fresh.length)), list(fresh)) : list(fresh)];
}

/** @param {string} label @param {any[]} facts */
function listMissing(label, facts) {
  return facts.map((fact) => h("li", { class: "missing" }, h("span", { class: "badge" }, label), h("mark", { dir: "auto" }, fact.text), fact.turn && h("span", { class: "muted" }, " ", t("turn {turn}", { turn: fact.turn }))));
}

/** @param {Api["SummaryComparison"]} diff */
function renderDiff(diff) {
  const lost = [...listMissing(t("pinned"), diff.pins.filter((pin) => !pin.said)), ...listMissing(t("note"), diff.notes.filter((note) => !note.said)), ...listMissing(t("ledger"), diff.unsaid)];
  const facts = diff.pins.length + diff.notes.length + diff.unsaid.length;
  return [
    h("h3", null, t("Facts that the summary does not say")),
    lost.length ? [h("ul", { class: "notes" }, lost), h("p", { class: "small muted" }, t("Pinned messages stay verbatim next to the summary, notes in memory, and ledger items in its record: they are not lost, only not in this text."))]
      : h("p", { class: "muted" }, facts ? t("It says all of them.") : t("There were none to keep.")),
    h("h3", null, t("Record")), itemsOf(diff), h("p", { class: "muted" }, tn("{count} item is unchanged.", "{count} items are unchanged.", diff.kept)),
    h("h3", null, t("Text, compared with the previous summary")), !diff.former ? h("p", { class: "muted" }, t("There was none before: all of it is new.")) : diff.lines.length ? linesOf(diff.lines) : empty(t("The summary is empty.")),
  ];
}

/** Returns the node with the difference between a summary and the one before, which it loads at once. @param {string} id of the summary @param {AbortSignal} signal */
export function diffView(id, signal) {
  const node = h("div", { class: "diff" }, skeleton(3));
  const load = () => ask(`/compactions/${id}/diff`, { signal }).then((diff) => show(node, renderDiff(diff)), (error) => { if (!signal.aborted) show(node, problem(error, load)); });
  load();
  return node;
}
