/** The page of one agent: its settings as a form and as JSON, checked while the operator types, and their effects. */
import { svg } from "../shared/h.js";
import { ask } from "./net.js";
import { DASH, card, h, notFoundPage, number, pct, problem, set, show, skeleton, t, tabPanels, table, tn } from "./parts.js";
import { agentForm } from "./agent_form.js";
import { knowledgeCard } from "./knowledge.js";
import { versionsCard } from "./agent_versions.js";
import { mcpCard } from "./mcp.js";
import { playground } from "./playground.js";
import { conflict, problemList, watchTyping } from "./editing.js";

/** Parts of the context window in order: the part before each threshold has that threshold's colour. */
const BUDGET = [["fixed", t("System and tools"), "system"], ["flush_at", t("Memory saved at"), "history"], ["compact_at", t("Summary due at"), "memory"], ["hard", t("Most that fits"), "summary"], ["window", t("Window"), "free"]];
const SOURCES = { agent: t("this agent"), preset: t("its preset"), deployment: t("deployment") };
/** Share of the window below which the used part is also drawn alone, and so larger. */
const SMALL = 0.5;

/** Draws the page of the agent `id`; unsaved text is kept in this tab when the operator leaves. @param {Page} page */
export function agentPage({ root, id: name, me, say, entitle, signal }) {
  entitle(name);
  const path = /** @type {const} */ (`/agents/${encodeURIComponent(name)}`);
  const head = h("div", null, h("p", { class: "crumbs" }, h("a", { href: "/dashboard/agents" }, t("Agents"))), h("h1", null, name));
  const body = h("div", { class: "list" }, skeleton(8));
  show(root, h("div", { class: "page-head" }, head), body);

  let draft = () => null;
  const place = `evertalk.agent.${me.name}.${name}`;
  let keep = () => {};
  let servers = (/** @type {string[]} */ names) => {};
  addEventListener("pagehide", () => keep(), { signal });
  signal.addEventListener("abort", () => keep());
  /** @type {any} */
  let beside = null;
  const play = me.role === "admin" && playground({ path, draft: () => draft(), signal });

  async function load() {
    try {
      const agent = await ask(path, { signal });
      const kept = recall(place);
      // The typed text is based on that version: a newer version by someone else is shown, not overwritten.
      draw(kept ? { ...agent, version: kept.version } : agent, kept?.text);
    } catch (error) {
      if (signal.aborted) return;
      if (/** @type {any} */ (error).status === 404) show(root, notFoundPage(t("There is no such agent."), "/dashboard/agents", t("All agents")));
      else show(body, problem(error, load));
    }
  }

  /** @param {Api["Agent"]} agent @param {string} [typed] JSON, or what is to become it @param {any} [note] @param {number} [first] the tab */
  function draw(agent, typed = asJson(agent.config), note = null, first = 0) {
    const may = me.role === "admin";
    beside ??= [knowledgeCard({ path, may, say, signal }), mcpCard({ may, say, signal, changed: (names) => servers(names) })];
    const numbers = h("div", { class: "stack" });
    const judge = h("div", { role: "status" });
    const reply = h("div", null, note);
    const editor = draftViews(agent, typed, may, first);
    const where = h("div", { class: "stack" }, places(agent), may && assigner());
    const form = h("form", { class: "site-form", onsubmit: save }, editor.node, judge, reply,
      may ? h("p", { class: "actions" }, h("button", { type: "submit", class: "solid" }, t("Save")), h("span", { class: "muted small" }, t("version {number}", { number: agent.version }))) : h("p", { class: "muted small" }, t("Only an admin can change them.")));
    show(body, h("div", { class: "columns even" }, h("div", { class: "stack" }, card(t("Settings"), [form]), beside, versionsCard({ agent, path, may, signal, stale,
      back: (saved, former) => { say(t("Saved.")); draw({ ...agent, ...saved }, undefined, doneLine(t("Version {former} is in force again, as version {number}.", { former, number: saved.version })), editor.tab()); } })), h("div", { class: "stack" }, where, play, numbers)));
    draft = read;
    servers = (names) => { agent.servers = names.sort(); editor.again(); check().catch(() => {}); };
    keep = () => remember(place, editor.text() === asJson(agent.config) ? null : { version: agent.version, text: editor.text() });
    judged(agent);
    watchTyping(form, check, signal);
    if (typed !== asJson(agent.config)) check().catch(() => {});

    /** @param {any} found */
    function judged(found) {
      show(judge, problemList(found.problems, found.remarks));
      editor.judge(found.problems);
      if (found.effective) show(numbers, figures(found.effective));
    }

    /** Returns the config; null while the typed text is no JSON. */
    function read() {
      try { return editor.read(); }
      catch (error) { judged({ problems: [t("This is not JSON yet: {fault}", { fault: /** @type {Error} */ (error).message })], remarks: [] }); return null; }
    }

    async function check() {
      const config = read();
      if (config !== null) judged(await ask(`${path}/check`, { method: "POST", body: { config }, signal }));
    }

    /** @param {Event} event */
    async function save(event) {
      event.preventDefault();
      const config = read();
      if (config === null) return;
      try {
        const saved = await ask(path, { method: "PUT", body: { config }, match: `"${agent.version}"`, signal });
        say(t("Saved."));
        draw({ ...agent, ...saved }, undefined, doneLine(t("Saved as version {number}. It applies from each conversation’s next message.", { number: saved.version })), editor.tab());
      } catch (/** @type {any} */ error) {
        if (signal.aborted) return;
        if (error.code === "bad_agent_config") {
          judged({ problems: error.details.problems, remarks: [] });
          return /** @type {HTMLElement | null} */ (form.querySelector("[aria-invalid]"))?.focus();
        }
        if (error.code === "stale") stale(error, config);
        else show(reply, problem(error));
      }
    }

    function assigner() {
      if (!agent.other_sites.length) return null;
      const site = h("select", { name: "site" }, agent.other_sites.map((/** @type {string} */ one) => h("option", { value: one, translate: "no" }, one)));
      const existing = h("input", { type: "checkbox", name: "existing" });
      const told = h("div", { role: "status" });
      return h("form", { class: "card site-form", onsubmit: async (/** @type {Event} */ event) => {
        event.preventDefault();
        try {
          await ask(`${path}/sites`, { method: "POST", body: { site: site.value, existing: existing.checked }, signal });
          const { sites, sessions, other_sites } = await ask(path, { signal });
          Object.assign(agent, { sites, sessions, other_sites });
          say(t("{site} is answered by {agent}.", { site: site.value, agent: name }));
          where.replaceChildren(places(agent), assigner() ?? "");
        } catch (error) { if (!signal.aborted) show(told, problem(error)); }
      } }, h("label", null, h("span", null, t("Assign it to a site")), site), h("label", { class: "tick" }, existing, h("span", null, t("Move existing conversations, too"))), told, h("p", { class: "actions" }, h("button", { type: "submit", class: "line" }, t("Assign"))));
    }

    /** @param {any} error @param {any} config */
    function stale(error, config) {
      const theirs = { ...agent, ...error.details.theirs };
      show(reply, problem(error), conflict(theirs.config, config, () => draw(theirs, undefined, null, editor.tab()), () => draw(theirs, asJson(config), null, editor.tab())));
      reply.scrollIntoView({ block: "center" });
    }
  }
  load();
}

