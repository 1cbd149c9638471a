/** Draws the timeline: one node per item, changed only when its item changed, following only a reader at the end. */
import { h, icon, set, show } from "../shared/h.js";
import { clock, when } from "../shared/fmt.js";
import { t, lang } from "./i18n.js";
import { render } from "./md.js";
import { compactionCard } from "./card.js";

const DOWN = "M12 5v14M6 13l6 6 6-6";
const NEAR = 48;

/**
 * @typedef {object} LogTools
 * @property {import("./state.js").Conversation} chat
 * @property {(text: string, button: HTMLElement) => void} copy
 * @property {(cid: string) => void} retry
 * @property {(cid: string) => void} discard
 * @property {(item: import("./state.js").Item) => void} pin
 * @property {(id: string) => Promise<any[]>} originals
 * @property {() => void} undo
 * @property {import("./storage.js").Store} store
 */

/** @param {LogTools} tools */
export function timeline(tools) {
  const list = h("div", { class: "items" });
  const node = h("div", { class: "log", role: "log", "aria-live": "off", "aria-label": t("log"), tabindex: 0, onscroll: scrolled }, empty(), list);
  const jump = h("button", { class: "jump", type: "button", hidden: true, "aria-label": t("latest"), title: t("latest"), onclick: () => { follow = true; node.scrollTo({ top: node.scrollHeight, behavior: "smooth" }); } }, icon(DOWN, 18));
  /** @type {Map<string, {node: HTMLElement, rev: number, update: (item: any) => void}>} */
  const views = new Map();
  const md = { copy: tools.copy, labels: { copy: t("copy") } };
  let follow = true;

  function empty() {
    return h("div", { class: "empty" }, h("p", { class: "hello" }, t("welcome")), h("p", { class: "muted small" }, t("ai_line")));
  }

  function scrolled() {
    follow = node.scrollHeight - node.scrollTop - node.clientHeight < NEAR;
    jump.hidden = follow || !list.childNodes.length;
  }

  /** @param {any} item */
  function make(item) {
    if (item.kind === "card") {
      const card = compactionCard(item.card, { ...tools, markdown: (target, text) => render(target, text, md) });
      return { node: card.node, rev: -1, update: (/** @type {any} */ one) => card.update(one.card, tools.chat.newestCard()?.id === one.card.id) };
    }
    const body = h("div", { class: "body", dir: "auto" });
    const meta = h("div", { class: "meta" });
    const article = h("article", null, body, meta);
    const update = item.kind === "result" ? result : item.role === "person" ? person : answer;
    return { node: article, rev: -1, update: (/** @type {any} */ one) => update(one, article, body, meta) };
  }

  /** @param {any} item @param {HTMLElement} article @param {HTMLElement} body @param {HTMLElement} meta */
  function person(item, article, body, meta) {
    set(article, { class: "person", "aria-label": t("you"), data: { status: item.status, queued: String(Boolean(item.queued)) } });
    show(body, item.text);
    if (item.status === "failed") {
      show(meta, h("span", { class: "bad", role: "alert" }, [t("failed"), item.error || (!item.refused && t("not_confirmed")), item.advice,
        item.retryAfter && t("wait", { seconds: Math.ceil(item.retryAfter) })].filter(Boolean).join(" · ")),
      button(t("retry"), () => tools.retry(item.cid)), item.refused && button(t("discard"), () => tools.discard(item.cid)));
    } else show(meta, item.status === "sending" ? t("sending") : item.queued ? t("queued") : time(item.at));
  }

  /** @param {any} item @param {HTMLElement} article @param {HTMLElement} body @param {HTMLElement} meta */
  function answer(item, article, body, meta) {
    const notice = item.role === "notice";
    const draft = item.status === "draft" && !item.partial;
    set(article, { class: notice ? "notice" : "assistant", "aria-label": t(notice ? "notice" : "assistant"), data: { status: item.status ?? "" } });
    body.classList.add("md");
    const dots = body.querySelector(":scope > .dots");
    dots?.remove();
    render(body, item.text ?? "", md);
    if (draft && !item.text) body.append(waiting());
    if (draft) return show(meta, item.text && tools.chat.run?.state === "tool" && working());
    const failed = item.error && h("span", { class: "bad" }, typeof item.error === "string" && /\s/.test(item.error) ? item.error : item.error.message ?? t("answer_failed"));
    show(meta, failed, item.partial && !failed && h("span", { class: "tag" }, t("stopped")),
      item.text && !notice && copyButton(item), !notice && item.text && item.mid && can("pin") && pinButton(item), time(item.at));
  }

  function waiting() {
    const tool = tools.chat.run?.state === "tool";
    return h("p", { class: "dots" }, h("i"), h("i"), h("i"), tool && working());
  }
  const working = () => {
    const { tool = "", subject = "" } = tools.chat.run ?? {};
    const key = `tool_${tool.startsWith("mcp_") ? "mcp" : tool}`;
    const said = subject || !/fetch|mcp/.test(key) ? t(key, { subject }) : key;
    return h("span", { class: "muted small", dir: "auto" }, said === key ? t("working") : said);
  };

  /** @param {any} item @param {HTMLElement} article @param {HTMLElement} body @param {HTMLElement} meta */
  function result(item, article, body, meta) {
    set(article, { class: "notice result", "aria-label": `/${item.command}`, data: { success: String(item.success ?? ""), pending: String(Boolean(item.pending)) } });
    body.classList.add("md");
    if (!article.querySelector(".command")) article.prepend(h("div", { class: "command", dir: "ltr" }, `/${item.command}`));
    const words = item.text || (item.pending ? "" : t(item.success ? "command_silent" : "command_failed"));
    body.querySelector(":scope > .dots")?.remove();
    render(body, item.advice ? `${words}\n\n${item.advice}` : words, md);
    if (item.pending && !item.text) body.append(h("p", { class: "dots" }, h("i"), h("i"), h("i")));
    show(meta);
  }

  /** @param {string} command */
  const can = (command) => tools.chat.settings.audience !== "public" && tools.chat.settings.commands.some((/** @type {any} */ one) => one.name === command);
  /** @param {string} words @param {() => void} run @param {object} [more] */
  const button = (words, run, more = {}) => h("button", { class: "quiet", type: "button", onclick: run, ...more }, words);
  /** @param {any} item */
  const copyButton = (item) => { const node = button(t("copy"), () => tools.copy(item.text, node)); return node; };
  /** @param {any} item */
  const pinButton = (item) => {
    const pinned = tools.chat.pinned.has(item.mid);
    return button(t(pinned ? "unpin" : "pin"), () => tools.pin(item), { "aria-pressed": String(pinned) });
  };
  /** @param {string | undefined} at */
  const time = (at) => at && h("time", { datetime: at, title: when(at, lang()) }, clock(at, lang()));

  /** Brings the screen in line with the conversation. */
  function update() {
    const items = tools.chat.items;
    const keys = new Set(items.map((item) => item.key));
    for (const [key, view] of views) if (!keys.has(key)) { view.node.remove(); views.delete(key); }
    /** @type {ChildNode | null} */
    let next = list.firstChild;
    for (const item of items) {
      let view = views.get(item.key);
      if (!view) views.set(item.key, (view = make(item)));
      if (view.rev !== item.rev) { view.update(item); view.rev = item.rev; }
      if (view.node === next) next = next.nextSibling;
      else list.insertBefore(view.node, next);
    }
    node.firstElementChild?.toggleAttribute("hidden", items.length > 0);
    if (follow) stick();
    scrolledLater();
  }

  /** Goes to the end, but no further than the last question at the top: a long answer is read from its start. */
  function stick() {
    const questions = list.querySelectorAll(".person, .result");
    const question = /** @type {HTMLElement | undefined} */ (questions[questions.length - 1]);
    const end = node.scrollHeight - node.clientHeight;
    const top = question ? question.offsetTop - node.offsetTop - 12 : end;
    node.scrollTop = Math.min(end, Math.max(top, node.scrollTop));
  }

  let frame = 0;
  function scrolledLater() {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => { jump.hidden = node.scrollHeight - node.scrollTop - node.clientHeight < NEAR || !list.childNodes.length; });
  }

  return { node, jump, update, end: () => { follow = true; node.scrollTop = node.scrollHeight; } };
}
