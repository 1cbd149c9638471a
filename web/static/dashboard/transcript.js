/** Transcript as the visitor sees it, with a line at each summary; all text is in text nodes. */
import { h, set, show } from "../shared/h.js";
import { adoptMd as dress, render } from "../widget/md.js";
import { clock, number, tokens, stamp } from "../shared/fmt.js";
import { ask } from "./net.js";
import { joinWithDots, problem, t, tn } from "./parts.js";

/** @typedef {{remove?: (note: any) => void, isPlain?: boolean}} Looks whether notes can be removed, and whether turns and tokens are left out */

const WHO = { person: t("Person"), assistant: t("Assistant"), tool: t("Tool"), operator: t("Operator"), program: t("Program") };
const LONG = 4000;
const KINDS = { summary: t("Summarised"), digest: t("Shortened without a model"), separator: t("Separated"), new: t("New conversation"), window: t("Left the window") };
const ENDINGS = { length: t("cut at its length limit"), filter: t("cut by the provider's filter"), cancelled: t("stopped by the person") };
const STATES = { stopped: t("stopped"), refused: t("refused"), failed: t("failed"), claimed: t("being answered"), open: t("waiting") };

/** Returns a text of any length as a node; a very long one opens on demand. @param {string} text */
export function words(text) {
  if (text.length <= LONG) return h("p", { class: "words", dir: "auto" }, text);
  const node = h("p", { class: "words", dir: "auto" }, `${text.slice(0, LONG)} … `);
  node.append(h("button", { type: "button", class: "link", onclick: () => show(node, text) }, tn("Show all {count} character", "Show all {count} characters", text.length)));
  return node;
}

/** @param {string} text @param {HTMLElement} button */
function copy(text, button) {
  navigator.clipboard?.writeText(text).then(() => show(button, t("Copied")), () => {});
}

/** Returns Markdown as a node, drawn by the widget's code, which never parses markup. @param {string} text */
export function markdown(text) {
  const node = h("div", { class: "md", dir: "auto" });
  const tools = { copy, labels: { copy: t("Copy") } };
  render(node, text.length > LONG ? `${text.slice(0, LONG)} …` : text, tools);
  if (text.length <= LONG) return h("div", { class: "drawn" }, node);
  const all = h("button", { type: "button", class: "link", onclick: () => { render(node, text, tools); all.remove(); } }, tn("Show all {count} character", "Show all {count} characters", text.length));
  return h("div", { class: "drawn" }, node, all);
}

const SIZES = ["B", "KB", "MB"];
/** @param {number} bytes */
function size(bytes) {
  const step = Math.min(2, Math.floor(Math.log(Math.max(bytes, 1)) / Math.log(1024)));
  return `${Math.round(bytes / 1024 ** step)}\u202f${SIZES[step]}`;
}

/** Returns a file of the person, opened on request; a deleted one keeps its name. @param {Api["LineFile"]} file */
function fileOf(file) {
  const label = [h("span", { dir: "auto" }, file.name || file.mime), h("span", { class: "muted" }, ` ${size(file.size)}`)];
  if (!file.kept) return h("p", null, h("span", { class: "badge file" }, label, h("span", { class: "muted" }, " · ", t("deleted"))));
  return h("p", null, h("a", { class: "badge file", href: `/api/v1/attachments/${file.id}`, target: "_blank", rel: "noopener" }, label));
}

/** @param {any} block @param {Api["Line"]} message */
function blockOf(block, message) {
  const file = block.attachment_id && message.files?.find((one) => one.number === block.attachment_id);
  if (file) return [fileOf(file), (block.type === "text" ? block.text : block.description) && h("details", { class: "tool" },
    h("summary", null, block.type === "text" ? t("Extracted text") : t("Description")), words(block.type === "text" ? block.text : block.description))];
  if (block.type === "text") return markdown(block.text);
  if (block.type === "tool_use") return h("details", { class: "tool" }, h("summary", null, t("Uses {tool}", { tool: h("code", null, block.name) })), h("pre", { tabindex: 0 }, JSON.stringify(block.input, null, 2)));
  if (block.type === "tool_result") return h("details", { class: "tool" }, h("summary", null, block.is_error ? t("Result: failed") : t("Result"), h("span", { class: "muted" }, " · ", tn("{count} character", "{count} characters", block.text.length))), words(block.text));
  if (block.type === "thinking") return h("details", { class: "tool" }, h("summary", null, t("Thinking")), words(block.text));
  if (block.type === "image") return h("p", { class: "words muted" }, block.description ? t("Picture ({mime}): {description}", { mime: block.mime, description: block.description }) : t("Picture ({mime})", { mime: block.mime }));
  return h("p", { class: "muted" }, t("A part of kind {kind}", { kind: block.type }));
}

