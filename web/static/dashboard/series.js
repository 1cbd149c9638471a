/** Numbers over time: small charts that share a crosshair, the same numbers as a table, and the choice of their range. */
import { spoken } from "../shared/fmt.js";
import { h, set, show, svg } from "../shared/h.js";
import { stepFor } from "./chart.js";
import { duration } from "./figures.js";
import { ask } from "./net.js";
import { DASH, listItems, money, number, problem, t, table, time, tn, tokens } from "./parts.js";

const HEIGHT = 132;
const TOP = 8;
const BOTTOM = 20;
const LEFT = 48;
const RIGHT = 6;
const EVERY_MS = 15_000;
const RANGES = { "24h": t("24 hours"), "7d": tn("{count} day", "{count} days", 7), "30d": tn("{count} day", "{count} days", 30), "90d": tn("{count} day", "{count} days", 90) };
const ASKED = ["range", "from", "to"];
/** Names of the kinds of jobs. */
export const JOB_KINDS = { flush: t("Save memory"), compact: t("Summarise"), tidy: t("Cleanup"), import: t("Summarise imports") };

/**
 * @typedef {{name: string, look: string, of: (step: any) => number | null}} Part
 * @typedef {{title: string, parts: Part[], say: (value: number | null, step?: any) => string, sum: (total: any) => string, lines?: boolean}} Panel
 */

/** @param {string} title @param {string} name @param {string} look @param {(value: any) => string} [say] @returns {Panel} */
const one = (title, name, look, say = number) => ({ title, say, parts: [{ name: title, look, of: (step) => step[name] }], sum: (total) => say(total[name]) });

const cost = { ...one(t("Cost"), "cost_micro", "summary"), say: (/** @type {number | null} */ micro, /** @type {Api["SeriesPoint"] | undefined} */ step) => money(micro, step?.unknown_calls), sum: (/** @type {Api["SeriesTotal"]} */ total) => money(total.cost_micro, total.unknown_calls) };
const spent = { title: t("Tokens"), say: tokens, parts: [["input_tokens", t("Uncached input"), "history"], ["cache_read_tokens", t("Cache read"), "memory"], ["cache_write_tokens", t("Cache written"), "summary"], ["output_tokens", t("Output"), "tools"]].map(([key, name, look]) => ({ name, look, of: (/** @type {any} */ step) => step[key] })),
  sum: (/** @type {Api["SeriesTotal"]} */ total) => tokens(total.input_tokens + total.cache_read_tokens + total.cache_write_tokens + total.output_tokens) };

/** Panels of costs and tokens. */
export const MONEY = [cost, spent];
/** Panels of the first page. @type {Panel[]} */
export const OVERVIEW = [
  one(t("Messages"), "messages", "history"),
  { ...one(t("People"), "people", "history"), sum: (total) => t("{count} a day", { count: number(Math.round(total.people * 10) / 10) }) },
  one(t("Answers"), "answers", "history"),
  { title: t("Time to first token"), lines: true, say: duration, sum: (total) => duration(total.first_token_p95_ms), parts: [{ name: "p50", look: "history", of: (step) => step.first_token_p50_ms }, { name: "p95", look: "summary", of: (step) => step.first_token_p95_ms }] },
  one(t("Errors"), "errors", "crit"), ...MONEY, one(t("Summaries"), "summaries", "memory"), one(t("Hand-overs"), "handovers", "tools"),
];
/** Panels of jobs, one for each kind: done and failed ones. @type {Panel[]} */
export const JOBS = Object.entries(JOB_KINDS).map(([kind, title]) => ({
  title, say: number, sum: (total) => [t("Done"), t("Failed")].map((name, at) => `${name} ${number(total.jobs[kind]?.[at] ?? 0)}`).join(" · "),
  parts: [{ name: t("Done"), look: "history", of: (step) => step.jobs[kind]?.[0] ?? 0 }, { name: t("Failed"), look: "crit", of: (step) => step.jobs[kind]?.[1] ?? 0 }],
}));

