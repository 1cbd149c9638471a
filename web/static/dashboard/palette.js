/** Opens any page by its name, and any conversation by its person, from a few letters; Ctrl K opens the palette. */
import { h, set, show } from "../shared/h.js";
import { ask } from "./net.js";
import { addressOf } from "./named.js";
import { FORMS } from "./settings_fields.js";
import { joinWithDots, number, t, tn } from "./parts.js";

const PAUSE_MS = 150;
const MOST_SESSIONS = 5;
const MOST_FOUND = 12;
const LISTS = /** @type {[(words: string) => string, string][]} */ ([[(words) => t("Search sessions for “{words}”", { words }), "/dashboard/sessions"], [(words) => t("Search people for “{words}”", { words }), "/dashboard/people"], [(words) => t("Search memory for “{words}”", { words }), "/dashboard/memory"],
  [(words) => t("Search settings for “{words}”", { words }), "/dashboard/settings"]]);

/** @typedef {{path: string, name: string, group: string, key?: string}} Page */
/** @typedef {{words: any, hint: string, path?: string, run?: () => void}} Place a place leads to a path, or runs */

/** Returns whether a word of a text begins with `part`; in scripts without blanks, whether the text contains it. @param {string} text @param {string} part */
const begins = (text, part) => text.toLowerCase().split(/[\s(),.:·]+/).some((word) => word.startsWith(part)) || (/[^\u0000-\u024f]/.test(part) && text.toLowerCase().includes(part));

/** Returns the palette, a dialog that lists pages, actions and sessions for the typed letters. @param {{pages: () => Page[], acts: () => Place[], go: (path: string) => void}} of `acts` are found by their words alone */
export function palette({ pages, acts, go }) {
  /** @type {Place[]} */
  let places = [];
  /** @type {Place[]} */
  let sessions = [];
  let at = 0;
  let timer = 0;
  let asked = new AbortController();
  const list = h("ul", { role: "listbox", id: "palette-places", "aria-label": t("Places") });
  const count = h("p", { class: "unseen", role: "status" });
  const input = h("input", {
    type: "text", role: "combobox", "aria-label": t("Go to"), "aria-expanded": "true", "aria-controls": "palette-places", "aria-autocomplete": "list",
    placeholder: t("A page, a person, a session"), autocomplete: "off", spellcheck: "false", maxlength: 200, oninput: typed, onkeydown: pressed,
  });
  const dialog = h("dialog", { class: "card palette", "aria-label": t("Go to"), onclose: ended, onclick: (/** @type {MouseEvent} */ event) => { if (event.target === dialog) dialog.close(); } },
    input, list, count, h("p", { class: "muted small" }, joinWithDots([t("{keys} choose", { keys: h("span", null, h("kbd", null, "↑"), " ", h("kbd", null, "↓")) }), t("{key} opens", { key: h("kbd", null, t("Enter")) }), t("{key} closes", { key: h("kbd", null, t("Esc")) })])));

  function ended() {
    clearTimeout(timer);
    asked.abort();
  }

  /** Returns the matches of the typed text, best first. */
  function found() {
    const words = input.value.trim();
    const parts = words.toLowerCase().split(/\s+/);
    const named = pages().filter((page) => parts.every((/** @type {string} */ part) => `${page.name} ${page.group}`.toLowerCase().includes(part)))
      .map((page) => ({ words: page.name, hint: page.key ? `g ${page.key}` : page.group, path: page.path }));
    const settings = pages().some((page) => page.path === "/dashboard/settings") ? [...FORMS].map(([name, one]) => ({ words: one.label, hint: one.section, path: addressOf(name) })) : [];
    const more = words ? [...acts(), ...settings].filter((one) => parts.every((/** @type {string} */ part) => begins(`${one.words} ${one.hint}`, part))).slice(0, MOST_FOUND) : [];
    const searches = words && LISTS.filter(([, path]) => pages().some((page) => page.path === path))
      .map(([name, path]) => ({ words: name(words), hint: "", path: `${path}?q=${encodeURIComponent(words)}` }));
    if (searches) searches.unshift({ words: t("Search messages for “{words}”", { words }), hint: "", path: `/dashboard/search#${encodeURIComponent(words)}` });
    return [...named, ...more, ...sessions, ...searches || []];
  }

  function draw() {
    places = found();
    at = Math.max(0, Math.min(at, places.length - 1));
    show(list, places.map((place, index) => h("li", {
      role: "option", id: `palette-${index}`, "aria-selected": String(index === at), onclick: () => open(place),
      onpointermove: () => { if (at !== index) choose(index); },
    }, h("span", null, place.words), place.hint && h("span", { class: "muted" }, place.hint))));
    show(count, tn("One place.", "{count} places.", places.length));
    set(input, { "aria-activedescendant": `palette-${at}` });
  }

  /** @param {number} index */
  function choose(index) {
    list.children[at]?.setAttribute("aria-selected", "false");
    at = (index + places.length) % places.length;
    list.children[at].setAttribute("aria-selected", "true");
    list.children[at].scrollIntoView({ block: "nearest" });
    set(input, { "aria-activedescendant": `palette-${at}` });
  }

  /** @param {Place} place */
  function open(place) {
    dialog.close();
    if (place.run) place.run(); else if (place.path) go(place.path);
  }

  function typed() {
    at = 0;
    sessions = [];
    draw();
    ended();
    const words = input.value.trim();
    if (words) timer = setTimeout(() => look(words), PAUSE_MS);
  }

  /** @param {string} words */
  async function look(words) {
    asked = new AbortController();
    const { signal } = asked;
    try {
      const page = await ask(`/sessions?limit=${MOST_SESSIONS}&q=${encodeURIComponent(words)}`, { signal });
      if (signal.aborted) return;
      sessions = page.sessions.map((one) => ({
        words: one.person ?? t("Anonymous"), path: `/dashboard/sessions/${one.id}`,
        hint: [one.channel, one.agent, tn("{count} turn", "{count} turns", one.turns)].filter(Boolean).join(" · "),
      }));
      draw();
    } catch { /* the pages and the searches are there all the same */ }
  }

  /** @param {KeyboardEvent} event */
  function pressed(event) {
    if (event.isComposing) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) choose(at + step);
    else if (event.key === "Enter" && places[at]) open(places[at]);
    else return;
    event.preventDefault();
  }

  return {
    node: dialog,
    open() {
      if (dialog.open) return dialog.close();
      if (document.querySelector("dialog[open]")) return;
      input.value = "";
      typed();
      dialog.showModal();
      input.focus();
    },
  };
}