/** @param {any} config */
const asJson = (config) => JSON.stringify(config, null, 2);
/** Keeps the typed text over a new login, and over a visit to another page. @param {string} place @param {{version: number, text: string} | null} kept */
function remember(place, kept) {
  try { if (kept) sessionStorage.setItem(place, JSON.stringify(kept)); else sessionStorage.removeItem(place); } catch { /* nothing is kept in this browser */ }
}
/** @param {string} place */
function recall(place) {
  try { return JSON.parse(sessionStorage.getItem(place) ?? "null"); } catch { return null; }
}

/** @param {string} words */
const doneLine = (words) => h("p", { class: "done" }, words);

/** Returns the two views of one draft, form and JSON; each shows the other's changes when it is opened. @param {Api["Agent"]} agent @param {string} typed @param {boolean} may @param {number} first */
function draftViews(agent, typed, may, first) {
  let draft = /** @type {any} */ (null);
  let tab = first;
  let form = /** @type {any} */ (null);
  const field = h("textarea", { name: "config", class: "config", rows: 18, dir: "ltr", spellcheck: "false", "aria-label": t("Settings as JSON"), autocomplete: "off", readonly: !may });
  const filled = h("div");
  const write = () => { field.value = asJson(draft); };
  const fill = () => { form = agentForm({ draft, agent, effective: agent.effective, may, changed: write }); show(filled, form.node); };
  const isConfig = () => draft !== null && typeof draft === "object" && !Array.isArray(draft);
  /** Shows the typed text alone while it is no JSON object. */
  function open() {
    try { draft = JSON.parse(field.value); } catch { draft = null; }
    form = null;
    if (isConfig()) fill();
    else show(filled, h("p", { class: "crit-text" }, t("The form shows this once it is a JSON object.")));
  }
  field.value = typed;
  open();
  const { node } = tabPanels(t("Settings"), [{ name: t("Form"), make: () => filled }, { name: "JSON", make: () => field }], { first, moved: (now) => { tab = now; if (now === 0) open(); } });
  return {
    node, again: open, tab: () => tab, text: () => field.value, read: () => JSON.parse(field.value),
    judge(/** @type {string[]} */ problems) { set(field, { "aria-invalid": problems.length ? "true" : null }); form?.judge(problems); },
  };
}

