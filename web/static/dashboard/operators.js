/** Operators, for admins: invite, change a role, lock, and end logins. */
import { choice, code, formOf } from "./forms.js";
import { ask, keepFresh } from "./net.js";
import { DASH, card, empty, h, keepFocus, liveMark, number, problem, repaintTimes, show, skeleton, t, table, time, tn, ts } from "./parts.js";
import { loginList } from "./logins.js";

/** @type {import("./forms.js").Control} */
const ROLE = { path: "role", label: t("Role"), kind: choice(["viewer", "operator", "admin"].map((one) => [one, ts(one)]), { stored: true }) };
/** @type {import("./forms.js").Control} */
const NAME = { path: "name", label: t("Name"), kind: code({ required: true, maxlength: 64 }) };
const COLUMNS = [{ label: t("Name") }, { label: t("Role") }, { label: t("State") }, { label: t("Last login") }, { label: t("Active sessions"), num: true }, { label: t("Sign-in method") }];

/** Draws the list of operators, or the one that the address names with its open logins. @param {Page} page */
export function operatorsPage({ root, me, go, say, entitle, signal }) {
  entitle(t("Operators"));
  const params = new URLSearchParams(location.search);
  const note = h("div", { class: "list" });
  const list = h("div", { class: "list" }, skeleton(4));
  const one = h("div", { class: "list" });
  const mark = liveMark();
  let shown = "";
  /** @type {any[]} */
  let all = [];

  /** @param {boolean} [refresh] */
  async function load(refresh = false) {
    const page = await ask("/operators", { refresh, signal });
    all = page.operators;
    const next = JSON.stringify([page, params.get("who")]);
    if (next === shown) return repaintTimes(root);
    shown = next;
    keepFocus(list, () => show(list, all.length ? h("div", { class: "card flush-card" }, table({ caption: t("Operators"), className: "wide-grid operators-grid", columns: COLUMNS, rows: all.map((operator) => cells(operator, me)) })) : empty(t("There are no operators."))));
    const chosen = all.find((operator) => operator.id === params.get("who"));
    show(one, chosen ? oneCard(chosen, me, act) : params.get("who") && empty(t("There is no such operator.")));
    if (!refresh) say(tn("{count} operator", "{count} operators", all.length));
  }

  /** Carries out a change, reports it, and draws the list again. @param {() => Promise<any>} work @param {(answer: any) => string} words @param {HTMLButtonElement} [button] */
  async function act(work, words, button) {
    if (button) button.disabled = true;
    show(note);
    let answer = null;
    try {
      answer = await work();
      say(words(answer));
      show(note, answer?.link ? linkCard(answer) : h("p", { class: "done" }, words(answer)));
    } catch (error) { if (!signal.aborted) show(note, explainRefusal(error)); }
    shown = "";
    await load(true).catch(failed);
    if (answer?.link) /** @type {HTMLElement | null} */ (note.querySelector("button"))?.focus();
    return answer !== null;
  }

  /** @param {unknown} error */
  const failed = (error) => { if (!signal.aborted) { shown = ""; show(list, problem(error, () => load().catch(failed))); } };
  show(root, h("div", { class: "page-head" }, h("div", null, h("h1", null, t("Operators")), h("p", { class: "facts" }, t("Who may use this dashboard"), mark.node))),
    note, list, one, card(t("Invite"), [inviteForm(act)]));
  load().catch(failed);
  keepFresh(() => load(true), mark.tell, signal);
}

/** Explains a refused change; after a change by someone else it shows the current state. @param {any} error */
function explainRefusal(error) {
  const now = error.details?.current;
  return h("div", null, problem(error), now && h("p", { class: "muted" }, now.locked ? t("Now: {operator} is {role}, locked.", { operator: now.name, role: ts(now.role) }) : t("Now: {operator} is {role}.", { operator: now.name, role: ts(now.role) })));
}

/** @param {Api["Operator"]} operator @param {Api["Me"]} me */
function cells(operator, me) {
  const state = operator.locked ? ["problem", t("locked")] : operator.refused_until ? ["waiting", t("too many wrong passwords")] : operator.logins.length ? ["answering", t("logged in")] : operator.link_until && !operator.last_login_at ? ["waiting", t("invited")] : ["idle", t("logged out")];
  return [
    h("a", { class: "row-link", href: `/dashboard/operators?who=${operator.id}`, dir: "auto" }, operator.name === me.name ? t("{name} (you)", { name: operator.name }) : operator.name),
    ts(operator.role), h("span", { class: `state ${state[0]}` }, state[1]), operator.last_login_at ? time(operator.last_login_at) : t("never"),
    number(operator.logins.length), operator.by_provider ? t("identity provider") : operator.has_second_factor ? t("password and code") : operator.has_password ? t("password") : operator.link_until ? t("link") : DASH,
  ];
}

