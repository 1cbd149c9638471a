/** “Import conversations”: uploads an export in pieces, shows its content, and undoes an import. */
import english from "../locales/en/chat_parts.json" with { type: "json" };
import { h, set, show } from "../shared/h.js";
import { tongue } from "./i18n.js";
import { state } from "./sheet-parts.js";
import { wordsOf } from "./words.js";

const t = wordsOf("imports", english.imports);
const PATH = "api/v1/imports";
/** Milliseconds between two requests for the worker's progress. */
const LOOK_MS = 1_500;
const SUMMARY_MS = 10_000;
const TRIES = 5;
const NAMES = /** @type {Record<string, string>} */ ({ telegram: "Telegram", chatgpt: "ChatGPT", claude: "Claude", whatsapp: "WhatsApp" });

/**
 * @typedef {{source: string, messages: number, chats: number, first_at: string | null, last_at: string | null}} Found
 * @typedef {{id: string, size: number, received: number, state: string, found: Found | null, stored: number, error: string}} Uploaded
 * @typedef {{id: string, source: string, messages: number, first_at: string | null, last_at: string | null, whole: boolean, summaries: string, summarised_percent: number, cost_micro: number}} Imported
 */

/** Returns the view of the sheet that imports conversations of other programs. @param {import("./sheet-parts.js").SheetTools} tools */
export function imports(tools) {
  const status = h("p", { class: "state", role: "status", dir: "auto" });
  const pick = h("input", { type: "file", hidden: true, accept: ".json,.zip,.txt", onchange: () => { const [file] = pick.files ?? []; pick.value = ""; if (file) void upload(file); } });
  const choose = h("button", { class: "action solid", type: "button", onclick: () => pick.click() }, t("imports_choose"));
  const meter = h("progress", { max: 100, hidden: true, "aria-label": t("imports") });
  const me = h("input", { class: "search", id: "evt-me", maxlength: 100, autocomplete: "off", dir: "auto" });
  const named = h("div", { hidden: true }, h("label", { class: "small", for: "evt-me" }, t("imports_me")), me);
  const acts = h("div", { class: "row" });
  const list = h("ul", { class: "notes" });
  const node = h("div", { class: "view" }, h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": t("imports") },
    h("div", { class: "note-form" }, h("p", { class: "muted small" }, t("imports_how")), h("div", { class: "row" }, choose, pick), meter, status, named, acts), list));
  /** Bytes of a piece, and most bytes of a file, as the server states them. */
  let piece = 0, most = 0;
  let sending = 0;
  let timer = 0;

  /** @param {string} path @param {RequestInit} [init] @returns {Promise<{code: number, body: any}>} */
  async function ask(path, init) {
    const answer = await tools.reach(path, init).catch(() => null);
    return { code: answer?.status ?? 0, body: (await answer?.json().catch(() => null)) ?? {} };
  }
  /** @param {object} body */
  const json = (body) => ({ method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

  async function load() {
    clearTimeout(timer);
    const { code, body } = await ask(PATH);
    if (code !== 200) return say("imports_failed", true);
    piece = body.piece_bytes;
    most = body.most_bytes;
    show(list, body.imports.map(row));
    if (!sending) draw(body.file);
    const open = /looking|importing/.test(body.file?.state) ? LOOK_MS : body.imports.some((/** @type {Imported} */ one) => one.summaries === "due") ? SUMMARY_MS : 0;
    if (open && !node.hidden) timer = setTimeout(again, open);
  }

  /** Loads the list again, unless one of its buttons has the focus. */
  function again() {
    if (list.matches(":focus-within")) timer = setTimeout(again, LOOK_MS);
    else void load();
  }

  /** @param {string} key @param {boolean} [bad] @param {object} [values] */
  function say(key, bad = false, values = {}) {
    state(status, key && t(key, values));
    set(status, { data: { bad: String(bad) } });
  }

  /** @param {number | null} share of what is done, between 0 and 1 */
  function fill(share) {
    meter.hidden = share === null;
    if (share !== null) meter.value = Math.round(share * 100);
  }

  /** @param {string | null} from @param {string | null} to */
  function days(from, to) {
    const day = (/** @type {string} */ at) => new Date(at).toLocaleDateString(tongue(), { dateStyle: "medium" });
    return from && to ? t("imports_days", { first: day(from), last: day(to) }) : "";
  }

  /** Shows the progress of a file, and what can be done with it. @param {Uploaded | null} file */
  function draw(file) {
    const stage = file?.state ?? "";
    const working = /looking|importing/.test(stage);
    choose.hidden = working || stage === "ready";
    named.hidden = stage !== "ready" || file?.found?.source !== "whatsapp";
    fill(stage === "receiving" && file ? file.received / file.size : stage === "importing" && file?.found ? file.stored / file.found.messages : null);
    const cancel = h("button", { class: "action line", type: "button", onclick: () => void drop(file) }, t("cancel"));
    show(acts, stage === "ready" && h("button", { class: "action solid", type: "button", onclick: () => void start(file) }, t("imports_start")), /receiving|looking|ready|importing/.test(stage) && cancel);
    if (!file || stage === "done") say("");
    else if (stage === "receiving") state(status, `${t("imports_paused")} ${t("imports_resume")}`);
    else if (stage === "failed") say(`error_${file.error}`, true);
    else if (stage === "looking") say("imports_looking");
    else if (file.found) {
      const { messages, chats, first_at: from, last_at: to } = file.found;
      if (stage === "ready") state(status, [days(from, to), t("imports_ready", { count: messages, chats })].filter(Boolean).join(": "));
      else say("imports_running", false, { done: file.stored, count: messages });
    }
  }

  /** @param {File} file */
  async function upload(file) {
    if (sending) return;
    if (!piece) await load();
    if (file.size > most) return say("error_too_large", true, { most: Math.round(most / 2 ** 20) });
    if (!file.size) return say("error_empty", true);
    const mine = ++sending;
    choose.hidden = true;
    const begun = await ask(PATH, json({ size: file.size, mark: `${file.lastModified} ${file.name}`.slice(0, 100) }));
    if (begun.code !== 201) {
      sending = 0;
      choose.hidden = false;
      return say(begun.body.code === "too_many_imports" ? "error_crowded" : "imports_failed", true);
    }
    const { id } = begun.body;
    show(acts, h("button", { class: "action line", type: "button", onclick: () => void drop(begun.body) }, t("cancel")));
    let at = begun.body.received, tries = 0;
    while (sending === mine && begun.body.state === "receiving" && at < file.size) {
      say("imports_uploading", false, { percent: Math.floor(100 * at / file.size) });
      fill(at / file.size);
      const { code, body } = await ask(`${PATH}/${id}?start=${at}`, { method: "PUT", headers: { "Content-Type": "application/octet-stream" }, body: file.slice(at, at + piece) });
      if (code === 200) tries = 0;
      else if (code === 404 || ++tries > TRIES) break;
      else await new Promise((on) => setTimeout(on, 500 * 2 ** tries));
      if (code === 200) at = body.received;
    }
    if (sending !== mine) return;
    sending = 0;
    await load();
  }

  /** @param {Uploaded | null} file */
  async function start(file) {
    const { code } = await ask(`${PATH}/${file?.id}/start`, json({ me: me.value.trim() }));
    if (code !== 200) say("imports_failed", true);
    else await load();
  }

  /** @param {Uploaded | null} file */
  async function drop(file) {
    sending = 0;
    await ask(`${PATH}/${file?.id}`, { method: "DELETE" });
    await load();
    choose.focus();
  }

  /** @param {Imported} one */
  function row(one) {
    const hint = h("p", { class: "note-hint", role: "alert", hidden: true });
    let sure = false;
    const undo = h("button", { class: "quiet", type: "button", onclick: async () => {
      if (!sure) {
        sure = true;
        hint.hidden = false;
        return show(hint, t("imports_undo_sure"));
      }
      const { code } = await ask(`${PATH}/${one.id}`, { method: "DELETE" });
      if (code !== 200 && code !== 404) return show(hint, t("imports_failed"));
      await load();
      say("imports_undone");
      (choose.hidden ? tools.title() : choose).focus();
    } }, t("undo"));
    const percent = one.summarised_percent, stage = one.summaries;
    const paid = one.cost_micro ? ` (${(one.cost_micro / 1e6).toLocaleString(tongue(), { style: "currency", currency: "USD" })})` : "";
    const told = stage !== "off" && h("p", { class: "note-meta", dir: "auto" }, t(`imports_summary_${stage}`, { percent }) + paid);
    const turn = one.whole && stage !== "done" && h("button", { class: "quiet", type: "button", onclick: async () => {
      const { code } = await ask(`${PATH}/${one.id}/summaries`, json({ on: stage !== "due" }));
      if (code !== 200) return void (hint.hidden = false, show(hint, t("imports_failed")));
      await load();
      tools.title().focus();
    } }, t(stage === "due" ? "imports_summary_stop" : "imports_summarise"));
    return h("li", { class: "note" }, h("p", { class: "note-text", dir: "auto" }, t("imports_of", { count: one.messages, source: NAMES[one.source] ?? one.source })),
      h("p", { class: "note-meta", dir: "auto" }, days(one.first_at, one.last_at), !one.whole && h("span", { class: "tag" }, t("imports_partly"))), told, h("div", { class: "note-acts" }, turn, undo), hint);
  }

  return { node, load: () => void load() };
}