/**
 * Draws the numbers of a range. `load` requests them again, at most every 15 seconds for the same range.
 * @param {{panels: Panel[], params: URLSearchParams, change: (changes: Record<string, string>) => void, usual: string, signal: AbortSignal, bar?: HTMLElement}} how
 */
export function seriesPart({ panels, params, change, usual, signal, bar = h("div", { class: "filters ranges" }) }) {
  const body = h("div", { class: "series" });
  let asked = "";
  let readAt = 0;
  let shown = "";
  /** @param {boolean} [refresh] */
  async function load(refresh = false) {
    const query = rangeOf(params, usual);
    if (query === asked && (Date.now() - readAt < EVERY_MS || (refresh && body.contains(document.activeElement)))) return;
    const same = query === asked;
    [asked, readAt] = [query, Date.now()];
    try {
      const page = await ask(`/series?${query}`, { refresh, signal });
      if (query !== asked) return;
      if (!same) drawBar(page);
      const next = JSON.stringify([page.steps, page.before]);
      if (same && next === shown) return;
      shown = next;
      show(body, charts(page, panels));
    } catch (error) {
      if (signal.aborted) return;
      asked = "";
      if (refresh) throw error;
      show(body, problem(error, () => load()));
    }
  }
  /** @param {Api["Series"]} page */
  function drawBar(page) {
    const focused = /** @type {any} */ (document.activeElement)?.dataset?.keep;
    show(bar, rangePicker(page, params, change, usual));
    if (focused) /** @type {HTMLElement | null} */ (bar.querySelector(`[data-keep="${focused}"]`))?.focus();
  }
  return { bar, body, load };
}

/** Returns the query of the API for the range in the address. @param {URLSearchParams} params @param {string} usual */
export function rangeOf(params, usual) {
  const given = [...params].filter(([name, value]) => ASKED.includes(name) && value);
  return new URLSearchParams(given.length ? given : [["range", usual]]).toString();
}

/** @param {{from: string, to: string}} page @param {URLSearchParams} params @param {(changes: Record<string, string>) => void} change @param {string} usual */
function rangePicker(page, params, change, usual) {
  const own = Boolean(params.get("from") || params.get("to"));
  const now = own ? "" : params.get("range") ?? usual;
  const day = (/** @type {"from" | "to"} */ name, /** @type {string} */ label) => h("label", { class: "day" }, h("span", null, label), h("input", { type: "date", value: page[name], data: { keep: name }, onchange: (/** @type {any} */ event) => {
    if (event.target.value) change({ from: page.from, to: page.to, [name]: event.target.value, range: "" });
  } }));
  return [h("div", { class: "segments", role: "group", "aria-label": t("Period") }, Object.entries(RANGES).map(([range, words]) =>
    h("button", { type: "button", "aria-pressed": String(now === range), data: { keep: range }, onclick: () => change({ range, from: "", to: "" }) }, words))), day("from", t("From")), day("to", t("To"))];
}

/** @param {Api["Series"]} page what `/series` answers @param {Panel[]} panels */
function charts(page, panels) {
  const short = (/** @type {Api["SeriesPoint"]} */ step) => new Date(step.at).toLocaleString(spoken, page.step === "hour" ? { hour: "2-digit", minute: "2-digit", timeZone: page.timezone } : { day: "numeric", month: "short", timeZone: page.timezone });
  const whole = (/** @type {Api["SeriesPoint"]} */ step) => new Date(step.at).toLocaleString(spoken, { ...page.step === "hour" ? { timeStyle: "short" } : {}, dateStyle: "medium", timeZone: page.timezone });
  /** @type {{node: HTMLElement, cross: (place: number | null) => void}[]} */
  const drawn = [];
  for (const panel of panels) drawn.push(chart(panel, page, { short, whole }, (place) => drawn.forEach((other) => other.cross(place))));
  return [h("div", { class: "multiples" }, drawn.map((each) => each.node)), seriesAsTable(page, panels, whole),
    h("p", { class: "muted small" }, page.counted_at ? t("Counted {time}.", { time: time(page.counted_at) }) : t("Nothing is counted yet. A worker counts every 15 seconds."), page.since !== null && page.since > page.steps[0].at && [" ", t("Older hours are still being counted.")], " · ", h("span", { translate: "no" }, page.timezone))];
}

