/** Buttons next to messages, and answers that are drawn without a bubble; loaded with the first answer. */
import english from "../locales/en/chat_parts.json" with { type: "json" };
import { h, icon, set, show } from "../shared/h.js";
import { ensure } from "./ensure.js";
import { plain } from "./md.js";
import { newId } from "./storage.js";
import { adopt } from "./styles.js";
import { wordsOf } from "./words.js";

const t = wordsOf("acts", english.acts);
const ASK_MS = 20_000;
const PLAY = "M8 5l11 7-11 7z";
const AGAIN = "M20 12a8 8 0 1 1-2.6-5.9M20 3v5h-5";
const FORK = "M7 4v16m0-7h6q4 0 4-4V4";
const THUMB = "M7 11v9H3v-9zM7 19c3 1.5 9 2 11 1 2-2 3-7 2-9s-4-1-6-1c1-3 1-6-1-7-2 4-4 6-6 7";
const WHY = "M9 9a3 3 0 1 1 3 4v1M12 18v.1";
const ACTS_LOOK = /* css */ `
.quiet svg { display: block; } [data-thumb="-1"] svg { transform: rotate(180deg); } .quiet[aria-pressed="true"] { color: var(--accent); } [data-thumb][aria-pressed="true"] svg { fill: currentColor; fill-opacity: .25; }
@media (hover: hover) {
  .person:not(:hover, :focus-within) [data-older="true"], [data-rest="true"]:not(:last-child, :hover, :focus-within) > .meta { opacity: 0; }
}
.operator .body { padding: 8px 13px; background: var(--soft); border-radius: 16px; border-start-start-radius: 4px; align-self: flex-start; max-width: 92%; } .face { width: 22px; height: 22px; border-radius: 50%; object-fit: cover; vertical-align: middle; margin-inline-end: 6px; } .who { align-self: flex-start; font-size: 12.5px; font-weight: 640; color: var(--accent); margin-bottom: 2px; }
.mark { display: flex; align-items: center; gap: 10px; } .mark bdi { text-align: center; } .mark::before, .mark::after { content: ""; flex: 1; min-width: 16px; height: 1px; background: var(--line); }
@media (forced-colors: active) { .quiet[aria-pressed="true"] { outline: 1px solid; } }
`;

/** @typedef {import("./chat.js").Chat} Chat @typedef {import("./state.js").Item} Item */

/** @param {Chat} chat @param {string} command */
const may = (chat, command) => chat.commands().some((/** @type {any} */ one) => one.name === command);

/**
 * Sends a command whose result is returned instead of drawn. After a lost connection it is sent again under the same id.
 * @param {Chat} chat @param {string} command @param {string} [args] @returns {Promise<{good: boolean, text: string}>}
 */
export function ask(chat, command, args = "") {
  const cid = newId();
  const frame = { t: "command", cid, command, args };
  return new Promise((answered) => {
    const timer = setTimeout(() => chat.chat.heard({ cid, t: "error", message: t("command_offline") }), ASK_MS);
    chat.asked.set(cid, frame);
    chat.chat.silent.set(cid, (event) => {
      clearTimeout(timer);
      chat.asked.delete(cid);
      const good = event.t !== "error" && event.success !== false;
      answered({ good, text: good ? event.result ?? "" : String(event.error || event.advice || event.message || t("command_failed")) });
    });
    chat.net.send(frame);
  });
}

/** Asks the last question again: by `/retry` where that exists, else by sending it again. @param {Chat} chat */
async function again(chat) {
  if (chat.chat.run || chat.renewing) return;
  if (!may(chat, "retry")) {
    const question = chat.chat.items.filter((item) => item.role === "person").pop();
    if (question?.text) chat.send(question.text);
    return;
  }
  chat.renewing = true;
  chat.composer.input.focus();
  const { good, text } = await ask(chat, "retry");
  chat.renewing = false;
  if (!good) chat.warn(text);
}

/** @param {Chat} chat @param {Item} item @param {1 | -1} value @param {HTMLElement} article */
function judge(chat, item, value, article) {
  const wanted = item.feedback === value ? 0 : value;
  if (!ensure(chat, { t: "feedback", cid: newId(), mid: item.mid, value: wanted })) return chat.warn(t("command_offline"));
  chat.chat.judged({ mid: item.mid, value: wanted });
  chat.draw();
  if (wanted < 0) void import("./opinion.js").then((one) => one.rate(chat, item, article), () => {});
  else article.querySelector(".opinion")?.remove();
}

/** Pins or unpins a message; the result is shown by its button alone. @param {Chat} chat @param {{mid?: string}} item */
export function pin(chat, item) {
  const cid = newId();
  const pinned = !chat.chat.pinned.has(item.mid ?? "");
  if (!ensure(chat, { t: "pin", cid, mid: item.mid, pinned })) return chat.warn(t("command_offline"));
  chat.chat.silent.set(cid, (event) => {
    chat.asked.delete(cid);
    if (event.success === false || event.t === "error") chat.warn(String(event.error || event.message));
    else chat.say(t(pinned ? "pinned" : "unpinned"));
  });
}

