/** Starts the dashboard: the frame, the page of an address, and the keys that work everywhere. */
import { h, set, show } from "../shared/h.js";
import { t, tn } from "./i18n.js";
import { drawIcon } from "./icons.js";
import { Failure, ask } from "./net.js";
import { ts } from "./named.js";
import { notify, renewPush } from "./notify.js";
import { palette } from "./palette.js";
import { problem } from "./parts.js";
import { themeButton } from "./theme.js";
import { watchAlerts, watchWaiting } from "./watch.js";

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const side = /** @type {HTMLElement} */ (document.getElementById("side"));
const spoken = /** @type {HTMLElement} */ (document.getElementById("say"));
/**
 * The places of the menu, each with its pages; several pages of one place are tabs above them. `key` opens a page
 * after `g`; `need` is the least role that may see it.
 * @typedef {{path: string, name: string, key?: string, need?: "operator" | "admin", load: () => Promise<(at: any) => void>}} Page
 * @type {{name: string, icon: string, pages: Page[]}[]}
 */
const PLACES = [
  { name: t("Overview"), icon: "overview", pages: [{ path: "/dashboard", name: t("Overview"), key: "o", load: () => import("./overview.js").then((file) => file.overviewPage) }] },
  { name: t("Inbox"), icon: "inbox", pages: [{ path: "/dashboard/inbox", name: t("Inbox"), key: "w", load: () => import("./inbox.js").then((file) => file.inboxPage) }] },
  { name: t("Conversations"), icon: "conversations", pages: [
    { path: "/dashboard/sessions", name: t("Sessions"), key: "s", load: () => import("./sessions.js").then((file) => file.sessionsPage) },
    { path: "/dashboard/people", name: t("People"), key: "p", load: () => import("./people.js").then((file) => file.peoplePage) },
    { path: "/dashboard/memory", name: t("Memory"), key: "m", load: () => import("./memory.js").then((file) => file.memoryPage) },
  ] },
  { name: t("Costs"), icon: "costs", pages: [{ path: "/dashboard/costs", name: t("Costs"), key: "c", load: () => import("./costs.js").then((file) => file.costsPage) }] },
  { name: t("Agents"), icon: "agents", pages: [{ path: "/dashboard/agents", name: t("Agents"), key: "a", load: () => import("./agents.js").then((file) => file.agentsPage) }] },
  { name: t("Channels"), icon: "channels", pages: [
    { path: "/dashboard/sites", name: t("Sites"), key: "i", load: () => import("./sites.js").then((file) => file.sitesPage) },
    { path: "/dashboard/pairing", name: t("Telegram access"), load: () => import("./pairing.js").then((file) => file.pairingPage) },
  ] },
  { name: t("Operations"), icon: "operations", pages: [
    { path: "/dashboard/jobs", name: t("Jobs"), key: "j", load: () => import("./jobs.js").then((file) => file.jobsPage) },
    { path: "/dashboard/deliveries", name: t("Delivery problems"), key: "d", load: () => import("./deliveries.js").then((file) => file.deliveriesPage) },
    { path: "/dashboard/alerts", name: t("Alerts"), key: "l", load: () => import("./alerts.js").then((file) => file.alertsPage) },
    { path: "/dashboard/audit", name: t("Audit"), key: "u", need: "admin", load: () => import("./audit.js").then((file) => file.auditPage) },
  ] },
  { name: t("Operators"), icon: "operators", pages: [{ path: "/dashboard/operators", name: t("Operators"), need: "admin", load: () => import("./operators.js").then((file) => file.operatorsPage) }] },
  { name: t("Settings"), icon: "settings", pages: [{ path: "/dashboard/settings", name: t("Settings"), need: "operator", load: () => import("./settings.js").then((file) => file.settingsPage) }] },
];
/** @type {Page} */
const ACCOUNT = { path: "/dashboard/account", name: t("Account"), load: () => import("./account.js").then((file) => file.accountPage) };
const PAGES = [...PLACES.flatMap((place) => place.pages.map((page) => ({ ...page, group: place.name }))), { ...ACCOUNT, group: "" }];
/** Pages of one object, whose address holds its id, and pages that are reached from another page. */
const INNER = [
  { pattern: /^\/dashboard\/(search)$/, nav: "/dashboard/sessions", load: () => import("./search.js").then((file) => file.searchPage) },
  { pattern: /^\/dashboard\/sessions\/([0-9a-f-]{36})$/, nav: "/dashboard/sessions", load: () => import("./session.js").then((file) => file.sessionPage) },
  { pattern: /^\/dashboard\/people\/([0-9a-f-]{36})$/, nav: "/dashboard/people", load: () => import("./person.js").then((file) => file.personPage) },
  { pattern: /^\/dashboard\/agents\/([a-z0-9][a-z0-9_-]{0,39})$/, nav: "/dashboard/agents", load: () => import("./agent.js").then((file) => file.agentPage) },
  { pattern: /^\/dashboard\/sites\/([a-z0-9][a-z0-9_-]{0,63})$/, nav: "/dashboard/sites", load: () => import("./site.js").then((file) => file.sitePage) },
];
/** Keys that press a button of the conversation. @type {Record<string, [string, string]>} */
const ACTS = { t: ["take", t("Take the conversation")], e: ["resolve", t("Resolve")], s: ["snooze", t("Snooze")], a: ["assign", t("Assign")], l: ["label", t("Labels")], n: ["note", t("Private note")], m: ["macro", t("Macros")] };
const KEYS = [[t("Ctrl K"), t("Go to a page, a person or a session")], ["/", t("Search")], ["j  k", t("Next and previous row")], [t("Enter"), t("Open the row")], ["x", t("Select the row")], ...PAGES.flatMap((page) => page.key ? [[`g ${page.key}`, page.name]] : []), ...Object.entries(ACTS).map(([key, [, words]]) => [key, words]), ["r", t("Write a reply")], [t("Enter"), t("Send the reply")], [t("Shift Enter"), t("New line")], ["?", t("This help")]];

