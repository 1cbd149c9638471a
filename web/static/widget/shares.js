/** The parts of the context as a bar and as text; loaded when the gauge is opened. */
import english from "../locales/en/chat_parts.json" with { type: "json" };
import { h, set, show } from "../shared/h.js";
import { tokens } from "../shared/fmt.js";
import { adopt } from "./styles.js";
import { wordsOf } from "./words.js";

const t = wordsOf("shares", english.shares);
const PARTS = ["system", "memory", "summary", "history", "tools"];
const SHARE_LOOK = /* css */ `
.popover {
  --system: light-dark(#64748b, #94a3b8); --memory: light-dark(#7c3aed, #a78bfa); --summary: light-dark(#0f766e, #2dd4bf);
  --history: light-dark(#4f46e5, #818cf8); --tools: light-dark(#c2410c, #fb923c);
  position: absolute; z-index: 3; top: 52px; inset-inline: 14px; max-height: calc(100% - 66px); overflow: auto; padding: 14px; display: grid; gap: 12px;
  background: var(--card); border: 1px solid var(--line); border-radius: var(--radius-m); box-shadow: 0 12px 32px rgb(0 0 0 / .18);
}
.popover-title { font-weight: 600; font-variant-numeric: tabular-nums; }
.stack { display: flex; gap: 2px; height: 8px; border-radius: 4px; overflow: hidden; }
.part { flex: var(--share) 1 0; min-width: 2px; background: var(--line); }
.dot { display: inline-block; width: 9px; height: 9px; margin-inline-end: 8px; border-radius: 3px; background: var(--line); }
.dot.free { background: none; box-shadow: inset 0 0 0 1.5px var(--muted); }
.part.reserved, .dot.reserved { background: repeating-linear-gradient(135deg, var(--muted) 0 2px, var(--line) 2px 5px); }
.part.system, .dot.system { background: var(--system); } .part.memory, .dot.memory { background: var(--memory); }
.part.summary, .dot.summary { background: var(--summary); } .part.history, .dot.history { background: var(--history); }
.part.tools, .dot.tools { background: var(--tools); }
.parts { display: grid; gap: 3px; font-size: 14px; }
.parts > div { display: flex; justify-content: space-between; } .parts dd { font-variant-numeric: tabular-nums; color: var(--muted); }
.root[data-mode="page"] .popover { width: 100%; inset-inline: auto max(14px, env(safe-area-inset-right)); max-width: min(400px, calc(100vw - 28px)); }
@media (forced-colors: active) { .popover { border: 1px solid; } .part, .dot { forced-color-adjust: none; } }
`;

/** Draws the popover of the gauge: the parts of the context, the next summary, and its buttons. @param {HTMLElement} popover @param {any} ctx @param {string} sentence @param {import("./gauge.js").GaugeTools} tools @param {() => void} close */
export function explain(popover, ctx, sentence, tools, close) {
  adopt(popover, SHARE_LOOK);
  const parts = ctx?.parts ?? {};
  const rows = PARTS.filter((name) => typeof parts[name] === "number").map((name) => ({ name, count: parts[name] }));
  if (ctx?.reserved) rows.push({ name: "reserved", count: ctx.reserved });
  if (ctx?.limit) rows.push({ name: "free", count: Math.max(ctx.limit - ctx.used, 0) });
  const saved = tools.saved();
  set(popover, { "aria-label": sentence });
  show(popover,
    h("h2", { class: "popover-title" }, sentence, ctx?.stale && h("span", { class: "muted" }, ` (${t("updating")})`)),
    ctx?.limit && h("div", { class: "stack", "aria-hidden": "true" },
      rows.filter((row) => row.count > 0).map((row) => h("span", { class: `part ${row.name}`, vars: { "--share": String(row.count) } }))),
    h("dl", { class: "parts" }, rows.map((row) => h("div", null,
      h("dt", null, h("span", { class: `dot ${row.name}`, "aria-hidden": "true" }), t(`part_${row.name}`)), h("dd", null, tokens(row.count))))),
    h("p", { class: "muted small" }, t("explain")),
    ctx?.next && h("p", { class: "muted small" }, outlook(ctx.next)),
    saved > 0 && h("p", { class: "muted small" }, t("saved", { tokens: tokens(saved) })),
    ctx?.estimated && h("p", { class: "muted small" }, t("estimated")),
    h("div", { class: "row" }, act(tools, close, "compact", "summarise_now", tools.compact, "solid"), act(tools, close, "new", "new_chat", tools.restart, "line")));
}

/** @param {import("./gauge.js").GaugeTools} tools @param {() => void} close @param {string} command @param {string} words @param {() => void} run @param {string} look */
const act = (tools, close, command, words, run, look) => tools.can(command) && h("button", { class: `action ${look}`, type: "button", onclick: () => { close(); run(); } }, t(words));

/** Returns the text that says when the next summary comes, or why none does. @param {{turns?: number, soon?: boolean, withheld?: string}} next */
function outlook({ turns, soon, withheld }) {
  if (withheld) return t(`next_${withheld}`);
  return soon || !turns ? soon && t("next_soon") : t("next_turns", { turns });
}

/** Marks the messages of which a summary will soon be made, or removes that mark. @param {any} chat the conversation on the page */
export function announce(chat) {
  chat.soon ??= h("div", { class: "bar", role: "status" });
  if (!chat.soon.isConnected) chat.bar.after(chat.soon);
  const hidden = !chat.chat.ctx?.next?.soon || !chat.bar.hidden || chat.chat.settings.audience === "public";
  if (chat.soon.hidden !== hidden || !chat.soon.textContent) show(chat.soon, hidden ? "" : t("next_soon"));
  chat.soon.hidden = hidden;
}
