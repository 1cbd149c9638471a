/** Starts the dashboard: the frame, which page an address means, and the keys that work everywhere. */
import { h, set, show } from "../shared/h.js";
import { ask } from "./net.js";
import { problem } from "./parts.js";
import { accountPage } from "./account.js";
import { jobsPage } from "./jobs.js";
import { sessionPage } from "./session.js";
import { sessionsPage } from "./sessions.js";

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const side = /** @type {HTMLElement} */ (document.getElementById("side"));
const spoken = /** @type {HTMLElement} */ (document.getElementById("say"));
const LINKS = [["/dashboard", "Sessions"], ["/dashboard/jobs", "Jobs"], ["/dashboard/account", "Account"]];
const KEYS = [["/", "Search"], ["j  k", "Next and previous row"], ["Enter", "Open the row"], ["g s", "Sessions"], ["g j", "Jobs"], ["?", "This help"]];

/** @type {AbortController | null} */
let current = null;
/** @type {any} */
let me = null;
let drawn = "";
const badge = h("span", { class: "count", hidden: true });

/** @param {string} words */
function say(words) { spoken.textContent = words; }

/** @param {string} path */
function pageFor(path) {
  const session = path.match(/^\/dashboard\/sessions\/([0-9a-f-]{36})$/);
  if (session) return { page: sessionPage, id: session[1], nav: "/dashboard" };
  if (path === "/dashboard/jobs") return { page: jobsPage, nav: path };
  if (path === "/dashboard/account") return { page: accountPage, nav: path };
  return { page: sessionsPage, nav: "/dashboard" };
}

function draw() {
  drawn = location.pathname + location.search;
  current?.abort();
  current = new AbortController();
  const { page, id, nav } = pageFor(location.pathname);
  for (const link of side.querySelectorAll("nav a")) set(link, { "aria-current": link.getAttribute("href") === nav ? "page" : null });
  page({ root: main, id: id ?? "", me, say, go, signal: current.signal, troubles });
}

/** @param {string} address @param {{quiet?: boolean}} [how] */
function go(address, { quiet = false } = {}) {
  if (address === location.pathname + location.search) return;
  history.pushState(null, "", address);
  if (quiet) { drawn = address; return; }
  draw();
  scrollTo(0, 0);
  main.focus({ preventScroll: true });
}

/** How many jobs need an eye, shown beside their link. @param {number} count */
function troubles(count) {
  set(badge, { hidden: count === 0, "aria-label": `${count} failed` });
  show(badge, String(count));
}

function frame() {
  show(side,
    h("a", { class: "brand", href: "/dashboard" }, h("span", { class: "logo", "aria-hidden": "true" }), "Evertalk"),
    h("nav", { "aria-label": "Pages" }, LINKS.map(([address, name]) => h("a", { href: address }, name, name === "Jobs" && badge))),
    h("div", { class: "who" }, h("span", { class: "muted" }, `${me.name} · ${me.role}`),
      h("form", { method: "post", action: "/dashboard/logout" }, h("button", { class: "line wide", type: "submit" }, "Log out"))));
}

const help = h("dialog", { class: "card help", "aria-label": "Keys" }, h("h2", null, "Keys"),
  h("dl", null, KEYS.map(([key, words]) => h("div", null, h("dt", null, h("kbd", null, key)), h("dd", null, words)))),
  h("form", { method: "dialog" }, h("button", { class: "line", type: "submit" }, "Close")));

/** @param {number} step */
function moveRow(step) {
  const links = /** @type {HTMLElement[]} */ ([...main.querySelectorAll("a.row-link")]);
  if (!links.length) return;
  const now = links.indexOf(/** @type {any} */ (document.activeElement));
  links[Math.max(0, Math.min(links.length - 1, now < 0 ? (step > 0 ? 0 : links.length - 1) : now + step))].focus();
}

let leader = 0;
/** @param {KeyboardEvent} event */
function onKey(event) {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || target.closest("input, textarea, select, dialog[open]")) return;
  const after = Date.now() - leader < 1200;
  leader = event.key === "g" ? Date.now() : 0;
  if (after && event.key === "s") go("/dashboard");
  else if (after && event.key === "j") go("/dashboard/jobs");
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
  try { me = await ask("/me"); } catch (error) { return show(main, problem(error, start)); }
  frame();
  document.body.append(help);
  addEventListener("popstate", () => { if (drawn !== location.pathname + location.search) draw(); });
  addEventListener("keydown", onKey);
  addEventListener("click", onClick);
  draw();
}

start();