/** @param {Api["Operator"]} operator @param {Api["Me"]} me @param {any} act */
function oneCard(operator, me, act) {
  const path = /** @type {const} */ (`/operators/${operator.id}`);
  const { name, version } = operator;
  const draft = { role: operator.role };
  const form = formOf(draft, { id: "operator" });
  /** @param {any} body @param {string} words */
  const change = (body, words) => (/** @type {any} */ event) => act(() => ask(path, { method: "PATCH", body: { version, ...body() } }), () => words, event.currentTarget);
  const buttons = h("div", { class: "role-row" }, h("fieldset", { class: "bare", disabled: operator.by_provider }, form.draw(ROLE)),
    h("button", { type: "button", class: "line", disabled: operator.by_provider, onclick: change(() => draft, t("The role of {name} is changed.", { name })) }, t("Change the role")),
    !operator.by_provider && !operator.locked && h("button", { type: "button", class: "line", onclick: (/** @type {any} */ event) => act(() => ask(`${path}/link`, { method: "POST" }), () => t("A new link for {name}.", { name }), event.currentTarget) }, t("New login link")),
    operator.logins.length > 0 && h("button", { type: "button", class: "line", onclick: (/** @type {any} */ event) => act(() => ask(`${path}/logins`, { method: "DELETE" }), () => t("{name} is logged out everywhere.", { name }), event.currentTarget) }, t("Log out everywhere")),
    operator.locked ? h("button", { type: "button", class: "line", onclick: change(() => ({ locked: false }), t("{name} is unlocked.", { name })) }, t("Unlock"))
      : h("button", { type: "button", class: "danger", onclick: change(() => ({ locked: true }), t("{name} is locked out.", { name })) }, t("Lock out")));
  /** @param {Api["Login"]} login @param {HTMLButtonElement} button */
  const end = (login, button) => act(() => ask(`${path}/logins/${login.id}`, { method: "DELETE" }), () => t("That login has ended."), button);
  return card(name === me.name ? t("{name} (you)", { name }) : name, [buttons,
    operator.by_provider && h("p", { class: "muted" }, t("Role and password come from your identity provider.")),
    operator.refused_until && h("p", { class: "warn-text" }, t("Too many wrong passwords: refused until {time}", { time: time(operator.refused_until) })),
    operator.logins.length ? loginList(operator.logins, name, end) : h("p", { class: "muted" }, t("No login is open."))]);
}

/** @param {any} act */
function inviteForm(act) {
  const draft = { name: "", role: "operator" };
  const form = formOf(draft, { id: "invite" });
  const node = h("form", { class: "inline-form", onsubmit: async (/** @type {any} */ event) => {
    event.preventDefault();
    const done = await act(() => ask("/operators", { method: "POST", body: { ...draft } }), (/** @type {Api["Invited"]} */ answer) => t("{name} can log in with the link.", { name: answer.name }));
    if (done) { draft.name = ""; form.refill(); }
  } }, form.draw(NAME), form.draw(ROLE), h("button", { type: "submit", class: "solid" }, t("Create login link")));
  if (location.hash === "#invite") setTimeout(() => node.querySelector("input").focus());
  return node;
}

/** Shows the login link, which is returned only once and makes its holder that operator. @param {Api["Invited"]} invited */
function linkCard(invited) {
  const copied = h("span", { class: "muted small" });
  return card(t("Login link for {name}", { name: invited.name }), [h("div", { class: "once" }, h("code", null, invited.link),
    h("div", { class: "actions" }, h("button", { type: "button", class: "solid", onclick: async () => {
      try { await navigator.clipboard.writeText(invited.link); show(copied, t("Copied.")); } catch { show(copied, t("Select the link and copy it.")); }
    } }, t("Copy the link")), copied),
    h("p", { class: "muted small" }, t("It is shown only once, works once, and is valid until {time}. Send it over a private channel.", { time: time(invited.expires_at) })))]);
}
