/** Editing and deleting a message, and its earlier texts. */
import english from "../locales/en/chat_parts.json" with { type: "json" };
import { h, show } from "../shared/h.js";
import { ensure } from "./ensure.js";
import { render } from "./md.js";
import { original, reach } from "./rare.js";
import { newId } from "./storage.js";
import { adopt } from "./styles.js";
import { wordsOf } from "./words.js";

const t = wordsOf("edit", english.edit);
const LOOK = /* css */ `
[data-editing] > :is(.body, .meta, .versions) { display: none; }
.editing { width: 100%; display: grid; gap: 8px; } .editing textarea { width: 100%; min-height: 64px; max-height: 40vh; padding: 8px 13px; border: 1px solid var(--line); border-radius: 16px; background: var(--soft); resize: vertical; } .editing textarea:focus-visible { outline: 2px solid var(--accent); outline-offset: -1px; }
.editing .row { justify-content: flex-end; } .editing .bad { font-size: 12.5px; text-align: end; }
.versions { max-width: 85%; margin-bottom: 8px; display: grid; gap: 8px; } .version { padding-inline-start: 11px; border-inline-start: 3px solid var(--line); color: var(--muted); }
.earlier { margin-bottom: 8px; } summary { display: inline-flex; align-items: center; gap: 8px; cursor: pointer; border-radius: var(--radius-s); margin-inline-start: -8px; } .earlier > .md { margin-top: 6px; padding-inline-start: 11px; border-inline-start: 3px solid var(--line); color: var(--muted); }
`;

/** @typedef {import("./chat.js").Chat} Chat @typedef {import("./state.js").Item} Item */

/** Loads and shows the whole text of a long message. @param {Chat} chat @param {Item} item */
export async function all(chat, item) {
  if (item.chars) {
    const answer = await reach(chat, `api/v1/sessions/${encodeURIComponent(chat.chat.session)}/messages/${item.mid}`).catch(() => null);
    if (!answer?.ok) return chat.say(t("command_offline"));
    chat.chat.change(item, { text: (await answer.json()).text, chars: 0 });
  }
  chat.chat.change(item, { open: true });
  chat.draw();
}

/** Returns a function that draws Markdown into a node. @param {Chat} chat */
export const drawer = (chat) => (/** @type {HTMLElement} */ node, /** @type {string} */ text) => render(node, text, { copy: (words, button) => void chat.copy(words, button), labels: { copy: t("copy") } });

/** Lets the person edit a message in its place. @param {Chat} chat @param {Item} item @param {HTMLElement} article */
export async function edit(chat, item, article) {
  if (article.dataset.editing) return;
  if (item.chars) await all(chat, item);
  if (item.chars) return;
  adopt(chat.node, LOOK);
  const words = h("textarea", { dir: "auto", "aria-label": t("edit_message"), oninput: grow });
  words.value = item.text ?? "";
  const why = h("p", { class: "bad", role: "alert" });
  const save = h("button", { class: "action solid", type: "submit" }, t(item === chat.chat.question() ? "save" : "save_only"));
  const drop = h("button", { class: "action line", type: "button", onclick: erase }, t("delete"));
  function grow() {
    words.style.setProperty("height", "auto");
    words.style.setProperty("height", `${words.scrollHeight + 2}px`);
  }
  function leave() {
    form.remove();
    delete article.dataset.editing;
    chat.composer.input.focus();
  }
  function send() {
    const text = words.value.trim(), most = Number(chat.chat.settings.limits?.max_chars) || Infinity;
    if (!text || text === item.text) return leave();
    if (text.length > most) return show(why, t("too_long", { count: text.length, limit: most }));
    ask({ t: "edit", text });
  }
  /** @param {{t: string, text?: string}} frame */
  function ask(frame) {
    const cid = newId();
    if (!ensure(chat, { ...frame, cid, mid: item.mid })) return show(why, t("command_offline"));
    save.disabled = drop.disabled = true;
    show(why);
    chat.chat.silent.set(cid, ({ code, message, advice }) => {
      // Later, since an error without a waiting caller is shown next to the conversation.
      setTimeout(() => chat.asked.delete(cid));
      save.disabled = drop.disabled = false;
      if (!code) return leave();
      show(why, t(code) === code ? advice || message : t(code));
    });
  }
  function erase() {
    if (drop.dataset.sure) return ask({ t: "delete" });
    drop.dataset.sure = "true";
    show(why, t("delete_sure"));
  }
  const form = h("form", { class: "editing", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); send(); }, onkeydown: (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape") { event.stopPropagation(); leave(); }
    else if (event.key === "Enter" && !event.shiftKey && !event.isComposing && event.target === words) { event.preventDefault(); form.requestSubmit(); }
  } }, words, why, h("div", { class: "row" }, drop, h("span", { class: "grow" }), h("button", { class: "action line", type: "button", onclick: leave }, t("cancel")), save));
  article.dataset.editing = "true";
  article.append(form);
  grow();
  words.focus();
  words.setSelectionRange(words.value.length, words.value.length);
  form.scrollIntoView({ block: "nearest" });
}

/** Shows the earlier texts of an edited message, with their answers where these still exist. @param {Chat} chat @param {Item} item @param {HTMLElement} article */
export async function edited(chat, item, article) {
  adopt(chat.node, LOOK);
  const shown = article.querySelector(".versions");
  const place = h("div", { class: "versions" }, h("p", { class: "muted" }, t("loading")));
  const markdown = drawer(chat);
  if (shown) shown.remove();
  else article.prepend(place);
  item.rev++;
  chat.draw();
  if (shown) return;
  try {
    const answer = await reach(chat, `api/v1/sessions/${encodeURIComponent(chat.chat.session)}/messages/${item.mid}/former`);
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const { versions } = await answer.json();
    show(place, versions.map((/** @type {any} */ one) => h("div", { class: "version" }, [one, ...one.answers].map((said) => original(said, markdown)))));
  } catch {
    show(place, h("p", { class: "muted" }, t("former_failed")));
  }
}

/** Shows the earlier answers that this answer replaced. @param {Chat} chat @param {Item} item @param {HTMLElement} article @param {HTMLElement} body */
export function former(chat, item, article, body) {
  const before = item.earlier ?? [];
  const old = /** @type {HTMLElement | null} */ (article.querySelector(":scope > .earlier"));
  if (before.length === Number(old?.dataset.count ?? 0)) return;
  adopt(chat.node, LOOK);
  old?.remove();
  const markdown = drawer(chat);
  const node = h("details", { class: "earlier", data: { count: before.length }, ontoggle: () => {
    if (node.open && !node.children[1]) for (const one of before) { node.append(h("div", { class: "md", dir: "auto" })); markdown(node.lastChild, one.text); }
  } }, h("summary", { class: "quiet" }, h("span", { class: "chevron", "aria-hidden": "true" }), t("earlier_answer")));
  body.before(node);
}
