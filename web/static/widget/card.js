/** The card in place of summarised messages: Summary | Original, and Undo. */
import english from "../locales/en/chat_parts.json" with { type: "json" };
import { h, set, show } from "../shared/h.js";
import { tokens } from "../shared/fmt.js";
import { adopt } from "./styles.js";
import { wordsOf } from "./words.js";

const t = wordsOf("card", english.card);
const CARD_LOOK = /* css */ `
.card { border: 1px solid var(--line); border-radius: var(--radius-m); background: var(--soft); font-size: 14px; }
.card-head { display: flex; align-items: center; padding: 5px; }
.card-head :is(.quiet, .card-toggle):hover { background: var(--card); color: var(--fg); }
.card-toggle { flex: 1; min-width: 0; min-height: 30px; display: flex; align-items: center; gap: 8px; padding: 3px 8px; text-align: start; font-size: 13.5px; line-height: 1.35; color: var(--muted); font-variant-numeric: tabular-nums; }
.card > .small { padding: 0 13px 8px; }
.card-body { padding: 0 12px 12px; }
.tabs { display: inline-flex; gap: 4px; margin-bottom: 8px; }
.tab { min-height: 30px; padding: 0 12px; font-size: 13px; color: var(--muted); border: 1px solid transparent; border-radius: 15px; }
.tab[aria-selected="true"] { background: var(--card); color: var(--fg); border-color: var(--line); }
.pane { max-height: 40vh; overflow: auto; border-radius: 6px; }
@media (forced-colors: active) { .tab[aria-selected="true"] { border: 1px solid; } }
`;

/**
 * @typedef {object} CardTools
 * @property {(node: HTMLElement, text: string) => void} markdown
 * @property {(id: string, before?: string) => Promise<{messages: {role: string, text: string}[], before: string | null}>} originals
 * @property {() => void} undo
 * @property {{get: (name: string) => string, put: (name: string, value: string) => void}} store
 */

/** @param {any} card */
function title(card) {
  const words = t(card.kind === "digest" ? "card_digest" : "card_summary");
  return card.before && card.after ? `${words} · ${tokens(card.before)} → ${tokens(card.after)}` : words;
}

/** Returns the summary with translated headings; it is stored with English ones, which models read. @param {string} summary */
const headed = (summary) => summary.replace(/^## (.+)$/gm, (line, heading) => {
  const key = `summary_${heading.toLowerCase().match(/[a-z]+/g)?.join("_")}`;
  return key in english.card ? `## ${t(key)}` : line;
});

/**
 * Builds a card; `update(card, newest)` changes what the server or a newer card changed.
 * @param {any} card @param {CardTools} tools @param {Node} chat the node of the chat that it stands in
 */
export function compactionCard(card, tools, chat) {
  adopt(chat, CARD_LOOK);
  const base = `card-${card.id}`;
  const label = h("span", { class: "card-title" });
  const toggle = h("button", { class: "card-toggle", type: "button", "aria-expanded": "false", "aria-controls": `${base}-body`, onclick: () => open(body.hidden) },
    h("span", { class: "chevron", "aria-hidden": "true" }), label);
  const undo = h("button", { class: "quiet", type: "button" }, t("undo"));
  const reason = h("p", { class: "muted small", id: `${base}-why`, hidden: true });
  const names = ["summary", "original"];
  const panes = names.map((name) => h("div", { class: "pane", role: "tabpanel", id: `${base}-${name}`, "aria-labelledby": `${base}-tab-${name}`, tabindex: 0 }));
  const tabs = names.map((name, at) => h("button", {
    class: "tab", type: "button", role: "tab", id: `${base}-tab-${name}`, "aria-controls": `${base}-${name}`,
    onclick: () => choose(at), onkeydown: move,
  }, t(`tab_${name}`)));
  const list = h("div", { class: "tabs", role: "tablist", "aria-label": t("card_tabs") }, tabs);
  const body = h("div", { class: "card-body", id: `${base}-body`, hidden: true }, list, panes);
  const node = h("div", { class: "card", role: "group", "data-compaction": card.id }, h("div", { class: "card-head" }, toggle, undo), reason, body);
  let shown = "";

  undo.addEventListener("click", () => {
    if (undo.getAttribute("aria-disabled") === "true") { reason.hidden = false; return; }
    set(undo, { "aria-disabled": "true" });
    show(undo, t("undoing"));
    setTimeout(() => update(current, true), 15_000);
    tools.undo();
  });

  /** @param {boolean} wanted */
  function open(wanted) {
    body.hidden = !wanted;
    set(toggle, { "aria-expanded": String(wanted) });
    if (wanted) choose(tools.store.get(`tab:${card.id}`) === "original" ? 1 : 0, false);
  }

  /** @param {number} at @param {boolean} [keep] */
  function choose(at, keep = true) {
    tabs.forEach((tab, index) => set(tab, { "aria-selected": String(index === at), tabindex: index === at ? 0 : -1 }));
    panes.forEach((pane, index) => { pane.hidden = index !== at; });
    if (keep) tools.store.put(`tab:${card.id}`, at ? "original" : "");
    if (at === 1) void import("./rare.js").then((one) => one.fillOriginal(panes[1], card, tools));
  }

  /** @param {KeyboardEvent} event */
  function move(event) {
    if (!["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) return;
    event.preventDefault();
    const at = event.key === "Home" ? 0 : event.key === "End" ? 1 : tabs[0].getAttribute("aria-selected") === "true" ? 1 : 0;
    choose(at);
    tabs[at].focus();
  }

  let current = card;
  /** @param {any} next @param {boolean} newest */
  function update(next, newest) {
    current = next;
    show(label, title(next));
    const why = !newest ? t("undo_older") : next.can_undo ? "" : next.undo_reason || t("undo_no");
    show(undo, t("undo"));
    set(undo, { "aria-disabled": why ? "true" : null, "aria-describedby": why ? `${base}-why` : null, title: why || null });
    show(reason, why);
    if (!why) reason.hidden = true;
    if (next.summary !== shown) tools.markdown(panes[0], headed(shown = next.summary ?? ""));
  }
  return { node, update };
}
