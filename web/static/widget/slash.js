/** The list of commands above the composer. Enter runs only a command that is written out in full. */
import { h, set, show } from "../shared/h.js";
import { adopt } from "./styles.js";

const SLASH_LOOK = /* css */ `
.slash {
  position: absolute; z-index: 2; bottom: calc(100% - 4px); inset-inline: 10px; max-height: min(300px, 45vh); overflow: auto; padding: 5px; list-style: none;
  background: var(--card); border: 1px solid var(--line); border-radius: var(--radius-m); box-shadow: 0 10px 30px rgb(0 0 0 / .18);
}
.slash .section { display: block; padding: 0; cursor: default; } .slash .section > .muted { display: block; padding: 7px 10px 2px; font-size: 12px; font-weight: 640; } .slash ul { padding: 0; list-style: none; }
.slash li { margin: 0; display: flex; flex-wrap: wrap; align-items: baseline; gap: 0 9px; padding: 7px 10px; border-radius: var(--radius-s); cursor: pointer; white-space: normal; } .slash li > * { margin: 0; }
.slash li[aria-selected="true"], .slash [role="option"]:hover { background: light-dark(#ececf2, #26262f); }
.args:empty { display: none; } .slash .muted, .slash .args { font-size: 13px; } .slash .args { font-family: var(--mono); color: var(--muted); }
@media (forced-colors: active) { .slash { border: 1px solid; } .slash li[aria-selected="true"] { outline: 2px solid Highlight; } }
`;

/** @typedef {{name: string, description: string, args?: any, section?: string}} Command */

/** @param {any} args */
function hint(args) {
  if (!args) return "";
  if (typeof args === "string") return ` ${args}`;
  const names = Array.isArray(args) ? args.map((one) => one?.name ?? one) : Object.keys(args);
  return names.map((name) => ` ${name}`).join("");
}

/**
 * Returns the list of commands: `update` after each input, and `key`, which handles keys; `complete` gets the chosen command.
 * @param {HTMLElement} list
 * @param {HTMLTextAreaElement} input
 * @param {() => Command[]} commands
 * @param {(text: string) => void} complete
 */
export function slash(list, input, commands, complete) {
  adopt(list, SLASH_LOOK);
  /** @type {Command[]} */
  let found = [];
  let at = 0;
  let dismissed = "";

  function close() {
    list.hidden = true;
    set(input, { "aria-activedescendant": null });
  }

  function update() {
    const typed = /^\/([\w-]*)$/.exec(input.value);
    if (input.value !== dismissed) dismissed = "";
    const fitting = typed && !dismissed ? commands().filter((one) => one.name.startsWith(typed[1].toLowerCase())) : [];
    const sections = [...new Set(fitting.map((one) => one.section))];
    found = sections.flatMap((name) => fitting.filter((one) => one.section === name));
    if (!found.length) return close();
    const exact = found.findIndex((one) => one.name === typed?.[1].toLowerCase());
    at = exact < 0 ? 0 : exact;
    const option = (/** @type {Command} */ one) => {
      const index = found.indexOf(one);
      return h("li", { role: "option", id: `evt-command-${index}`, onpointerdown: (/** @type {Event} */ event) => event.preventDefault(), onclick: () => pick(index) },
        h("b", null, `/${one.name}`), h("span", { class: "args" }, hint(one.args)), h("span", { class: "muted" }, one.description));
    };
    show(list, sections.map((name) => {
      const options = found.filter((one) => one.section === name).map(option);
      return sections.length < 2 ? options : h("li", { role: "group", class: "section", "aria-label": name }, h("span", { class: "muted", "aria-hidden": "true" }, name), h("ul", { role: "presentation" }, options));
    }));
    list.hidden = false;
    mark();
  }

  function mark() {
    const options = [...list.querySelectorAll("[role=option]")];
    options.forEach((item, index) => set(item, { "aria-selected": String(index === at) }));
    set(input, { "aria-activedescendant": `evt-command-${at}` });
    options[at]?.scrollIntoView({ block: "nearest" });
  }

  /** @param {number} index */
  function pick(index) {
    const command = found[index];
    complete(`/${command.name}${command.args ? " " : ""}`);
    dismissed = input.value;
    close();
    input.focus();
  }

  /**
   * Handles a key while the list is open.
   * @param {KeyboardEvent} event @returns {boolean} whether the key is used up
   */
  function key(event) {
    if (list.hidden) return false;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      at = (at + (event.key === "ArrowDown" ? 1 : -1) + found.length) % found.length;
      mark();
    } else if (event.key === "Escape") {
      dismissed = input.value;
      close();
    } else if (event.key === "Tab" && !event.shiftKey) pick(at);
    else if (event.key === "Enter" && !event.shiftKey) {
      const typed = input.value.slice(1).toLowerCase();
      if (found[at].name === typed) { close(); return false; }
      pick(at);
    } else return false;
    event.preventDefault();
    event.stopPropagation();
    return true;
  }
  return { update, key };
}