/** Returns the list item of one message: author, time, marks, and its blocks. @param {Api["Line"] & {judged?: any}} message @param {Looks} [looks] */
export function messageNode(message, { isPlain = false } = {}) {
  const state = STATES[/** @type {keyof typeof STATES} */ (message.turn_state)];
  return h("li", { class: `message ${message.author}`, data: { seq: message.seq, turn: message.turn } },
    h("div", { class: "by" }, h("b", null, WHO[/** @type {keyof typeof WHO} */ (message.author)]), message.name && h("span", { class: "from", dir: "auto" }, message.name),
      h("span", { class: "muted" }, joinWithDots([!isPlain && h("a", { href: `#turn-${message.turn}` }, t("turn {turn}", { turn: message.turn })), h("time", { datetime: message.at, title: stamp(message.at) }, clock(message.at)), !isPlain && tn("{count} token", "{count} tokens", message.tokens ?? 0, { count: tokens(message.tokens) })])),
      message.pinned && h("span", { class: "badge" }, t("pinned")), message.pruned && h("span", { class: "badge" }, t("shortened")),
      ENDINGS[/** @type {keyof typeof ENDINGS} */ (message.stop)] && h("span", { class: "badge" }, ENDINGS[/** @type {keyof typeof ENDINGS} */ (message.stop)]),
      message.replaced ? h("span", { class: "badge" }, t("replaced by an edit")) : message.edited && h("span", { class: "badge" }, t("edited")), state && message.author === "person" && h("span", { class: "badge" }, state, message.error_code && ` · ${message.error_code}`)),
    message.blocks.map((block) => blockOf(block, message)), message.judged && message.feedback && judgement(message.feedback));
}

const OPINIONS = { good: t("Rated helpful"), bad: t("Rated not helpful") };
/** Returns the person's opinion of an answer. @param {Api["LineFeedback"]} feedback */
function judgement(feedback) {
  return h("div", { class: `judged ${feedback.opinion ?? ""}` }, h("b", null, OPINIONS[/** @type {keyof typeof OPINIONS} */ (feedback.opinion)] ?? t("Feedback")), feedback.words && words(feedback.words));
}

/** @param {Api["Divider"]} divider */
function dividerNode(divider) {
  const summary = divider.kind === "summary" || divider.kind === "digest";
  const label = KINDS[/** @type {keyof typeof KINDS} */ (divider.kind)] ?? divider.kind;
  return h("li", { class: "divider", data: { link: divider.id } }, h("span", null,
    summary ? h("a", { href: `#c-${divider.id}` }, label, " · ", t("turns {first} – {last}", { first: divider.from_turn, last: divider.through_turn })) : [label, " · ", t("through turn {turn}", { turn: divider.through_turn })],
    summary && h("span", { class: "muted" }, " · ", h("span", { dir: "ltr" }, `${tokens(divider.tokens_before)} → ${tokens(divider.tokens_after)}`))));
}

const ENDS = { operator: t("Returned to the assistant"), person: t("The person went back to the assistant"), unanswered: t("No operator came: back to the assistant"), silent: t("The operator fell silent: back to the assistant"), off: t("Hand-over was switched off: back to the assistant"), resolved: t("Resolved") };

/** @typedef {Pick<Api["Lines"], "messages" | "before"> & Partial<Api["Lines"]>} Messages */

