/** Settings: a form for each subject, and a table of every setting with its value, source and meaning. */
import { ask } from "./net.js";
import { ownersCard } from "./owners.js";
import { DASH, card, empty, h, labelOf, named, number, problem, show, skeleton, t, table, tabPanels, ts } from "./parts.js";
import { SECTIONS, TABS } from "./settings_fields.js";
import { settingsForm } from "./settings_form.js";

const FROM = { environment: t("environment"), file: ".env", default: t("default"), start: t("auto-detected"), stored: t("this page") };
const COLUMNS = [{ label: t("Setting") }, { label: t("Value") }, { label: t("Set by") }, { label: t("Default") }, { label: t("Meaning") }];

/** Draws the forms of settings in tabs; the query `section` names the form to open. @param {Page} page */
export function settingsPage({ root, go, me, say, entitle, signal }) {
  entitle(t("Settings"));
  const params = new URLSearchParams(location.search);
  const asked = params.get("section") ?? "";
  const body = h("div", { class: "list" }, skeleton(8));
  const troubles = h("div");
  /** @type {any} */
  let now = null;
  /** @type {ReturnType<typeof settingsForm>[]} */
  const forms = [];
  /** @param {Api["AllSettings"]} answer */
  function took(answer) {
    now = answer;
    show(troubles, warnings(now));
    for (const one of forms) one.sync();
  }
  /** @param {string} id */
  function make(id) {
    const section = SECTIONS.find((one) => one.id === id);
    if (!section) return null;
    const form = settingsForm(section, { now: () => now, took, may: me.role === "admin", who: me.name, say, signal });
    forms.push(form);
    if (id === asked) setTimeout(() => { if (form.node.previousElementSibling) form.node.scrollIntoView(); form.lead(params.get("field") ?? ""); });
    return id === "telegram" && me.role === "admin" ? [form.node, ownersCard({ say, signal })] : form.node;
  }
  async function load() {
    try { took(await ask("/settings", { signal })); } catch (error) {
      if (!signal.aborted) show(body, problem(error, load));
      return;
    }
    const all = params.has("q") || params.has("given") || asked === "all";
    const places = [...TABS.map(([, ids]) => ids[0]), "all"];
    show(body, tabPanels(t("Settings"), [...TABS.map(([name, ids]) => ({ name, make: () => h("div", { class: "stack" }, ids.map(make)) })), { name: t("All settings"), make: () => everySetting(now.settings, params, go) }],
      { first: all ? TABS.length : Math.max(0, TABS.findIndex(([, ids]) => ids.includes(asked))), moved: (place) => go(`/dashboard/settings?section=${places[place]}`, { quiet: true, replace: true }) }).node);
  }
  async function checklist() {
    try {
      await ask("/checklist", { method: "PUT", body: { hidden: false }, signal });
      go("/dashboard");
    } catch (error) { if (!signal.aborted) show(troubles, problem(error)); }
  }
  show(root, h("div", { class: "page-head" }, h("div", null, h("h1", null, t("Settings")), h("p", { class: "facts" }, t("The environment and .env win over what is set here."))), me.role === "admin" && h("button", { type: "button", class: "line head-actions", onclick: checklist }, t("Show the checklist"))), troubles, body);
  load();
}

/** Returns the reasons why stored settings are not in force. @param {Api["AllSettings"]} now */
const warnings = (now) => [
  now.unpriced.length > 0 && h("p", { class: "trouble" }, t("Enter the prices of {models}, or 0 if tokens are free. Until then, a cap of {tokens} tokens a day replaces the caps in dollars.", { models: now.unpriced.join(", "), tokens: number(now.token_cap) })),
  now.problems.length > 0 && h("div", { class: "trouble" }, h("p", null, t("The stored settings cannot be used; the former ones stay in force:")),
    h("ul", { class: "findings" }, now.problems.map((one) => h("li", null, labelOf(one.name), ": ", h("span", { dir: "auto" }, ts(one.reason)))))),
];

/** @param {Api["Setting"][]} all @param {URLSearchParams} params @param {any} go */
function everySetting(all, params, go) {
  const body = h("div", { class: "list" });
  const search = h("input", { type: "search", name: "q", placeholder: `${t("Search name or meaning")}   /`, value: params.get("q") ?? "", autocomplete: "off", spellcheck: "false" });
  const only = h("input", { type: "checkbox", name: "given", checked: params.get("given") === "1" });
  function draw() {
    const words = search.value.trim().toLowerCase();
    const found = all.filter((one) => (!only.checked || one.from !== "default") && `${one.name} ${one.meaning}`.toLowerCase().includes(words));
    const query = new URLSearchParams([["section", "all"], ["q", search.value.trim()], ["given", only.checked ? "1" : ""]].filter(([, value]) => value));
    go(`/dashboard/settings?${query}`, { quiet: true, replace: true });
    show(body, found.length ? card(t("All settings"), [table({ caption: t("All settings"), className: "wide-grid settings-grid", columns: COLUMNS, rows: found.map(cells) })]) : empty(t("No setting matches.")));
  }
  draw();
  return [h("form", { class: "filters", role: "search", "aria-label": t("Filter settings"), oninput: draw, onsubmit: (/** @type {Event} */ event) => event.preventDefault() },
    h("label", { class: "grow" }, h("span", { class: "unseen" }, t("Search name or meaning")), search), h("label", { class: "tick" }, only, h("span", null, t("Only changed")))), body];
}

/** @param {Api["Setting"]} one */
const cells = (one) => [h("code", { class: "setting-name" }, one.name), one.value === null ? DASH : one.secret ? h("span", { class: `state ${one.value === "set" ? "answering" : ""}` }, ts(one.value)) : h("code", null, String(one.value)),
  h("span", { class: one.from === "default" ? "muted" : "strong" }, FROM[/** @type {keyof typeof FROM} */ (one.from)] ?? one.from), one.default || DASH, h("span", { class: "meaning" }, one.meaning || DASH, !one.kind && h("span", { class: "muted small block" }, t("Set in the environment; used after a restart.")))];
