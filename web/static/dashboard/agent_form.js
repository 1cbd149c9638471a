/** An agent as a form: each control edits one place of its config; values without a control stay as they are. */
import { area, choice, code, figure, formOf, isMap, line, lines, rows } from "./forms.js";
import { h, show, t } from "./parts.js";

const NUMBERS = [["context_window", t("Context window")], ["max_output", t("Maximum answer length")], ["soft_budget", t("Summarise above")], ["compact_at", t("Limit of a request")], ["reserve", t("Kept free")], ["flush_threshold", t("Save memory before the limit")],
  ["keep_turns", t("Newest turns kept verbatim")], ["max_rounds", t("Newest rounds sent")], ["window_messages", t("Newest messages sent")], ["trim_tokens", t("Leave out old messages above")]];
const MODELS = "known-models";
const MODEL = { list: MODELS, maxlength: 200 };
/** Places that problems name differently than their control, by control. */
const NAMES = { preset: "context:" };
/** @param {any} value */
const listOf = (value) => typeof value === "string" ? [value] : Array.isArray(value) ? value.map(String) : null;
/** Returns whether a name matches a rule, in which * stands for any text and ? for one character, as on the server. @param {string} name @param {string} rule */
function matchesRule(name, rule) {
  let [at, place, star, from] = [0, 0, -1, 0];
  while (at < name.length) {
    if (rule[place] === "*") [star, from] = [place++, at];
    else if (rule[place] === "?" || rule[place] === name[at]) { place++; at++; }
    else if (star >= 0) [place, at] = [star + 1, ++from];
    else return false;
  }
  return !rule.slice(place).replaceAll("*", "");
}
/** @param {string} name @param {string[]} rules */
const ruleFor = (name, rules) => rules.find((rule) => matchesRule(name, rule));

/** A choice of MCP servers, all or the ticked ones. A server that is named but not set up can only be removed. @type {import("./forms.js").Kind} */
const servers = {
  group: true, make: () => h("div", { class: "stack" }),
  fill(group, { known, chosen }) {
    const box = (/** @type {string} */ name, /** @type {any} */ how) => h("input", { type: "checkbox", name, ...how });
    const all = box("tools.servers", { checked: !chosen, oninput: () => { for (const one of group.querySelectorAll("li input")) { one.disabled = all.checked; if (all.checked) one.checked = true; } } });
    show(group, h("label", { class: "tick" }, all, h("span", null, t("All, including those added later"))), h("ul", { class: "tool-switches" }, known.map((/** @type {any} */ one) => h("li", null, h("label", { class: "tick" },
      box(one.name, { checked: !chosen || chosen.includes(one.name), disabled: !chosen }), h("span", null, h("code", null, one.name), !one.known && h("span", { class: "warn-text" }, " ", t("not set up"))))))));
  },
  read: (group) => group.querySelector("input").checked ? undefined : [...group.querySelectorAll("li input:checked")].map((one) => one.name),
};

/** A switch for each tool; switching writes the rules in the field below. @type {import("./forms.js").Kind} */
const switches = {
  group: true,
  make: ({ agent }) => h("ul", { class: "tool-switches" }, agent.tools.map((/** @type {Api["AgentTool"]} */ tool) => h("li", { data: { server: tool.server ?? "" } },
    h("label", { class: "tick" }, h("input", { type: "checkbox", name: tool.name }), h("span", null, h("code", null, tool.name), h("span", { class: "muted" }))), h("p", { class: "small muted words" }, tool.description)))),
  fill(group, value) {
    const { allow, deny, chosen } = rulesOf(value);
    for (const node of group.children) {
      const control = node.querySelector("input");
      const denied = ruleFor(control.name, deny);
      node.hidden = Boolean(node.dataset.server && chosen && !chosen.includes(node.dataset.server));
      control.checked = !denied && ruleFor(control.name, allow) !== undefined;
      control.disabled = Boolean(denied) && denied !== control.name;
      show(node.querySelector("span > span"), control.disabled && [" ", t("denied by {rule}", { rule: /** @type {string} */ (denied) })]);
    }
  },
  read(group, before) {
    let { allow, deny } = rulesOf(before);
    for (const { name, checked, disabled } of group.querySelectorAll("input")) {
      if (disabled || checked === (!ruleFor(name, deny) && ruleFor(name, allow) !== undefined)) continue;
      deny = deny.filter((one) => one !== name);
      if (checked && !ruleFor(name, allow)) allow = [...allow, name];
      if (!checked) allow = allow.filter((one) => one !== name);
      if (!checked && ruleFor(name, allow)) deny = [...deny, name];
    }
    const { allow: _, deny: __, ...others } = isMap(before) ? before : {};
    const found = { ...others, ...before?.allow !== undefined || allow.join() !== "*" ? { allow } : null, ...deny.length ? { deny } : null };
    return Object.keys(found).length ? found : undefined;
  },
};
/** @param {any} tools */
const rulesOf = (tools) => ({ allow: listOf(tools?.allow) ?? ["*"], deny: listOf(tools?.deny) ?? [], chosen: listOf(tools?.servers) });