/** @type {AbortController | null} */
let current = null;
/** @type {Api["Me"]} */
let me;
let drawn = "";
let title = "Evertalk";
const badge = h("span", { class: "count", hidden: true });
const waitBadge = h("span", { class: "count wait", hidden: true });
const alertBadge = h("span", { class: "count", hidden: true });
const BADGES = new Map([["/dashboard/jobs", badge], ["/dashboard/inbox", waitBadge], ["/dashboard/alerts", alertBadge]]);
/** Badges of places with several pages, by the name of the place. @type {Map<string, HTMLElement>} */
const SUMS = new Map(PLACES.filter((place) => place.pages.length > 1).map((place) => [place.name, h("span", { class: "count", hidden: true })]));
/** @type {ReturnType<typeof watchAlerts> | null} */
let alertWatch = null;
/** @type {ReturnType<typeof watchWaiting> | null} */
let watch = null;
let waits = 0;

/** @param {string} words */
function say(words) { spoken.textContent = words; }

/** @param {string} path */
function pageFor(path) {
  for (const inner of INNER) {
    const id = path.match(inner.pattern)?.[1];
    if (id) return { id, nav: inner.nav, load: inner.load };
  }
  const page = PAGES.find((one) => one.path === path) ?? PAGES[0];
  return { id: "", nav: page.path, load: page.load };
}

async function draw() {
  drawn = location.pathname + location.search;
  current?.abort();
  const { signal } = current = new AbortController();
  const { load, id, nav: at } = pageFor(location.pathname);
  mark(at);
  unfold(false);
  // The page that is being left can no longer call the server, so its buttons are disabled until the next page is there.
  for (const part of main.children) set(part, { inert: true });
  let page;
  try { page = await load(); } catch { return show(main, problem(new Failure(t("This page cannot be loaded just now."), 0), draw)); }
  const failed = (/** @type {unknown} */ error) => { if (!signal.aborted) show(main, problem(error, draw)); };
  try { if (!signal.aborted) page({ root: main, id, me, say, go, entitle, signal, troubles, told: (/** @type {any[]} */ handovers) => watch?.told(handovers), look: () => watch?.look(), toldAlerts: (/** @type {number} */ count) => alertWatch?.told(count) }); } catch (error) { failed(error); }
}

/** Marks the page's place in the menu, and its tab above the page. @param {string} path */
function mark(path) {
  const place = PLACES.find((one) => one.pages.some((page) => page.path === path));
  for (const link of side.querySelectorAll("a[data-place]")) set(link, { "aria-current": link.getAttribute("data-place") === (place?.name ?? path) ? "page" : null });
  const pages = place?.pages.filter(isMine) ?? [];
  set(tabs, { hidden: pages.length < 2, "aria-label": place?.name ?? "" });
  show(tabs, pages.length < 2 ? [] : pages.map((page) => h("a", { href: page.path, "aria-current": page.path === path ? "page" : null }, page.name, BADGES.get(page.path))));
}

const RANKS = ["viewer", "operator", "admin"];
/** @param {{path: string, need?: string}} page */
const isMine = (page) => (me.has_handovers || page.path !== "/dashboard/inbox") && (!page.need || RANKS.indexOf(me.role) >= RANKS.indexOf(page.need));

