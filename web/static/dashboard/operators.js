/** Who may use the dashboard: let somebody in, change a role, lock, and log out. For admins. */
import { ask, keepFresh } from "./net.js";
import { DASH, card, empty, h, keepFocus, liveMark, number, problem, repaintTimes, show, skeleton, table, time } from "./parts.js";
import { loginList } from "./logins.js";

const ROLES = ["viewer", "operator", "admin"];
const COLUMNS = [{ label: "Name" }, { label: "Role" }, { label: "State" }, { label: "Last login" }, { label: "Open logins", num: true }, { label: "Comes in by" }];

/** @param {any} page */
export function operatorsPage({ root, me, go, say, entitle, signal }) {
  entitle("Operators");
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
    keepFocus(list, () => show(list, all.length ? h("div", { class: "card flush-card" }, table({ caption: "Operators", className: "wide-grid operators-grid", columns: COLUMNS, rows: all.map((operator) => cells(operator, me)) })) : empty("There are no operators.")));
    const chosen = all.find((operator) => operator.id === params.get("who"));
    show(one, chosen ? oneCard(chosen, me, act) : params.get("who") && empty("There is no such operator."));
    if (!refresh) say(`${all.length} operators`);
  }

  /** Does it, tells it, and draws what is so afterwards. @param {() => Promise<any>} work @param {(answer: any) => string} words @param {HTMLButtonElement} [button] */
  async function act(work, words, button) {
    if (button) button.disabled = true;
    show(note);
    let answer = null;
    try {
      answer = await work();
      say(words(answer));
      show(note, answer?.link ? linkCard(answer) : h("p", { class: "done" }, words(answer)));
    } catch (error) { if (!signal.aborted) show(note, refused(error)); }
    shown = "";
    await load(true).catch(failed);
    if (answer?.link) /** @type {HTMLElement | null} */ (note.querySelector("button"))?.focus();
    return answer !== null;
  }

  /** @param {any} error */
  const failed = (error) => { if (!signal.aborted) { shown = ""; show(list, problem(error, () => load().catch(failed))); } };
  show(root, h("div", { class: "page-head" }, h("div", null, h("h1", null, "Operators"), h("p", { class: "facts" }, "Who may use this dashboard", mark.node))),
    note, list, one, card("Let somebody in", [inviteForm(act)]));
  load().catch(failed);
  keepFresh(() => load(true), mark.tell, signal);
}

/** A stale change shows what stands now. @param {any} error */
function refused(error) {
  const now = error.details?.current;
  return h("div", null, problem(error), now && h("p", { class: "muted" }, `Now: ${now.name} is ${now.role}${now.locked ? ", locked" : ""}.`));
}

/** @param {any} operator @param {any} me */
function cells(operator, me) {
  const state = operator.locked ? ["problem", "locked"] : operator.refused_until ? ["waiting", "too many wrong passwords"] : operator.logins.length ? ["answering", "logged in"] : operator.link_until && !operator.last_login_at ? ["waiting", "invited"] : ["idle", "logged out"];
  return [
    h("a", { class: "row-link", href: `/dashboard/operators?who=${operator.id}`, dir: "auto" }, operator.name, operator.name === me.name && " (you)"),
    operator.role, h("span", { class: `state ${state[0]}` }, state[1]), operator.last_login_at ? time(operator.last_login_at) : "never",
    number(operator.logins.length), operator.by_provider ? "identity provider" : operator.has_second_factor ? "password and code" : operator.has_password ? "password" : operator.link_until ? "link" : DASH,
  ];
}

/** @param {any} operator @param {any} me @param {any} act */
function oneCard(operator, me, act) {
  const path = `/operators/${operator.id}`;
  const { name, version } = operator;
  const role = h("select", { name: "role", disabled: operator.by_provider }, ROLES.map((one) => h("option", { value: one, selected: one === operator.role }, one)));
  /** @param {any} body @param {string} words */
  const change = (body, words) => (/** @type {any} */ event) => act(() => ask(path, { method: "PATCH", body: { version, ...body() } }), () => words, event.currentTarget);
  const buttons = h("div", { class: "role-row" }, h("label", null, "Role", role),
    h("button", { type: "button", class: "line", disabled: operator.by_provider, onclick: change(() => ({ role: role.value }), `The role of ${name} is changed.`) }, "Change the role"),
    !operator.by_provider && !operator.locked && h("button", { type: "button", class: "line", onclick: (/** @type {any} */ event) => act(() => ask(`${path}/link`, { method: "POST" }), () => `A new link for ${name}.`, event.currentTarget) }, "New login link"),
    operator.logins.length > 0 && h("button", { type: "button", class: "line", onclick: (/** @type {any} */ event) => act(() => ask(`${path}/logins`, { method: "DELETE" }), () => `${name} is logged out everywhere.`, event.currentTarget) }, "Log out everywhere"),
    operator.locked ? h("button", { type: "button", class: "line", onclick: change(() => ({ locked: false }), `${name} is unlocked.`) }, "Unlock")
      : h("button", { type: "button", class: "danger", onclick: change(() => ({ locked: true }), `${name} is locked out.`) }, "Lock out"));
  /** @param {any} login @param {HTMLButtonElement} button */
  const end = (login, button) => act(() => ask(`${path}/logins/${login.id}`, { method: "DELETE" }), () => "That login has ended.", button);
  return card(name === me.name ? `${name} (you)` : name, [buttons,
    operator.by_provider && h("p", { class: "muted" }, "Role and password come from your identity provider."),
    operator.refused_until && h("p", { class: "warn-text" }, "Too many wrong passwords: refused until ", time(operator.refused_until)),
    operator.logins.length ? loginList(operator.logins, name, end) : h("p", { class: "muted" }, "No login is open.")]);
}

/** @param {any} act */
function inviteForm(act) {
  const name = h("input", { name: "name", required: true, maxlength: 64, autocomplete: "off", autocapitalize: "none", spellcheck: "false" });
  const role = h("select", { name: "role" }, ROLES.map((one) => h("option", { value: one, selected: one === "operator" }, one)));
  return h("form", { class: "inline-form", onsubmit: async (/** @type {any} */ event) => {
    event.preventDefault();
    const done = await act(() => ask("/operators", { method: "POST", body: { name: name.value, role: role.value } }), (/** @type {any} */ answer) => `${answer.name} may come in by the link.`);
    if (done) name.value = "";
  } }, h("label", null, "Name", name), h("label", null, "Role", role), h("button", { type: "submit", class: "solid" }, "Make a login link"));
}

/** The link is shown this once; whoever has it is that operator. @param {any} invited */
function linkCard(invited) {
  const copied = h("span", { class: "muted small" });
  return card(`Login link for ${invited.name}`, [h("div", { class: "once" }, h("code", null, invited.link),
    h("div", { class: "actions" }, h("button", { type: "button", class: "solid", onclick: async () => {
      try { await navigator.clipboard.writeText(invited.link); show(copied, "Copied."); } catch { show(copied, "Select the link and copy it."); }
    } }, "Copy the link"), copied),
    h("p", { class: "muted small" }, "It is shown this once, logs in once, and is good until ", time(invited.expires_at), ". Send it by a way that only they read."))]);
}