/** Returns hand-overs and operators' notes, in order of time. @param {Api["LineHandover"][]} handovers @param {Api["LineNote"][]} notes */
function momentsOf(handovers, notes) {
  const moments = /** @type {{key: string, at: string}[]} */ ([...notes.map((one) => ({ ...one, key: `n${one.id}`, note: true })), ...handovers.flatMap((one) => [
    one.asked_by !== "operator" && { key: `a${one.id}`, at: one.asked_at, words: one.asked_by === "person" ? t("A human was asked for by the person") : t("A human was asked for by the assistant"), more: one.reason },
    one.taken_at && { key: `t${one.id}`, at: one.taken_at, words: one.operator ? t("{operator} took the conversation", { operator: one.operator }) : t("An operator took the conversation") },
    one.ended_at && { key: `e${one.id}`, at: one.ended_at, words: ENDS[/** @type {keyof typeof ENDS} */ (one.ended_by)] ?? t("Back to the assistant"), rating: one.rating },
  ])].filter(Boolean));
  return moments.sort((one, other) => Date.parse(one.at) - Date.parse(other.at));
}

/** Returns a person's rating of the help, of five. @param {number} rating */
export const stars = (rating) => h("span", { class: "stars", role: "img", "aria-label": t("Rated {rating} of 5", { rating: number(rating) }) }, "★".repeat(rating) + "☆".repeat(5 - rating));

/** @param {Api["LineNote"]} note @param {Looks} looks */
const noteNode = (note, { remove }) => h("li", { class: "message note" }, h("div", { class: "by" }, h("b", null, t("Private note")), h("span", { class: "from", dir: "auto" }, note.operator), h("span", { class: "muted" }, h("time", { datetime: note.at, title: stamp(note.at) }, clock(note.at))),
  remove && note.can_remove && h("button", { type: "button", class: "link", "aria-label": t("Remove the private note"), onclick: () => remove(note) }, t("Remove"))), words(note.body));

/** @param {any} moment @param {Looks} looks */
const momentNode = (moment, looks) => moment.note ? noteNode(moment, looks) : h("li", { class: "divider hand" }, h("span", null, moment.words, moment.rating && [" ", stars(moment.rating)],
  h("span", { class: "muted" }, " · ", h("time", { datetime: moment.at, title: stamp(moment.at) }, clock(moment.at))), moment.more && h("span", { class: "block muted", dir: "auto" }, h("q", null, moment.more))));

/**
 * Returns all rows in order, each with a key and the data that it is drawn from.
 * @param {Api["Line"][]} messages @param {Api["Divider"][]} links @param {Api["LineHandover"][]} handovers @param {Api["LineNote"][]} notes @param {boolean} more whether there are earlier ones
 */
function itemsOf(messages, links, handovers, notes, more) {
  const dividers = [...links];
  const moments = momentsOf(handovers, notes);
  if (more && messages.length) while (moments.length && Date.parse(moments[0].at) < Date.parse(messages[0].at)) moments.shift();
  const items = /** @type {{key: string, of: any, make: (of: any, looks: Looks) => any}[]} */ ([]);
  const tell = () => { const of = /** @type {{key: string, at: string}} */ (moments.shift()); items.push({ key: of.key, of, make: momentNode }); };
  for (const [index, message] of messages.entries()) {
    const next = messages[index + 1];
    while (moments.length && Date.parse(moments[0].at) <= Date.parse(message.at)) tell();
    const last = message.feedback && !messages.slice(index + 1, index + 30).some((later) => later.turn === message.turn && later.author === "assistant");
    items.push({ key: `m${message.seq}`, of: { ...message, judged: last }, make: messageNode });
    while (dividers.length && dividers[0].through_turn <= message.turn && (!next || next.turn > dividers[0].through_turn)) {
      const of = /** @type {Api["Divider"]} */ (dividers.shift());
      items.push({ key: `d${of.id}`, of, make: dividerNode });
    }
  }
  while (moments.length) tell();
  return items;
}

