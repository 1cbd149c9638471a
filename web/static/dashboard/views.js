/**
 * Named views of a list, kept in this browser: a search text is often a person's name, and an erasure must not have to search for it on the server. A view's address can be shared.
 */
import { h, show, t } from "./parts.js";

const MOST = 20;
const NAME_CHARS = 40;
/** @typedef {{name: string, query: string}} View */

/** Returns the stored views, empty if they are unreadable. @param {string} key @param {string[]} names @returns {View[]} */
function read(key, names) {
  try {
    const found = JSON.parse(localStorage.getItem(key) ?? "[]");
    return (Array.isArray(found) ? found : []).filter((one) => typeof one?.name === "string" && typeof one.query === "string" && one.name.trim())
      .map(({ name, query }) => ({ name: name.slice(0, NAME_CHARS), query: queryOf(new URLSearchParams(query), names) })).slice(0, MOST);
  } catch { return []; }
}

/** Returns a query in fixed order, with only the names that the list knows. @param {URLSearchParams} params @param {string[]} names */
const queryOf = (params, names) => new URLSearchParams(names.flatMap((name) => params.get(name) ? [[name, /** @type {string} */ (params.get(name))]] : [])).toString();

/**
 * Returns the row of named views of a list, which can be added, opened and removed.
 * @param {{of: string, path: string, names: string[], params: URLSearchParams, say: (words: string) => void, signal: AbortSignal}} how
 *   `of` is the list and whose views they are
 */
export function savedViews({ of, path, names, params, say, signal }) {
  const key = `evertalk:dash:views:${of}`;
  const node = h("div", { class: "views", role: "group", "aria-label": t("Saved views"), hidden: true });
  let naming = false;

  /** @param {View[]} views */
  function keep(views) {
    try { localStorage.setItem(key, JSON.stringify(views)); } catch { return say(t("This browser keeps nothing. The address can be kept as a bookmark.")); }
    draw();
  }

  /** @param {View} view */
  function remove(view) {
    keep(read(key, names).filter((one) => one.name !== view.name));
    say(t("The view {name} is removed.", { name: view.name }));
  }

  function nameIt() {
    const field = h("input", { name: "view", maxlength: NAME_CHARS, required: true, placeholder: t("Name of the view"), "aria-label": t("Name of the view"), autocomplete: "off", spellcheck: "false" });
    const end = () => { naming = false; draw(); node.querySelector("button.keep")?.focus(); };
    naming = true;
    show(node, h("form", { class: "actions", onsubmit: (/** @type {Event} */ event) => {
      event.preventDefault();
      const name = field.value.trim();
      if (!name) return;
      naming = false;
      keep([...read(key, names).filter((one) => one.name !== name), { name, query: queryOf(params, names) }]);
      say(t("The view {name} is saved in this browser.", { name }));
      /** @type {HTMLElement | null} */ (node.querySelector("a[aria-current]"))?.focus();
    }, onkeydown: (/** @type {KeyboardEvent} */ event) => { if (event.key === "Escape") end(); } }, field,
    h("button", { type: "submit", class: "solid" }, t("Save")), h("button", { type: "button", class: "line", onclick: end }, t("Cancel"))));
    field.focus();
  }

  function draw() {
    if (naming) return;
    const views = read(key, names);
    const now = queryOf(params, names);
    const known = views.some((one) => one.query === now);
    node.hidden = !views.length && !now;
    show(node, views.map((one) => h("span", { class: "view" },
      h("a", { href: `${path}${one.query ? `?${one.query}` : ""}`, "aria-current": one.query === now ? "true" : null, dir: "auto" }, one.name),
      h("button", { type: "button", "aria-label": t("Remove the view {name}", { name: one.name }), onclick: () => remove(one) }, h("span", { "aria-hidden": "true" }, "×")))),
    now && !known && views.length < MOST && h("button", { type: "button", class: "line keep", onclick: nameIt }, t("Save this view")));
  }

  addEventListener("storage", (event) => { if (event.key === key) draw(); }, { signal });
  draw();
  return { node, draw };
}
