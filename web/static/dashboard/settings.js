/** Every setting, read-only: its value, where that came from, and what docs/settings.md says. */
import { ask } from "./net.js";
import { DASH, card, empty, h, problem, show, skeleton, t, table, ts } from "./parts.js";

const FROM = { environment: t("environment"), file: ".env", default: t("default"), start: t("chosen at the start") };
const COLUMNS = [{ label: t("Setting") }, { label: t("Value") }, { label: t("Set by") }, { label: t("Default") }, { label: t("Meaning") }];

/** @param {any} page */
export function settingsPage({ root, go, entitle, signal }) {
  entitle(t("Settings"));
  const params = new URLSearchParams(location.search);
  const body = h("div", { class: "list" }, skeleton(8));
  const search = h("input", { type: "search", name: "q", placeholder: `${t("Search name or meaning")}   /`, value: params.get("q") ?? "", autocomplete: "off", spellcheck: "false" });
  const only = h("input", { type: "checkbox", name: "given", checked: params.get("given") === "1" });
  /** @type {any[]} */
  let all = [];
  function draw() {
    const words = search.value.trim().toLowerCase();
    const found = all.filter((one) => (!only.checked || one.from !== "default") && `${one.name} ${one.meaning}`.toLowerCase().includes(words));
    const query = new URLSearchParams([["q", search.value.trim()], ["given", only.checked ? "1" : ""]].filter(([, value]) => value));
    go(`/dashboard/settings${query.size ? `?${query}` : ""}`, { quiet: true });
    show(body, found.length ? card(t("Settings"), [table({ caption: t("Settings"), className: "wide-grid settings-grid", columns: COLUMNS, rows: found.map(cells) })]) : empty(t("No setting matches.")));
  }
  async function load() {
    try { all = (await ask("/settings", { signal })).settings; draw(); } catch (error) { if (!signal.aborted) show(body, problem(error, load)); }
  }
  const bar = h("form", { class: "filters", role: "search", "aria-label": t("Filter settings"), oninput: draw, onsubmit: (/** @type {Event} */ event) => event.preventDefault() },
    h("label", { class: "grow" }, h("span", { class: "unseen" }, t("Search name or meaning")), search), h("label", { class: "tick" }, only, h("span", null, t("Only what was set"))));
  show(root, h("div", { class: "page-head" }, h("div", null, h("h1", null, t("Settings")), h("p", { class: "facts" }, t("Read at the start from the environment and .env; changed there, not here.")))), bar, body);
  load();
}

/** @param {any} one */
const cells = (one) => [h("code", { class: "setting-name" }, one.name), one.value === null ? DASH : one.secret ? h("span", { class: `state ${one.value === "set" ? "answering" : ""}` }, ts(one.value)) : h("code", null, one.value),
  h("span", { class: one.from === "default" ? "muted" : "strong" }, FROM[/** @type {keyof typeof FROM} */ (one.from)] ?? one.from), one.default || DASH, h("span", { class: "meaning" }, one.meaning || DASH)];