/** Puts nodes in order, moving as few as possible, so that open, selected or focused ones stay. @param {Element} list @param {Node[]} nodes */
function settle(list, nodes) {
  const keep = new Set(nodes);
  for (const node of [...list.childNodes]) if (!keep.has(node)) node.remove();
  for (const [index, node] of nodes.entries()) if (list.childNodes[index] !== node) list.insertBefore(node, list.childNodes[index] ?? null);
}

/** Joins two lists: older items that the newer list lacks, then the newer list. @param {any[]} older @param {any[]} newer @param {string} key */
function joinLists(older, newer, key) {
  const known = new Set(newer.map((one) => one[key]));
  return [...older.filter((one) => !known.has(one[key])), ...newer];
}

/**
 * Returns the list of messages, loaded backwards page by page; the newest page is loaded again at each refresh.
 * @param {{path: `/sessions/${string}/messages` | `/compactions/${string}/messages`, label: string, signal: AbortSignal, empty: string, at?: string, drop?: (note: any) => Promise<boolean>, isPlain?: boolean}} of
 *   `at` is the turn that it opens at, or with it the number of a message, `12-34`: then it stays there until the newest are
 *   asked for; `drop` removes a private note, where the operator does not think better of it; `isPlain` leaves out turns
 *   and tokens
 */
