/** Replay of a model call: a slider over turns and calls, the whole request, and left-out text struck through. */
import { h, set, show } from "../shared/h.js";
import { number } from "../shared/fmt.js";
import { ask } from "./net.js";
import { joinWithDots, empty, problem, skeleton, t, tn, ts } from "./parts.js";
import { words } from "./transcript.js";

const WAIT_MS = 250;
const STRUCK = 1200;
const SOURCES = { system: t("System"), memory: t("Memory"), summary: t("Summary"), pins: t("Pinned"), history: t("History"), tools: t("Tools"), program: "Evertalk" };
const AUTHORS = { person: t("Person"), assistant: t("Assistant"), tool: t("Tool"), operator: t("Operator"), program: t("Program") };
const HOW = { trim: t("shortened"), clear: t("cleared"), duplicate: t("same as a newer one"), cut: t("cut to fit"), thinking: t("thinking, not sent again"), hide: t("left out"), left_out: t("left out") };
const DOTS = { pins: "memory", program: "system" };

/** Draws text that was left out of the request; a long text opens on demand. @param {string} text @param {number} [chars] of the whole, where not all came */
function strikeText(text, chars = 0) {
  const node = h("del", null, h("span", { class: "unseen" }, t("left out:"), " "), text.slice(0, STRUCK));
  const more = Math.max(chars, text.length) > STRUCK;
  if (!more) return node;
  const rest = h("button", { type: "button", class: "link", onclick: () => { rest.replaceWith(h("del", null, text.slice(STRUCK), chars > text.length && [" … ", tn("({count} character in total)", "({count} characters in total)", chars)])); } }, " … ", tn("show all {count} character", "show all {count} characters", Math.max(chars, text.length)));
  return [node, rest];
}

/** Draws a shortened text that was sent, with the whole one if they differ. @param {Api["Piece"]} piece */
function shortenText({ text, whole, whole_chars: chars }) {
  const most = Math.min(text.length, whole.length);
  const complete = chars <= whole.length;
  let head = 0;
  while (head < most && text[head] === whole[head]) head++;
  let tail = 0;
  while (complete && tail < most - head && text[text.length - 1 - tail] === whole[whole.length - 1 - tail]) tail++;
  return h("p", { class: "words", dir: "auto" }, text.slice(0, head), strikeText(whole.slice(head, whole.length - tail), complete ? 0 : chars - head),
    h("ins", null, text.slice(head, text.length - tail)), text.slice(text.length - tail));
}

/** @param {Api["Piece"]} piece */
function body(piece) {
  if (!piece.sent) return h("p", { class: "words", dir: "auto" }, piece.kind === "picture" ? t("Picture: {description}", { description: h("span", null, strikeText(piece.whole, piece.whole_chars)) }) : strikeText(piece.whole, piece.whole_chars));
  if (piece.whole) return shortenText(piece);
  if (piece.kind === "picture") return h("p", { class: "words muted" }, piece.text ? t("Picture: {description}", { description: piece.text }) : t("Picture"));
  if (piece.kind === "sealed") return h("p", { class: "words muted" }, t("A sealed part of kind {kind}", { kind: piece.text }));
  if (piece.kind === "tool" || piece.kind === "tool_use") return h("pre", { tabindex: 0 }, piece.text);
  return words(piece.text);
}

/** @param {Api["Piece"]} piece */
function heading(piece) {
  const source = /** @type {keyof typeof SOURCES} */ (piece.source);
  const author = AUTHORS[/** @type {keyof typeof AUTHORS} */ (piece.author)];
  const tool = piece.name && h("code", null, piece.name);
  const who = { tool_use: t("Assistant uses {tool}", { tool }), tool_result: [t("Tool result"), tool && " ", tool], thinking: t("Assistant thinks") }[/** @type {string} */ (piece.kind)] ?? [author ?? SOURCES[source], tool && " ", tool];
  return h("div", { class: "by" }, h("span", null, h("span", { class: `dot ${DOTS[/** @type {keyof typeof DOTS} */ (source)] ?? source}`, "aria-hidden": "true" }),
    h("b", null, who)),
  piece.turn !== null && h("span", { class: "muted" }, t("turn {turn}", { turn: piece.turn })), piece.role === "user" && !author && h("span", { class: "muted" }, t("sent as the person’s side")),
  piece.failed && h("span", { class: "badge" }, t("failed")), piece.how && h("span", { class: "badge" }, HOW[/** @type {keyof typeof HOW} */ (piece.how)] ?? piece.how));
}

/** @param {Api["Piece"]} piece */
const pieceNode = (piece) => h("li", { class: `piece ${piece.source}${piece.sent ? "" : " unsent"}${piece.author === "person" ? " said" : ""}` }, heading(piece), body(piece));

/** Folds the parts before the messages, which are the same from turn to turn. @param {string} name @param {Api["Piece"][]} pieces */
function foldPieces(name, pieces) {
  if (!pieces.length) return null;
  const chars = pieces.reduce((sum, piece) => sum + piece.text.length, 0);
  return h("details", { class: "before" }, h("summary", null, joinWithDots([name, pieces.length > 1 && number(pieces.length), tn("{count} character", "{count} characters", chars)])), h("ol", { class: "pieces" }, pieces.map(pieceNode)));
}