/** @param {string} address @param {{quiet?: boolean, replace?: boolean}} [how] */
function go(address, { quiet = false, replace = false } = {}) {
  if (address === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", address);
  if (quiet) { drawn = address; return; }
  draw();
  scrollTo(0, 0);
  main.focus({ preventScroll: true });
}

/** @param {HTMLElement | undefined} mark */
const shownCount = (mark) => !mark || mark.hidden ? 0 : parseInt(mark.textContent ?? "", 10) || 0;

/** Sets the title and the sum of all counts, which is shown where the menu is folded. */
function updateTitle() {
  const count = [...BADGES.values()].reduce((all, one) => all + shownCount(one), 0);
  for (const place of PLACES) {
    const sum = SUMS.get(place.name);
    if (!sum) continue;
    const within = place.pages.reduce((all, page) => all + shownCount(BADGES.get(page.path)), 0);
    set(sum, { hidden: within === 0, "aria-label": tn("{count} needs attention", "{count} need attention", within) });
    show(sum, String(within));
  }
  set(menuBadge, { hidden: count === 0, "aria-label": tn("{count} needs attention", "{count} need attention", count) });
  show(menuBadge, String(count));
}

/** Shows the number of jobs that need attention next to their link. @param {number} count */
function troubles(count) {
  set(badge, { hidden: count === 0, "aria-label": tn("{count} failed", "{count} failed", count) });
  show(badge, String(count));
  updateTitle();
}

/** Shows the number of unseen alerts next to their link. @param {number} count */
function showAlertCount(count) {
  set(alertBadge, { hidden: count === 0 });
  show(alertBadge, String(count), h("span", { class: "unseen" }, " ", t("not seen")));
  updateTitle();
}

/** Sets the page's title, with the number of waiting people in front for background tabs. @param {string} [words] */
function entitle(words) {
  if (words) title = `${words} · Evertalk`;
  document.title = waits ? `(${waits}) ${title}` : title;
}

/** Shows the number of people who wait for a human, next to the link and in the title. @param {number} count */
function showWaitingCount(count) {
  if (count > waits) {
    const words = tn("One person is waiting for a human.", "{count} people are waiting for a human.", count);
    say(words);
    if (document.hidden || !document.hasFocus()) notify(words, "/dashboard/inbox");
  }
  waits = count;
  set(waitBadge, { hidden: count === 0 });
  show(waitBadge, String(count), h("span", { class: "unseen" }, " ", t("waiting")));
  updateTitle();
  entitle();
}

const tabs = h("nav", { class: "page-tabs", hidden: true });
const menuBadge = h("span", { class: "count", hidden: true });
const nav = h("nav", { id: "pages", "aria-label": t("Pages") });
const menu = h("button", { type: "button", class: "line menu", "aria-expanded": "false", "aria-controls": "pages", onclick: () => unfold(menu.getAttribute("aria-expanded") === "false") }, t("Menu"), menuBadge);

/** Opens or closes the menu on a narrow screen. @param {boolean} open */
function unfold(open) {
  set(menu, { "aria-expanded": String(open) });
  nav.classList.toggle("open", open);
}

/** Returns the links of the menu; each leads to the first page of its place that the operator may see. */
function links() {
  return h("div", { class: "places" }, PLACES.map((place) => ({ ...place, pages: place.pages.filter(isMine) })).filter(({ pages }) => pages.length).map(({ name, icon, pages }) =>
    h("a", { href: pages[0].path, data: { place: name } }, drawIcon(icon), h("span", null, name), SUMS.get(name) ?? BADGES.get(pages[0].path))));
}

function frame() {
  show(nav, h("button", { type: "button", class: "line find", onclick: finder.open }, t("Go to"), h("kbd", { "aria-hidden": "true" }, /Mac|iP/.test(navigator.platform) ? "⌘ K" : t("Ctrl K"))), links(), themeButton(say));
  show(side,
    h("a", { class: "brand", href: "/dashboard" }, h("span", { class: "logo", "aria-hidden": "true" }), "Evertalk"),
    menu, nav,
    h("div", { class: "who" }, h("a", { href: ACCOUNT.path, data: { place: ACCOUNT.path }, "aria-label": `${ACCOUNT.name}: ${me.name} · ${ts(me.role)}` }, drawIcon("account"), h("span", null, `${me.name} · ${ts(me.role)}`)),
      h("form", { method: "post", action: "/dashboard/logout" }, h("button", { class: "line wide", type: "submit" }, t("Log out")))));
}

/** Actions that the palette offers on each page, by role. @type {{words: string, hint: string, need?: "operator" | "admin", path?: string, run?: () => void}[]} */
const DEEDS = [
  { words: t("New agent"), hint: t("Agents"), need: "admin", path: "/dashboard/agents#add" }, { words: t("New site"), hint: t("Sites"), need: "admin", path: "/dashboard/sites#add" },
  { words: t("Add a note"), hint: t("Memory"), need: "operator", path: "/dashboard/memory#add" }, { words: t("Invite"), hint: t("Operators"), need: "admin", path: "/dashboard/operators#invite" },
  { words: t("Send a test"), hint: t("Alerts"), need: "admin", path: "/dashboard/alerts#test" }, { words: t("Theme"), hint: "", run: () => /** @type {HTMLElement | null} */ (nav.querySelector(".theme"))?.click() },
  { words: t("Keys"), hint: "?", run: () => /** @type {any} */ (help).showModal() }, { words: t("Log out"), hint: "", run: () => side.querySelector("form")?.requestSubmit() },
];
const finder = palette({ pages: () => PAGES.filter(isMine), acts: () => DEEDS.filter((one) => isMine({ path: one.path ?? "", need: one.need })), go });
const help = h("dialog", { class: "card help", "aria-label": t("Keys") }, h("h2", null, t("Keys")),
  h("dl", null, KEYS.map(([key, words]) => h("div", null, h("dt", null, h("kbd", null, key)), h("dd", null, words)))),
  h("form", { method: "dialog" }, h("button", { class: "line", type: "submit" }, t("Close"))));

/** @param {number} step */
function moveRow(step) {
  const links = /** @type {HTMLElement[]} */ ([...main.querySelectorAll("a.row-link")]);
  if (!links.length) return;
  const focused = links.indexOf(/** @type {any} */ (document.activeElement));
  const now = focused < 0 ? links.findIndex((link) => link.hasAttribute("aria-current")) : focused;
  links[Math.max(0, Math.min(links.length - 1, now < 0 ? (step > 0 ? 0 : links.length - 1) : now + step))].focus();
}

let leader = 0;
/** @param {KeyboardEvent} event */
function onKey(event) {
  const target = /** @type {HTMLElement} */ (event.target);
  if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "k") {
    event.preventDefault();
    return finder.open();
  }
  // after a dialog is closed, a frame keeps the focus in it, although no one writes there
  const busy = !target.closest("dialog:not([open])") && target.closest("input:not([type=checkbox], [type=radio]), textarea, select, dialog[open]");
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || busy) return;
  const after = Date.now() - leader < 1200;
  leader = event.key === "g" ? Date.now() : 0;
  const page = after && PAGES.find((one) => one.key === event.key && isMine(one));
  if (page) go(page.path);
  else if (Object.hasOwn(ACTS, event.key)) {
    const button = /** @type {HTMLElement | null} */ ([...main.querySelectorAll(`button[data-act=${ACTS[event.key][0]}]`)].find((one) => one.checkVisibility()));
    if (button) { event.preventDefault(); button.click(); }
  }
  else if (event.key === "r") {
    const reply = /** @type {HTMLElement | null} */ (main.querySelector("form:not([hidden]) > label > textarea#reply"));
    if (reply) { event.preventDefault(); reply.focus(); }
  }
  else if (event.key === "x") /** @type {HTMLElement | null} */ (main.querySelector("li:has(a.row-link:focus) input.pick") ?? main.querySelector("li:has(a.row-link[aria-current]) input.pick"))?.click();
  else if (event.key === "j") moveRow(1);
  else if (event.key === "k") moveRow(-1);
  else if (event.key === "?") /** @type {any} */ (help).showModal();
  else if (event.key === "/") {
    const search = /** @type {HTMLElement | null} */ (main.querySelector("input[type=search]"));
    if (search) { event.preventDefault(); search.focus(); }
  }
}

/** @param {MouseEvent} event */
function onClick(event) {
  const link = /** @type {HTMLElement} */ (event.target).closest?.("a[href^='/dashboard']");
  if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  go(/** @type {HTMLAnchorElement} */ (link).getAttribute("href") ?? "/dashboard");
}

async function start() {
  const known = document.getElementById("me")?.textContent;
  try { me = known ? JSON.parse(known) : await ask("/me"); } catch (error) { return show(main, problem(error, start)); }
  frame();
  main.before(tabs);
  document.body.append(help, finder.node);
  addEventListener("popstate", () => { if (drawn !== location.pathname + location.search) draw(); });
  addEventListener("keydown", onKey);
  addEventListener("click", onClick);
  alertWatch = watchAlerts(showAlertCount);
  if (me.has_handovers) watch = watchWaiting(me, showWaitingCount);
  renewPush(me).catch(() => {});
  draw();
}

start();