/** Returns the places in which the agent answers. @param {Api["Agent"]} agent */
function places(agent) {
  const line = (/** @type {string} */ label, /** @type {any} */ value) => h("div", null, h("dt", null, label), h("dd", { dir: "auto" }, value));
  return card(t("Used by"), [h("dl", { class: "pairs" },
    line(t("Conversations"), h("a", { href: `/dashboard/sessions?agent=${encodeURIComponent(agent.name)}` }, number(agent.sessions))),
    line(t("Sites"), agent.sites.length ? agent.sites.map((/** @type {string} */ one, /** @type {number} */ at) => [at > 0 && ", ", h("a", { href: `/dashboard/sites/${one}` }, one)]) : DASH), line(t("Bots"), agent.bots.join(", ") || DASH))]);
}

/** @param {any} value */
const plain = (value) => value === null || value === undefined ? t("none") : typeof value === "number" ? number(value) : Array.isArray(value) ? value.map((one) => Array.isArray(one) ? one.join("=") : String(one)).join(", ") || t("none") : String(value);

/** Draws the thresholds on the whole window, and on its used part if that is much smaller. @param {Api["ContextBudget"]} budget */
function thresholds(budget) {
  const sizes = /** @type {Record<string, number>} */ (budget);
  const known = BUDGET.filter(([key]) => typeof sizes[key] === "number");
  const words = known.map(([key, label]) => `${label}: ${number(sizes[key])}`).join("; ");
  /** @param {number} most */
  function bar(most) {
    let before = 0;
    const parts = known.map(([key, label, look]) => {
      const [from, to] = [before, Math.min(most, Math.max(before, sizes[key]))];
      before = to;
      return svg("rect", { class: `area ${look}`, x: from / most * 1000, y: 0, width: (to - from) / most * 1000, height: 24 }, svg("title", null, `${label}: ${number(sizes[key])}`));
    });
    return [svg("svg", { class: "thresholds", viewBox: "0 0 1000 24", preserveAspectRatio: "none", role: "img", "aria-label": words }, parts), h("p", { class: "muted small ends" }, h("span", null, "0"), h("span", null, tn("{count} token", "{count} tokens", most)))];
  }
  const used = Math.round(budget.compact_at * 1.2);
  return [bar(budget.window), used < budget.window * SMALL && bar(used),
    h("dl", { class: "pairs" }, known.map(([key, label, look]) => h("div", null, h("dt", null, h("i", { class: `dot ${look}` }), label), h("dd", { class: "num" }, tn("{count} token", "{count} tokens", sizes[key]), h("span", { class: "muted" }, ` · ${pct(sizes[key] * 100 / budget.window)}`)))),
      h("div", null, h("dt", null, t("Maximum answer length")), h("dd", { class: "num" }, tn("{count} token", "{count} tokens", budget.out))))];
}

/** @param {Api["EffectiveAgent"]} found */
function figures(found) {
  const rows = found.settings.map((one) => [h("code", null, one.name), plain(one.value), one.from === "deployment" ? h("span", { class: "muted" }, SOURCES.deployment) : h("span", { class: "strong" }, SOURCES[/** @type {keyof typeof SOURCES} */ (one.from)]), one.from === "deployment" ? DASH : plain(one.deployment)]);
  return [
    card(t("Effective limits"), [h("p", { class: "muted small" }, t("Preset {preset}; on a model with a smaller window there is less.", { preset: found.preset })), thresholds(found.budget),
      h("details", null, h("summary", null, tn("{count} tool", "{count} tools", found.tools.length)), h("p", { class: "words" }, found.tools.join(", ") || t("none")))]),
    card(t("System prompt"), [h("pre", { class: "config prompt", tabindex: 0, dir: "auto" }, found.prompt)], h("span", { class: "muted small" }, tn("{count} token", "{count} tokens", found.prompt_tokens))),
    card(t("Every number"), [h("div", { class: "scroll tall", role: "region", "aria-label": t("Effective numbers"), tabindex: 0 }, table({ caption: t("Effective numbers"), className: "plain numbers-grid", columns: [{ label: t("Setting") }, { label: t("Value"), num: true }, { label: t("Set by") }, { label: t("Agent default"), num: true }], rows }))]),
  ];
}
