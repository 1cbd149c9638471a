/** Note below an incomplete answer, with a button to continue; loaded with the first such answer. */
import english from "../locales/en/chat_parts.json" with { type: "json" };
import { h } from "../shared/h.js";
import { wordsOf } from "./words.js";

const t = wordsOf("cut", english.cut);

/** @typedef {import("./chat.js").Chat} Chat @typedef {import("./state.js").Item} Item */

/** Draws the note below an incomplete answer; a stopped answer gets none, and only the newest a button to continue. @param {Chat} chat @param {Item} item @param {HTMLElement} article @param {boolean} newest */
export function noteCut(chat, item, article, newest) {
  article.querySelector(":scope > .cut")?.remove();
  if (item.stop === "cancelled") return;
  const more = newest && item.stop === "length" && h("button", { class: "action line", type: "button", onclick: () => goOn(chat, item) }, t("go_on"));
  article.querySelector(":scope > .meta")?.before(h("p", { class: "cut muted small", role: "note" }, t(item.stop === "length" ? "length" : "filter"), " ", more));
}

/** Asks for the rest of an answer, once even if several tabs are open. @param {Chat} chat @param {Item} item */
function goOn(chat, item) {
  const cid = `go-on-${item.mid}`;
  if (chat.chat.run || chat.chat.byCid(cid)) return;
  const entry = { cid, text: t("go_on_words"), at: new Date().toISOString(), order: ++chat.order };
  chat.store.keep(entry);
  chat.chat.send(entry);
  chat.log.end();
  chat.transmit(chat.chat.byCid(cid));
  chat.start();
}
