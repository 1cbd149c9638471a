/** Asks visitors for their name where a site wants that; the answer is sent as an ordinary message. */
import english from "../locales/en/chat_parts.json" with { type: "json" };
import { add, h } from "../shared/h.js";
import { adopt } from "./styles.js";
import { wordsOf } from "./words.js";

const MOST_CHARS = 40;
const t = wordsOf("name", english.name);
const NAME_LOOK = /* css */ `
.ask-name { display: flex; flex-wrap: wrap; align-items: center; justify-content: center; gap: 6px; padding: 4px 0 8px; } .ask-name input { width: 150px; min-height: 34px; padding: 4px 10px; font: inherit; color: var(--fg); background: var(--card); border: 1px solid var(--line); border-radius: var(--radius-m); }
`;

/** Draws the question in the empty chat. @param {import("./chat.js").Chat} chat */
export function askName(chat) {
  const empty = chat.log.node.querySelector(".empty");
  if (!empty || empty.querySelector(".ask-name") || chat.options.identity) return;
  adopt(chat.node, NAME_LOOK);
  const input = /** @type {HTMLInputElement} */ (h("input", { name: "given-name", autocomplete: "given-name", maxlength: MOST_CHARS, dir: "auto", "aria-label": t("question"), placeholder: t("question") }));
  add(empty, h("form", { class: "ask-name", onsubmit: (/** @type {Event} */ event) => {
    event.preventDefault();
    const name = input.value.trim();
    if (name) chat.send(t("answer", { name: name[0].toLocaleUpperCase() + name.slice(1) }));
  } }, input, h("button", { class: "action line", type: "submit" }, t("send"))));
}
