/** Guide to the demo on our page: what it is, a year of conversation to look at, and messages and commands to try. */
import english from "../locales/en/chat_parts.json" with { type: "json" };
import { h, show } from "../shared/h.js";
import { adopt } from "./styles.js";
import { wordsOf } from "./words.js";

const t = wordsOf("guide", english.guide);
/** Texts of the steps, sent in English, since the demo understands no other language. */
const STEPS = ["/sample", "What can you do?", "Remember that my dog Bertil is allergic to chicken."];
/** A fact from the first days of the sample, which the summary leaves out and recall finds. */
const BEGINNING = "What is Saffron allergic to?";
const SHOWN = 3;
/** Client ids of the sample's messages, which count down to 0. */
const SAMPLE = /^sample-.*?(\b0)?$/;
const GUIDE_LOOK = /* css */ `
.panel:has(.chip[hidden]) .guide { display: none; } .guide { padding: 4px 14px 0; } .guide p { margin: 0 0 8px; } .guide .action { min-height: 32px; text-align: start; }
.root[data-mode="page"] .guide { box-sizing: border-box; width: 100%; max-width: 800px; margin-inline: auto; }
.meta[data-sample]::before { content: attr(data-sample); padding: 0 6px; border: 1px solid var(--line); border-radius: 8px; }
.log .meta[data-sample] { opacity: 1; }
@media print { .guide { display: none; } }
`;

/** @typedef {import("./chat.js").Chat} Chat @typedef {{key: string, words?: string, run: () => void}} Step */

/** The guide's node; our page has only one chat. */
const node = h("section", { class: "guide", "aria-label": t("try") });
let drawn = "";
/** Steps that leave no trace in the conversation. @type {Set<string>} */
const pressed = new Set();

/** Shows the first steps until one is taken, then the tour of a sample; disappears with the mark "Demo". @param {Chat} chat */
export function guide(chat) {
  const sample = markSample(chat);
  const { items } = chat.chat;
  const taken = new Set(items.map((/** @type {any} */ one) => one.command ? `/${one.command}` : one.text));
  const known = new Set(chat.commands().map((/** @type {any} */ one) => `/${one.name}`));
  const open = (/** @type {Step} */ { key }) => !taken.has(key) && !pressed.has(key) && (key[0] !== "/" || known.has(key));
  const first = items.length ? [] : STEPS.map((key) => suggestion(chat, key, key === "/sample" ? t("year") : ""));
  const shown = (sample ? (sample === "ended" ? tour(chat) : []) : first).filter(open).slice(0, SHOWN);
  if (sample) shown.push({ key: "remove", words: t("remove"), run: () => chat.command("sample", "remove") });
  // the card may be far above by then
  const gain = sample && (chat.log.node.querySelector(".card-title")?.textContent ?? "");
  const wanted = `${!items.length} ${sample} ${gain} ${shown.map((one) => one.key).join("|")}`;
  if (drawn === wanted) return;
  drawn = wanted;
  if (!node.isConnected) {
    chat.composer.node.before(node);
    adopt(chat.node, GUIDE_LOOK);
  }
  node.hidden = !shown.length;
  // too many answers within ten seconds to read all aloud
  chat.polite.setAttribute("aria-live", sample === "playing" ? "off" : "polite");
  const words = sample ? t(sample) : !items.length && t("about");
  const line = (/** @type {any} */ text) => text && h("p", { class: "muted small", dir: "auto" }, text);
  show(node, line(words), line(gain), h("div", { class: "row" }, shown.map((one) => button(chat, one))));
}

/** Returns the button of a step; it disappears when pressed. @param {Chat} chat @param {Step} step */
function button(chat, { key, words, run }) {
  const press = () => {
    run();
    if (key !== "originals") chat.composer.input.focus({ preventScroll: true });
    if (/^[a-z]/.test(key)) pressed.add(key);
    chat.draw();
  };
  return h("button", { class: "action line", type: "button", ...(words ? { dir: "auto" } : { dir: "ltr", lang: "en" }), onclick: press }, words || key);
}

/** @param {Chat} chat @param {string} key what is sent @param {string} [words] @returns {Step} */
const suggestion = (chat, key, words) => ({ key, words, run: () => void chat.send(key) });

/** Returns the steps that need a long conversation. @param {Chat} chat @returns {Step[]} */
function tour(chat) {
  const card = chat.chat.items.filter((one) => one.kind === "card").pop();
  return [
    { key: BEGINNING, words: t("beginning"), run: () => ask(chat) },
    ...(card ? [{ key: "originals", words: t("originals"), run: () => unfold(chat, card) }, suggestion(chat, "/undo", t("undo"))] : []),
    suggestion(chat, "/pin", t("pin")),
    suggestion(chat, "/memory", t("recall")),
  ];
}

/** Asks a question that is removed together with the sample. @param {Chat} chat */
function ask(chat) {
  const cid = (chat.chat.items.find((one) => SAMPLE.test(one.cid ?? ""))?.cid ?? "").replace(/\w+$/, "ask");
  const entry = { cid, text: BEGINNING, at: new Date().toISOString(), order: ++chat.order };
  chat.store.keep(entry);
  chat.chat.send(entry);
  chat.log.end();
  chat.transmit(chat.chat.byCid(cid));
}

/** @param {Chat} chat @param {import("./state.js").Item} card */
function unfold(chat, card) {
  const shown = chat.log.of(card);
  const toggle = /** @type {HTMLElement | null | undefined} */ (shown?.querySelector("[aria-expanded=false]"));
  toggle?.click();
  const tabs = shown?.querySelectorAll("[role=tab]");
  const original = /** @type {HTMLElement | undefined} */ (tabs?.[1]);
  original?.click();
  original?.focus();
  shown?.scrollIntoView({ block: "start" });
}

/** Marks the messages of a sample, and removes an erased sample; returns "" without a sample, else "playing" or "ended". @param {Chat} chat */
function markSample(chat) {
  const { items } = chat.chat;
  const own = items.filter((one) => SAMPLE.test(one.cid ?? ""));
  if (!own.length) return "";
  const turns = new Set(own.map((one) => one.turn));
  const mine = (/** @type {import("./state.js").Item} */ one) => one.kind === "msg" && turns.has(one.turn ?? null) && (one.role !== "person" || own.includes(one));
  if (own.some((one) => one.text === "[erased]")) {
    // results of commands since then were erased by the server as well
    const told = items.slice(items.indexOf(own[0])).filter((one) => one.kind === "card" || (one.kind === "result" && one.command !== "sample"));
    chat.chat.items = items.filter((one) => !told.includes(one) && !mine(one));
    chat.draw();
    return "";
  }
  const mids = new Set(items.filter(mine).map((one) => one.mid));
  for (const meta of /** @type {NodeListOf<HTMLElement>} */ (chat.log.node.querySelectorAll("[data-mid] > .meta:not([data-sample])"))) if (mids.has(meta.parentElement?.dataset.mid)) meta.dataset.sample = t("sample");
  return own.some((one) => SAMPLE.exec(one.cid ?? "")?.[1]) ? "ended" : "playing";
}
