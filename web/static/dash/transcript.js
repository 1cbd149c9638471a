/** What was said, with a line wherever something was summarised; every word is a text node. */
import { h, set, show } from "../shared/h.js";
import { clock, number, tokens, when } from "../shared/fmt.js";
import { ask } from "./net.js";
import { problem } from "./parts.js";

const WHO = { person: "Person", assistant: "Assistant", tool: "Tool", operator: "Operator", program: "Program" };
const LONG = 4000;
const KINDS = { summary: "Summarised", digest: "Shortened without a model", separator: "Separated", new: "New conversation", window: "Left the window" };
const STATES = { stopped: "stopped", refused: "refused", failed: "failed", claimed: "being answered", open: "waiting" };

/** Text of any length; what is very long opens on demand. @param {string} text */
function words(text) {
  if (text.length <= LONG) return h("p", { class: "words", dir: "auto" }, text);
  const node = h("p", { class: "words", dir: "auto" }, `${text.slice(0, LONG)} … `);
  node.append(h("button", { type: "button", class: "link", onclick: () => show(node, text) }, `Show all ${number(text.length)} characters`));
  return node;
}

/** @param {any} block */
function blockOf(block) {
  if (block.type === "text") return words(block.text);
  if (block.type === "tool_use") return h("details", { class: "tool" }, h("summary", null, "Uses ", h("code", null, block.name)), h("pre", { tabindex: 0 }, JSON.stringify(block.input, null, 2)));
  if (block.type === "tool_result") return h("details", { class: "tool" }, h("summary", null, block.is_error ? "Result: failed" : "Result", h("span", { class: "muted" }, ` · ${number(block.text.length)} characters`)), words(block.text));
  if (block.type === "thinking") return h("details", { class: "tool" }, h("summary", null, "Thinking"), words(block.text));
  if (block.type === "image") return h("p", { class: "words muted" }, `Picture (${block.mime})${block.description ? `: ${block.description}` : ""}`);
  return h("p", { class: "muted" }, `A part of kind ${block.type}`);
}

/** @param {any} message */
export function messageNode(message) {
  const state = STATES[/** @type {keyof typeof STATES} */ (message.turn_state)];
  return h("li", { class: `message ${message.author}`, data: { seq: message.seq } },
    h("div", { class: "by" }, h("b", null, WHO[/** @type {keyof typeof WHO} */ (message.author)]),
      h("span", { class: "muted" }, `turn ${number(message.turn)} · `, h("time", { datetime: message.at, title: when(message.at) }, clock(message.at)), ` · ${tokens(message.tokens)} tokens`),
      message.pinned && h("span", { class: "badge" }, "pinned"), message.pruned && h("span", { class: "badge" }, "shortened"),
      state && message.author === "person" && h("span", { class: "badge" }, state, message.error_code && ` · ${message.error_code}`)),
    message.blocks.map(blockOf));
}

/** @param {any} divider */
function dividerNode(divider) {
  const summary = divider.kind === "summary" || divider.kind === "digest";
  const label = KINDS[/** @type {keyof typeof KINDS} */ (divider.kind)] ?? divider.kind;
  return h("li", { class: "divider", data: { link: divider.id } }, h("span", null,
    summary ? h("a", { href: `#c-${divider.id}` }, `${label} · turns ${number(divider.from_turn)} – ${number(divider.through_turn)}`) : `${label} · through turn ${number(divider.through_turn)}`,
    summary && h("span", { class: "muted" }, ` · ${tokens(divider.tokens_before)} → ${tokens(divider.tokens_after)}`)));
}

/** @param {any} page */
function itemsOf(page) {
  const dividers = [...(page.dividers ?? [])];
  const items = [];
  for (const [index, message] of page.messages.entries()) {
    items.push(messageNode(message));
    const next = page.messages[index + 1];
    while (dividers.length && dividers[0].through_turn <= message.turn && (!next || next.turn > dividers[0].through_turn)) items.push(dividerNode(dividers.shift()));
  }
  return items;
}

/**
 * Messages read backwards, page by page.
 * @param {{path: string, label: string, signal: AbortSignal, empty: string}} of
 */
export function transcript({ path, label, signal, empty }) {
  const list = h("ol", { class: "messages" });
  const more = h("button", { type: "button", class: "line", hidden: true, onclick: () => earlier() }, "Load earlier messages");
  const note = h("div");
  const box = h("div", { class: "transcript", role: "region", "aria-label": label, tabindex: 0 }, more, note, list);
  /** @type {string | null} */
  let before = null;
  let shown = "";
  let extended = false;

  /** @param {any} page */
  function tellMore(page) { before = page.before; more.hidden = before === null; }

  /** @param {boolean} [refresh] */
  async function load(refresh = false) {
    const page = await ask(`${path}?limit=50`, { refresh, signal });
    const next = JSON.stringify(page);
    if (next === shown || extended) return;
    const first = !shown;
    const low = first || box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    shown = next;
    show(note);
    tellMore(page);
    show(list, page.messages.length ? itemsOf(page) : h("li", { class: "empty" }, empty));
    if (low) box.scrollTop = box.scrollHeight;
  }

  async function earlier() {
    set(more, { disabled: true });
    try {
      const page = await ask(`${path}?limit=100&before=${before}`, { signal });
      const height = box.scrollHeight;
      extended = true;
      tellMore(page);
      list.prepend(...itemsOf(page));
      box.scrollTop += box.scrollHeight - height;
    } catch (error) {
      if (!signal.aborted) show(note, problem(error, earlier));
    }
    set(more, { disabled: false });
  }

  /** @param {boolean} [refresh] */
  const safely = (refresh) => load(refresh).catch((error) => { if (!signal.aborted && !refresh) show(note, problem(error, () => safely(false))); });
  return { node: box, load: safely };
}
