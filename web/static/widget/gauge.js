/** Gauge of the context: a ring with a number, and an explanation on click; it only informs. */
import { h, set, show, svg } from "../shared/h.js";
import { percent, tokens } from "../shared/fmt.js";
import { t } from "./i18n.js";

const ROUND = 2 * Math.PI * 7;

/** Returns how full the context is: the server's status, else "critical" above 90 percent and "warning" from 70. @param {any} ctx @returns {"ok" | "warning" | "critical"} */
export function level(ctx) {
  if (["ok", "warning", "critical"].includes(ctx.status)) return ctx.status;
  return ctx.pct > 90 ? "critical" : ctx.pct >= 70 ? "warning" : "ok";
}

/** Returns the percentage as the button shows it; a dash if it is unknown. @param {any} ctx */
const round = (ctx) => (ctx?.limit ? percent(Math.round(ctx.pct)).replace(" ", "\u202f") : "–");

/** @param {any} ctx @param {string} [pct] how full, if in other words */
function sentence(ctx, pct = percent(ctx?.pct)) {
  if (!ctx || !ctx.limit) return t("context_unknown");
  return t("context", { pct, used: tokens(ctx.used), limit: tokens(ctx.limit) });
}

/** @typedef {{compact: () => void, restart: () => void, can: (command: string) => boolean, saved: () => number}} GaugeTools */

/** Returns the gauge: its button and popover, `toggle` to open it, and `update` for newer numbers. @param {GaugeTools} tools */
export function gauge(tools) {
  const arc = svg("circle", { class: "arc", cx: 9, cy: 9, r: 7, transform: "rotate(-90 9 9)", "stroke-dasharray": `0 ${ROUND}` });
  const label = h("span", { class: "pct", dir: "ltr" }, "–");
  const popover = h("div", { class: "popover", role: "dialog", id: "evt-context", hidden: true, tabindex: -1 });
  const button = h("button", {
    class: "gauge", type: "button", "aria-expanded": "false", "aria-haspopup": "dialog", "aria-controls": "evt-context", onclick: () => toggle(popover.hidden),
  }, svg("svg", { class: "ring", viewBox: "0 0 18 18", width: 18, height: 18, "aria-hidden": "true" }, svg("circle", { class: "track", cx: 9, cy: 9, r: 7 }), arc), label);
  /** @type {any} */
  let ctx = null;
  let unfolding = false;

  /** @param {boolean} wanted @param {boolean} [refocus] */
  function toggle(wanted, refocus = false) {
    if (wanted) return explain(true);
    unfolding = false;
    popover.hidden = true;
    set(button, { "aria-expanded": "false" });
    if (refocus) button.focus();
  }

  /** Loads the parts of the number and shows them. @param {boolean} [open] */
  function explain(open = false) {
    unfolding ||= open;
    import("./shares.js").then((one) => {
      if (!unfolding) return;
      one.explain(popover, ctx, sentence(ctx), tools, () => toggle(false, true));
      if (!open) return;
      popover.hidden = false;
      set(button, { "aria-expanded": "true" });
      // it may load late: a person who is writing by now keeps the focus
      if (!popover.parentElement?.querySelector("textarea:focus")) popover.focus();
    }).catch(() => {});
  }

  /** @param {any} next */
  function update(next) {
    // A button about to be pressed must stay in place; the explanation is loaded again for the new numbers.
    if (!popover.hidden && next !== ctx) explain();
    ctx = next;
    const known = Boolean(ctx && ctx.limit);
    const state = known ? level(ctx) : "unknown";
    const stale = Boolean(ctx?.stale);
    set(button, { data: { status: state, stale: String(stale) }, title: sentence(ctx),
      "aria-label": [sentence(ctx, round(ctx)), known && t(`context_${state}`), stale && t("updating")].filter(Boolean).join(", ") });
    show(label, round(ctx));
    set(arc, { "stroke-dasharray": `${known ? (Math.min(Math.max(ctx.pct, 0), 100) / 100) * ROUND : 0} ${ROUND}` });
  }

  return { button, popover, update, toggle, get shown() { return !popover.hidden; } };
}
