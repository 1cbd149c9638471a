/** Notifications of answers while the page is closed, on our page only; permission is asked for only after a press. */
import english from "../locales/en/chat_parts.json" with { type: "json" };
import { permit, subscribe, find, pack } from "../shared/push.js";
import { reach } from "./rare.js";
import { wordsOf } from "./words.js";

const t = wordsOf("notify", english.notify);
const ROOT = new URL("../../", import.meta.url).href;
const SCOPE = new URL("chat", ROOT).pathname;

/** @typedef {import("./chat.js").Chat} Chat */

/** @param {Chat} chat @param {string} path @param {any} [body] */
async function ask(chat, path, body) {
  const sent = body && { method: path === "push" ? "PUT" : "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const answer = await reach(chat, `api/v1/${path}`, sent || {});
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  return answer.json();
}

/** Turns notifications on or off. @param {Chat} chat */
export async function turn(chat) {
  try {
    if (chat.store.get("push")) {
      const old = await find(SCOPE);
      chat.store.put("push", "");
      await old?.unsubscribe();
      if (old) await ask(chat, "push/end", { endpoint: old.endpoint });
      return chat.warn(t("off"));
    }
    if (!await permit()) return chat.warn(t("denied"));
    const { key } = await ask(chat, "push-key");
    await ask(chat, "push", pack(await subscribe(ROOT, SCOPE, key)));
    chat.store.put("push", "on");
    chat.warn(t("on"));
  } catch { chat.warn(t("failed")); }
}

/** Renews the subscription, since the server deletes those unused for a month, and a browser may have got a new address. Forgets it if the server no longer knows it for this visitor. @param {Chat} chat */
export async function renew(chat) {
  const subscription = await find(SCOPE);
  if (!subscription) return chat.store.put("push", "");
  await ask(chat, "push", { ...pack(subscription), renews: true }).catch((error) => error.message === "status 404" && chat.store.put("push", ""));
}
