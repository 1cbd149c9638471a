/** Form after a thumb down: what was wrong, in the person's words, if they like. */
import english from "../locales/en/chat_parts.json" with { type: "json" };
import { h } from "../shared/h.js";
import { wordsOf } from "./words.js";
import { ensure } from "./ensure.js";
import { newId } from "./storage.js";
import { adopt } from "./styles.js";

const t = wordsOf("opinion", english.opinion);
const MOST = 1000;
const LOOK = /* css */ `
.opinion { scroll-margin: 16px; display: grid; gap: 8px; margin-top: 6px; } .opinion textarea { height: auto; padding: 8px 10px; border: 1px solid var(--line); border-radius: var(--radius-s); background: var(--soft); resize: vertical; } .opinion textarea:focus-visible { outline: 2px solid var(--accent); outline-offset: -1px; }
`;

/** Draws a form for the reason of a thumb down below the answer; the text is sent only if the person writes one. @param {import("./chat.js").Chat} chat @param {import("./state.js").Item} item @param {HTMLElement} article */
export function rate(chat, item, article) {
  adopt(chat.node, LOOK);
  article.querySelector(".opinion")?.remove();
  const words = h("textarea", { rows: 2, maxlength: MOST, dir: "auto", "aria-label": t("why"), placeholder: t("why") });
  function leave() {
    form.remove();
    chat.composer.input.focus();
  }
  const form = h("form", { class: "opinion", onsubmit: (/** @type {Event} */ event) => {
    event.preventDefault();
    const text = words.value.trim();
    if (text && !ensure(chat, { t: "feedback", cid: newId(), mid: item.mid, value: -1, text })) return chat.warn(t("command_offline"));
    if (text) chat.say(t("thanks"));
    leave();
  }, onkeydown: (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape") { event.stopPropagation(); leave(); }
    else if (event.key === "Enter" && !event.shiftKey && !event.isComposing && event.target === words) { event.preventDefault(); form.requestSubmit(); }
  } }, words, h("div", { class: "row" }, h("button", { class: "action solid", type: "submit" }, t("send")),
    h("button", { class: "action line", type: "button", onclick: leave }, t("skip"))));
  article.append(form);
  // it may load late: a person who does something else by now keeps the focus
  if (article.contains(chat.node.querySelector(":focus") ?? article)) words.focus();
  form.scrollIntoView({ block: "nearest" });
}
