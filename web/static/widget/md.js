/** Draws Markdown as DOM nodes. The browser never parses markup, and never fetches a picture. */
import { h, add, show } from "../shared/h.js";
import { adopt } from "./styles.js";

const MAX_TEXT = 200_000;
const MAX_BLOCKS = 6;
const MAX_INLINE = 8;

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^\s`]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*)$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])(\s+|$)/;
const NOTE = /^ {0,3}\[\^([^\]\s]{1,40})\]:[ \t]*/;
const FORMULA = /^ {0,3}(\$\$|\\\[)/;
const MAX_FORMULA = 80;
const TABLE_RULE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

const DRAWN_LOOK = /* css */ `
.md > * + *, .pane > * + *, li > * + *, blockquote > * + * { margin-top: 9px; }
.md p, .pane p { white-space: pre-wrap; }
b, strong { font-weight: 650; } em { font-style: italic; }
h3, h4, h5, h6 { font-weight: 650; line-height: 1.35; } h3 { font-size: 1.13em; } h4 { font-size: 1.06em; }
ul, ol { padding-inline-start: 24px; } li { white-space: pre-wrap; } li + li, li > ul, li > ol { margin-top: 3px; }
.items a { color: var(--accent); text-decoration: underline; text-underline-offset: 2px; border-radius: 3px; } .host { color: var(--muted); font-size: .88em; }
hr { height: 0; border: 0; border-top: 1px solid var(--line); }
blockquote { padding-inline-start: 11px; border-inline-start: 3px solid var(--line); color: var(--muted); }
code { font: .88em/1.5 var(--mono); padding: 1px 5px; border-radius: 5px; background: light-dark(#ececf2, #26262f); }
.code { border: 1px solid var(--line); border-radius: var(--radius-s); background: var(--soft); overflow: hidden; }
.card .code, .notice .code { background: var(--card); }
.code-head { display: flex; justify-content: space-between; align-items: center; min-height: 30px; padding: 0 4px 0 12px; font-size: 12.5px; color: var(--muted); }
pre { overflow: auto; padding: 6px 12px 12px; tab-size: 4; } pre code { padding: 0; background: none; white-space: pre; font-size: 13px; line-height: 1.6; }
pre:focus-visible, .table:focus-visible, .pane:focus-visible { outline-offset: -2px; }
.hl-k { color: light-dark(#6d28d9, #c4b5fd); } .hl-s { color: light-dark(#166534, #86efac); } .hl-n { color: light-dark(#9a3412, #fdba74); } .hl-c { color: var(--muted); font-style: italic; }
figure { margin: 0; } .table { overflow-x: auto; } table { border-collapse: collapse; font-size: 14px; overflow-wrap: break-word; }
th, td { padding: 4px 9px; border: 1px solid var(--line); } th { background: var(--soft); font-weight: 650; }
math { font-family: math, "STIX Two Math", "Latin Modern Math", "Cambria Math", serif; font-size: 1.08em; } .boxed { border: 1px solid; padding: 3px 6px; } .overline { border-top: 1px solid; padding-top: 2px; } .underline { border-bottom: 1px solid; padding-bottom: 2px; }
.formula { overflow: auto hidden; padding: 4px 0; text-align: center; white-space: normal; } .formula:focus-visible { outline-offset: -2px; }
.task { list-style: none; margin-inline-start: -22px; } .task input { margin: 0; margin-inline-end: 7px; vertical-align: -1px; accent-color: var(--accent); }
.footnote { font-size: .88em; color: var(--muted); scroll-margin: 20px; } .ref { font-size: .78em; vertical-align: super; line-height: 1; color: var(--accent); padding: 0 2px; }
.at-start { text-align: start; } .at-center { text-align: center; } .at-end { text-align: end; font-variant-numeric: tabular-nums; }
.original { margin-bottom: 10px; } .original b { font-size: 13px; }
.chevron { flex: none; width: 7px; height: 7px; border: solid currentColor; border-width: 0 1.6px 1.6px 0; transform: rotate(-45deg); transition: transform .15s; }
.root[dir="rtl"] .chevron { transform: rotate(135deg); }
.root .card-toggle[aria-expanded="true"] .chevron, .root details[open] > summary .chevron { transform: rotate(45deg) translate(-1px, -1px); }
`;
/** Adds the look of drawn Markdown to a node's shadow root. @param {Node} node of the chat that it is drawn in @param {string} [within] selector of the only place that gets the look */
export const adoptMd = (node, within) => adopt(node, within ? `@scope (${within}) {${DRAWN_LOOK}}` : DRAWN_LOOK);

/** @typedef {{kind: string, raw: string, lines: string[], level?: number, lang?: string, mark?: string}} Block */

/** Names of the footnotes of the text that is being drawn. @type {Set<string>} */
let notes = new Set();

/**
 * Returns an address that a person may follow (http, https, mailto or tel); null for any other.
 * @param {string} raw @returns {string | null}
 */
function safeUrl(raw) {
  // Browsers drop these characters before they read the scheme, so this test has to drop them too.
  const text = raw.replace(/[\u0000-\u0020\u007f-\u00a0\u00ad\u200b-\u200f\u2028-\u202f\u2060-\u2064\ufeff]/g, "");
  if (!/^(?:https?:\/\/[^/\\]|mailto:.|tel:[+\d])/i.test(text)) return null;
  try {
    const url = new URL(text);
    return ["http:", "https:", "mailto:", "tel:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

/** @param {string} line */
const indent = (line) => line.length - line.trimStart().length;
/** Returns a function that widens tabs before text, so that they nest lists; tabs in code stay. */
function tabExpander() {
  let fence = "";
  return (/** @type {string} */ line) => {
    const mark = /^\s*(`{3,}|~{3,})/.exec(head(line))?.[1] ?? "";
    if (!fence) fence = mark;
    else if (mark.startsWith(fence)) fence = "";
    return fence && !mark ? line : line.replace(/^[ \t]+/, (space) => space.replaceAll("\t", "    "));
  };
}

/**
 * Returns the start of a line, which is enough to tell its kind; long lines must not make the tests slow.
 * @param {string} line
 */
const head = (line) => (line.length > 500 ? line.slice(0, 500) : line);
/** Removes the space on both sides that separates code from its backticks. A pattern would be slow, since it tries every split. @param {string} code */
const unpadded = (code) => (code.startsWith(" ") && code.endsWith(" ") && code.trim() ? code.slice(1, -1) : code);
/** @param {string} line */
const blank = (line) => line.trim() === "";
/** @param {string[]} lines @param {number} at */
const tableAt = (lines, at) => lines[at].includes("|") && at + 1 < lines.length && lines[at + 1].includes("-") &&
  lines[at + 1].length < 500 && TABLE_RULE.test(lines[at + 1]) && cells(lines[at]).length === cells(lines[at + 1]).length;

/** @param {string[]} lines @param {number} at */
function isBlockStart(lines, at) {
  const line = head(lines[at]);
  if (FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || noteAt(line) || endOfFormula(lines, at)) return true;
  const item = ITEM.exec(line);
  return Boolean(item && item[3] && (!/\d/.test(item[2]) || parseInt(item[2], 10) === 1)) || tableAt(lines, at);
}

/** @param {string[]} lines @param {number} at @param {RegExpExecArray} open */
function endOfFence(lines, at, open) {
  const mark = open[1];
  for (let end = at + 1; end < lines.length; end++) {
    const line = head(lines[end]).trim();
    if (line.length >= mark.length && line === mark[0].repeat(line.length)) return end + 1;
  }
  return lines.length;
}

/** @param {string} line */
const noteAt = (line) => notes.has(NOTE.exec(line)?.[1] ?? "");

/** Returns the index after the line that closes a formula; 0 if none opens, or none closes yet. @param {string[]} lines @param {number} at */
function endOfFormula(lines, at) {
  const open = FORMULA.exec(head(lines[at]));
  if (!open) return 0;
  const close = open[1] === "$$" ? "$$" : "\\]";
  for (let end = at; end < lines.length && end < at + MAX_FORMULA && !blank(lines[end]); end++) {
    const found = lines[end].indexOf(close, end === at ? open[0].length : 0);
    if (found >= 0) return blank(lines[end].slice(found + 2)) ? end + 1 : 0;
  }
  return 0;
}

/** @param {string[]} lines @param {number} at */
function endOfList(lines, at) {
  const base = indent(lines[at]);
  const ordered = /\d/.test(/** @type {RegExpExecArray} */ (ITEM.exec(lines[at]))[2]);
  let end = at + 1;
  for (; end < lines.length; end++) {
    const line = lines[end];
    if (blank(line)) continue;
    const item = ITEM.exec(line);
    if (indent(line) > base + 1) continue;
    if (item && !RULE.test(head(line))) {
      if (/\d/.test(item[2]) !== ordered) break;
    } else if (blank(lines[end - 1]) || isBlockStart(lines, end)) break;
  }
  while (end > at + 1 && blank(lines[end - 1])) end--;
  return end;
}

/**
 * Splits text into top-level blocks. An open fence runs to the end, since streamed text may not have its end yet.
 * @param {string[]} lines @returns {Block[]}
 */
function blocks(lines) {
  /** @type {Block[]} */
  const out = [];
  /** Levels of the headings above, so that no level is skipped. @type {number[]} */
  const above = [];
  for (let at = 0; at < lines.length;) {
    if (blank(lines[at])) { at++; continue; }
    const block = blockAt(lines, at);
    if (block.level) {
      while (above.length && above[above.length - 1] >= block.level) above.pop();
      block.level = above.push(block.level);
    }
    out.push(block);
    at += Math.max(block.lines.length, 1);
  }
  return out;
}

/** @param {string[]} lines @param {number} at @returns {Block} */
function blockAt(lines, at) {
  const line = head(lines[at]);
  /** @param {string} kind @param {number} end @param {object} [more] */
  const block = (kind, end, more) => {
    const part = lines.slice(at, end);
    return { kind, raw: part.join("\n"), lines: part, ...more };
  };
  const fence = FENCE.exec(line);
  if (fence) return block("code", endOfFence(lines, at, fence), { lang: fence[2], mark: fence[1] });
  const heading = HEADING.exec(line);
  if (heading) return block("heading", at + 1, { level: heading[1].length });
  if (RULE.test(line)) return block("rule", at + 1);
  let end = endOfFormula(lines, at);
  if (end) return block("formula", end);
  end = at + 1;
  if (noteAt(line)) {
    while (end < lines.length && (blank(lines[end]) ? /^ {2}/.test(lines[end + 1] ?? "") : indent(lines[end]) > 1 || !(blank(lines[end - 1]) || isBlockStart(lines, end)))) end++;
    return block("note", end);
  }
  if (QUOTE.test(line)) {
    while (end < lines.length && !blank(lines[end]) && (QUOTE.test(lines[end]) || !isBlockStart(lines, end))) end++;
    return block("quote", end);
  }
  if (ITEM.test(line)) return block("list", endOfList(lines, at));
  if (tableAt(lines, at)) {
    for (end = at + 2; end < lines.length && lines[end].includes("|") && !blank(lines[end]); end++);
    return block("table", end);
  }
  while (end < lines.length && !blank(lines[end]) && !isBlockStart(lines, end)) end++;
  return block("text", end);
}

/** @param {string} line @returns {string[]} */
function cells(line) {
  const inner = line.trim().replace(/^\|/, "").replace(/([^\\])\|$/, "$1");
  const out = [""];
  for (let at = 0; at < inner.length; at++) {
    if (inner[at] === "\\" && inner[at + 1] === "|") out[out.length - 1] += inner[++at];
    else if (inner[at] === "|") out.push("");
    else out[out.length - 1] += inner[at];
  }
  return out.map((cell) => cell.trim());
}

/** @typedef {{copy: (text: string, button: HTMLElement) => void, labels: {copy: string}}} Tools */

/**
 * Colours code; the part for that is loaded with the first code that names its language. Without that part, code stays plain.
 * @param {HTMLElement} node @param {string} code @param {string} language
 */
function colour(node, code, language) {
  if (language) void import("./highlight.js").then((one) => show(node, one.highlight(code, language)), () => {});
  return node;
}

/** Draws a formula. It is shown as code until the part that draws it is loaded, and stays code if not all of it is known. @param {string} tex @param {string} source @param {boolean} wide */
function drawFormula(tex, source, wide) {
  const node = h("code", { dir: "ltr" }, source);
  void import("./math.js").then((one) => one.place(node, tex, wide), () => {});
  return node;
}

/** @param {Block} block @param {Tools} tools @param {number} depth */
function drawNote(block, tools, depth) {
  const [mark, id] = /** @type {RegExpExecArray} */ (NOTE.exec(block.lines[0]));
  const inner = blocks([block.lines[0].slice(mark.length), ...block.lines.slice(1).map((line) => line.replace(/^ {1,4}/, ""))]);
  return h("div", { class: "footnote", tabindex: -1, data: { note: id } }, h("sup", null, id), " ", inner.map((one) => (one.kind === "text" ? h("span", null, inline(one.raw)) : draw(one, tools, depth + 1))));
}

/** @param {string} id */
function noteMark(id) {
  const node = h("button", { class: "ref", type: "button", onclick: () => {
    const found = [.../** @type {Element} */ (node.closest(".md, .pane") ?? node.parentElement).querySelectorAll(".footnote")].find((one) => /** @type {HTMLElement} */ (one).dataset.note === id);
    found?.scrollIntoView({ block: "nearest" });
    /** @type {HTMLElement | undefined} */ (found)?.focus();
  } }, `[${id}]`);
  return node;
}

/** @param {Block} block @param {Tools} tools */
function drawCode(block, tools) {
  const mark = block.mark ?? "```";
  const body = block.lines.slice(1);
  const last = body.at(-1)?.trim() ?? "";
  if (last.length >= mark.length && last === mark[0].repeat(last.length)) body.pop();
  const code = body.join("\n");
  const button = h("button", { class: "quiet", type: "button", onclick: () => tools.copy(code, button) }, tools.labels.copy);
  return h("div", { class: "code", dir: "ltr" },
    h("div", { class: "code-head" }, h("span", null, block.lang ?? ""), button),
    h("pre", { tabindex: 0, "aria-label": block.lang || "code" }, colour(h("code", null, code), code, block.lang ?? "")));
}

/** @param {Block} block @param {Tools} tools @param {number} depth */
function drawList(block, tools, depth) {
  const first = /** @type {RegExpExecArray} */ (ITEM.exec(block.lines[0]));
  const base = indent(block.lines[0]);
  const ordered = /\d/.test(first[2]);
  const start = parseInt(first[2], 10);
  const list = h(ordered ? "ol" : "ul", { start: ordered && start !== 1 ? start : null });
  /** @type {string[]} */
  let item = [];
  let width = 0;
  const flush = () => { if (item.length) list.append(drawItem(item, tools, depth)); };
  for (const line of block.lines) {
    const found = ITEM.exec(line);
    if (found && indent(line) <= base + 1) {
      flush();
      width = found[0].length;
      item = [line.slice(width)];
    } else item.push(line.slice(Math.min(indent(line), width)));
  }
  flush();
  return list;
}

/** @param {string[]} lines @param {Tools} tools @param {number} depth */
function drawItem(lines, tools, depth) {
  const [mark, done] = /^\[([ xX])\]\s/.exec(lines[0]) ?? ["", ""];
  lines[0] = lines[0].slice(mark.length);
  const item = h("li", { class: mark ? "task" : null });
  for (const block of blocks(lines)) {
    if (block.kind === "text" && mark && !item.childNodes.length) item.append(h("label", null, h("input", { type: "checkbox", disabled: true, checked: done !== " " }), inline(block.raw)));
    else if (block.kind === "text") add(item, item.childNodes.length ? h("p", null, inline(block.raw)) : inline(block.raw));
    else item.append(draw(block, tools, depth + 1));
  }
  return item;
}

/** @param {Block} block */
function drawTable(block) {
  const sides = cells(block.lines[1]).map((cell) => (/^:-+:$/.test(cell) ? "center" : /-:$/.test(cell) ? "end" : "start"));
  /** @param {string} line @param {string} tag */
  const row = (line, tag) => h("tr", null, cells(line).slice(0, sides.length)
    .map((cell, at) => h(tag, { class: `at-${sides[at]}`, scope: tag === "th" ? "col" : null }, inline(cell))));
  return h("figure", { class: "table", tabindex: 0, "aria-label": cells(block.lines[0]).join(", ") }, h("table", null,
    h("thead", null, row(block.lines[0], "th")), h("tbody", null, block.lines.slice(2).map((line) => row(line, "td")))));
}

/** @param {Block} block @param {Tools} tools @param {number} depth @returns {Node} */
function draw(block, tools, depth) {
  if (depth > MAX_BLOCKS) return h("p", null, block.raw);
  if (block.kind === "code") return drawCode(block, tools);
  if (block.kind === "heading") {
    // The conversation has headings, so those of a message start at a level below.
    let words = /** @type {RegExpExecArray} */ (HEADING.exec(block.raw))[2].trimEnd();
    while (words.endsWith("#")) words = words.slice(0, -1);
    return h(`h${Math.min((block.level ?? 1) + 2, 6)}`, null, inline(words.trimEnd()));
  }
  if (block.kind === "rule") return h("hr");
  if (block.kind === "quote") {
    const inner = blocks(block.lines.map((line) => line.replace(QUOTE, "")));
    return h("blockquote", null, inner.map((one) => draw(one, tools, depth + 1)));
  }
  if (block.kind === "formula") return drawFormula(block.raw.trim().slice(2, -2), block.raw, true);
  if (block.kind === "note") return drawNote(block, tools, depth);
  if (block.kind === "list") return drawList(block, tools, depth);
  if (block.kind === "table") return drawTable(block);
  return h("p", null, inline(block.raw));
}

/**
 * Draws a text into a node. A longer version of the drawn text is drawn from its first changed block on.
 * @param {HTMLElement} node @param {string} text @param {Tools} tools
 */
export function render(node, text, tools) {
  const cut = text.length > MAX_TEXT;
  const lines = (cut ? text.slice(0, MAX_TEXT) : text).replace(/\r\n?/g, "\n").split("\n").map(tabExpander());
  notes = new Set(lines.flatMap((line) => NOTE.exec(head(line))?.[1] ?? []));
  const parts = blocks(lines);
  const rest = cut ? text.slice(MAX_TEXT) : "";
  const before = /** @type {any} */ (node).drawn;
  const known = before?.notes === notes.size ? before : [];
  let same = 0;
  while (same < known.length && same < parts.length && known[same] === parts[same].raw) same++;
  while (node.childNodes.length > same) node.lastChild?.remove();
  for (const block of parts.slice(same)) node.append(draw(block, tools, 0));
  if (rest) node.append(h("p", null, rest));
  /** @type {any} */ (node).drawn = Object.assign(parts.map((block) => block.raw), { notes: notes.size });
  notes = new Set();
}

/* ---- inside a line ---- */

/**
 * Returns the place of the matching "]" for every "[", found in one pass.
 * @param {string} text
 */
function brackets(text) {
  const pairs = new Map();
  const open = [];
  for (let at = 0; at < text.length; at++) {
    if (text[at] === "\\") at++;
    else if (text[at] === "[") open.push(at);
    else if (text[at] === "]" && open.length) pairs.set(open.pop(), at);
  }
  return pairs;
}

const TARGET = /^\(\s*(?:<([^<>\n]{0,2000})>|((?:[^\s()\\]|\\.|\((?:[^\s()\\]|\\.|\([^\s()]{0,200}\)){0,500}\)){0,2000}))(?:\s+(?:"[^"\n]{0,500}"|'[^'\n]{0,500}'))?\s*\)/;
const BARE = /https?:\/\/[^\s<>"'`\u0000-\u001f]{1,2000}/y;
const ANGLE = /<((?:https?:\/\/|mailto:)[^\s<>]{1,2000}|[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8})>/y;

/** @param {string} href @param {any} children @param {string} label */
function link(href, children, label) {
  const shown = /(?:^|\s|\/\/)((?:[\w-]{1,63}\.){1,8}[a-z]{2,24})(?=[/:?#\s]|$)/i.exec(label.slice(0, 300))?.[1]?.toLowerCase();
  const host = /^https?:/.test(href) ? new URL(href).host : "";
  const differs = shown && host && host.replace(/^www\./, "") !== shown.replace(/^www\./, "");
  return [h("a", { href, title: href, target: "_blank", rel: "noopener noreferrer nofollow ugc" }, children),
    differs && h("span", { class: "host" }, ` (${host})`)];
}

/** @param {string} url */
function trimBare(url) {
  let end = url.length;
  let extra = count(url, ")") - count(url, "(");
  for (; end > 0; end--) {
    const last = url[end - 1];
    if (last === ")" && extra > 0) extra--;
    else if (!".,;:!?*_~'\"".includes(last)) break;
  }
  return url.slice(0, end);
}
/** @param {string} text @param {string} char */
const count = (text, char) => text.split(char).length - 1;

/**
 * Returns the nodes of one run of text.
 * @param {string} text @param {number} [depth] @param {boolean} [linked] inside a link no other may start
 * @returns {any[]}
 */
function inline(text, depth = 0, linked = false) {
  if (depth > MAX_INLINE) return [text];
  /** @type {any[]} */
  const out = [];
  const pairs = brackets(text);
  /** Marks that have no end in the rest of the text, so that the search is not repeated. @type {Set<string>} */
  const hopeless = new Set();
  let plain = "";
  const flush = () => { if (plain) out.push(plain); plain = ""; };
  /** @param {any} node */
  const push = (node) => { flush(); out.push(node); };
  let at = 0;
  while (at < text.length) {
    const char = text[at];
    const step = special(char) ? special(char)(at) : 0;
    if (step) at += step;
    else { plain += char; at++; }
  }
  flush();
  return out;

  /** @param {string} char @returns {any} */
  function special(char) {
    if (char === "\\") return escape;
    if (char === "`") return code;
    if (char === "!" || char === "[") return bracket;
    if (char === "*" || char === "_" || char === "~") return emphasis;
    if (char === "<") return angle;
    if (char === "$") return dollar;
    if (char === "h") return bare;
    return char === "\n" ? newline : null;
  }
  /** @param {number} at */
  function escape(at) {
    if (text[at + 1] === "\n") return push(h("br")), 2;
    const taken = text[at + 1] === "(" ? between(at, "\\)", false) : text[at + 1] === "[" ? between(at, "\\]", true) : 0;
    if (taken) return taken;
    if (!/[!-/:-@[-`{-~]/.test(text[at + 1] ?? "")) return 0;
    plain += text[at + 1];
    return 2;
  }
  /** Draws the formula from here to its closing mark; returns the number of characters read, 0 if it is none. @param {number} at @param {string} close @param {boolean} wide */
  function between(at, close, wide) {
    if (hopeless.has(close)) return 0;
    const end = text.indexOf(close, at + 2);
    if (end < 0) return hopeless.add(close), 0;
    const tex = text.slice(at + 2, end);
    // brackets may be escaped because no link is meant
    if (blank(tex) || (close === "\\]" && !/[\\^_=<>+]/.test(tex))) return 0;
    push(drawFormula(tex, text.slice(at, end + 2), wide));
    return end + 2 - at;
  }
  /** Draws a formula between dollar signs; returns the number of characters read. Prices are none, nor is text with a letter or digit after its end. @param {number} at */
  function dollar(at) {
    if (text[at + 1] === "$") return between(at, "$$", true) || literal("$", 2);
    if (/[\p{L}\p{N}$]/u.test(text[at - 1] ?? "") || hopeless.has("$")) return 0;
    let end = at + 1;
    while (end < text.length && text[end] !== "$") end += text[end] === "\\" ? 2 : 1;
    if (end >= text.length) return hopeless.add("$"), 0;
    const tex = text.slice(at + 1, end);
    const prose = !/[\\^_={}<>]/.test(tex) && /\p{L}{2,}\s|\s\p{L}{2,}|^\d[\d.,]*\s/u.test(tex);
    if (/^\s|\s$|\n/.test(tex) || prose || /[\p{L}\p{N}$]/u.test(text[end + 1] ?? "")) return 0;
    push(drawFormula(tex, text.slice(at, end + 1), false));
    return end + 1 - at;
  }
  /** @param {number} at */
  function newline(at) {
    const hard = plain.endsWith("  ");
    plain = plain.trimEnd();
    flush();
    if (hard) push(h("br"));
    else plain = "\n";
    return 1 + (/^ +/.exec(text.slice(at + 1, at + 200))?.[0].length ?? 0);
  }
  /** @param {number} at */
  function code(at) {
    let size = 1;
    while (text[at + size] === "`") size++;
    const mark = "`".repeat(size);
    if (!hopeless.has(mark)) {
      for (let end = text.indexOf(mark, at + size); end !== -1; end = text.indexOf(mark, end + 1)) {
        if (text[end - 1] === "`" || text[end + size] === "`") { while (text[end + 1] === "`") end++; continue; }
        push(h("code", { dir: "ltr" }, unpadded(text.slice(at + size, end).replace(/\n/g, " "))));
        return end + size - at;
      }
      hopeless.add(mark);
    }
    plain += mark;
    return size;
  }
  /** @param {number} at */
  function bracket(at) {
    const picture = text[at] === "!";
    const open = picture ? at + 1 : at;
    const close = text[open] === "[" ? pairs.get(open) : undefined;
    const note = !picture && text[open + 1] === "^" && close ? text.slice(open + 2, close) : "";
    if (notes.has(note) && !linked) return push(noteMark(note)), note.length + 3;
    if (close === undefined || text[close + 1] !== "(") return 0;
    const target = TARGET.exec(text.slice(close + 1, close + 3000));
    const href = target && !linked ? safeUrl((target[1] ?? target[2] ?? "").replace(/\\([!-/:-@[-`{-~])/g, "$1")) : null;
    if (!target || !href) return 0;
    const label = text.slice(open + 1, close) || href;
    push(link(href, picture ? `🖼 ${label}` : inline(label, depth + 1, true), label));
    return close + 1 + target[0].length - at;
  }
  /** @param {number} at */
  function emphasis(at) {
    const char = text[at];
    let size = 1;
    while (text[at + size] === char) size++;
    const take = size >= 3 && char !== "~" ? 3 : Math.min(size, 2);
    const inWord = char === "_" && /[\p{L}\p{N}]/u.test(text[at - 1] ?? "");
    const after = text[at + size];
    if ((char === "~" && size !== 2) || size > 3 || inWord || !after || /\s/.test(after)) return literal(char, size);
    const end = closing(char, take, at + size);
    if (end < 0) return literal(char, size);
    const inner = inline(text.slice(at + take, end), depth + 1, linked);
    if (char === "~") push(h("del", null, inner));
    else if (take === 3) push(h("strong", null, h("em", null, inner)));
    else push(h(take === 2 ? "strong" : "em", null, inner));
    return end + take - at;
  }
  /** @param {string} char @param {number} size */
  function literal(char, size) {
    plain += char.repeat(size);
    return size;
  }
  /** @param {string} char @param {number} size @param {number} from */
  function closing(char, size, from) {
    const mark = char.repeat(size);
    if (hopeless.has(mark)) return -1;
    let ticks = false;
    for (let at = from; at < text.length; at++) {
      if (text[at] === "\\") { at++; continue; }
      if (text[at] === "`") ticks = !ticks;
      if (ticks || text[at] !== char) continue;
      let run = 1;
      while (text[at + run] === char) run++;
      const fits = (run === size || (run === 3 && size < 3)) && !/\s/.test(text[at - 1]) &&
        !(char === "_" && /[\p{L}\p{N}]/u.test(text[at + run] ?? ""));
      if (fits) return run === 3 && size < 3 ? at + (3 - size) : at;
      at += run - 1;
    }
    hopeless.add(mark);
    return -1;
  }
  /** @param {number} at */
  function angle(at) {
    ANGLE.lastIndex = at;
    const found = ANGLE.exec(text);
    const href = found && !linked ? safeUrl(/^(https?|mailto):/.test(found[1]) ? found[1] : `mailto:${found[1]}`) : null;
    if (!found || !href) return 0;
    push(link(href, found[1], found[1]));
    return found[0].length;
  }
  /** @param {number} at */
  function bare(at) {
    BARE.lastIndex = at;
    const found = linked || /\w/.test(text[at - 1] ?? "") ? null : BARE.exec(text);
    const url = found ? trimBare(found[0]) : "";
    const href = url ? safeUrl(url) : null;
    if (!href) return 0;
    push(link(href, url, url));
    return url.length;
  }
}

/**
 * Returns a Markdown text without formatting marks, cut to `max` characters, for screen readers.
 * @param {string} text @param {number} [max]
 */
export function plain(text, max = 400) {
  const lines = text.slice(0, max * 4).replace(/```[^]*?(```|$)/g, "").split("\n").map((line) => line.replace(/^\s*(#{1,6}|[-*+>]|\d+[.)])\s+/, "").replace(/[|]|-{3,}/g, " "));
  const words = h("p", null, inline(lines.join(" "))).textContent.replace(/\s+/g, " ").trim();
  return words.length > max ? `${words.slice(0, max)}…` : words;
}
