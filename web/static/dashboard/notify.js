/** Notifies an operator who looks elsewhere, by a sound and a desktop notification, if that is switched on in this browser. */
import { h, set, show } from "../shared/h.js";
import { canPush, permit, subscribe, find, pack } from "../shared/push.js";
import { t } from "./i18n.js";
import { ask } from "./net.js";
import { problem } from "./parts.js";

const KEY = "evertalk:dash:notify";
/** Key of the operator who subscribed this browser to notifications; others who log in here get none. */
const PUSH_KEY = "evertalk:dash:push";
const SCOPE = "/dashboard/";
const isSwitchedOn = () => { try { return localStorage.getItem(KEY) === "on"; } catch { return false; } };
const isAllowed = () => "Notification" in window && Notification.permission === "granted";
/** Returns whether this browser shows notifications. */
export const isNotifying = () => isSwitchedOn() && isAllowed();

/** Shows one notification, however many tabs are open. @param {string} words @param {string} path what a press opens */
export function notify(words, path) {
  if (!isNotifying()) return;
  const note = new Notification("Evertalk", { body: words, tag: "evertalk-inbox" });
  note.onclick = () => { focus(); if (location.pathname !== path) location.assign(path); note.close(); };
  beep();
}

/** Plays two short tones; a browser that requires a press first stays silent. */
function beep() {
  try {
    const audio = new AudioContext();
    const [tone, volume] = [audio.createOscillator(), audio.createGain()];
    tone.frequency.setValueAtTime(660, audio.currentTime);
    tone.frequency.setValueAtTime(880, audio.currentTime + 0.12);
    volume.gain.value = 0.08;
    tone.connect(volume).connect(audio.destination);
    tone.start();
    tone.stop(audio.currentTime + 0.26);
    tone.onended = () => void audio.close();
  } catch { /* the notification is seen all the same */ }
}

/** Returns the switch for the account page; pressing it asks for the permission. */
export function notifyForm() {
  const note = h("p", { class: "small", role: "status" });
  const box = h("input", { type: "checkbox", checked: isNotifying(), onchange: async () => {
    show(note);
    if (box.checked && "Notification" in window) await Notification.requestPermission();
    const refused = box.checked && !isAllowed();
    if (refused) { box.checked = false; show(note, h("span", { class: "crit-text" }, t("This browser does not allow notifications here."))); }
    try { localStorage.setItem(KEY, box.checked ? "on" : "off"); } catch { /* it then holds until the page is left */ }
    set(box, { "aria-invalid": refused ? "true" : null });
  } });
  return h("div", { class: "narrow" }, h("label", { class: "tick" }, box, h("span", null, t("A sound and a notification when somebody is waiting for a human"))), note);
}

const loadPushChoice = () => { try { return localStorage.getItem(PUSH_KEY) ?? ""; } catch { return ""; } };
/** @param {string} name */
const remember = (name) => { try { localStorage.setItem(PUSH_KEY, name); } catch { /* it then ends with this login */ } };

/** Renews this browser's subscription for the operator who has just logged in, if it is theirs. @param {Api["Me"]} me */
export async function renewPush(me) {
  const subscription = loadPushChoice() === me.name ? await find(SCOPE) : null;
  if (subscription) await ask("/me/push", { method: "PUT", body: pack(subscription), refresh: true });
}

/** Returns the switch for push notifications, which also come while no page is open. @param {Api["Me"]} me @param {AbortSignal} signal */
export function pushForm(me, signal) {
  const note = h("p", { class: "small", role: "status" });
  /** @param {string} words @param {string} [look] */
  const say = (words, look = "crit-text") => show(note, h("span", { class: look }, words));
  const test = h("button", { type: "button", class: "line", hidden: true, onclick: () => void doing(async () => {
    const subscription = await find(SCOPE);
    const { sent, code, ended } = await ask("/me/push/test", { method: "POST", body: { endpoint: subscription?.endpoint ?? "" }, signal });
    sent ? say(t("A notification is on its way to this browser."), "muted") : say(t("The push service of this browser rejected it: {code}.", { code }));
    if (ended) await off();
  }) }, t("Send a test"));
  const box = h("input", { type: "checkbox", disabled: !canPush(), onchange: () => void doing(box.checked ? on : off) });

  /** @param {() => Promise<void>} work */
  async function doing(work) {
    show(note);
    box.disabled = test.disabled = true;
    try { await work(); } catch (/** @type {any} */ error) {
      if (!signal.aborted) error.status === undefined ? say(t("The push service of this browser cannot be reached.")) : show(note, problem(error));
    }
    box.disabled = test.disabled = false;
    await paint();
  }
  async function on() {
    if (!await permit()) return say(t("This browser does not allow notifications here."));
    const { key } = await ask("/push-key", { signal });
    await ask("/me/push", { method: "PUT", body: pack(await subscribe(location.origin, SCOPE, key)), signal });
    remember(me.name);
  }
  async function off() {
    const subscription = await find(SCOPE);
    remember("");
    if (!subscription) return;
    await subscription.unsubscribe();
    await ask("/me/push/end", { method: "POST", body: { endpoint: subscription.endpoint }, signal });
  }
  async function paint() {
    const is = loadPushChoice() === me.name && isAllowed() && Boolean(await find(SCOPE));
    box.checked = is;
    test.hidden = !is;
  }
  if (!canPush()) say(t("This browser cannot be notified while the page is closed."), "muted");
  else if (Notification.permission === "denied") say(t("This browser does not allow notifications here."));
  paint().catch(() => {});
  return h("div", { class: "narrow" }, h("label", { class: "tick" }, box, h("span", null, t("Notify this browser also when the page is closed"))),
    h("p", { class: "muted small" }, t("Notifications say who is waiting, never what was said. They end when you log out.")), note, test);
}