/** @param {Panel} panel @param {Api["Series"]} page @param {{short: (step: any) => string, whole: (step: any) => string}} named @param {(place: number | null) => void} moved */
function chart(panel, page, named, moved) {
  const steps = page.steps;
  const stage = h("div", { class: "stage small-stage", role: "slider", tabindex: 0, "aria-label": panel.title, "aria-valuemin": 0, "aria-valuemax": steps.length - 1 });
  const tip = h("div", { class: "tip", dir: document.documentElement.dir, hidden: true });
  const drawing = svg("svg", { "aria-hidden": "true", focusable: "false", translate: "no", height: HEIGHT });
  const line = svg("line", { class: "cross", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  show(stage, drawing, tip);
  let place = steps.length - 1;
  let width = 260;
  const wide = () => (width - LEFT - RIGHT) / steps.length;
  const middle = (/** @type {number} */ at) => LEFT + (at + 0.5) * wide();
  const words = (/** @type {Api["SeriesPoint"]} */ step) => listItems([named.whole(step), ...panel.parts.map((part) => `${panel.parts.length > 1 ? `${part.name} ` : ""}${panel.say(part.of(step), step)}`)]);

  function draw() {
    width = Math.max(stage.clientWidth, 160);
    set(drawing, { width, viewBox: `0 0 ${width} ${HEIGHT}` });
    const high = Math.max(...steps.map((step) => panel.lines ? Math.max(...panel.parts.map((part) => part.of(step) ?? 0)) : panel.parts.reduce((sum, part) => sum + (part.of(step) ?? 0), 0)));
    const size = stepFor(Math.max(high, 1) / 1.5);
    const top = Math.max(size, Math.ceil(high / size) * size);
    const y = (/** @type {number} */ value) => HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM);
    const ticks = (high > 0 ? [0, top / 2, top] : [0]).filter((value) => panel.say !== number || Number.isInteger(value));
    show(drawing, ticks.map((value) => [svg("line", { class: value ? "rule" : "base", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }), svg("text", { class: "tick", x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, value ? panel.say(value) : "0")]),
      svg("text", { class: "tick", x: LEFT, y: HEIGHT - 4 }, named.short(steps[0])), steps.length > 1 && svg("text", { class: "tick", x: width - RIGHT, y: HEIGHT - 4, "text-anchor": "end" }, named.short(steps[steps.length - 1])),
      panel.lines ? panel.parts.map((part) => path(part, y)) : steps.map((/** @type {any} */ step, /** @type {number} */ at) => pile(step, at, y)), line);
  }
  /** @param {Api["SeriesPoint"]} step @param {number} at @param {(value: number) => number} y */
  function pile(step, at, y) {
    let below = 0;
    return panel.parts.map((part) => {
      const value = part.of(step) ?? 0;
      if (!value) return null;
      const from = y(below);
      const to = Math.min(y(below += value), from - 1);
      return svg("rect", { class: `of-step ${part.look}`, x: LEFT + at * wide() + Math.min(1, wide() * 0.1), width: Math.max(1, wide() * 0.8), y: to, height: from - to });
    });
  }
  /** Returns the path of a line, which is interrupted where nothing was measured. @param {Part} part @param {(value: number) => number} y */
  function path(part, y) {
    let pen = "M";
    const strokes = steps.map((/** @type {any} */ step, /** @type {number} */ at) => {
      const value = part.of(step);
      if (value === null) { pen = "M"; return ""; }
      const stroke = `${pen}${middle(at).toFixed(1)},${y(value).toFixed(1)}${pen === "M" ? "h0.01" : ""}`;
      pen = "L";
      return stroke;
    });
    const dots = steps.length > 31 ? [] : steps.map((/** @type {any} */ step, /** @type {number} */ at) => part.of(step) !== null && svg("circle", { class: `of-step ${part.look}`, cx: middle(at), cy: y(/** @type {number} */ (part.of(step))), r: 3 }));
    return [svg("path", { class: `line-of ${part.look}`, d: strokes.join("") }), dots];
  }
  /** @param {number | null} at */
  function cross(at) {
    set(line, at === null ? { visibility: "hidden" } : { x1: middle(at), x2: middle(at), visibility: "visible" });
  }
  /** @param {number} next @param {boolean} [visible] */
  function point(next, visible = true) {
    place = Math.max(0, Math.min(steps.length - 1, next));
    const step = steps[place];
    set(stage, { "aria-valuenow": place, "aria-valuetext": words(step) });
    tip.hidden = !visible;
    moved(visible ? place : null);
    if (!visible) return;
    show(tip, h("b", null, h("time", { datetime: step.at }, named.whole(step))), h("dl", null, panel.parts.map((part) => h("div", null, h("dt", null, h("span", { class: `dot ${part.look}` }), part.name), h("dd", null, panel.say(part.of(step), step))))));
    const half = tip.offsetWidth + 12;
    const x = middle(place);
    set(tip, { vars: { "--x": `${Math.max(0, x + half > width ? x - half : x + 10)}px` } });
  }
  set(stage, {
    onpointermove: (/** @type {PointerEvent} */ event) => point(Math.floor((event.clientX - stage.getBoundingClientRect().left - LEFT) / wide())),
    onpointerleave: () => { if (document.activeElement !== stage) point(place, false); },
    onfocus: () => { if (stage.matches(":focus-visible")) point(place); },
    onblur: () => point(place, false),
    onkeydown: (/** @type {KeyboardEvent} */ event) => {
      const far = Math.max(1, Math.round(steps.length / 10));
      const next = /** @type {Record<string, number>} */ ({ ArrowRight: place + 1, ArrowUp: place + 1, ArrowLeft: place - 1, ArrowDown: place - 1, PageUp: place + far, PageDown: place - far, Home: 0, End: steps.length - 1 })[event.key];
      if (event.key === "Escape") point(place, false);
      if (next === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      point(next);
    },
  });
  new ResizeObserver(() => draw()).observe(stage);
  draw();
  point(place, false);
  const node = h("section", { class: "card multiple", "aria-label": panel.title }, h("h2", null, panel.title), h("p", { class: "figure" }, h("b", null, panel.sum(page.total)), page.before && h("span", { class: "muted small" }, t("before: {value}", { value: panel.sum(page.before) }))),
    panel.parts.length > 1 && h("ul", { class: "legend" }, panel.parts.map((part) => h("li", null, h("span", { class: `dot ${part.look}`, "aria-hidden": "true" }), part.name))), stage);
  return { node, cross };
}

/** @param {Api["Series"]} page @param {Panel[]} panels @param {(step: any) => string} whole */
function seriesAsTable(page, panels, whole) {
  const place = h("div", { class: "scroll", role: "region", "aria-label": t("Numbers as a table"), tabindex: 0 });
  const parts = panels.flatMap((panel) => panel.parts.map((part) => ({ ...part, say: panel.say, label: panel.parts.length > 1 ? `${panel.title}: ${part.name}` : part.name })));
  return h("details", { ontoggle: (/** @type {any} */ event) => {
    if (!event.target.open || place.firstChild) return;
    show(place, table({ caption: t("Numbers over time"), className: "plain", columns: [{ label: t("Time") }, ...parts.map(({ label }) => ({ label, num: true }))],
      rows: page.steps.map((step) => [h("time", { datetime: step.at }, whole(step)), ...parts.map((part) => part.say(part.of(step), step) ?? DASH)]) }));
  } }, h("summary", null, t("Show as table")), place);
}
