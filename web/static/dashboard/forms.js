/** Forms from tables: each row describes a control, which is drawn, filled, read and checked by it. */
import { h, set, show, t, ts } from "./parts.js";

/**
 * A kind of control. `of` is what the page knows of the object. `read` returns undefined for a value that is left out; `before` is the value until then. A `group` has several fields below one label.
 * @typedef {{make: (of: any) => any, fill: (control: any, value: any) => void, read: (control: any, before: any, of: any) => any, tick?: boolean, group?: boolean}} Kind
 * @typedef {{path: string, label: any, kind: Kind, help?: any, bare?: boolean}} Control a place such as `prices.input`; a `bare` one shows no label of its own
 */

/** Returns whether a value is an object, but no list and not null. @param {any} value */
export const isMap = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
/** @param {any} field @returns {string} */
const typed = (field) => field.value.trim();
/** @param {string[]} found */
const orNone = (found) => found.length ? found : undefined;

/** Returns the value at a place such as `prices.input`, of at most two names; undefined if there is none. @param {any} draft @param {string} path */
export function valueAt(draft, path) {
  const [name, inner] = path.split(".");
  return inner ? isMap(draft[name]) ? draft[name][inner] : undefined : draft[name];
}

/** Sets a value in a draft; undefined deletes it, and also the map that this leaves empty. @param {any} draft @param {string} path @param {any} value */
export function putAt(draft, path, value) {
  const [name, inner] = path.split(".");
  if (inner) {
    const { [inner]: _, ...others } = isMap(draft[name]) ? draft[name] : {};
    const section = value === undefined ? others : { ...others, [inner]: value };
    value = Object.keys(section).length ? section : undefined;
  }
  if (value === undefined) delete draft[name];
  else draft[name] = value;
}

/** Returns a kind of control for one line of text; empty text is left out. @param {any} [how] attributes @returns {Kind} */
export const line = (how) => ({
  make: () => h("input", { type: "text", autocomplete: "off", spellcheck: "false", ...how }),
  fill: (field, value) => { field.value = value ?? ""; }, read: (field) => typed(field) || undefined,
});
/** Returns a kind of control for a name, number or address, which is the same in every language. @param {any} [how] */
export const code = (how) => line({ dir: "ltr", autocapitalize: "none", translate: "no", ...how });
/** Returns a kind of control for text of several lines; empty text is left out. @param {any} [how] @returns {Kind} */
export const area = (how) => ({ ...line(), make: () => h("textarea", { dir: "auto", spellcheck: how?.dir === "ltr" ? "false" : null, ...how }) });
/** Returns a kind of control for a list with one entry per line; blank lines are dropped. @param {any} [how] @param {boolean} [stored] whether an empty list is stored, too @returns {Kind} */
export const lines = (how, stored = false) => ({
  ...area(how), fill: (field, value) => { field.value = [value ?? []].flat().join("\n"); },
  read: (field) => { const found = typed(field).split("\n").map((one) => one.trim()).filter(Boolean); return stored ? found : orNone(found); },
});
/** Returns a kind of control for several names in one line. @param {any} [how] @param {(text: string) => any} [each] @returns {Kind} */
export const several = (how, each = (text) => text) => ({
  ...code(how), fill: (field, value) => { field.value = [value ?? []].flat().join(", "); },
  read: (field) => orNone(typed(field).split(/[\s,]+/).filter(Boolean).map(each)),
});
/** Returns a kind of control for JSON; text that is no JSON is sent as it is, and the server explains the error. @param {any} [how] @returns {Kind} */
export const json = (how) => ({
  ...area({ dir: "ltr", ...how }), fill: (field, value) => { field.value = value === undefined || value === null ? "" : JSON.stringify(value, null, 2); },
  read: (field) => { if (!typed(field)) return undefined; try { return JSON.parse(typed(field)); } catch { return typed(field); } },
});
/** Returns the number that a text holds; other text is returned as it is, and the server explains the error. @param {string} text */
export const figured = (text) => /^-?\d+(\.\d+)?$/.test(text) ? Number(text) : text;
/** Returns a kind of control for a number; "none" switches an inherited limit off. @param {any} [how] @param {any} [inherited] @returns {Kind} */
export const figure = (how, inherited) => ({
  make: () => h("input", { type: "text", inputmode: "decimal", dir: "ltr", autocomplete: "off", maxlength: 20, placeholder: inherited === null ? t("none") : inherited ?? "", ...how }),
  fill: (field, value) => { field.value = value === null ? t("none") : value ?? ""; },
  read: (field) => !typed(field) ? undefined : typed(field) === t("none") ? null : figured(typed(field)),
});
/** Returns a kind of control for a yes or no. @param {boolean} [usual] the default, which is not stored @returns {Kind} */
export const tick = (usual = false) => ({
  tick: true, make: () => h("input", { type: "checkbox" }),
  fill: (field, value) => { field.checked = value ?? usual; }, read: (field) => field.checked === usual ? undefined : field.checked,
});

/**
 * Returns a kind of control with options. The first option is the default, which is stored only with `stored`. A value without an option gets one.
 * @param {any[][] | ((of: any) => any[][])} options values with their words @param {{stored?: boolean, how?: any}} [more] @returns {Kind}
 */
