/** Draws the size of the context at each turn: areas by source, lines for the limits, and marks for summaries and saved notes. */
import { h, set, show, svg } from "../shared/h.js";
import { number, percent, tokens, stamp } from "../shared/fmt.js";
import { DASH, NAMES, SOURCES, listItems, splitTokens, t, table, tn, ts } from "./parts.js";

const HEIGHT = 280;
const TOP = 20;
const BOTTOM = 34;
const LEFT = 52;
const RIGHT = 12;

/** Returns a round number for the steps of an axis up to `most`. @param {number} most */
export function stepFor(most) {
  const rough = most / 4;
  const size = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
  return [1, 2, 2.5, 5, 10].map((factor) => factor * size).find((step) => step >= rough) ?? rough;
}

/** Returns the points as they are drawn: the parts of each turn are scaled to add up to its context. @param {Api["TimelinePoint"][]} points */
function rowsOf(points) {
  return points.map((point) => {
    const context = point.context ?? 0;
    const parts = splitTokens(point.parts, context);
    return { ...point, context, known: parts !== null, split: /** @type {Record<string, number>} */ (parts ?? { system: 0, memory: 0, summary: 0, history: context, tools: 0 }) };
  });
}

/** Returns the chart of the context at each turn, and a table of the same numbers; arrow keys move through the turns. @param {Api["Timeline"]} timeline what `/sessions/{id}/timeline` answers @param {(turn: number) => void} choose shows what the model saw then */
export function contextChart(timeline, choose) {
  const rows = rowsOf(timeline.points);
  if (!rows.length) return h("p", { class: "empty" }, t("No model call yet: the first answer draws the first point."));
  const limit = timeline.limit ?? rows[rows.length - 1].budget ?? null;
  const stage = h("div", { class: "stage", role: "slider", tabindex: 0, "aria-label": t("Turn"), "aria-describedby": "chart-words" });
  const tip = h("div", { class: "tip", dir: document.documentElement.dir, hidden: true });
  const drawing = svg("svg", { "aria-hidden": "true", focusable: "false", height: HEIGHT });
  const cross = svg("line", { class: "cross", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  show(stage, drawing, tip);
  /** @type {any} */
  let scale = null;
  let place = rows.length - 1;

  function draw() {
    const width = Math.max(stage.clientWidth, 260);
    scale = scales(rows, limit, width);
    set(drawing, { width, viewBox: `0 0 ${width} ${HEIGHT}` });
    show(drawing, drawAxes(scale, width), areas(rows, scale), lines(limit, scale, width), marks(timeline, scale, width), cross);
  }

  /** @param {number} next @param {boolean} [visible] */
  function point(next, visible = true) {
    if (!scale) draw();
    place = Math.max(0, Math.min(rows.length - 1, next));
    const row = rows[place];
    const x = scale.x(row.turn);
    set(cross, { x1: x, x2: x, visibility: visible ? "visible" : "hidden" });
    set(stage, { "aria-valuemin": rows[0].turn, "aria-valuemax": rows[rows.length - 1].turn, "aria-valuenow": row.turn, "aria-valuetext": sentence(row, limit) });
    tip.hidden = !visible;
    if (!visible) return;
    show(tip, h("b", null, t("Turn {turn}", { turn: row.turn })), h("dl", null, [...SOURCES].reverse().map((name) => h("div", null,
      h("dt", null, h("span", { class: `dot ${name}` }), NAMES[/** @type {keyof typeof NAMES} */ (name)]), h("dd", null, row.known ? tokens(row.split[name]) : DASH))),
    h("div", { class: "sum" }, h("dt", null, t("Context")), h("dd", null, tokens(row.context)))),
    h("span", { class: "muted" }, limit ? t("{percent} of the limit", { percent: percent(row.context * 100 / limit) }) : t("limit unknown")));
    const half = tip.offsetWidth + 16;
    set(tip, { vars: { "--x": `${x + half > stage.clientWidth ? x - half : x + 12}px` } });
  }

  /** @param {number} turn */
  const nearest = (turn) => rows.reduce((best, row, index) => Math.abs(row.turn - turn) < Math.abs(rows[best].turn - turn) ? index : best, 0);
  set(stage, {
    onpointermove: (/** @type {PointerEvent} */ event) => point(nearest(scale.turn(event.clientX - stage.getBoundingClientRect().left))),
    onpointerleave: () => { if (document.activeElement !== stage) point(place, false); },
    onfocus: () => { if (stage.matches(":focus-visible")) point(place); },
    onblur: () => point(place, false),
    onclick: () => choose(rows[place].turn),
    onkeydown: (/** @type {KeyboardEvent} */ event) => {
      const far = Math.max(1, Math.round(rows.length / 10));
      const next = /** @type {Record<string, number>} */ ({ ArrowRight: place + 1, ArrowUp: place + 1, ArrowLeft: place - 1, ArrowDown: place - 1, PageUp: place + far, PageDown: place - far, Home: 0, End: rows.length - 1 })[event.key];
      if (event.key === "Escape") point(place, false);
      if (event.key === "Enter") choose(rows[place].turn);
      if (next === undefined) return;
      event.preventDefault();
      point(next);
    },
  });
  new ResizeObserver(() => { draw(); point(place, !tip.hidden); }).observe(stage);

  const fewer = timeline.points.length < timeline.turns;
  return h("div", { class: "chart" }, legend(), stage,
    h("p", { id: "chart-words", class: "small muted" }, overall(rows, timeline, limit), fewer && [" ", timeline.sampled ? t("Showing {shown} of {all} turns: some of each stretch, and those around its newest summary.", { shown: rows.length, all: timeline.turns }) : t("Showing {shown} of {all} turns: each stretch by its lowest and highest.", { shown: rows.length, all: timeline.turns })], " ", t("A click, or Enter, shows what the model saw.")),
    chartAsTable(rows, timeline, limit));
}

/** @param {any[]} rows @param {number | null} limit @param {number} width */
function scales(rows, limit, width) {
  const first = rows[0].turn - (rows.length === 1 ? 0.5 : 0);
  const last = rows[rows.length - 1].turn + (rows.length === 1 ? 0.5 : 0);
  const most = Math.max(limit ?? 0, ...rows.map((row) => row.context), 1);
  const step = stepFor(most);
  const top = Math.ceil(most / step) * step;
  const inner = width - LEFT - RIGHT;
  return {
    first, last, step, top,
    x: (/** @type {number} */ turn) => LEFT + (turn - first) / (last - first) * inner,
    y: (/** @type {number} */ count) => HEIGHT - BOTTOM - count / top * (HEIGHT - TOP - BOTTOM),
    turn: (/** @type {number} */ x) => first + (x - LEFT) / inner * (last - first),
  };
}

/** @param {any} scale @param {number} width */
function drawAxes(scale, width) {
  const grid = [];
  for (let count = 0; count <= scale.top + 1; count += scale.step) {
    grid.push(svg("line", { class: count ? "rule" : "base", x1: LEFT, x2: width - RIGHT, y1: scale.y(count), y2: scale.y(count) }),
      svg("text", { class: "tick", x: LEFT - 6, y: scale.y(count) + 4, "text-anchor": "end" }, count ? tokens(count) : "0"));
  }
  const low = Math.ceil(scale.first);
  const high = Math.floor(scale.last);
  return [...grid, svg("text", { class: "tick", x: LEFT, y: HEIGHT - 6 }, t("turn {turn}", { turn: low })),
    high > low && svg("text", { class: "tick", x: width - RIGHT, y: HEIGHT - 6, "text-anchor": "end" }, number(high))];
}

/** @param {any[]} rows @param {any} scale */
function areas(rows, scale) {
  const wide = rows.length === 1 ? [{ ...rows[0], turn: rows[0].turn - 0.5 }, { ...rows[0], turn: rows[0].turn + 0.5 }] : rows;
  const floor = wide.map(() => 0);
  return SOURCES.map((name) => {
    const roof = wide.map((row, index) => floor[index] + row.split[name]);
    const up = wide.map((row, index) => `${scale.x(row.turn).toFixed(1)},${scale.y(roof[index]).toFixed(1)}`);
    const down = wide.map((row, index) => `${scale.x(row.turn).toFixed(1)},${scale.y(floor[index]).toFixed(1)}`).reverse();
    roof.forEach((count, index) => { floor[index] = count; });
    return svg("path", { class: `area ${name}`, d: `M${up.join("L")}L${down.join("L")}Z` });
  });
}

/** @param {number | null} limit @param {any} scale @param {number} width */
function lines(limit, scale, width) {
  if (!limit) return [];
  return [[1, "whole", t("limit")], [0.9, "crit", percent(90)], [0.7, "warn", percent(70)]].map(([share, name, words]) => {
    const y = scale.y(limit * /** @type {number} */ (share));
    return [svg("line", { class: `mark-line ${name}`, x1: LEFT, x2: width - RIGHT, y1: y, y2: y }),
      svg("text", { class: `tick ${name}`, x: width - RIGHT - 4, y: y - 4, "text-anchor": "end" }, words)];
  });
}

/** @param {Api["Timeline"]} timeline @param {any} scale @param {number} width */
function marks(timeline, scale, width) {
  let free = -Infinity;
  const summaries = timeline.compactions.map((summary) => {
    const x = Math.max(LEFT, Math.min(width - RIGHT, scale.x(Math.min(summary.turn + 0.5, scale.last))));
    const words = summary.undone ? t("undone") : `⤓ ${tokens((summary.before ?? 0) - (summary.after ?? 0))}`;
    const room = x - free > 62 && x > LEFT + 60 && x < width - RIGHT - 60;
    if (room) free = x;
    return svg("g", { class: `fold${summary.undone ? " undone" : ""}`, data: { fold: summary.id } },
      svg("line", { x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }), room && svg("text", { class: "tick", x, y: HEIGHT - 6, "text-anchor": "middle" }, words));
  });
  const saves = timeline.flushes.filter((flush) => flush.turn >= scale.first && flush.turn <= scale.last).map((flush) => {
    const x = scale.x(flush.turn);
    const y = HEIGHT - BOTTOM + 8;
    return svg("path", { class: `flush ${flush.outcome}`, d: `M${x} ${y - 5}L${x + 4} ${y}L${x} ${y + 5}L${x - 4} ${y}Z` });
  });
  return [summaries, saves];
}

function legend() {
  return h("ul", { class: "legend", "aria-label": t("Colours") }, SOURCES.map((name) => h("li", null, h("span", { class: `dot ${name}`, "aria-hidden": "true" }), NAMES[/** @type {keyof typeof NAMES} */ (name)])),
    h("li", null, h("span", { class: "key-fold", "aria-hidden": "true" }), t("Summarised")), h("li", null, h("span", { class: "key-flush", "aria-hidden": "true" }, "◆"), t("Memory saved")));
}

/** @param {any} row @param {number | null} limit */
function sentence(row, limit) {
  const parts = row.known ? SOURCES.map((name) => `${NAMES[/** @type {keyof typeof NAMES} */ (name)]} ${tokens(row.split[name])}`) : [];
  return listItems([t("Turn {turn}", { turn: row.turn }), t("context {tokens}", { tokens: tokens(row.context) }), ...(limit ? [t("{percent} of the limit", { percent: percent(row.context * 100 / limit) })] : []), ...parts]);
}

/** @param {any[]} rows @param {Api["Timeline"]} timeline @param {number | null} limit */
function overall(rows, timeline, limit) {
  const peak = rows.reduce((best, row) => row.context > best.context ? row : best, rows[0]);
  const values = { tokens: tokens(peak.context), limit: tokens(limit), turn: peak.turn };
  return [limit ? t("Highest {tokens} of {limit} at turn {turn}.", values) : t("Highest {tokens} at turn {turn}.", values), tn("Summarised once.", "Summarised {count} times.", timeline.summaries), t("Shares are estimates, scaled to what the provider counted.")].join(" ");
}

/** Returns the same numbers as a table, which is built when it is opened. @param {any[]} rows @param {Api["Timeline"]} timeline @param {number | null} limit */
function chartAsTable(rows, timeline, limit) {
  const columns = [t("Turn"), ...SOURCES.map((name) => NAMES[/** @type {keyof typeof NAMES} */ (name)]), t("Context"), t("Of the limit")].map((label) => ({ label, num: true }));
  const place = h("div", { class: "scroll", role: "region", "aria-label": t("Context per turn as a table"), tabindex: 0 });
  return h("details", { ontoggle: (/** @type {any} */ event) => {
    if (!event.target.open || place.firstChild) return;
    show(place, table({ caption: t("Context per turn"), className: "plain", columns: [...columns, { label: t("What happened") }], rows: rows.map((row, index) => [
      h("span", { title: stamp(row.at) }, number(row.turn)), ...SOURCES.map((name) => row.known ? number(row.split[name]) : DASH), number(row.context),
      limit ? percent(row.context * 100 / limit) : DASH, describeEvents(row, rows[index + 1], timeline)]) }));
  } }, h("summary", null, t("Show as table")), place);
}

/** @param {any} row @param {any} next @param {Api["Timeline"]} timeline */
function describeEvents(row, next, timeline) {
  const until = next ? next.turn : Infinity;
  const words = [
    ...timeline.compactions.filter((summary) => summary.turn >= row.turn && summary.turn < until).map((summary) => summary.undone ? t("summarised, undone") : t("summarised {before} → {after}", { before: tokens(summary.before), after: tokens(summary.after) })),
    ...timeline.flushes.filter((flush) => flush.turn >= row.turn && flush.turn < until).map((flush) => t("memory: {outcome}", { outcome: ts(flush.outcome) })),
    row.prune && t("old tool results shortened"), row.overflow && t("refused: too large"),
  ];
  return words.filter(Boolean).join(" · ");
}