/** @param {Api["Replay"]} seen */
function renderRequest(seen) {
  if (seen.gone) return empty(ts(seen.gone));
  /** @param {(piece: any) => boolean} of */
  const some = (of) => seen.pieces.filter(of);
  return [foldPieces(t("System"), some((piece) => piece.part === "system" && piece.source === "system")), foldPieces(t("Memory"), some((piece) => piece.part === "system" && piece.source === "memory")),
    foldPieces(t("Tools"), some((piece) => piece.part === "tools")), h("ol", { class: "pieces" }, some((piece) => piece.part === "messages").map(pieceNode))];
}

/** @param {Api["Replay"]} seen */
function facts(seen) {
  if (seen.gone) return t("Turn {turn}", { turn: seen.turn });
  const out = seen.pieces.filter((piece) => !piece.sent || piece.whole).length;
  return joinWithDots([t("Turn {turn}, call {call} of {calls}", { turn: seen.turn, call: seen.call, calls: seen.calls }), seen.model, seen.same ? t("as it was sent, byte for byte") : h("span", { class: "warn-text" }, ts(seen.differs)),
    out > 0 && tn("one part was shortened or left out", "{count} parts were shortened or left out", out)]);
}

/** Downloads a text as a file. @param {string} name @param {string} text */
function save(name, text) {
  const link = h("a", { href: URL.createObjectURL(new Blob([text], { type: "application/json" })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/**
 * Returns the replay, which loads nothing before a request, since each look is audited as reading.
 * @param {{path: `/sessions/${string}`, id: string, signal: AbortSignal, moved: (turn: number, call: number | null) => void}} of
 */
export function replay({ path, id, signal, moved }) {
  const slider = h("input", { type: "range", min: 1, max: 1, step: 1, value: 1, "aria-label": t("Turn"), oninput: () => { field.value = slider.value; soon(); } });
  const field = h("input", { type: "number", min: 1, step: 1, inputmode: "numeric", "aria-label": t("Turn number"), onchange: () => { slider.value = field.value; field.value = slider.value; soon(); } });
  const calls = h("div", { class: "segments", role: "group", "aria-label": t("Call") });
  const line = h("p", { class: "small muted", role: "status" }, t("Each view is recorded in the audit log, like the reading of a transcript."));
  const show_ = h("button", { type: "button", class: "line", onclick: () => see(Number(slider.value), null) }, t("Show what the model saw"));
  const download = h("button", { type: "button", class: "line", hidden: true, onclick: () => fetchBody() }, t("Save the request"));
  const place = h("div", { class: "replayed", role: "region", "aria-label": t("What the model saw"), tabindex: 0, hidden: true });
  const step = (/** @type {number} */ by) => h("button", { type: "button", class: "line", "aria-label": by < 0 ? t("Turn before") : t("Turn after"), onclick: () => see(Number(slider.value) + by, null) }, by < 0 ? "‹" : "›");
  const node = h("div", { class: "replay" }, h("div", { class: "replay-line" }, step(-1), slider, step(1), field, calls, show_, download), line, place);
  let timer = 0;
  let at = { turn: 0, call: /** @type {number | null} */ (null) };
  /** @type {AbortController | null} */
  let reading = null;

  function soon() {
    clearTimeout(timer);
    timer = setTimeout(() => see(Number(slider.value), null), WAIT_MS);
  }

  /** @param {number} turn @param {number | null} call */
  async function see(turn, call) {
    clearTimeout(timer);
    reading?.abort();
    const mine = reading = new AbortController();
    turn = Math.max(1, Math.min(turn, Number(slider.max)));
    slider.value = field.value = String(turn);
    at = { turn, call };
    if (place.hidden) show(place, skeleton(4));
    set(place, { hidden: false, "aria-busy": "true" });
    set(show_, { hidden: true });
    try {
      const seen = await ask(`${path}/replay?turn=${turn}${call ? `&call=${call}` : ""}`, { signal: AbortSignal.any([signal, mine.signal]) });
      show(place, renderRequest(seen));
      place.scrollTop = 0;
      show(line, facts(seen));
      callButtons(seen);
      set(download, { hidden: Boolean(seen.gone) });
      moved(turn, call);
    } catch (error) {
      if (mine.signal.aborted || signal.aborted) return;
      show(place, problem(error, () => see(turn, call)));
    }
    if (reading === mine) set(place, { "aria-busy": null });
  }

  /** @param {Api["Replay"]} seen */
  function callButtons(seen) {
    show(calls, seen.calls > 1 && Array.from({ length: seen.calls }, (_, index) => h("button", { type: "button", "aria-pressed": String(index + 1 === seen.call), onclick: () => see(seen.turn, index + 1) }, t("Call {number}", { number: index + 1 }))));
  }

  async function fetchBody() {
    try {
      const seen = await ask(`${path}/replay?turn=${at.turn}${at.call ? `&call=${at.call}` : ""}&sent=1`, { signal });
      save(`request-${id.slice(0, 8)}-turn-${seen.turn}-call-${seen.call}.json`, JSON.stringify(seen.body));
    } catch (error) { if (!signal.aborted) show(line, problem(error)); }
  }

  return {
    node, see,
    /** @param {number} turns */
    update(turns) {
      const last = slider.value === slider.max;
      set(slider, { max: Math.max(turns, 1), disabled: turns < 1 });
      set(field, { max: Math.max(turns, 1), disabled: turns < 1 });
      set(show_, { disabled: turns < 1 });
      if (last && !at.turn) slider.value = field.value = String(Math.max(turns, 1));
    },
  };
}