export function choice(options, { stored = false, how = {} } = {}) {
  const list = (/** @type {any} */ of) => typeof options === "function" ? options(of) : options;
  /** Returns the option's value in its own type. @param {any} text @param {any} of */
  const valueOf = (text, of) => { const found = list(of).find(([value]) => String(value) === text); return found ? found[0] : text; };
  return {
    make: (of) => h("select", how, list(of).map(([value, words]) => h("option", { value: String(value), translate: value && value === words ? "no" : null }, words))),
    fill(field, value) {
      const text = String(value ?? field.options[0]?.value ?? "");
      if (![...field.options].some((/** @type {any} */ one) => one.value === text)) field.append(h("option", { value: text, translate: "no" }, text));
      field.value = text;
    },
    read: (field, _, of) => !stored && field.selectedIndex === 0 ? undefined : valueOf(field.value, of),
  };
}

/**
 * Returns a kind of control with rows of fields, which can be added and removed.
 * @param {string} label @param {[string, string, any][]} columns tag, name and attributes of each field
 * @param {(value: any) => string[][]} split @param {(rows: string[][]) => any} join @returns {Kind}
 */
export function rows(label, columns, split, join) {
  /** @param {any} group @param {string[]} values */
  function add(group, values) {
    const row = h("div", { class: "agent-row" }, columns.map(([tag, words, how], at) => {
      const field = h(tag, { "aria-label": words, placeholder: words, name: `${label}.${at}`, ...how });
      field.value = values[at] ?? "";
      return field;
    }), h("button", { type: "button", class: "line", "aria-label": t("Remove {name}", { name: values[0] ?? label }), onclick: () => {
      row.remove();
      group.dispatchEvent(new Event("input"));
      group.lastElementChild.querySelector("button").focus();
    } }, t("Remove")));
    group.firstElementChild.append(row);
    return row;
  }
  return {
    group: true,
    make() {
      const group = h("div", null, h("div", { class: "agent-rows" }), h("p", null, h("button", { type: "button", class: "line", "aria-label": `${label}: ${t("Add")}`, onclick: () => add(group, []).querySelector("input").focus() }, t("Add"))));
      return group;
    },
    fill(group, value) { show(group.firstElementChild); for (const one of split(value)) add(group, one); },
    read(group) {
      const found = [...group.firstElementChild.children].map((row) => [...row.querySelectorAll("input, textarea")].map(typed)).filter((row) => row.some(Boolean));
      return found.length ? join(found) : undefined;
    },
  };
}

/** @param {string} one @param {string} other */
const overlap = (one, other) => one.startsWith(`${other}.`) || other.startsWith(`${one}.`);

/**
 * Binds controls to a draft, which every input changes in place; values without a control stay as they are.
 * @param {any} draft
 * @param {{id: string, of?: any, get?: (path: string) => any, put?: (path: string, value: any) => void, changed?: (path: string) => void}} how `id` begins the ids of all controls
 */
export function formOf(draft, { id: begin, of = null, get = (path) => valueAt(draft, path), put = (path, value) => putAt(draft, path, value), changed = () => {} }) {
  /** @type {{path: string, label: any, field: any, error: HTMLElement, fill: () => void}[]} */
  const places = [];

  /** Draws one control below its label, with room for an error. @param {Control} control */
  function draw({ path, label, kind, help, bare }) {
    const id = `${begin}-${path}`;
    const field = kind.make(of);
    const error = h("p", { class: "crit-text small", id: `${id}-error` });
    const fill = () => kind.fill(field, get(path));
    field.addEventListener("input", () => {
      put(path, kind.read(field, get(path), of));
      for (const other of places) if (overlap(other.path, path)) other.fill();
      changed(path);
    });
    fill();
    places.push({ path, label, field, error, fill });
    const below = help && h("p", { class: "small muted meaning", id: `${id}-help`, dir: "auto" }, help);
    const told = `${id}-error${help ? ` ${id}-help` : ""}`;
    if (kind.group) return h("div", { class: "setting-field", role: "group", "aria-label": label, "aria-describedby": told }, !bare && h("span", { class: "row-label" }, label), field, error, below);
    set(field, { id, name: path, "aria-describedby": told });
    if (kind.tick) return h("div", { class: "setting-field" }, h("label", { class: "tick" }, field, h("span", null, label)), error, below);
    return h("div", { class: "setting-field" }, h("label", { for: id }, h("span", null, label)), field, error, below);
  }

  /** Shows problems such as `model: is unknown` next to their controls. @param {string[]} problems @param {Record<string, string>} [names] places of problems that are named otherwise */
  function judge(problems, names = {}) {
    const about = (/** @type {string} */ one, /** @type {string} */ path) => [":", "[", "."].some((sign) => one.startsWith(path + sign)) || Boolean(names[path] && one.startsWith(names[path]));
    for (const { path, label, field, error } of places) {
      const mine = problems.filter((one) => about(one, path) && !places.some((other) => other.path.startsWith(`${path}.`) && about(one, other.path)));
      set(field, { "aria-invalid": mine.length ? "true" : null });
      show(error, mine.length > 0 && h("span", { dir: "auto" }, label, ": ", mine.map((one) => ts(one.slice(one.indexOf(": ") + 2))).join(" ")));
    }
  }

  return { draw, judge, refill: () => { for (const one of places) one.fill(); } };
}
