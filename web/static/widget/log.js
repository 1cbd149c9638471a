/** Draws the timeline: one node per item, redrawn only if its item has changed. It scrolls along only if the reader is at the end. */
import { h, icon, set, show } from "../shared/h.js";
import { clock, stamp } from "../shared/fmt.js";
import { t, tongue } from "./i18n.js";

const DOWN = "M12 5v14M6 13l6 6 6-6";
const NEAR = 48;
/** More items than this are not drawn at once. */
const MANY = 200;

/**
 * @typedef {object} LogTools
 * @property {import("./state.js").Conversation} chat
 * @property {(text: string, button: HTMLElement) => void} copy
 * @property {(cid: string) => void} retry
 * @property {(cid: string) => void} discard
 * @property {(command: string, args: string) => void} choose
 * @property {() => Promise<any>} acts asks for what stands beside answers; `adorn` brings it
 * @property {(id: string, before?: string) => Promise<any>} originals
 * @property {() => void} undo
 * @property {import("./storage.js").Store} store
 * @property {(place: HTMLElement, metas: any[]) => void} attached
 * @property {(query: string) => Promise<import("./past.js").Page>} page asks for what was said before
 * @property {(words: string) => void} say
 * @property {(at?: string) => void} dates asks which day to go to
 */

/** Returns the timeline: its node, `update` to redraw it, and functions to scroll. @param {LogTools} tools */
export function timeline(tools) {
  const list = h("div", { class: "items" });
  const node = h("div", { class: "log", role: "log", "aria-live": "off", "aria-label": t("log"), tabindex: 0, onscroll: scrolled }, empty(), list);
  const jump = h("button", { class: "jump", type: "button", hidden: true, "aria-label": t("latest"), title: t("latest"), onclick: toEnd }, icon(DOWN, 18));
  /** @type {Map<string, {node: HTMLElement, rev: number, update: (item: any) => void}>} */
  const views = new Map();
  const md = { copy: tools.copy, labels: { copy: t("copy") } };
  let follow = true;
  let stuck = 0;
  /** The question by which the view was positioned last. @type {Element | undefined} */
  let asked;
  const near = () => node.scrollHeight - node.scrollTop - node.clientHeight < NEAR;
  // pictures load late, which moves the end down
  const growing = new ResizeObserver(() => { if (follow) stick(); });
  /** @type {(string | undefined)[]} */
  let offered = [];
  /** @type {ReturnType<import("./acts.js").adorn> | null} */
  let extras = null;
  let called = false;
  /** @type {typeof import("./md.js").render | undefined} */
  let render;
  /** @type {Promise<void> | null} */
  let learning = null;
  /** The earlier messages, once there are any. @type {ReturnType<import("./past.js").past> | null} */
  let before = null;
  /** @type {Promise<any> | null} */
  let turning = null;

  function empty() {
    return h("div", { class: "empty" }, h("h3", { class: "hello" }, t("welcome")), h("p", { class: "muted small" }, t("ai_line")));
  }

  /** Loads the Markdown part with the first message; a reader at the end stays at the end. */
  function learn() {
    return learning ??= import("./md.js").then((one) => {
      one.adoptMd(node);
      render = one.render;
      redraw();
      update();
    }).catch(() => { learning = null; });
  }

  /** Loads days and earlier messages, where there are any. */
  function lookBack() {
    return turning ??= import("./past.js").then((one) => {
      before = one.past({ ...tools, node, list, views, update, follow: (wanted) => (follow = wanted ?? follow) });
      update();
      return before;
    }).catch(() => { setTimeout(() => { turning = null; }, 5000); });
  }

  /** Scrolls to the end, without animation over a long distance. */
  function toEnd() {
    const far = node.scrollHeight - node.scrollTop > 4 * node.clientHeight;
    follow = true;
    if (far) update();
    node.scrollTo({ top: node.scrollHeight, behavior: far ? "instant" : "smooth" });
  }

  /** Draws a text as Markdown. Until that part is loaded, the plain text stands there, invisible during a short load. @param {HTMLElement} body @param {string} text */
  function write(body, text) {
    body.classList.toggle("plain", !render);
    if (render) render(body, text, md);
    else show(body, text);
  }

  const redraw = () => { for (const view of views.values()) view.rev = -1; };

  function scrolled() {
    // Growth below is no wish to stop following; only scrolling back is.
    follow = near() || (follow && node.scrollTop >= stuck);
    offer();
    before?.slide();
  }
  const offer = () => { jump.hidden = near() || !list.childNodes.length; };

  /** @param {any} item */
  function make(item) {
    if (item.kind === "card") return carded(item.card);
    if (before && /^(day|gap|start)$/.test(item.kind)) return before.make(item);
    if (item.kind === "mark") {
      const line = h("p", { class: "mark muted small" });
      return { node: line, rev: -1, update: (/** @type {any} */ one) => adorned()?.mark(one, line) };
    }
    const body = h("div", { class: "body", dir: "auto" });
    const meta = h("div", { class: "meta" });
    const article = h("article", null, body, meta);
    const update = item.kind === "result" ? result : item.role === "person" ? person : answer;
    return { node: article, rev: -1, update: (/** @type {any} */ one) => update(one, article, body, meta) };
  }

  /** @param {any} first */
  function carded(first) {
    /** @type {any} */
    let card = null;
    let now = first;
    const draw = () => card?.update(now, tools.chat.newestCard()?.id === now.id);
    void learn().then(() => import("./card.js")).then((one) => {
      card = one.compactionCard(first, { ...tools, markdown: write }, node);
      view.node.replaceWith(card.node);
      view.node = card.node;
      draw();
      if (follow) stick();
    }).catch(() => {});
    const view = { node: h("div"), rev: -1, update: (/** @type {any} */ one) => { now = one.card; draw(); } };
    return view;
  }

  /** @param {any} item @param {HTMLElement} article @param {HTMLElement} body @param {HTMLElement} meta */
  function person(item, article, body, meta) {
    set(article, { class: "person", "aria-label": t("you"), data: { status: item.status, queued: String(Boolean(item.queued)), mid: item.mid ?? "" } });
    show(body, item.text?.[4000] && !item.open ? `${item.text.slice(0, 600)}…` : seen(item.text));
    files(item, article, body);
    if (item.status === "failed") {
      show(meta, h("span", { class: "bad", role: "alert" }, [t("failed"), item.error || (!item.refused && t("not_confirmed")), item.advice,
        item.retryAfter && t("wait", { seconds: Math.ceil(item.retryAfter) })].filter(Boolean).join(" · ")),
      button(t("retry"), () => tools.retry(item.cid)), item.refused && button(t("discard"), () => tools.discard(item.cid)));
    } else show(meta, adorned()?.mine(item, article), item.status === "sending" ? t("sending") : item.queued ? t("queued") : time(item.at));
  }

  /** @param {any} item @param {HTMLElement} article @param {HTMLElement} body */
  function files({ attachments, text }, article, body) {
    const there = article.querySelector(":scope > .files");
    body.hidden = Boolean(attachments?.length) && !text;
    if (!attachments?.length) there?.remove();
    else if (!there) { const place = h("div", { class: "files" }); body.after(place); growing.observe(place); tools.attached(place, attachments); }
  }

  /** @param {any} item @param {HTMLElement} article @param {HTMLElement} body @param {any} meta */
  function answer(item, article, body, meta) {
    const notice = item.role === "notice";
    const draft = item.status === "draft" && !item.partial;
    set(article, { class: notice ? "notice" : item.role, "aria-label": item.name || t(notice ? "notice" : "assistant"), data: { status: item.status ?? "", mid: item.mid ?? "" } });
    body.classList.add("md");
    const dots = body.querySelector(":scope > .dots");
    dots?.remove();
    const more = draft ? {} : adorned()?.under(item, article, body) ?? {};
    write(body, more.told ?? seen(item.text) ?? "");
    if (!draft) files(item, article, body);
    if (draft && !item.text) body.append(waiting());
    if (draft) return show(meta, item.text && tools.chat.run?.state === "tool" && working());
    const failed = item.error && !more.told && h("span", { class: "bad" }, typeof item.error === "string" && /\s/.test(item.error) ? item.error : item.error.message ?? t("answer_failed"));
    // The button is kept, since it may just be reporting that it copied.
    const copy = (meta.words = item.text) && !notice && (meta.copy ??= button(t("copy"), () => tools.copy(meta.words, meta.copy)));
    show(meta, failed, item.partial && !failed && h("span", { class: "tag" }, t("stopped")), copy, more.again, more.thumbs, more.pin, time(item.at));
  }

  /** Loads the buttons next to answers, with the first answer. */
  function adorned() {
    if (!extras && !called) { called = true; void tools.acts().then((came) => { called = Boolean(came); }); }
    return extras;
  }

  function waiting() {
    const tool = tools.chat.run?.state === "tool";
    return h("p", { class: "dots" }, h("i"), h("i"), h("i"), tool && working());
  }
  const working = () => h("span", { class: "muted small", dir: "auto" }, adorned()?.working() ?? t("working"));

  /** @param {any} item @param {HTMLElement} article @param {HTMLElement} body @param {HTMLElement} meta */
  function result(item, article, body, meta) {
    set(article, { class: "notice result", "aria-label": `/${item.command}`, data: { broken: String(Boolean(item.broken)), pending: String(Boolean(item.pending)) } });
    body.classList.add("md");
    if (!article.querySelector(".command")) article.prepend(h("div", { class: "command", dir: "ltr" }, `/${item.command}`));
    const words = item.text || (item.pending ? "" : t(item.success ? "command_silent" : "command_failed"));
    body.querySelector(":scope > .dots")?.remove();
    write(body, item.advice ? `${words}\n\n${item.advice}` : words);
    if (item.pending && !item.text) body.append(h("p", { class: "dots" }, h("i"), h("i"), h("i")));
    const open = item.choices && item === tools.chat.items[tools.chat.items.length - 1];
    show(meta, open && item.choices.map((/** @type {{label: string, args: string}} */ one) => h("button", { class: "action line", type: "button", dir: "auto", onclick: () => tools.choose(item.command, one.args) }, one.label)));
  }

  /** @param {string} words @param {() => void} run */
  const button = (words, run) => h("button", { class: "quiet", type: "button", onclick: run }, words);
  /** Returns the text of a message; a note instead of an erased one. @param {string | undefined} text */
  const seen = (text) => (text === "[erased]" ? t("erased") : text);
  /** @param {string | undefined} at */
  const time = (at) => at && h("time", { datetime: at, title: stamp(at, tongue()) }, clock(at, tongue()));

  /** Redraws everything that has changed in the conversation. */
  function update() {
    const all = tools.chat.items;
    const [first] = all;
    const atEnd = near();
    if (all.length) void learn();
    const old = first && (first.kind === "gap" || all.length > MANY || (first.at && new Date(first.at).toDateString() !== new Date().toDateString()));
    if (old && !before) void lookBack();
    const held = follow ? null : before?.hold();
    const items = before ? before.rows(all) : first?.kind === "gap" ? all.slice(1) : all;
    const keys = new Set(items.map((item) => item.key));
    for (const [key, view] of views) if (!keys.has(key)) { view.node.remove(); views.delete(key); }
    /** @type {ChildNode | null} */
    let next = list.firstChild;
    // Only the newest answer can be repeated, and only the last question be answered or edited, so earlier ones lose those buttons.
    const now = [tools.chat.newest()?.key, all[all.length - 1]?.choices && all[all.length - 1].key, tools.chat.question()?.key];
    if (now.join() !== offered.join()) for (const key of [...now, ...offered]) { const view = views.get(key ?? ""); if (view) view.rev = -1; }
    offered = now;
    for (const item of items) {
      let view = views.get(item.key);
      if (!view) views.set(item.key, (view = make(item)));
      if (view.rev !== item.rev) { view.update(item); view.rev = item.rev; }
      if (view.node === next) next = next.nextSibling;
      else list.insertBefore(view.node, next);
    }
    node.firstElementChild?.toggleAttribute("hidden", all.length > (/^(gap|start)$/.test(first?.kind) ? 1 : 0));
    held?.();
    if (follow) stick(atEnd);
    scrolledLater();
  }

  /** Scrolls to the end, but not past the top of the last question, so that a long answer is read from its start. */
  function stick(atEnd = false) {
    const questions = list.querySelectorAll(".person, .result");
    const question = /** @type {HTMLElement | undefined} */ (questions[questions.length - 1]);
    // asked in another tab meanwhile: a person who reads an answer stays there
    if (!atEnd && question !== asked) return;
    asked = question;
    const end = node.scrollHeight - node.clientHeight;
    const top = question ? question.offsetTop - node.offsetTop - 12 : end;
    node.scrollTop = Math.min(end, Math.max(top, node.scrollTop));
    stuck = node.scrollTop;
  }

  let frame = 0;
  function scrolledLater() {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => { offer(); before?.slide(); });
  }

  /** @param {NonNullable<typeof extras>} given */
  function adorn(given) {
    extras = given;
    redraw();
  }

  /** Returns the node of an item, and draws the node if there is none. @param {import("./state.js").Item} item */
  function of(item) {
    before?.draw(item);
    return views.get(item.key)?.node;
  }

  return {
    node, jump, update, adorn, of, lookBack,
    end: () => { const far = !follow; follow = true; if (far) update(); node.scrollTop = node.scrollHeight; },
  };
}
