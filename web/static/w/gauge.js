/** Shows how full the context is: a ring with a number, and on click an explanation; it never acts by itself. */
import { h, set, show, svg } from "../shared/h.js";
import { percent, tokens } from "../shared/fmt.js";
import { t } from "./i18n.js";

const PARTS = ["system", "memory", "summary", "history", "tools"];
const ROUND = 2 * Math.PI * 7;

/** @param {any} ctx @returns {"ok" | "warning" | "critical"} */
export function level(ctx) {
  if (["ok", "warning", "critical"].includes(ctx.status)) return ctx.status;
  return ctx.pct > 90 ? "critical" : ctx.pct >= 70 ? "warning" : "ok";
}

/** @param {any} ctx */
export function sentence(ctx) {
  if (!ctx || !ctx.limit) return t("context_unknown");
  return t("context", { pct: percent(ctx.pct), used: tokens(ctx.used), limit: tokens(ctx.limit) });
}

/**
 * @param {{compact: () => void, restart: () => void, can: (command: string) => boolean, saved: () => number}} tools
 */
export function gauge(tools) {
  const arc = svg("circle", { class: "arc", cx: 9, cy: 9, r: 7, transform: "rotate(-90 9 9)", "stroke-dasharray": `0 ${ROUND}` });
  const label = h("span", { class: "pct", dir: "ltr" }, "–");
  const popover = h("div", { class: "popover", role: "dialog", id: "evt-context", hidden: true, tabindex: -1 });
  const button = h("button", {
    class: "gauge", type: "button", "aria-expanded": "false", "aria-haspopup": "dialog", "aria-controls": "evt-context", onclick: () => toggle(popover.hidden),
  }, svg("svg", { class: "ring", viewBox: "0 0 18 18", width: 18, height: 18, "aria-hidden": "true" }, svg("circle", { class: "track", cx: 9, cy: 9, r: 7 }), arc), label);
  /** @type {any} */
  let ctx = null;

  /** @param {boolean} wanted @param {boolean} [refocus] */
  function toggle(wanted, refocus = false) {
    popover.hidden = !wanted;
    set(button, { "aria-expanded": String(wanted) });
    if (wanted) { explain(); popover.focus(); } else if (refocus) button.focus();
  }

  /** @param {any} next */
  function update(next) {
    ctx = next;
    const known = Boolean(ctx && ctx.limit);
    const state = known ? level(ctx) : "unknown";
    const stale = Boolean(ctx?.stale);
    set(button, { data: { status: state, stale: String(stale) }, title: sentence(ctx),
      "aria-label": [sentence(ctx), known && t(state), stale && t("updating")].filter(Boolean).join(", ") });
    show(label, known ? percent(Math.round(ctx.pct)).replace(" ", "\u202f") : "–");
    set(arc, { "stroke-dasharray": `${known ? (Math.min(Math.max(ctx.pct, 0), 100) / 100) * ROUND : 0} ${ROUND}` });
    if (!popover.hidden) explain();
  }

  function explain() {
    const parts = ctx?.parts ?? {};
    const rows = PARTS.filter((name) => typeof parts[name] === "number").map((name) => ({ name, count: parts[name] }));
    if (ctx?.limit) rows.push({ name: "free", count: Math.max(ctx.limit - ctx.used, 0) });
    const saved = tools.saved();
    set(popover, { "aria-label": sentence(ctx) });
    show(popover,
      h("p", { class: "popover-title" }, sentence(ctx), ctx?.stale && h("span", { class: "muted" }, ` (${t("updating")})`)),
      ctx?.limit && h("div", { class: "stack", "aria-hidden": "true" },
        rows.filter((row) => row.count > 0).map((row) => h("span", { class: `part ${row.name}`, vars: { "--share": String(row.count) } }))),
      h("dl", { class: "parts" }, rows.map((row) => h("div", null,
        h("dt", null, h("span", { class: `dot ${row.name}`, "aria-hidden": "true" }), t(`part_${row.name}`)), h("dd", null, tokens(row.count))))),
      h("p", { class: "muted small" }, t("explain")),
      saved > 0 && h("p", { class: "muted small" }, t("saved", { count: tokens(saved) })),
      ctx?.estimated && h("p", { class: "muted small" }, t("estimated")),
      h("div", { class: "row" }, act("compact", "compact_now", tools.compact, "solid"), act("new", "new_chat", tools.restart, "line")));
  }

  /** @param {string} command @param {string} words @param {() => void} run @param {string} look */
  function act(command, words, run, look) {
    return tools.can(command) && h("button", { class: `action ${look}`, type: "button", onclick: () => { toggle(false, true); run(); } }, t(words));
  }
  return { button, popover, update, toggle, get shown() { return !popover.hidden; } };
}
