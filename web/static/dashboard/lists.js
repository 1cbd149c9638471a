/** Lists with search, filters and pages, whose whole state is in the address. */
import { ask, keepFresh } from "./net.js";
import { empty, h, keepFocus, liveMark, number, problem, repaintTimes, show, skeleton, t } from "./parts.js";

/** @template {string} P @typedef {import("../../types/answers").Answer<P, "GET"> & {total?: Api["Total"] | null, next?: string | null}} Listed */

/**
 * Loads pages of a list. The total is requested when the page is turned, not with each refresh.
 * @template {string} P @param {P} path @param {AbortSignal} signal
 * @returns {(query: URLSearchParams, refresh?: boolean) => Promise<Listed<P>>}
 */
export function pagesOf(path, signal) {
  /** @type {Api["Total"] | null} */
  let total = null;
  return async (query, refresh = false) => {
    const asked = new URLSearchParams([...query, ...refresh ? [] : [["total", "true"]]]);
    const page = /** @type {Listed<P>} */ (await ask(`${path}?${asked}`, { refresh, signal }));
    total = page.total === undefined ? total : page.total;
    return { ...page, total };
  };
}

/** Returns the range of rows and their total; `at` in the address is the number of rows before them. @param {URLSearchParams} params @param {number} rows @param {{count: number, more: boolean} | null} total */
export function placeOf(params, rows, total) {
  if (!total || !rows) return null;
  const all = total.more ? t("more than {count}", { count: number(total.count) }) : number(total.count);
  const before = Number(params.get("at")) || 0;
  const known = before || !(params.get("cursor") || params.get("before"));
  return h("span", { class: "muted place" }, known ? t("{from} – {to} of {all}", { from: number(before + 1), to: number(before + rows), all }) : t("{number} in total", { number: all }));
}

/** Returns the number of rows before the next page, as text. @param {URLSearchParams} params @param {number} rows */
export const beyond = (params, rows) => String((Number(params.get("at")) || 0) + rows);

/**
 * Returns the form by which admins create an object by name and open its page.
 * @param {Page} page @param {string[]} words for what is new, and for making it @param {"/agents" | "/sites"} api @param {string} path where its page is
 */
export function maker({ me, go, signal }, [fresh, make], api, path) {
  if (me.role !== "admin") return null;
  const note = h("div", { role: "status" });
  const name = h("input", { name: "name", required: true, maxlength: 40, pattern: "[a-z0-9][a-z0-9_\\-]*", title: t("a-z, 0-9, _ and -, no mark first"), autocomplete: "off", autocapitalize: "none", spellcheck: "false" });
  const button = h("button", { type: "submit", class: "solid" }, make);
  /** @param {Event} event */
  async function submit(event) {
    event.preventDefault();
    button.disabled = true;
    show(note);
    try {
      const made = await ask(api, { method: "POST", body: { name: name.value.trim() }, signal });
      go(`${path}/${made.name}`);
    } catch (error) { if (!signal.aborted) show(note, problem(error)); }
    button.disabled = false;
  }
  const open = location.hash === "#add";
  if (open) setTimeout(() => name.focus());
  return h("details", { class: "card maker", open, ontoggle: (/** @type {any} */ event) => { if (event.target.open) name.focus(); } }, h("summary", null, fresh), h("form", { class: "filters", onsubmit: submit }, h("label", null, h("span", null, t("Name")), name), button), note);
}

/**
 * Draws a page with one list: search, filters and pages are read from the address and written to it.
 * @template {string} P @param {Page} page
 * @param {{title: string, path: string, api: P, search?: string, names: string[], filters: [string, string, any[]][], above?: any, aside?: any,
 *   draw: (answer: Listed<P>, params: URLSearchParams, change: (changes: Record<string, string>) => void) => any, count: (answer: Listed<P>) => number, told: (count: number) => string, nothing: () => any}} how
 */
