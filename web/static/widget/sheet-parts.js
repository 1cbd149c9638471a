/** Texts, the status line and tools that the views of the sheet share. */
import english from "../locales/en/chat_parts.json" with { type: "json" };
import { h, set, show } from "../shared/h.js";
import { wordsOf } from "./words.js";

/** Returns a text of the sheet. */
export const t = wordsOf("sheet", english.sheet);

/**
 * @typedef {object} SheetTools
 * @property {(path: string, init?: RequestInit) => Promise<Response>} reach asks the server; throws only without an answer
 * @property {(node: HTMLElement, text: string) => void} markdown
 * @property {() => void} closed
 * @property {() => string} session
 * @property {(mid: string) => void} jump shows a message in the conversation
 * @property {() => {mid: string, text?: string}[]} pins
 * @property {(mid: string) => void} unpin
 * @property {(since: Date) => Promise<void>} leap shows the first message since then
 * @property {() => HTMLElement} title
 * @property {(mid: string) => Promise<void>} reword asks for other words for a message
 * @property {(session: string) => void} open goes on in another conversation
 * @property {() => void} begin goes on in a new one
 */

/**
 * Shows the state of a view: loading, empty, or what failed, with a button to try again.
 * @param {HTMLElement} node @param {string} words @param {() => void} [again]
 */
export function state(node, words, again) {
  node.hidden = !words;
  set(node, { data: { bad: String(Boolean(again)) } });
  show(node, words, again && h("button", { class: "quiet", type: "button", onclick: again }, t("retry")));
}