const AUDIENCE = [["", t("as set by its site")], ["personal", t("personal: shows everything")], ["public", t("public: a plain chat")]];
/** The sections of the form; its numbers and tool servers come from the server. */
const WHO = [{ path: "name", label: t("Display name"), kind: line({ maxlength: 80, dir: "auto", placeholder: "Evertalk" }) }, { path: "workspace", label: t("Folder"), kind: code({ maxlength: 500 }) }];
const PERSONA = { path: "persona", label: t("Persona"), kind: area({ rows: 8, maxlength: 50_000, placeholder: t("Default persona") }) };
const ANSWERS = [["model", t("Chat model")], ["summary_model", t("Summary model")], ["helper_model", t("Subagent model")]].map(([path, label]) => ({ path, label, kind: code({ ...MODEL, placeholder: t("Default") }) }));
const CHOSEN = { path: "models", label: t("Selectable models"), kind: rows(t("Selectable models"), [["input", t("Model"), { ...MODEL, dir: "ltr" }]], (value) => (listOf(value) ?? []).map((one) => [one]), (found) => found.map(([one]) => one)) };
const PRESET = { path: "preset", label: t("Preset"), kind: choice(({ agent }) => [["", t("the deployment’s")], ...agent.presets.map((/** @type {string} */ one) => [one, one])]) };
const MODES = { path: "modes", label: t("Modes"), bare: true, kind: rows(t("Modes"), [["input", t("Name"), { dir: "ltr", maxlength: 20, autocapitalize: "none" }], ["textarea", t("Instructions of the mode"), { rows: 2, dir: "auto", maxlength: 2000 }]], (value) => isMap(value) ? Object.entries(value) : [], Object.fromEntries) };
const SWITCHES = { path: "tools", label: t("Tools"), bare: true, kind: switches };
const RULES = [{ path: "tools.allow", label: t("Allowed names, one per line; * matches anything"), kind: lines({ rows: 2, dir: "ltr", placeholder: "*" }) },
  { path: "tools.deny", label: t("Denied names, one per line"), kind: lines({ rows: 2, dir: "ltr" }) }, { path: "tools.search_above", label: t("Above this number of server tools, only names are sent"), kind: figure({}, 20) }];
const CAPS = [{ path: "caps.person_per_day_usd", label: t("Per person and day"), kind: figure() }, { path: "caps.session_usd", label: t("Per conversation and day"), kind: figure() }];
const SEEN = { path: "audience", label: t("Audience"), kind: choice(AUDIENCE) };

/**
 * Returns the form of an agent's config, and `judge`, which shows problems next to their controls. It is read-only unless `may`.
 * @param {{draft: any, agent: any, effective: any, may: boolean, changed: () => void}} of `draft` is changed in place
 * @returns {{node: HTMLElement, judge: (problems: string[]) => void}}
 */
export function agentForm({ draft, agent, effective, may, changed }) {
  const usual = Object.fromEntries((effective?.settings ?? []).map((/** @type {Api["EffectiveSetting"]} */ one) => [one.name, one.inherited]));
  const main = new Set(NUMBERS.map(([name]) => name));
  const others = Object.keys(usual).filter((name) => !main.has(name) && (usual[name] === null || typeof usual[name] === "number"));
  const form = formOf(draft, { id: "agent", of: { agent }, changed });
  const named = listOf(draft.tools?.servers) ?? [];
  const known = [...new Set([...agent.servers, ...named])].map((name) => ({ name, known: agent.servers.includes(name) }));
  const list = { ...servers, fill: (/** @type {any} */ group, /** @type {any} */ value) => servers.fill(group, { known, chosen: listOf(value) }) };
  /** @param {string} name @param {any} label */
  const number = (name, label) => form.draw({ path: `context.${name}`, label, kind: figure({}, usual[name]) });
  const grid = (/** @type {any[]} */ ...content) => h("div", { class: "settings-fields" }, content);
  const section = (/** @type {string} */ name, /** @type {any[]} */ ...content) => h("fieldset", null, h("legend", null, name), content);
  const node = h("fieldset", { class: "agent-form", disabled: !may },
    h("datalist", { id: MODELS }, agent.models.map((/** @type {string} */ value) => h("option", { value }))),
    section(t("Identity"), grid(WHO.map(form.draw)), form.draw(PERSONA)),
    section(t("Model"), grid(ANSWERS.map(form.draw), form.draw(CHOSEN))),
    section(t("Context"), grid(form.draw(PRESET), NUMBERS.map(([name, label]) => number(name, label))),
      others.length > 0 && h("details", null, h("summary", null, t("All numbers")), grid(others.map((name) => number(name, h("code", null, name)))))),
    section(t("Modes"), form.draw(MODES)),
    section(t("Tools"), known.length > 0 && form.draw({ path: "tools.servers", label: t("MCP servers"), kind: list }), form.draw(SWITCHES), h("details", null, h("summary", null, t("Rules by name")), grid(RULES.map(form.draw)))),
    section(t("Spending"), grid(CAPS.map(form.draw))),
    section(t("Memory"), grid(form.draw({ path: "memory.recall_tokens", label: t("Tokens recalled with each message"), kind: figure({}, usual.recall_tokens) }), form.draw(SEEN))));
  return { node, judge: (problems) => form.judge(problems, NAMES) };
}
