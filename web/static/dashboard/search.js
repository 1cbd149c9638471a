/** Search of messages in all conversations, or in one. The search text stays in this browser. */
import { ask } from "./net.js";
import { joinWithDots, empty, h, personOf, problem, set, show, skeleton, t, time, tn } from "./parts.js";

const WHO = { person: t("Person"), assistant: t("Assistant"), operator: t("Operator") };

/** Draws the search of messages; the query `session` limits it to one session. @param {Page} page */
export function searchPage({ root, say, entitle, signal }) {
  entitle(t("Search messages"));
  const session = new URLSearchParams(location.search).get("session") ?? "";
  const field = h("input", { type: "search", name: "q", placeholder: `${t("Search text")}   /`, value: remembered(), maxlength: 300, autocomplete: "off", spellcheck: "false" });
  const body = h("div");
  const older = h("button", { type: "button", class: "line", hidden: true, onclick: () => void load(true) }, t("Search further back"));
  let next = /** @type {string | null} */ (null);
  let asked = 0;

  /** Returns the search text after the `#` of the address, which no server and no log receives. */
  function remembered() {
    try { return decodeURIComponent(location.hash.slice(1)); } catch { return ""; }
  }

  /** @param {boolean} [on] */
  async function load(on = false) {
    const q = field.value.trim();
    const mine = ++asked;
    history.replaceState(null, "", `${location.pathname}${location.search}${q ? `#${encodeURIComponent(q)}` : ""}`);
    older.hidden = true;
    if (!q) return show(body);
    if (!on) show(body, skeleton(4));
    try {
      const query = new URLSearchParams({ q, ...(session && { session }), ...(on && next && { cursor: next }) });
      const page = await ask(`/search?${query}`, { signal });
      if (mine !== asked) return;
      next = page.next;
      const rows = page.sessions.filter((one) => one.hits.length).map(group);
      if (!on) show(body);
      body.append(...rows);
      older.hidden = !next;
      const words = rows.length ? tn("{count} conversation", "{count} conversations", rows.length) : next ? t("Nothing yet; older conversations may have it.") : t("Nothing was found.");
      if (!body.childElementCount) show(body, empty(words));
      say(words);
    } catch (error) {
      if (!signal.aborted && mine === asked) show(body, problem(error, () => load(on)));
    }
  }

  /** @param {Api["FoundSession"]} one */
  function group(one) {
    return h("section", { class: "card found" }, !session && h("h2", { dir: "auto" }, h("a", { href: `/dashboard/sessions/${one.id}` }, personOf(one))),
      h("ul", { class: "plain-list" }, one.hits.map((hit) => h("li", null,
        h("a", { class: "hit", href: `/dashboard/sessions/${one.id}?at=${hit.turn}-${hit.mid.slice(1)}` },
          h("span", { class: "muted small block" }, joinWithDots([WHO[/** @type {keyof typeof WHO} */ (hit.role)], t("turn {turn}", { turn: hit.turn }), time(hit.at)])),
          h("span", { class: "block", dir: "auto" }, hit.excerpt.map((part) => (part.hit ? h("mark", null, part.text) : part.text))))))));
  }

  const bar = h("form", { class: "filters", role: "search", "aria-label": t("Search messages"), onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); void load(); } },
    h("label", { class: "grow" }, h("span", { class: "unseen" }, t("Search text")), field), h("button", { type: "submit", class: "solid" }, t("Search")));
  show(root, h("div", { class: "page-head" }, h("div", null, h("h1", null, t("Search messages")),
    h("p", { class: "facts" }, session ? [t("In one conversation"), " · ", h("a", { href: `/dashboard/sessions/${session}` }, t("back to it")), " · ", h("a", { href: "/dashboard/search" }, t("search all"))] : t("In all conversations, the last active first. The audit log records whose messages are shown.")))), bar, body, h("div", { class: "pager" }, older));
  set(field, { autofocus: true });
  field.focus();
  if (field.value) void load();
}
