/** One agent: what it is told, the numbers it comes to, and its settings, checked while they are typed. */
import { ask } from "./net.js";
import { DASH, card, h, missing, number, problem, set, show, skeleton, table } from "./parts.js";
import { conflict, problemList, watchTyping } from "./editing.js";

const BUDGET = [["limit", "Summarised above"], ["hard", "Most that fits"], ["fixed", "System and tools"], ["flush_at", "Memory saved at"], ["compact_at", "Summary due at"], ["max_output", "Longest answer"]];
const SOURCES = { agent: "this agent", preset: "its preset", deployment: "deployment" };

/** @param {any} page */
export function agentPage({ root, id: name, me, say, entitle, signal }) {
  entitle(name);
  const head = h("div", null, h("p", { class: "crumbs" }, h("a", { href: "/dashboard/agents" }, "Agents")), h("h1", null, name));
  const body = h("div", { class: "list" }, skeleton(8));
  show(root, h("div", { class: "page-head" }, head), body);

  async function load() {
    try { draw(await ask(`/agents/${encodeURIComponent(name)}`, { signal })); }
    catch (error) {
      if (signal.aborted) return;
      if (/** @type {any} */ (error).status === 404) show(root, missing("There is no such agent.", "/dashboard/agents", "All agents"));
      else show(body, problem(error, load));
    }
  }

  /** @param {any} agent @param {string} [typed] @param {any} [note] */
  function draw(agent, typed, note) {
    const may = me.role === "admin";
    const numbers = h("div", { class: "stack" });
    const judge = h("div", { role: "status" });
    const reply = h("div", null, note);
    show(body, h("div", { class: "columns even" }, h("div", { class: "stack" }, told(agent), may ? editor() : card("Settings", [h("pre", { class: "config", tabindex: 0, "aria-label": "Settings as JSON" }, JSON.stringify(agent.config, null, 2)), h("p", { class: "muted small" }, "Only an admin changes them.")])), numbers));
    judged(agent);

    /** @param {any} found */
    function judged(found) {
      show(judge, problemList(found.problems, found.remarks));
      if (found.effective) show(numbers, figures(found.effective));
    }

    function editor() {
      const field = h("textarea", { name: "config", class: "config", rows: 18, spellcheck: "false", "aria-label": "Settings as JSON", autocomplete: "off" });
      field.value = typed ?? JSON.stringify(agent.config, null, 2);
      const save = h("button", { type: "submit", class: "solid" }, "Save");
      const read = () => { try { return JSON.parse(field.value); } catch (error) { judged({ problems: [`This is not JSON yet: ${/** @type {Error} */ (error).message}`], remarks: [] }); return null; } };
      const mark = (/** @type {any} */ found) => { judged(found); set(field, { "aria-invalid": found.problems.length ? "true" : null }); };
      watchTyping(field, async () => {
        const config = read();
        if (config !== null) mark(await ask(`/agents/${encodeURIComponent(name)}/check`, { method: "POST", body: { config }, signal }));
      }, signal);
      return card("Settings", [h("form", { class: "stack", onsubmit: async (/** @type {Event} */ event) => {
        event.preventDefault();
        const config = read();
        if (config === null) return field.focus();
        try {
          const saved = await ask(`/agents/${encodeURIComponent(name)}`, { method: "PUT", body: { config }, match: `"${agent.version}"`, signal });
          say("Saved.");
          draw(saved, undefined, h("p", { class: "done" }, `Saved as version ${saved.version}. It holds from each conversation’s next message on.`));
        } catch (/** @type {any} */ error) {
          if (signal.aborted) return;
          if (error.code === "bad_agent_config") return mark({ problems: error.details.problems, remarks: [] });
          show(reply, problem(error), error.code === "stale" && conflict(error.details.theirs.config, config,
            () => draw({ ...agent, ...error.details.theirs }), () => draw({ ...agent, ...error.details.theirs }, field.value)));
        }
      } }, field, judge, reply, h("p", { class: "actions" }, save, h("span", { class: "muted small" }, `version ${agent.version}; persona, model, preset, context, tools, caps, memory`)))]);
    }
  }
  load();
}

/** Who it is, in words. @param {any} agent */
function told(agent) {
  const { config } = agent;
  const line = (/** @type {string} */ label, /** @type {any} */ value) => h("div", null, h("dt", null, label), h("dd", { dir: "auto" }, value ?? DASH));
  const tools = config.tools ?? {};
  return card("Who answers", [h("dl", { class: "pairs" }, line("Calls itself", config.name), line("Model", config.model ?? "as the deployment chooses"), line("Summaries by", config.summary_model ?? "as the deployment chooses"),
    line("Preset", config.preset ?? "the deployment’s"), line("Audience", config.audience ?? "as its site says"), line("Folder", config.workspace), line("Allows", tools.allow?.join(", ") ?? "every tool"), line("Denies", tools.deny?.join(", ")),
    line("Conversations", h("a", { href: `/dashboard/sessions?agent=${encodeURIComponent(agent.name)}` }, number(agent.sessions))),
    line("Sites", agent.sites.length ? agent.sites.map((/** @type {string} */ one, /** @type {number} */ at) => [at > 0 && ", ", h("a", { href: `/dashboard/sites/${one}` }, one)]) : DASH), line("Bots", agent.bots.join(", ") || DASH)),
  h("details", null, h("summary", null, "Persona"), h("p", { class: "words", dir: "auto" }, config.persona ?? "The usual one: no persona is written."))]);
}

/** @param {any} value */
const plain = (value) => value === null || value === undefined ? "none" : typeof value === "number" ? number(value) : Array.isArray(value) ? value.map((one) => Array.isArray(one) ? one.join("=") : String(one)).join(", ") || "none" : String(value);

/** @param {any} found */
function figures(found) {
  const rows = found.settings.map((/** @type {any} */ one) => [h("code", null, one.name), plain(one.value), one.from === "deployment" ? h("span", { class: "muted" }, SOURCES.deployment) : h("span", { class: "strong" }, SOURCES[/** @type {keyof typeof SOURCES} */ (one.from)]), one.from === "deployment" ? DASH : plain(one.deployment)]);
  return [
    card("What it comes to", [h("p", { class: "muted small" }, `Preset ${found.preset}; on a model with a smaller window there is less.`),
      h("dl", { class: "pairs" }, BUDGET.filter(([key]) => typeof found.budget[key] === "number").map(([key, words]) => h("div", null, h("dt", null, words), h("dd", { class: "num" }, `${number(found.budget[key])} tokens`)))),
      h("details", null, h("summary", null, `${number(found.tools.length)} tools`), h("p", { class: "words" }, found.tools.join(", ") || "none"))]),
    card("Every number", [h("div", { class: "scroll tall", role: "region", "aria-label": "Effective numbers", tabindex: 0 }, table({ caption: "Effective numbers", className: "plain numbers-grid", columns: [{ label: "Setting" }, { label: "Value", num: true }, { label: "From" }, { label: "Else", num: true }], rows }))]),
  ];
}