export function listPage({ root, say, go, signal }, how) {
  const params = new URLSearchParams(location.search);
  const body = h("div", { class: "list" }, skeleton(6));
  const mark = liveMark();
  const pages = pagesOf(how.api, signal);
  let shown = "";
  let typing = 0;
  let held = false;

  /** @param {Record<string, string>} changes */
  function change(changes) {
    for (const [name, value] of Object.entries({ cursor: "", at: "", ...changes })) value ? params.set(name, value) : params.delete(name);
    const words = params.toString();
    go(`${how.path}${words ? `?${words}` : ""}`, { quiet: true });
    body.setAttribute("aria-busy", "true");
    load().catch(failed);
  }

  /** @param {boolean} [refresh] */
  async function load(refresh = false) {
    if (refresh && held) return;
    held = false;
    const asked = params.toString();
    const query = new URLSearchParams([...params].filter(([name]) => how.names.includes(name)));
    const answer = await pages(query, refresh);
    if (asked !== params.toString() || (refresh && held)) return;
    body.removeAttribute("aria-busy");
    const next = JSON.stringify([answer, asked]);
    if (refresh && next === shown) return repaintTimes(body);
    shown = next;
    keepFocus(body, () => show(body, how.draw(answer, params, change), !how.count(answer) && none(), pager(answer)));
    if (!refresh) say(how.told(how.count(answer)));
  }

  const filtered = () => how.names.some((name) => name !== "cursor" && params.get(name));
  function none() {
    if (params.get("cursor")) return empty(t("Nothing more."));
    return filtered() ? empty(t("Nothing matches."), h("button", { type: "button", class: "line", onclick: () => { for (const name of how.names) params.delete(name); for (const field of bar.elements) /** @type {any} */ (field).value = ""; change({}); } }, t("Clear the filters"))) : how.nothing();
  }

  /** @param {Listed<P>} answer */
  const pager = (answer) => (params.get("cursor") || answer.next || answer.total) && how.count(answer) > 0 && h("div", { class: "pager" }, placeOf(params, how.count(answer), answer.total ?? null),
    params.get("cursor") && h("button", { type: "button", class: "line", onclick: () => change({}) }, t("First page")),
    answer.next && h("button", { type: "button", class: "line", onclick: () => { change({ cursor: answer.next ?? "", at: beyond(params, how.count(answer)) }); scrollTo(0, 0); } }, t("Next page")));

  /** @param {unknown} error */
  function failed(error) {
    if (!signal.aborted) { body.removeAttribute("aria-busy"); shown = ""; show(body, problem(error, () => load().catch(failed))); }
  }

  const bar = h("form", { class: "filters", role: "search", "aria-label": t("Filter the list"), onsubmit: (/** @type {Event} */ event) => event.preventDefault(),
    oninput: (/** @type {any} */ event) => { clearTimeout(typing); if (event.target.type === "search") typing = setTimeout(() => change({ q: event.target.value.trim() }), 250); } },
  how.search && h("label", { class: "grow" }, h("span", { class: "unseen" }, how.search), h("input", { type: "search", name: "q", placeholder: `${how.search}   /`, value: params.get("q") ?? "", autocomplete: "off", spellcheck: "false" })),
  how.filters.map(([name, label, options]) => h("label", null, h("span", { class: "unseen" }, label),
    h("select", { name, onchange: (/** @type {any} */ event) => change({ [name]: event.target.value }) }, options.map(([value, words]) => h("option", { value, selected: (params.get(name) ?? "") === value }, words))))));
  show(root, h("div", { class: "page-head" }, h("div", null, h("h1", null, how.title), h("p", { class: "facts" }, mark.node)), how.aside), bar, how.above, body);
  load().catch(failed);
  keepFresh(() => load(true), mark.tell, signal);
  return { load: () => load().catch(failed), hold: (/** @type {boolean} */ on) => { held = on; } };
}