export function transcript({ path, label, signal, empty, at = "", drop, isPlain = false }) {
  const list = h("ol", { class: "messages" });
  const more = h("button", { type: "button", class: "line", hidden: true, onclick: () => earlier() }, t("Load earlier messages"));
  const note = h("div");
  let [, turn, seq] = /^(\d{1,15})(?:-(\d{1,15}))?$/.exec(at) ?? [];
  const newest = h("button", { type: "button", class: "line", hidden: !turn, onclick: () => { turn = ""; shown = ""; newest.hidden = true; void safely(false); } }, t("Show the newest messages"));
  const box = h("div", { class: "transcript", role: "region", "aria-label": label, tabindex: 0 }, more, note, list, newest);
  const drawn = /** @type {Map<string, {text: string, node: any}>} */ (new Map());
  let all = { messages: /** @type {any[]} */ ([]), dividers: /** @type {any[]} */ ([]), handovers: /** @type {any[]} */ ([]), notes: /** @type {any[]} */ ([]), before: /** @type {string | null} */ (null) };
  /** Ids of notes removed here, since a page that was requested before may still contain them. */
  const removed = new Set();
  let shown = "";
  let isLow = true;
  box.addEventListener("scroll", () => { isLow = isAtEnd(); });
  // a growing composer must not cover the newest message
  const room = new ResizeObserver(() => { if (isLow) box.scrollTop = box.scrollHeight; });
  room.observe(box);
  signal.addEventListener("abort", () => room.disconnect());
  const isAtEnd = () => box.scrollHeight - box.scrollTop - box.clientHeight < 40;

  function draw() {
    more.hidden = all.before === null;
    all.notes = all.notes.filter((one) => !removed.has(one.id));
    const items = itemsOf(all.messages, all.dividers, all.handovers, all.notes, all.before !== null);
    const nodes = items.map(({ key, of, make }) => {
      const text = JSON.stringify(of);
      const before = drawn.get(key);
      if (before?.text === text) return before.node;
      const node = make(of, { remove: drop && remove, isPlain });
      drawn.set(key, { text, node });
      return node;
    });
    settle(list, nodes.length ? nodes : [h("li", { class: "empty" }, empty)]);
  }

  /** @param {any} gone */
  async function remove(gone) {
    if (!await drop?.(gone)) return;
    removed.add(gone.id);
    draw();
    box.focus({ preventScroll: true });
  }

  /** @param {string} query @param {boolean} [refresh] @returns {Promise<Messages>} */
  const read = (query, refresh = false) => /** @type {Promise<any>} */ (ask(`${path}?${query}`, { refresh, signal }));

  /** Loads the page with the wanted turn; a few later turns are shown too, unless they fill the page. @param {boolean} refresh */
  async function pageAt(refresh) {
    const upTo = (/** @type {number} */ ahead) => read(`limit=50${turn ? `&before=${Number(turn) + ahead}.0` : ""}`, refresh);
    const page = await upTo(4);
    return turn && page.messages[0]?.turn > Number(turn) ? upTo(1) : page;
  }

  /** Returns the place of the wanted message, or where its turn begins; for a turn without messages, the message before. @param {Api["Line"][]} messages */
  function placeOf(messages) {
    const at = seq ?? (messages.find((one) => one.turn === Number(turn)) ?? messages.findLast((one) => one.turn < Number(turn)) ?? messages[0])?.seq;
    for (const one of list.querySelectorAll("[aria-current]")) set(one, { "aria-current": null });
    return /** @type {HTMLElement | null} */ (list.querySelector(`[data-seq="${at}"]`));
  }

  /** @param {boolean} [refresh] */
  async function load(refresh = false) {
    if (turn && shown) return forget();
    const wanted = turn;
    const page = await pageAt(refresh);
    if (wanted !== turn) return;
    const next = JSON.stringify(page);
    if (next === shown) return;
    const low = !shown || isAtEnd();
    shown = next;
    show(note);
    const known = new Set(all.messages.map((one) => one.seq));
    // without a common message, some in between would be missing
    const goesOn = page.messages.some((one) => known.has(one.seq));
    const first = page.messages[0];
    const older = goesOn ? all.messages.filter((one) => one.turn < first.turn || (one.turn === first.turn && one.step < first.step)) : [];
    // The page lacks hand-overs and notes from before its first message, so those loaded earlier are kept.
    const [handovers, notes] = older.length ? [all.handovers, all.notes.filter((one) => Date.parse(one.at) < Date.parse(first.at))] : [[], []];
    all = { messages: joinLists(older, page.messages, "seq"), dividers: dividersOf(older, page), handovers: joinLists(handovers, page.handovers ?? [], "id"), notes: joinLists(notes, page.private_notes ?? [], "id"), before: older.length ? all.before : page.before };
    draw();
    dress(list, ".drawn");
    const found = turn && placeOf(all.messages);
    if (found) {
      set(found, { tabindex: -1, "aria-current": "true" });
      found.focus({ preventScroll: true });
      box.scrollTop = found.offsetTop - box.offsetTop - 40;
      box.scrollIntoView({ block: "center" });
    } else if (low) box.scrollTop = box.scrollHeight;
  }

  /** Removes deleted private notes while new messages wait. */
  async function forget() {
    const page = await pageAt(true);
    const known = new Set((page.private_notes ?? []).map((one) => one.id));
    const gone = all.notes.filter((one) => !known.has(one.id) && Date.parse(one.at) >= Date.parse(page.messages[0]?.at));
    if (!gone.length) return;
    all.notes = all.notes.filter((one) => !gone.includes(one));
    draw();
  }

  /** Returns the dividers of the page, after earlier ones. @param {any[]} older @param {Messages} page */
  function dividersOf(older, page) {
    const from = page.messages[0]?.turn ?? 0;
    return joinLists(older.length ? all.dividers.filter((one) => one.through_turn < from) : [], page.dividers ?? [], "id");
  }

  async function earlier() {
    set(more, { disabled: true });
    try {
      const page = await read(`limit=100&before=${all.before}`);
      const height = box.scrollHeight;
      all = { messages: joinLists(page.messages, all.messages, "seq"), dividers: joinLists(page.dividers ?? [], all.dividers, "id"), handovers: page.handovers ?? [], notes: page.private_notes ?? [], before: page.before };
      draw();
      box.scrollTop += box.scrollHeight - height;
    } catch (error) {
      if (!signal.aborted) show(note, problem(error, earlier));
    }
    set(more, { disabled: false });
  }

  /** @param {boolean} [refresh] */
  const safely = (refresh) => load(refresh).catch((error) => { if (!signal.aborted && !refresh) show(note, problem(error, () => safely(false))); });

  /** Shows a turn, and keeps it in place. @param {string} wanted */
  function jump(wanted) {
    [turn, seq, shown] = /** @type {[string, any, string]} */ ([wanted, undefined, ""]);
    newest.hidden = false;
    return safely(false);
  }
  return { node: box, load: safely, jump, low: () => { box.scrollTop = box.scrollHeight; } };
}
