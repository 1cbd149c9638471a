/** What is asked of the server beside the socket, and other rare things: loaded when they are needed. */
import { h } from "../shared/h.js";

const ROOT = new URL("../../", import.meta.url);
const ASK_MS = 15_000;
const EXPORT_MS = 300_000;

/** @typedef {import("./chat.js").Chat} Chat */

/**
 * Whatever the server says; fails only without an answer.
 * @param {Chat} chat @param {string} path @param {RequestInit} [init] @param {number} [most] @returns {Promise<Response>}
 */
export function reach(chat, path, init = {}, most = ASK_MS) {
  const { page } = chat.options;
  const token = page ? "" : chat.store.get("token");
  return fetch(new URL(path, ROOT).href, {
    ...init, credentials: page ? "same-origin" : "omit", headers: { ...init.headers, ...(token && { Authorization: `Bearer ${token}` }) },
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
