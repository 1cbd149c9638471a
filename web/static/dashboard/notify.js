/** Tells an operator who looks elsewhere: a sound and a notification of the desktop, where this browser was asked for them. */
import { h, set, show } from "../shared/h.js";
import { t } from "./i18n.js";

const KEY = "evertalk:dash:notify";
const kept = () => { try { return localStorage.getItem(KEY) === "on"; } catch { return false; } };
const allowed = () => "Notification" in window && Notification.permission === "granted";
/** Whether this browser tells. */
export const notifies = () => kept() && allowed();

/** One notification, whichever tabs are open. @param {string} words @param {string} path what a press opens */
export function notify(words, path) {
  if (!notifies()) return;
  const note = new Notification("Evertalk", { body: words, tag: "evertalk-inbox" });
  note.onclick = () => { focus(); if (location.pathname !== path) location.assign(path); note.close(); };
  beep();
}

/** Two short tones; a browser that wants a press first stays silent. */
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

/** The switch of the account page; the permission is asked for when it is pressed. */
export function notifyForm() {
  const note = h("p", { class: "small", role: "status" });
  const box = h("input", { type: "checkbox", checked: notifies(), onchange: async () => {
    show(note);
    if (box.checked && "Notification" in window) await Notification.requestPermission();
    const refused = box.checked && !allowed();
    if (refused) { box.checked = false; show(note, h("span", { class: "crit-text" }, t("This browser does not allow notifications here."))); }
    try { localStorage.setItem(KEY, box.checked ? "on" : "off"); } catch { /* it then holds until the page is left */ }
    set(box, { "aria-invalid": refused ? "true" : null });
  } });
  return h("div", { class: "narrow" }, h("label", { class: "tick" }, box, h("span", null, t("A sound and a notification when somebody waits for a human"))), note);
}