/** Draws the buttons next to the messages. @param {Chat} chat */
export function adorn(chat) {
  adopt(chat.node, ACTS_LOOK);
  /** @param {string} key @param {string} path @param {() => void} run @param {object} [more] */
  const small = (key, path, run, more = {}) => h("button", { class: "quiet", type: "button", "aria-label": t(key), title: t(key), onclick: run, ...more }, icon(path, 15));
  /** @param {Item} item @param {1 | -1} value @param {HTMLElement} article */
  const thumb = (item, value, article) => small(value > 0 ? "good" : "poor", THUMB, () => judge(chat, item, value, article), { "aria-pressed": String(item.feedback === value), data: { thumb: value } });

  /** @param {Item} item @param {HTMLElement} article @param {HTMLElement} body */
  function under(item, article, body) {
    const mine = item.role === "assistant" && item.text && item.mid;
    if (item.role === "operator" && !article.querySelector(".who")) article.prepend(h("span", { class: "who" }, face(item), h("bdi", null, item.name || t("somebody"))));
    if (item.earlier) void import("./edit.js").then((one) => one.former(chat, item, article, body), () => {});
    const newest = item === chat.chat.newest();
    article.dataset.rest = String(item.role !== "notice" && !newest && !item.error && !item.partial && !item.feedback && !chat.chat.pinned.has(item.mid ?? ""));
    // a stop reason longer than "stop" means that the answer is not whole
    if (item.stop?.[4]) void import("./cut.js").then((one) => one.noteCut(chat, item, article, newest), () => {});
    return {
      told: handoverNotice(item),
      again: newest && (mine ? may(chat, "retry") && small("again", AGAIN, () => void again(chat)) : h("button", { class: "quiet", type: "button", onclick: () => void again(chat) }, t("retry"))),
      thumbs: mine && [may(chat, "voice") && item.role === "assistant" && listener(item, article), may(chat, "feedback") && [thumb(item, 1, article), thumb(item, -1, article)]],
      pin: [mine && [item.memory && may(chat, "why") && small("why", WHY, () => chat.later((one) => one.look(chat, "why", item.mid))), may(chat, "pin") && pinner(item)], item.role !== "notice" && forker(item)],
    };
  }

  /** Returns the button that plays an answer; the same button for the same message. The speech is made at the first press. @param {Item} item @param {any} article */
  const listener = (item, article) => article.listener ??= small("listen", PLAY, () => void import("./voice.js").then((one) => one.listen(chat, item, article.listener, t), () => chat.warn(t("not_spoken"))));

  /** @param {Item} item */
  function pinner(item) {
    const pinned = chat.chat.pinned.has(item.mid ?? "");
    return h("button", { class: "quiet", type: "button", "aria-pressed": String(pinned), onclick: () => pin(chat, item) }, t(pinned ? "unpin" : "pin"));
  }

  /** Returns the button that copies the conversation up to a message; false where a person cannot have several. @param {Item} item */
  const forker = (item) => chat.many && item.mid && item.status === "sent" && small("fork", FORK, () => void chat.menu((one) => one.fork(chat, item)));

  /** Shows which tool the assistant runs before it answers. */
  function working() {
    const { tool = "", subject = "" } = chat.chat.run ?? {};
    const key = `tool_${tool.startsWith("mcp_") ? "mcp" : tool}`;
    const said = subject || !/fetch|mcp/.test(key) ? t(key, { subject }) : key;
    return said === key ? t("working") : said;
  }

  /** Returns the buttons next to a question: edit, and show earlier texts. @param {Item} item @param {HTMLElement} article */
  function mine(item, article) {
    const act = (/** @type {"edit" | "edited" | "all"} */ key, /** @type {object} */ more = {}) => h("button", { class: "quiet", type: "button", onclick: () => void import("./edit.js").then((one) => one[key](chat, item, article), () => chat.say(t("lost"))), ...more }, t(key));
    article.dataset.rest = String(item.status === "sent" && !item.queued && !item.edited && item !== chat.chat.question() && !chat.chat.outdated(item));
    if (item.text === "[erased]") return [];
    return [chat.chat.outdated(item) && [t("outdated"), h("button", { class: "quiet", type: "button", onclick: () => void again(chat) }, t("again"))], item.text?.[4000] && !item.open && act("all"),
      item.status === "sent" && item.mid && act("edit", { data: { older: String(item !== chat.chat.question()) } }), item.edited && act("edited", { "aria-expanded": String(!!article.querySelector(".versions")) }), forker(item)];
  }

  /** @param {Item} item @param {HTMLElement} line */
  const mark = (item, line) => (item.cut === "fork" ? chat.menu((one) => one.forked(chat, item, line)) : show(line, face(item), h("bdi", null, t(item.cut ? `cut_${item.cut}` : "joined", { name: item.name || t("somebody") }))));

  return { under, mine, mark, working };
}

/** Returns the picture of an operator, if there is one. Where a page forbids foreign pictures, only the name is visible. @param {Item} item */
const face = ({ picture }) => picture && h("img", { class: "face", src: new URL(`../../pictures/${picture}`, import.meta.url).href, alt: "", width: 22, height: 22,
  onerror: (/** @type {Event} */ event) => /** @type {HTMLElement} */ (event.target).remove() });

/** Returns the reason why no operator came, translated from the server's code; a false value for other items. @param {Item} item @returns {string | undefined} */
const handoverNotice = ({ role, error }) => (role === "notice" && /^handover_/.test(error) && t(error) !== error ? t(error) : undefined);

/** @param {Item} item */
const words = ({ kind, text = "", success, advice }) => (kind === "result" ? [text || t(success ? "command_silent" : "command_failed"), advice].filter(Boolean).join(" ") : text);

/** Returns the text of a message for speech output. @param {Item} item */
export function speech(item) {
  return (item.name ? `${item.name}: ` : "") + plain(handoverNotice(item) ?? words(item));
}

/** Loads the part that shows a human's takeover of the conversation. @param {Chat} chat @param {any} [frame] */
export const human = (chat, frame) => void import("./human.js").then((one) => one.human(chat, frame), () => {});
