/** While the demo answers on our own page: what this is, and messages and commands that show it. */
import english from "../locales/en/chat_parts.json" with { type: "json" };
import { h, show } from "../shared/h.js";
import { wear } from "./styles.js";
import { wordsOf } from "./words.js";

const t = wordsOf("guide", english.guide);
/** They are sent as they stand, and the demo understands no other language. */
const STEPS = ["What can you do?", "Remember that my dog Bertil is allergic to chicken.", "What is my dog allergic to?", "/memory", "/context"];
const SHOWN = 3;
const GUIDE_LOOK = /* css */ `
.panel:has(.chip[hidden]) .guide { display: none; } .guide { padding: 4px 14px 0; } .guide p { margin: 0 0 8px; } .guide .action { min-height: 32px; text-align: start; }
.root[data-mode="page"] .guide { box-sizing: border-box; width: 100%; max-width: 800px; margin-inline: auto; }
@media print { .guide { display: none; } }
`;

/** There is one chat on our own page. */
const node = h("section", { class: "guide", "aria-label": t("try") });
let drawn = "";

/** The next steps that nobody has taken here; gone after the last one, and with the chip that says "Demo". @param {import("./chat.js").Chat} chat */
export function guide(chat) {
  const { items } = chat.chat;
  const taken = new Set(items.map((/** @type {any} */ one) => one.command ? `/${one.command}` : one.text));
  const known = new Set(chat.commands().map((/** @type {any} */ one) => `/${one.name}`));
  const steps = STEPS.filter((one) => !taken.has(one) && (one[0] !== "/" || known.has(one))).slice(0, SHOWN);
  const wanted = `${!items.length} ${steps.join("|")}`;
  if (drawn === wanted) return;
  drawn = wanted;
  if (!node.isConnected) {
    chat.composer.node.before(node);
    wear(chat.node, GUIDE_LOOK);
  }
  node.hidden = !steps.length;
  show(node, !items.length && h("p", { class: "muted small", dir: "auto" }, t("about")),
    h("div", { class: "row" }, steps.map((one) => h("button", { class: "action line", type: "button", dir: "ltr", lang: "en", onclick: () => take(chat, one) }, one))));
}

/** The button that was pressed is gone afterwards. @param {import("./chat.js").Chat} chat @param {string} step */
function take(chat, step) {
  chat.send(step);
  chat.composer.input.focus({ preventScroll: true });
}
