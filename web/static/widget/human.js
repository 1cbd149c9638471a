/** Shows who answers while a human has the conversation, and whether that person writes; then asks for a rating. */
import english from "../locales/en/chat_parts.json" with { type: "json" };
import { h, set, show } from "../shared/h.js";
import { reach } from "./rare.js";
import { adopt } from "./styles.js";
import { wordsOf } from "./words.js";

/** @typedef {import("./chat.js").Chat} Chat */
const t = wordsOf("human", english.human);
/** Milliseconds: between two typing notices, for which a received one is shown, and for which thanks are shown. */
const TELL_MS = 3000, TYPES_MS = 6000, THANKS_MS = 4000;
const LOOK = /* css */ `.rate { display: flex; flex-wrap: wrap; align-items: center; gap: 2px; margin: 0 10px 8px; padding: 4px 12px; background: var(--soft); border: 1px solid var(--line); border-radius: var(--radius-m); } .rate p { flex: 1; min-width: 140px; }`;

/** Hand-overs for which this screen has asked for a rating, and the last page that it reported. @type {WeakMap<Chat, {asked: Set<number>, page: string}>} */
const known = new WeakMap();

/** Shows who has the conversation and whether they write, and asks for a rating after a hand-over. @param {Chat} chat @param {any} [frame] that changed it; without one, the chat is drawn */
export function human(chat, frame) {
  const mine = known.get(chat) ?? { asked: new Set(), page: "" };
  if (!known.has(chat)) chat.composer.input.addEventListener("input", () => tellTyping(chat));
  known.set(chat, mine);
  if (frame?.t === "handover") chat.say(answererText(chat));
  if (frame?.t === "typing" || frame?.t === "msg") types(chat, frame.t === "typing");
  else line(chat);
  const rate = frame?.rate ?? frame?.state?.handover?.rate;
  if (rate && !mine.asked.has(rate)) { mine.asked.add(rate); ask(chat, rate); }
  if (chat.chat.handover && mine.page !== location.href) { mine.page = location.href; void send(chat, "contact", "PUT", { page: location.href }).catch(() => {}); }
}

/** @param {Chat} chat @param {string} path @param {string} method @param {any} body */
const send = (chat, path, method, body) => reach(chat, `api/v1/${path}`, { method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

/** Returns the text that names who answers now. @param {Chat} chat @returns {string} */
function answererText(chat) {
  const { state, name } = chat.chat.handover ?? {};
  return t(!state ? "with_assistant" : state === "waiting" ? "waiting_person" : chat.writes ? "person_writes" : "with_person", { name: name || t("somebody") });
}

/** Shows or hides that the human is writing. @param {Chat} chat @param {boolean} writes */
function types(chat, writes) {
  clearTimeout(chat.writes);
  chat.writes = writes ? setTimeout(() => types(chat, false), TYPES_MS) : 0;
  line(chat);
}

/** Tells the operator that the person is typing. @param {Chat} chat */
function tellTyping(chat) {
  if (chat.chat.handover?.state !== "human" || !chat.composer.input.value.trim() || Date.now() - chat.told < TELL_MS) return;
  chat.told = Date.now();
  chat.net.send({ t: "typing" });
}

/** Shows who has the conversation, unless it is the assistant. @param {Chat} chat */
function line(chat) {
  const words = chat.chat.handover ? answererText(chat) : "";
  chat.human.hidden = !words;
  if (chat.human.dataset.words === words) return;
  set(chat.human, { data: { words } });
  const waits = chat.chat.handover?.state === "waiting" && chat.commands().some((/** @type {any} */ one) => one.name === "human");
  show(chat.human, h("span", { class: "grow", dir: "auto" }, words), waits && h("button", { class: "quiet", type: "button", onclick: () => chat.command("human", "cancel") }, t("cancel")));
}

/** Asks for one to five stars; a rating is kept until the server has it. @param {Chat} chat @param {number} handover */
function ask(chat, handover) {
  adopt(chat.node, LOOK);
  const stars = [1, 2, 3, 4, 5].map((rating) => h("button", { class: "icon", type: "button", "aria-label": t("stars", { rating }), onclick: () => void give(rating) }, "☆"));
  const node = h("div", { class: "rate", role: "group", "aria-label": t("rate") }, h("p", { role: "status" }, t("rate")), stars, h("button", { class: "quiet", type: "button", onclick: leave }, t("cancel")));
  function leave() { node.remove(); chat.composer.input.focus({ preventScroll: true }); }

  /** @param {number} rating */
  async function give(rating) {
    stars.forEach((star, place) => show(star, place < rating ? "★" : "☆"));
    const stored = await send(chat, "ratings", "POST", { handover, rating }).then((answer) => answer.ok || answer.status === 404, () => false);
    if (!stored) return chat.warn(t("lost"));
    show(node, h("p", null, t("rated")));
    chat.say(t("rated"));
    setTimeout(() => node.remove(), THANKS_MS);
  }
  chat.composer.node.before(node);
}
