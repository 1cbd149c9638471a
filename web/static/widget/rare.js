/** REST requests and other rarely used functions; loaded when first used. */
import { h, show } from "../shared/h.js";
import { t } from "./i18n.js";

const ROOT = new URL("../../", import.meta.url);
const ASK_MS = 15_000;
const EXPORT_MS = 300_000;

/** @typedef {import("./chat.js").Chat} Chat */

/** Returns the headers that identify the caller: a token; on our page, which has a cookie, the site. @param {Chat} chat @returns {Record<string, string>} */
export function headers(chat) {
  const { page, site } = chat.options;
  const token = chat.store.get("token");
  return page ? { "X-Evertalk-Site": site } : token ? { Authorization: `Bearer ${token}` } : {};
}

/**
 * Returns the server's response, whatever its status; fails only if there is none.
 * @param {Chat} chat @param {string} path @param {RequestInit} [init] @param {number} [most] @returns {Promise<Response>}
 */
export function reach(chat, path, init = {}, most = ASK_MS) {
  const url = new URL(path, ROOT);
  if (chat.store.talk) url.searchParams.set("session_id", chat.store.talk);
  return fetch(url.href, {
    ...init, credentials: chat.options.page ? "same-origin" : "omit", headers: { ...init.headers, ...headers(chat) },
    signal: AbortSignal.timeout(most),
  });
}

/** @param {Chat} chat @param {string} path @param {number} [most] */
async function ask(chat, path, most) {
  const answer = await reach(chat, path, {}, most);
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  return answer;
}

/** Loads a page of the conversation in the form that a screen shows. @param {Chat} chat @param {string} query @returns {Promise<import("./past.js").Page>} */
export async function earlierPage(chat, query) {
  return (await ask(chat, `api/v1/sessions/${encodeURIComponent(chat.chat.session)}/history?${query}`)).json();
}

/** Loads one page of the messages that the summary `id` replaces. @param {Chat} chat @param {string} id @param {string} [before] the message that the page ends before */
export async function originals(chat, id, before = "") {
  const answer = await ask(chat, `api/v1/compactions/${encodeURIComponent(id)}/messages?limit=100${before && `&before=${before}`}`);
  return answer.json();
}

/** Asks why a socket was refused, which the socket does not say; if this page may not have a chat, stops all attempts. @param {Chat} chat */
export async function probe(chat) {
  const answer = await fetch(new URL(`api/v1/sites/${chat.options.site}`, ROOT).href, { credentials: "omit", cache: "no-store", signal: AbortSignal.timeout(ASK_MS) });
  if (answer.status !== 403 || (await answer.json()).code !== "foreign_origin" || chat.net.online) return;
  chat.barred = true;
  chat.net.stop();
  chat.show("refused");
  console.error(`Evertalk: pages of ${location.origin} may not use the chat of the site "${chat.options.site}". Its owner can allow them: add ${location.origin} to the site's origins on the dashboard, or to EVERTALK_ALLOWED_ORIGINS.`);
}

/** Downloads the conversation; a link would not carry the token. @param {Chat} chat @param {string} format */
export async function download(chat, format) {
  const answer = await ask(chat, `api/v1/export?format=${format}`, EXPORT_MS);
  const url = URL.createObjectURL(await answer.blob());
  const link = h("a", { href: url, download: `conversation-${new Date().toISOString().slice(0, 10)}.${format}` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Shows a text to copy by hand where a page may not write to the clipboard. @param {HTMLElement} near @param {string} text @param {HTMLElement} button */
export function copyByHand(near, text, button) {
  const area = h("textarea", { class: "hidden" });
  area.value = text;
  near.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
  button.focus();
}

/** @param {string} role */
const speaker = (role) => t({ person: "you", assistant: "assistant", notice: "notice" }[role] ?? "unknown_role");

/** Loads the original messages of a card into its pane, once. @param {HTMLElement} pane @param {any} card @param {import("./card.js").CardTools} tools */
export async function fillOriginal(pane, card, tools) {
  if (pane.dataset.state === "full") return;
  await leaf(pane, card, tools, [""]);
}

/** Shows one part of the original messages, with buttons for the parts before and after. @param {HTMLElement} pane @param {any} card @param {import("./card.js").CardTools} tools @param {string[]} way the messages that the parts so far end before */
async function leaf(pane, card, tools, way) {
  const turn = (/** @type {string} */ key, /** @type {string[]} */ to) => h("button", { class: "quiet", type: "button", onclick: () => void leaf(pane, card, tools, to).then(() => pane.focus()) }, t(key));
  pane.dataset.state = "full";
  show(pane, h("p", { class: "muted" }, t("loading")));
  try {
    const { messages = [], before } = await tools.originals(card.id, way[way.length - 1]);
    const back = way.slice(0, -1);
    show(pane, before && h("p", null, turn("part_before", [...way, before])),
      messages.length ? messages.map((/** @type {any} */ message) => original(message, tools.markdown)) : h("p", { class: "muted" }, t("nothing")),
      back.length > 0 && h("p", null, turn("part_after", back)));
    if (before || back.length) pane.scrollTop = pane.scrollHeight;
  } catch {
    pane.dataset.state = "";
    show(pane, h("p", { class: "muted" }, t("load_failed"), " ", turn("retry", way)));
  }
}

/** Returns the node of one original message. @param {{role: string, text: string}} message @param {(node: HTMLElement, text: string) => void} markdown */
export function original(message, markdown) {
  const body = h("div", { class: "md", dir: "auto" });
  markdown(body, message.text ?? "");
  return h("div", { class: "original" }, h("b", null, speaker(message.role)), body);
}

/** Removes the dialogs and live texts of the former visitor. @param {import("./chat.js").Chat} chat */
export function sweep(chat) {
  chat.sheet = null;
  for (const one of [...chat.node.children]) {
    one.removeAttribute("inert");
    if (one.matches(".sheet, .noted, dialog")) one.remove();
  }
  show(chat.polite);
}
