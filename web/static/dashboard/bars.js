/** Money by day as bars, with a table that says the same. */
import { svg } from "../shared/h.js";
import { h, money, number, t, table, tn } from "./parts.js";

const HEIGHT = 100;
const STEP = 10;
const GAP = 2;

/** @param {{day: string, calls: number, cost_micro: number | null, unknown_calls: number}[]} days */
export function dayBars(days) {
  const most = Math.max(1, ...days.map((day) => day.cost_micro ?? 0));
  const dearest = days.find((day) => day.cost_micro === most);
  const sum = days.reduce((total, day) => total + (day.cost_micro ?? 0), 0);
  const words = [tn("Cost by day, {count} day, {sum} known in all.", "Cost by day, {count} days, {sum} known in all.", days.length, { sum: money(sum) }), dearest && t("The dearest day is {day} with {sum}.", { day: dearest.day, sum: money(most) })].filter(Boolean).join(" ");
  const picture = svg("svg", { class: "bars-by-day", viewBox: `0 0 ${days.length * STEP} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": words },
    days.map((day, place) => bar(day, place, most)));
  const rows = days.map((day) => [day.day, number(day.calls), money(day.cost_micro, day.unknown_calls)]);
  return h("div", { class: "day-bars" },
    h("p", { class: "muted small most" }, dearest ? t("up to {sum} a day", { sum: money(most) }) : t("no known cost")), picture,
    h("p", { class: "muted small ends" }, h("span", null, days[0]?.day ?? ""), h("span", null, days.at(-1)?.day ?? "")),
    h("details", null, h("summary", null, t("Show as table")), h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": t("Cost by day") },
      table({ caption: t("Cost by day"), className: "plain", columns: [{ label: t("Day") }, { label: t("Calls"), num: true }, { label: t("Cost"), num: true }], rows }))));
}

/** A day whose price nobody knows is not nothing: it gets a mark of its own. @param {any} day @param {number} place @param {number} most */
function bar(day, place, most) {
  const unknown = day.cost_micro === null;
  const height = unknown ? 3 : day.cost_micro ? Math.max(1, day.cost_micro / most * HEIGHT) : 0;
  return svg("rect", { class: unknown ? "of-day unknown" : "of-day", x: place * STEP + GAP / 2, y: HEIGHT - height, width: STEP - GAP, height },
    svg("title", null, tn("{day}: {sum}, {count} call", "{day}: {sum}, {count} calls", day.calls, { day: day.day, sum: money(day.cost_micro, day.unknown_calls) })));
}
