/** What is asked of the server beside the socket, and other rare things: loaded when they are needed. */
import { h, show } from "../shared/h.js";
import { t } from "./i18n.js";

const ROOT = new URL("../../", import.meta.url);
const ASK_MS = 15_000;
const EXPORT_MS = 300_000;

/** @typedef {import("./chat.js").Chat} Chat */

/** Who asks: by a token, or on our own page by the cookie of its site. @param {Chat} chat @returns {Record<string, string>} */
export function asker(chat) {
  const { page, site } = chat.options;
  const token = chat.store.get("token");
  return page ? { "X-Evertalk-Site": site } : token ? { Authorization: `Bearer ${token}` } : {};
}

/**
 * Whatever the server says; fails only without an answer.
 * @param {Chat} chat @param {string} path @param {RequestInit} [init] @param {number} [most] @returns {Promise<Response>}
 */
export function reach(chat, path, init = {}, most = ASK_MS) {
  return fetch(new URL(path, ROOT).href, {
    ...init, credentials: chat.options.page ? "same-origin" : "omit", headers: { ...init.headers, ...asker(chat) },
    signal: AbortSignal.timeout(most),
  });
}

/** @param {Chat} chat @param {string} path @param {number} [most] */
async function ask(chat, path, most) {
  const answer = await reach(chat, path, {}, most);
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  return answer;
}

/** @param {Chat} chat @param {string} id */
export async function originals(chat, id) {
  const answer = await ask(chat, `api/v1/compactions/${encodeURIComponent(id)}/messages`);
  return (await answer.json()).messages ?? [];
}

/** The browser saves the file: a link alone would not carry the token. @param {Chat} chat @param {string} format */
export async function download(chat, format) {
  const answer = await ask(chat, `api/v1/export?format=${format}`, EXPORT_MS);
  const url = URL.createObjectURL(await answer.blob());
  const link = h("a", { href: url, download: `conversation-${new Date().toISOString().slice(0, 10)}.${format}` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Where a page has no clipboard to write to. @param {HTMLElement} near @param {string} text @param {HTMLElement} button */
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

/** @param {HTMLElement} pane @param {any} card @param {import("./card.js").CardTools} tools */
export async function fillOriginal(pane, card, tools) {
  if (pane.dataset.state === "full") return;
  pane.dataset.state = "full";
  show(pane, h("p", { class: "muted" }, t("loading")));
  try {
    const messages = await tools.originals(card.id);
    show(pane, messages.length ? messages.map((message) => original(message, tools.markdown)) : h("p", { class: "muted" }, t("nothing")));
  } catch {
    pane.dataset.state = "";
    const again = h("button", { class: "quiet", type: "button", onclick: () => fillOriginal(pane, card, tools) }, t("retry"));
    show(pane, h("p", { class: "muted" }, t("load_failed"), " ", again));
  }
}

/** One message as it was. @param {{role: string, text: string}} message @param {(node: HTMLElement, text: string) => void} markdown */
export function original(message, markdown) {
  const body = h("div", { class: "md", dir: "auto" });
  markdown(body, message.text ?? "");
  return h("div", { class: "original" }, h("b", null, speaker(message.role)), body);
}
