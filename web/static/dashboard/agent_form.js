/** An agent as a form: each field is one place of its config, and what no field knows stays as it is. */
import { h, set, show, t, ts } from "./parts.js";

const NUMBERS = [["context_window", t("Context window")], ["max_output", t("Maximum answer length")], ["soft_budget", t("Summarised above")], ["reserve", t("Kept free")], ["flush_threshold", t("Memory saved before the limit")],
  ["keep_turns", t("Newest turns kept as they are")], ["max_rounds", t("Newest rounds sent")], ["window_messages", t("Newest messages sent")], ["trim_tokens", t("Old messages left out above")]];
const MODELS = "known-models";
/** @param {any} value */
const isMap = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
/** @param {any} value */
const listOf = (value) => typeof value === "string" ? [value] : Array.isArray(value) ? value.map(String) : null;
/** Names in which * stands for anything and ? for one sign, as the server reads them. @param {string} name @param {string} rule */
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

/**
 * @param {{draft: any, agent: any, effective: any, may: boolean, changed: () => void}} of `draft` is changed in place
 * @returns {{node: HTMLElement, judge: (problems: string[]) => void}}
 */
export function agentForm({ draft, agent, effective, may, changed }) {
  /** @type {{path: string, control: HTMLElement, error: HTMLElement}[]} */
  const places = [];

  /** @param {string} path */
  function get(path) {
    const [name, inner] = path.split(".");
    return inner ? isMap(draft[name]) ? draft[name][inner] : undefined : draft[name];
  }

  /** @param {string} path @param {any} value undefined takes it away */
  function put(path, value) {
    const [name, inner] = path.split(".");
    if (inner) {
      const { [inner]: _, ...others } = isMap(draft[name]) ? draft[name] : {};
      const section = value === undefined ? others : { ...others, [inner]: value };
      value = Object.keys(section).length ? section : undefined;
    }
    if (value === undefined) delete draft[name];
    else draft[name] = value;
    changed();
  }

  /** A control under its label, with room for a refusal. @param {string} path @param {any} label @param {any} control */
  function place(path, label, control) {
    const error = h("p", { class: "crit-text small", id: `agent-${path}-error` });
    set(control, { id: `agent-${path}`, "aria-describedby": error.id });
    places.push({ path, control, error });
    return h("div", { class: "setting-field" }, h("label", { for: control.id }, h("span", null, label)), control, error);
  }

  /** @param {string} path @param {any} label @param {any} [how] */
  const line = (path, label, how) => place(path, label, h("input", { type: "text", value: get(path) ?? "", autocomplete: "off", spellcheck: "false", ...how,
    oninput: (/** @type {any} */ event) => put(path, event.target.value.trim() || undefined) }));
  const model = (/** @type {string} */ path, /** @type {string} */ label) => line(path, label, { list: MODELS, dir: "ltr", maxlength: 200, placeholder: t("Default") });

  /** @param {string} path @param {string} label @param {any[][]} options the first is no choice of its own */
  function choice(path, label, options) {
    const now = get(path) ?? "";
    return place(path, label, h("select", { onchange: (/** @type {any} */ event) => put(path, event.target.value || undefined) },
      (options.some(([value]) => value === now) ? options : [...options, [now, String(now)]]).map(([value, words]) => h("option", { value, selected: value === now, translate: value && value === words ? "no" : null }, words))));
  }

  /** Sends typed text that is no number to the server, which explains the field. @param {string} path @param {any} label @param {any} [inherited] */
  function figure(path, label, inherited) {
    const now = get(path);
    const usual = inherited === null ? t("none") : inherited ?? "";
    return place(path, label, h("input", { type: "text", inputmode: "decimal", dir: "ltr", autocomplete: "off", maxlength: 20, placeholder: usual, value: now === null ? t("none") : now ?? "", oninput: (/** @type {any} */ event) => {
      const text = event.target.value.trim();
      put(path, !text ? undefined : text === t("none") ? null : /^-?\d+(\.\d+)?$/.test(text) ? Number(text) : text);
    } }));
  }

  /** @param {string} path @param {string} label @param {any} how @param {(text: string) => any} read */
  function area(path, label, how, read) {
    const control = h("textarea", { dir: "auto", ...how, oninput: () => put(path, read(control.value)) });
    return { control, node: place(path, label, control) };
  }

  /** Rows that can be added and taken away. @param {string} path @param {string} label @param {any[][]} now @param {[string, string, any][]} columns @param {(rows: string[][]) => any} write */
  function rows(path, label, now, columns, write) {
    const list = h("div", { class: "agent-rows" });
    const all = () => [...list.children].map((row) => [...row.querySelectorAll("input, textarea")].map((one) => one.value.trim())).filter((row) => row.some(Boolean));
    const told = () => { const found = all(); put(path, found.length ? write(found) : undefined); };
    const add = (/** @type {string[]} */ values) => {
      const row = h("div", { class: "agent-row" }, columns.map(([tag, words, how], at) => {
        const control = h(tag, { "aria-label": words, placeholder: words, ...how, oninput: told });
        control.value = values[at] ?? "";
        return control;
      }), h("button", { type: "button", class: "line", "aria-label": t("Remove {name}", { name: values[0] ?? label }), onclick: () => { row.remove(); told(); more.focus(); } }, t("Remove")));
      list.append(row);
      return row;
    };
    const more = h("button", { type: "button", class: "line", "aria-label": `${label}: ${t("Add")}`, onclick: () => add([]).querySelector("input").focus() }, t("Add"));
    const error = h("p", { class: "crit-text small" });
    for (const one of now) add(one);
    places.push({ path, control: list, error });
    return h("div", { class: "setting-field", role: "group", "aria-label": label }, path === "models" && h("span", { class: "row-label" }, label), list, error, h("p", null, more));
  }

  /** All, or those that are ticked; what is named and not there can be taken out only. @param {() => void} painted */
  function servers(painted) {
    const path = "tools.servers";
    const now = listOf(get(path));
    const known = [...new Set([...agent.servers, ...now ?? []])];
    if (!known.length) return null;
    const all = h("input", { type: "checkbox", checked: !now, onchange: tell });
    const ticks = known.map((name) => h("input", { type: "checkbox", name, checked: !now || now.includes(name), disabled: !now, onchange: tell }));
    const error = h("p", { class: "crit-text small" });
    function tell() {
      for (const one of ticks) { one.disabled = all.checked; if (all.checked) one.checked = true; }
      put(path, all.checked ? undefined : ticks.filter((one) => one.checked).map((one) => one.name));
      painted();
    }
    const list = h("ul", { class: "tool-switches" }, ticks.map((one) => h("li", null, h("label", { class: "tick" }, one, h("span", null, h("code", null, one.name), !agent.servers.includes(one.name) && h("span", { class: "warn-text" }, " ", t("not set up")))))));
    error.id = `agent-${path}-error`;
    set(all, { "aria-describedby": error.id });
    places.push({ path, control: all, error });
    return h("div", { class: "setting-field", role: "group", "aria-label": t("MCP servers") }, h("span", { class: "row-label" }, t("MCP servers")), h("label", { class: "tick" }, all, h("span", null, t("All, also those added later"))), list, error);
  }

  function tools() {
    const lists = { allow: () => listOf(get("tools.allow")) ?? ["*"], deny: () => listOf(get("tools.deny")) ?? [] };
    const lines = (/** @type {string} */ text) => { const found = text.split("\n").map((one) => one.trim()).filter(Boolean); return found.length ? found : undefined; };
    const switches = agent.tools.map((/** @type {Api["AgentTool"]} */ tool) => {
      const control = h("input", { type: "checkbox", name: tool.name, onchange: () => flip(tool.name, control.checked) });
      const why = h("span", { class: "muted" });
      return { name: tool.name, server: tool.server, control, why, node: h("li", null, h("label", { class: "tick" }, control, h("span", null, h("code", null, tool.name), why)), h("p", { class: "small muted words" }, tool.description)) };
    });
    const rules = [area("tools.allow", t("Allowed by name, one a line; * stands for anything"), { rows: 2, dir: "ltr", spellcheck: "false", placeholder: "*" }, lines), area("tools.deny", t("Denied by name, one a line"), { rows: 2, dir: "ltr", spellcheck: "false" }, lines)];

    function paint() {
      const chosen = listOf(get("tools.servers"));
      for (const one of switches) {
        one.node.hidden = Boolean(one.server && chosen && !chosen.includes(one.server));
        const denied = ruleFor(one.name, lists.deny());
        one.control.checked = !denied && ruleFor(one.name, lists.allow()) !== undefined;
        one.control.disabled = Boolean(denied) && denied !== one.name;
        show(one.why, one.control.disabled && [" ", t("denied by {rule}", { rule: /** @type {string} */ (denied) })]);
      }
    }

    /** @param {string} name @param {boolean} on */
    function flip(name, on) {
      let [allow, deny] = [lists.allow(), lists.deny().filter((one) => one !== name)];
      if (on && !ruleFor(name, allow)) allow = [...allow, name];
      if (!on) allow = allow.filter((one) => one !== name);
      if (!on && ruleFor(name, allow)) deny = [...deny, name];
      if (get("tools.allow") !== undefined || allow.join() !== "*") put("tools.allow", allow);
      put("tools.deny", deny.length ? deny : undefined);
      rules.forEach((one, at) => { one.control.value = (listOf(get(["tools.allow", "tools.deny"][at])) ?? []).join("\n"); });
      paint();
    }
    for (const [at, one] of rules.entries()) {
      one.control.value = (listOf(get(["tools.allow", "tools.deny"][at])) ?? []).join("\n");
      one.control.addEventListener("input", paint);
    }
    paint();
    return [servers(paint), h("ul", { class: "tool-switches" }, switches.map((/** @type {any} */ one) => one.node)), h("details", null, h("summary", null, t("Rules by name")), h("div", { class: "settings-fields" }, rules.map((one) => one.node), figure("tools.search_above", t("Of more tools of servers than this, only the names are sent"), 20)))];
  }

  const usual = Object.fromEntries((effective?.settings ?? []).map((/** @type {Api["EffectiveSetting"]} */ one) => [one.name, one.inherited]));
  const main = new Set(NUMBERS.map(([name]) => name));
  const others = Object.keys(usual).filter((name) => !main.has(name) && (usual[name] === null || typeof usual[name] === "number"));
  const persona = area("persona", t("Persona"), { rows: 8, maxlength: 50_000, placeholder: t("The usual one: no persona is written.") }, (text) => text.trim() ? text : undefined);
  persona.control.value = get("persona") ?? "";
  const modes = isMap(draft.modes) ? Object.entries(draft.modes) : [];
  const section = (/** @type {string} */ name, /** @type {any[]} */ ...content) => h("fieldset", null, h("legend", null, name), content);
  const node = h("fieldset", { class: "agent-form", disabled: !may },
    h("datalist", { id: MODELS }, agent.models.map((/** @type {string} */ value) => h("option", { value }))),
    section(t("Who it is"), h("div", { class: "settings-fields" }, line("name", t("Display name"), { maxlength: 80, dir: "auto", placeholder: "Evertalk" }), line("workspace", t("Folder"), { maxlength: 500, dir: "ltr" })), persona.node),
    section(t("Model"), h("div", { class: "settings-fields" }, model("model", t("Chat model")), model("summary_model", t("Summary model")), model("helper_model", t("Model of helpers")),
      rows("models", t("Models that people may choose"), (listOf(draft.models) ?? []).map((one) => [one]), [["input", t("Model"), { list: MODELS, dir: "ltr", maxlength: 200 }]], (found) => found.map(([one]) => one)))),
    section(t("Context"), h("div", { class: "settings-fields" }, choice("preset", t("Preset"), [["", t("the deployment’s")], ...agent.presets.map((/** @type {string} */ one) => [one, one])]), NUMBERS.map(([name, label]) => figure(`context.${name}`, label, usual[name]))),
      others.length > 0 && h("details", null, h("summary", null, t("All numbers")), h("div", { class: "settings-fields" }, others.map((name) => figure(`context.${name}`, h("code", null, name), usual[name]))))),
    section(t("Modes"), rows("modes", t("Modes"), modes, [["input", t("Name"), { dir: "ltr", maxlength: 20, autocapitalize: "none" }], ["textarea", t("What the mode asks for"), { rows: 2, dir: "auto", maxlength: 2000 }]], Object.fromEntries)),
    section(t("Tools"), tools()),
    section(t("Spending"), h("div", { class: "settings-fields" }, figure("caps.person_per_day_usd", t("Per person and day")), figure("caps.session_usd", t("Per conversation and day")))),
    section(t("Memory"), h("div", { class: "settings-fields" }, figure("memory.recall_tokens", t("Tokens recalled with each message"), usual.recall_tokens), choice("audience", t("Audience"), [["", t("as its site says")], ["personal", t("personal: shows everything")], ["public", t("public: a plain chat")]]))));

  return { node, judge(problems) {
    for (const { path, control, error } of places) {
      const mine = problems.filter((one) => [":", "[", "."].some((sign) => one.startsWith(path + sign)) || (path === "preset" && one.startsWith("context:")));
      set(control, { "aria-invalid": mine.length ? "true" : null });
      show(error, mine.length > 0 && h("span", { dir: "auto" }, mine.map((one) => ts(one.slice(one.indexOf(": ") + 2))).join(" ")));
    }
  } };
}
