/** Search in the conversation: results in a list, each of which leads to its message. */
import { h, set, show } from "../shared/h.js";
import { stamp } from "../shared/fmt.js";
import { tongue } from "./i18n.js";
import { state, t } from "./sheet-parts.js";

const TYPING_MS = 300;

/** @typedef {{mid: string, here: boolean, role: string, at: string, excerpt: {text: string, hit: boolean}[]}} Hit */

/**
 * Returns the view of the sheet that searches the conversation.
 * @param {import("./sheet-parts.js").SheetTools} tools
 * @param {(hit: Hit) => void} go shows the message
 */
export function finding(tools, go) {
  const field = h("input", { class: "search", type: "search", "aria-label": t("search"), placeholder: t("find_what"), maxlength: 300, dir: "auto", autocomplete: "off", enterkeyhint: "search", oninput: () => later(), onkeydown: (/** @type {KeyboardEvent} */ event) => { if (event.key === "Enter" && !event.isComposing) later(0); } });
  const status = h("p", { class: "state", role: "status", dir: "auto" });
  const list = h("ul", { class: "found" });
  const more = h("button", { class: "action line", type: "button", hidden: true, onclick: () => void load(true) }, t("find_older"));
  const node = h("div", { class: "view" }, h("div", { class: "search-row" }, field), h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": t("found") }, status, list, more));
  let asked = 0;
  let timer = 0;
  /** @type {string | null} */
  let next = null;
  let whose = "";

  function later(ms = TYPING_MS) {
    clearTimeout(timer);
    timer = setTimeout(() => void load(), ms);
  }

  /** @param {boolean} [on] whether older results join those that are there */
  async function load(on = false) {
    const words = field.value.trim();
    const mine = ++asked;
    more.hidden = true;
    if (!on) show(list);
    if (!words) return state(status, "");
    state(status, t("loading"));
    try {
      const query = new URLSearchParams({ q: words, ...(on && next && { before: next }) });
      const answer = await tools.reach(`api/v1/sessions/${encodeURIComponent(tools.session())}/search?${query}`);
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      const page = await answer.json();
      if (mine !== asked) return;
      next = page.next;
      const first = list.childElementCount;
      list.append(...page.hits.map(row));
      more.hidden = !next;
      const count = list.childElementCount;
      state(status, !count ? t(next ? "find_further" : "find_none", { words }) : t(next ? "find_some" : "find_all", { count }));
      if (on) /** @type {HTMLElement | null} */ (list.children[first]?.firstElementChild ?? field).focus();
    } catch {
      if (mine === asked) state(status, t("find_failed"), () => void load(on));
    }
  }

  /** @param {Hit} hit */
  function row(hit) {
    const who = { person: t("you"), assistant: t("assistant") }[hit.role] ?? t("team");
    return h("li", null, h("button", { type: "button", onclick: () => go(hit) },
      h("span", { class: "muted small" }, [who, stamp(hit.at, tongue()), !hit.here && t("find_before")].filter(Boolean).join(" · ")),
      h("span", { dir: "auto" }, hit.excerpt.map((part) => (part.hit ? h("mark", null, part.text) : part.text)))));
  }

  /** Removes the results after an erasure or a change of visitor. */
  function clear() {
    asked++;
    field.value = "";
    show(list);
    state(status, "");
    more.hidden = true;
  }

  return {
    node,
    /** @param {string} [words] */
    load(words) {
      if (whose !== tools.session()) clear();
      whose = tools.session();
      if (words !== undefined) field.value = words;
      field.focus();
      field.select();
      if (words !== undefined || field.value) later(0);
    },
    clear,
  };
}
