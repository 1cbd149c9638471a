/** The page of the operator's account: a password, a second factor, the language, and the open logins. */
import { language, languages } from "./i18n.js";
import { ask, keepFresh } from "./net.js";
import { card, h, problem, repaintTimes, show, skeleton, t, ts } from "./parts.js";
import { secondFactor } from "./factor.js";
import { loginList } from "./logins.js";
import { notifyForm, pushForm } from "./notify.js";
import { pictureForm } from "./picture.js";

const MAY = { viewer: t("reads everything, changes nothing"), operator: t("reads, answers people and runs commands"), admin: t("Full access") };

/** Draws the page of the operator's account into `root` and refreshes its logins until `signal` aborts. @param {Page} page */
export function accountPage({ root, me, say, entitle, signal }) {
  entitle(t("Account"));
  const logins = h("div", null, skeleton(2));
  const note = h("div");
  let shown = "";

  /** @param {boolean} [refresh] */
  async function load(refresh = false) {
    const page = await ask("/me/logins", { refresh, signal });
    const next = JSON.stringify(page);
    if (next === shown) return repaintTimes(logins);
    shown = next;
    const others = page.logins.filter((one) => !one.this).length;
    show(logins, loginList(page.logins, me.name, end), others > 0 && h("p", null, h("button", { type: "button", class: "line", onclick: (/** @type {any} */ event) => endAll(event.currentTarget) }, t("Log out everywhere else"))));
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
  /** @param {Api["Login"]} login @param {HTMLButtonElement} button */
  const end = (login, button) => remove(`/me/logins/${login.id}`, button, t("That login has ended."));
  /** @param {HTMLButtonElement} button */
  const endAll = (button) => remove("/me/logins", button, t("Your other logins have ended."));
  /** @param {unknown} error */
  const failed = (error) => { if (!signal.aborted) { shown = ""; show(logins, problem(error, () => load().catch(failed))); } };

  show(root, h("div", { class: "page-head" }, h("div", null, h("h1", null, t("Account")), h("p", { class: "facts" }, h("span", null, `${me.name} · ${ts(me.role)}`), h("span", null, MAY[/** @type {keyof typeof MAY} */ (me.role)] ?? "")))),
    card(t("The name that people see"), [nameForm(me, say, signal), pictureForm(me, say, signal)]),
    me.has_handovers && card(t("Notifications"), [notifyForm(), me.role !== "viewer" && pushForm(me, signal)]),
    card(t("Language"), [languageChoice()]), card(t("Active sessions"), [logins, note]), card(t("Password"), [me.by_provider ? h("p", { class: "muted" }, t("You log in with your organisation's identity provider; change your password there.")) : passwordForm(me, say, signal, () => load(true).catch(failed))]),
    !me.by_provider && card(t("Second factor"), [secondFactor(say, signal, () => { load(true).catch(failed); })]));
  load().catch(failed);
  keepFresh(() => load(true), () => {}, signal);
}

/** Language of the dashboard in this browser, kept in a cookie that the login page reads, too. */
function languageChoice() {
  const kept = /(?:^|; )evertalk-language=([\w-]+)/.exec(document.cookie)?.[1] ?? "";
  const select = h("select", { name: "language", onchange: () => {
    document.cookie = `evertalk-language=${select.value}; path=/dashboard; max-age=${select.value ? 31_536_000 : 0}; samesite=lax`;
    location.reload();
  } }, h("option", { value: "" }, t("browser language")));
  const machine = h("p", { class: "muted small", hidden: true }, t("This translation was made by a machine."));
  languages().then((all) => {
    select.append(...Object.entries(all).map(([tag, about]) => h("option", { value: tag, lang: tag, selected: tag === kept }, about.name)));
    machine.hidden = all[language]?.translated !== "by machine";
  }).catch(() => {});
  return h("div", { class: "narrow" }, h("label", null, t("Language of the dashboard"), select), h("p", { class: "muted small" }, t("Stored in this browser, also for the login page.")), machine);
}

/** @param {Api["Me"]} me @param {(words: string) => void} say @param {AbortSignal} signal */
function nameForm(me, say, signal) {
  const note = h("div");
  const field = h("input", { type: "text", name: "display_name", autocomplete: "nickname", maxlength: 60, dir: "auto", value: me.display_name });
  return h("form", { class: "narrow", onsubmit: async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      await ask("/me/display-name", { method: "POST", body: { display_name: field.value }, signal });
      me.display_name = field.value.trim();
      show(note, h("p", { class: "done" }, t("People see you as {name}.", { name: me.display_name || "Support" })));
      say(t("The name is set."));
    } catch (error) { if (!signal.aborted) show(note, problem(error)); }
  } },
  h("label", null, t("Display name"), field), h("p", { class: "muted small" }, t("People see this name, never your login name. If empty, they see {name}.", { name: "Support" })),
  h("button", { type: "submit", class: "solid" }, t("Set the name")), note);
}

/** @param {Api["Me"]} me @param {(words: string) => void} say @param {AbortSignal} signal @param {() => void} changed */
function passwordForm(me, say, signal, changed) {
  const note = h("div");
  const field = h("input", { type: "password", name: "password", autocomplete: "new-password", minlength: 12, maxlength: 1000, required: true });
  return h("form", { class: "narrow", onsubmit: async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      await ask("/me/password", { method: "POST", body: { password: field.value }, signal });
      me.has_password = true;
      field.value = "";
      show(note, h("p", { class: "done" }, t("The password is set. Your other logins have ended.")));
      say(t("The password is set."));
      changed();
    } catch (error) { if (!signal.aborted) show(note, problem(error)); }
  } },
  h("input", { type: "text", name: "username", autocomplete: "username", value: me.name, hidden: true, readonly: true }),
  h("label", null, me.has_password ? t("New password") : t("Password"), field), h("p", { class: "muted small" }, t("At least 12 characters.")),
  h("button", { type: "submit", class: "solid" }, me.has_password ? t("Change the password") : t("Set the password")), note);
}
