/** One agent: what it is told, the numbers it comes to, and its settings, checked while they are typed. */
import { ask } from "./net.js";
import { DASH, card, h, missing, number, problem, set, show, skeleton, t, table, tn, ts } from "./parts.js";
import { conflict, problemList, watchTyping } from "./editing.js";

const BUDGET = [["limit", t("Summarised above")], ["hard", t("Most that fits")], ["fixed", t("System and tools")], ["flush_at", t("Memory saved at")], ["compact_at", t("Summary due at")], ["max_output", t("Longest answer")]];
const SOURCES = { agent: t("this agent"), preset: t("its preset"), deployment: t("deployment") };

/** @param {any} page */
export function agentPage({ root, id: name, me, say, entitle, signal }) {
  entitle(name);
  const head = h("div", null, h("p", { class: "crumbs" }, h("a", { href: "/dashboard/agents" }, t("Agents"))), h("h1", null, name));
  const body = h("div", { class: "list" }, skeleton(8));
  show(root, h("div", { class: "page-head" }, head), body);

  async function load() {
    try { draw(await ask(`/agents/${encodeURIComponent(name)}`, { signal })); }
    catch (error) {
      if (signal.aborted) return;
      if (/** @type {any} */ (error).status === 404) show(root, missing(t("There is no such agent."), "/dashboard/agents", t("All agents")));
      else show(body, problem(error, load));
    }
  }

  /** @param {any} agent @param {string} [typed] @param {any} [note] */
  function draw(agent, typed, note) {
    const may = me.role === "admin";
    const numbers = h("div", { class: "stack" });
    const judge = h("div", { role: "status" });
    const reply = h("div", null, note);
    show(body, h("div", { class: "columns even" }, h("div", { class: "stack" }, told(agent), may ? editor() : card(t("Settings"), [h("pre", { class: "config", tabindex: 0, "aria-label": t("Settings as JSON") }, JSON.stringify(agent.config, null, 2)), h("p", { class: "muted small" }, t("Only an admin changes them."))])), numbers));
    judged(agent);

    /** @param {any} found */
    function judged(found) {
      show(judge, problemList(found.problems, found.remarks));
      if (found.effective) show(numbers, figures(found.effective));
    }

    function editor() {
      const field = h("textarea", { name: "config", class: "config", rows: 18, spellcheck: "false", "aria-label": t("Settings as JSON"), autocomplete: "off" });
      field.value = typed ?? JSON.stringify(agent.config, null, 2);
      const save = h("button", { type: "submit", class: "solid" }, t("Save"));
      const read = () => { try { return JSON.parse(field.value); } catch (error) { judged({ problems: [t("This is not JSON yet: {fault}", { fault: /** @type {Error} */ (error).message })], remarks: [] }); return null; } };
      const mark = (/** @type {any} */ found) => { judged(found); set(field, { "aria-invalid": found.problems.length ? "true" : null }); };
      watchTyping(field, async () => {
        const config = read();
        if (config !== null) mark(await ask(`/agents/${encodeURIComponent(name)}/check`, { method: "POST", body: { config }, signal }));
      }, signal);
      return card(t("Settings"), [h("form", { class: "stack", onsubmit: async (/** @type {Event} */ event) => {
        event.preventDefault();
        const config = read();
        if (config === null) return field.focus();
        try {
          const saved = await ask(`/agents/${encodeURIComponent(name)}`, { method: "PUT", body: { config }, match: `"${agent.version}"`, signal });
          say(t("Saved."));
          draw(saved, undefined, h("p", { class: "done" }, t("Saved as version {number}. It holds from each conversation’s next message on.", { number: saved.version })));
        } catch (/** @type {any} */ error) {
          if (signal.aborted) return;
          if (error.code === "bad_agent_config") return mark({ problems: error.details.problems, remarks: [] });
          show(reply, problem(error), error.code === "stale" && conflict(error.details.theirs.config, config,
            () => draw({ ...agent, ...error.details.theirs }), () => draw({ ...agent, ...error.details.theirs }, field.value)));
        }
      } }, field, judge, reply, h("p", { class: "actions" }, save, h("span", { class: "muted small" }, t("version {number}; persona, model, preset, context, tools, caps, memory", { number: agent.version }))))]);
    }
  }
  load();
}

/** Who it is, in words. @param {any} agent */
function told(agent) {
  const { config } = agent;
  const line = (/** @type {string} */ label, /** @type {any} */ value) => h("div", null, h("dt", null, label), h("dd", { dir: "auto" }, value ?? DASH));
  const tools = config.tools ?? {};
  return card(t("Who answers"), [h("dl", { class: "pairs" }, line(t("Calls itself"), config.name), line(t("Model"), config.model ?? t("as the deployment chooses")), line(t("Summaries by"), config.summary_model ?? t("as the deployment chooses")),
    line(t("Preset"), config.preset ?? t("the deployment’s")), line(t("Audience"), config.audience ? ts(config.audience) : t("as its site says")), line(t("Folder"), config.workspace), line(t("Allows"), tools.allow?.join(", ") ?? t("every tool")), line(t("Denies"), tools.deny?.join(", ")),
    line(t("Conversations"), h("a", { href: `/dashboard/sessions?agent=${encodeURIComponent(agent.name)}` }, number(agent.sessions))),
    line(t("Sites"), agent.sites.length ? agent.sites.map((/** @type {string} */ one, /** @type {number} */ at) => [at > 0 && ", ", h("a", { href: `/dashboard/sites/${one}` }, one)]) : DASH), line(t("Bots"), agent.bots.join(", ") || DASH)),
  h("details", null, h("summary", null, t("Persona")), h("p", { class: "words", dir: "auto" }, config.persona ?? t("The usual one: no persona is written.")))]);
}

/** @param {any} value */
const plain = (value) => value === null || value === undefined ? t("none") : typeof value === "number" ? number(value) : Array.isArray(value) ? value.map((one) => Array.isArray(one) ? one.join("=") : String(one)).join(", ") || t("none") : String(value);

/** @param {any} found */
function figures(found) {
  const rows = found.settings.map((/** @type {any} */ one) => [h("code", null, one.name), plain(one.value), one.from === "deployment" ? h("span", { class: "muted" }, SOURCES.deployment) : h("span", { class: "strong" }, SOURCES[/** @type {keyof typeof SOURCES} */ (one.from)]), one.from === "deployment" ? DASH : plain(one.deployment)]);
  return [
    card(t("What it comes to"), [h("p", { class: "muted small" }, t("Preset {preset}; on a model with a smaller window there is less.", { preset: found.preset })),
      h("dl", { class: "pairs" }, BUDGET.filter(([key]) => typeof found.budget[key] === "number").map(([key, words]) => h("div", null, h("dt", null, words), h("dd", { class: "num" }, tn("{count} token", "{count} tokens", found.budget[key]))))),
      h("details", null, h("summary", null, tn("{count} tool", "{count} tools", found.tools.length)), h("p", { class: "words" }, found.tools.join(", ") || t("none")))]),
    card(t("Every number"), [h("div", { class: "scroll tall", role: "region", "aria-label": t("Effective numbers"), tabindex: 0 }, table({ caption: t("Effective numbers"), className: "plain numbers-grid", columns: [{ label: t("Setting") }, { label: t("Value"), num: true }, { label: t("Set by") }, { label: t("Else"), num: true }], rows }))]),
  ];
}
