/** The operator's own account: a password, so that the next login needs no link, and the logins that are open. */
import { ask, keepFresh } from "./net.js";
import { card, h, problem, repaintTimes, show, skeleton } from "./parts.js";
import { secondFactor } from "./factor.js";
import { loginList } from "./logins.js";
import { pictureForm } from "./picture.js";

const MAY = { viewer: "reads everything, changes nothing", operator: "reads, answers people and runs commands", admin: "may do everything, and lets others in" };

/** @param {any} page */
export function accountPage({ root, me, say, entitle, signal }) {
  entitle("Account");
  const logins = h("div", null, skeleton(2));
  const note = h("div");
  let shown = "";

  /** @param {boolean} [refresh] */
  async function load(refresh = false) {
    const page = await ask("/me/logins", { refresh, signal });
    const next = JSON.stringify(page);
    if (next === shown) return repaintTimes(logins);
    shown = next;
    const others = page.logins.filter((/** @type {any} */ one) => !one.this).length;
    show(logins, loginList(page.logins, me.name, end), others > 0 && h("p", null, h("button", { type: "button", class: "line", onclick: (/** @type {any} */ event) => endAll(event.currentTarget) }, "Log out everywhere else")));
  }

  /** @param {string} path @param {HTMLButtonElement} button @param {string} words */
  async function remove(path, button, words) {
    button.disabled = true;
    show(note);
    try {
      await ask(path, { method: "DELETE", signal });
      say(words);
    } catch (error) { if (!signal.aborted) show(note, problem(error)); }
    await load(true).catch(failed);
  }
  /** @param {any} login @param {HTMLButtonElement} button */
  const end = (login, button) => remove(`/me/logins/${login.id}`, button, "That login has ended.");
  /** @param {HTMLButtonElement} button */
  const endAll = (button) => remove("/me/logins", button, "Your other logins have ended.");
  /** @param {any} error */
  const failed = (error) => { if (!signal.aborted) { shown = ""; show(logins, problem(error, () => load().catch(failed))); } };

  show(root, h("div", { class: "page-head" }, h("div", null, h("h1", null, "Account"), h("p", { class: "facts" }, h("span", null, `${me.name} · ${me.role}`), h("span", null, MAY[/** @type {keyof typeof MAY} */ (me.role)] ?? "")))),
    card("The name that people see", [nameForm(me, say, signal), pictureForm(me, say, signal)]),
    card("Open logins", [logins, note]), card("Password", [me.by_provider ? h("p", { class: "muted" }, "You log in by your organisation's identity provider; a password is changed there.") : passwordForm(me, say, signal, () => load(true).catch(failed))]),
    !me.by_provider && card("Second factor", [secondFactor(say, signal, () => { load(true).catch(failed); })]));
  load().catch(failed);
  keepFresh(() => load(true), () => {}, signal);
}

/** @param {any} me @param {(words: string) => void} say @param {AbortSignal} signal */
function nameForm(me, say, signal) {
  const note = h("div");
  const field = h("input", { type: "text", name: "display_name", autocomplete: "nickname", maxlength: 60, dir: "auto", value: me.display_name });
  return h("form", { class: "narrow", onsubmit: async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      await ask("/me/display-name", { method: "POST", body: { display_name: field.value }, signal });
      me.display_name = field.value.trim();
      show(note, h("p", { class: "done" }, `People see you as ${me.display_name || "Support"}.`));
      say("The name is set.");
    } catch (error) { if (!signal.aborted) show(note, problem(error)); }
  } },
  h("label", null, "Display name", field), h("p", { class: "muted small" }, "Whoever you answer sees it, and never your login name. Without one you are Support."),
  h("button", { type: "submit", class: "solid" }, "Set the name"), note);
}

/** @param {any} me @param {(words: string) => void} say @param {AbortSignal} signal @param {() => void} changed */
function passwordForm(me, say, signal, changed) {
  const note = h("div");
  const field = h("input", { type: "password", name: "password", autocomplete: "new-password", minlength: 12, maxlength: 1000, required: true });
  return h("form", { class: "narrow", onsubmit: async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      await ask("/me/password", { method: "POST", body: { password: field.value }, signal });
      me.has_password = true;
      field.value = "";
      show(note, h("p", { class: "done" }, "The password is set. Other logins of yours have ended."));
      say("The password is set.");
      changed();
    } catch (error) { if (!signal.aborted) show(note, problem(error)); }
  } },
  h("input", { type: "text", name: "username", autocomplete: "username", value: me.name, hidden: true, readonly: true }),
  h("label", null, me.has_password ? "New password" : "Password", field), h("p", { class: "muted small" }, "At least 12 characters."),
  h("button", { type: "submit", class: "solid" }, me.has_password ? "Change the password" : "Set the password"), note);
}
