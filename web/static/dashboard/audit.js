/** Audit log for admins: readings and changes, and the check of its hash chain. */
import { beyond, pagesOf, placeOf } from "./lists.js";
import { ask } from "./net.js";
import { DASH, empty, h, nameOf, named, number, problem, show, skeleton, t, table, time, tn, formatWhen } from "./parts.js";

const COLUMNS = [{ label: t("When") }, { label: t("Operator") }, { label: t("Action") }, { label: t("About") }, { label: t("Detail") }];
const FILTERS = ["operator", "action", "about", "from", "to"];

/** Draws the audit log into `root`, with filters, a download, and the check of its hash chain. @param {Page} page */
export function auditPage({ root, go, say, entitle, signal }) {
  entitle(t("Audit"));
  const params = new URLSearchParams(location.search);
  const body = h("div", { class: "list" }, skeleton(10));
  const chain = h("div", { class: "chain", role: "status" }, t("Checking the chain…"));
  const bar = h("div");
  const pages = pagesOf("/audit", signal);
  let known = "";

  /** @param {Record<string, string>} changes */
  function change(changes) {
    for (const [name, value] of Object.entries({ before: "", at: "", ...changes })) value ? params.set(name, value) : params.delete(name);
    const words = params.toString();
    go(`/dashboard/audit${words ? `?${words}` : ""}`, { quiet: true });
    load().catch(failed);
  }

  async function load() {
    body.setAttribute("aria-busy", "true");
    const page = await pages(params);
    body.setAttribute("aria-busy", "false");
    const lists = JSON.stringify([page.actors, page.actions]);
    if (lists !== known) { known = lists; show(bar, filters(params, page, change)); }
    bar.querySelector("a.csv")?.setAttribute("href", csvAddress(params));
    show(body, entries(page, params, change));
    say(tn("{count} entry", "{count} entries", page.entries.length));
  }

  async function check() {
    show(chain, t("Checking the chain…"));
    chain.className = "chain";
    try { draw(await ask("/audit/chain", { signal })); } catch (error) { if (!signal.aborted) show(chain, t("The chain cannot be checked just now."), again()); }
  }
  const again = () => h("button", { type: "button", class: "line", onclick: check }, t("Check again"));

  /** @param {Api["AuditChain"]} found */
  function draw(found) {
    chain.className = `chain ${found.state}`;
    // A broken chain has valid entries before the break, so `state` decides, not `through`.
    const words = found.state === "broken" ? t("The chain breaks at entry {id} of {time}: this entry or an earlier one was changed or removed.", { id: String(found.broken_at?.id), time: formatWhen(found.broken_at?.at ?? "") })
      : found.through ? tn("Verified: {count} entry without gaps, up to entry {id} of {time}.", "Verified: {count} entries without gaps, up to entry {id} of {time}.", found.entries, { id: String(found.through.id), time: formatWhen(found.through.at) })
      : t("Nothing is in the log yet.");
    show(chain, h("span", { class: found.state }, words), again());
  }

  /** @param {unknown} error */
  const failed = (error) => { if (!signal.aborted) show(body, problem(error, () => load().catch(failed))); };
  show(root, h("div", { class: "page-head" }, h("div", null, h("h1", null, t("Audit")), h("p", { class: "facts" }, t("Every reading of a conversation and every change, in a tamper-evident log")))), chain, bar, body);
  load().catch(failed);
  check();
}

/** @param {URLSearchParams} params */
function csvAddress(params) {
  const kept = new URLSearchParams([...params].filter(([name]) => FILTERS.includes(name)));
  return `/api/v1/audit/csv?${kept}`;
}

/** @param {URLSearchParams} params @param {Api["AuditEntries"]} page @param {(changes: Record<string, string>) => void} change */
function filters(params, page, change) {
  /** @param {string} name @param {string} label @param {string[]} values */
  const choice = (name, label, values) => h("label", null, label, h("select", { name, onchange: (/** @type {any} */ event) => change({ [name]: event.target.value }) },
    h("option", { value: "" }, t("All")), [...new Set([...values, ...(params.get(name) ? [params.get(name)] : [])])].map((value) => h("option", { value, selected: params.get(name) === value }, value))));
  /** @param {string} name @param {string} label */
  const day = (name, label) => h("label", null, label, h("input", { type: "date", name, value: params.get(name) ?? "", onchange: (/** @type {any} */ event) => change({ [name]: event.target.value }) }));
  const about = h("input", { type: "search", name: "about", value: params.get("about") ?? "", maxlength: 200, onchange: (/** @type {any} */ event) => change({ about: event.target.value.trim() }) });
  const families = [...new Set(page.actions.map((/** @type {string} */ one) => one.split(".")[0]))].filter((family) => page.actions.some((/** @type {string} */ one) => one.startsWith(`${family}.`)));
  const actions = [...new Set([...families, ...page.actions])].sort();
  return h("div", { class: "filters audit-filters" }, choice("operator", t("Operator"), page.actors), choice("action", t("Action"), /** @type {string[]} */ (actions)), h("label", { class: "grow" }, t("About (an id)"), about),
    day("from", t("From")), day("to", t("Before")), h("a", { class: "line csv", href: csvAddress(params), download: true }, "CSV"));
}

/** @param {Api["AuditEntries"]} page @param {URLSearchParams} params @param {(changes: Record<string, string>) => void} change */
function entries(page, params, change) {
  const filtered = FILTERS.some((name) => params.has(name));
  if (!page.entries.length) return empty(filtered ? t("No entry matches.") : t("Nothing was read or changed yet."), filtered && h("button", { type: "button", class: "line", onclick: () => { for (const name of FILTERS) params.delete(name); change({}); } }, t("Show all")));
  return h("div", null, h("div", { class: "card flush-card" }, table({ caption: t("Audit log"), className: "wide-grid audit-grid", columns: COLUMNS, rows: page.entries.map(cells) })),
    h("div", { class: "pager" }, placeOf(params, page.entries.length, page.total ?? null), params.get("before") && h("button", { type: "button", class: "line", onclick: () => change({}) }, t("Newest")),
      page.before && h("button", { type: "button", class: "line", onclick: () => change({ before: String(page.before), at: beyond(params, page.entries.length) }) }, t("Older"))));
}

const ID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}";
/** Pages that show what an entry is about. An id alone is that of a conversation only in the entries named here. @type {[RegExp, RegExp, string][]} */
const WAYS = [
  [/^(read\.(session|messages|compactions|replay|export)|handover\..*)$/, new RegExp(`^(${ID})$`), "/dashboard/sessions/"],
  [/./, new RegExp(`^person:(${ID})$`), "/dashboard/people/"],
  [/./, new RegExp(`^note:(${ID})$`), "/dashboard/memory?q="],
];

/** @param {Api["Entry"]} entry */
function about(entry) {
  for (const [action, id, page] of WAYS) {
    const found = action.test(entry.action) && id.exec(entry.about);
    if (found) return h("a", { class: "about", title: entry.about, href: page + found[1] }, entry.person ? h("bdi", null, nameOf(entry.person)) : entry.about);
  }
  return h("span", { class: "about", title: entry.about }, entry.about);
}

/** @param {Api["Entry"]} entry */
function cells(entry) {
  const detail = Object.entries(entry.detail).map(([name, value]) => `${name}: ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ");
  return [time(entry.at), h("span", { dir: "auto" }, entry.actor), entry.action,
    entry.about ? about(entry) : DASH, detail ? h("span", { class: "detail" }, named(detail)) : DASH];
}
