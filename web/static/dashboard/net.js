/** Calls the server and explains failures; a lost login leads to the login page. */
import { t, translate } from "./i18n.js";
import { follow, isConnected } from "./live.js";

/** Error of a refused or failed request; `status` is 0 without an answer, `code` and `details` are the server's. */
export class Failure extends Error {
  /** @param {string} message @param {number} status @param {any} [answer] what the server said @param {number} [after] seconds until it may be tried again */
  constructor(message, status, answer = {}, after = 0) {
    super(message);
    this.status = status;
    this.requestId = answer.request_id ?? "";
    this.code = answer.code ?? "";
    this.details = answer.details ?? {};
    this.after = after;
  }
}

const PRESS_MS = 10_000;
/** Promise that is pending while a pointer button is held: replacing the page would lose the click or the selection. @type {Promise<void> | null} */
let press = null;
addEventListener("pointerdown", () => {
  press ??= new Promise((done) => {
    const over = new AbortController();
    // the browser sends the click right after this event, and only then may the page change
    const release = () => { clearTimeout(limit); over.abort(); setTimeout(() => { press = null; done(); }); };
    const limit = setTimeout(release, PRESS_MS);
    for (const name of ["pointerup", "pointercancel", "blur"]) addEventListener(name, release, { signal: over.signal });
    // Select boxes and scroll bars swallow the release, so a pointer that moves without a pressed button counts as one.
    addEventListener("pointermove", (event) => { if (!event.buttons) release(); }, { signal: over.signal });
  });
});

/**
 * Returns the answer at an address below /api/v1, with the fields that the description of the interface declares.
 * @template {string} P @template {"GET" | "POST" | "PUT" | "PATCH" | "DELETE"} [M="GET"]
 * @param {P} path @param {{refresh?: boolean, method?: M, body?: any, match?: string, signal?: AbortSignal, seconds?: number}} [options]
 * @returns {Promise<import("../../types/answers").Answer<P, M>>}
 */
export async function ask(path, { refresh = false, method = /** @type {M} */ ("GET"), body, match, signal, seconds = 20 } = {}) {
  const headers = /** @type {Record<string, string>} */ ({ Accept: "application/json", "X-Evertalk-Dashboard": "1" });
  if (refresh) headers["X-Evertalk-Refresh"] = "1";
  if (match) headers["If-Match"] = match;
  if (body !== undefined) headers["Content-Type"] = body instanceof Blob ? "application/octet-stream" : "application/json";
  if (body instanceof File) headers["X-File-Name"] = encodeURIComponent(body.name);
  const limit = AbortSignal.timeout(seconds * 1000);
  let response;
  try {
    response = await fetch(`/api/v1${path}`, {
      method, headers, body: body === undefined || body instanceof Blob ? body : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Failure(t("The server cannot be reached just now."), 0);
  }
  if (response.status === 401) {
    location.assign(`/dashboard/login?next=${encodeURIComponent(location.pathname + location.search)}`);
    return new Promise(() => {});
  }
  const answer = await response.json().catch(() => ({}));
  if (refresh) await press;
  // the click may have led to another page
  signal?.throwIfAborted();
  if (!response.ok) throw new Failure(translate(answer.message) || t("That did not work."), response.status, answer, Number(response.headers.get("Retry-After")) || 0);
  return answer;
}

const EVERY_MS = 5000;
/** Milliseconds between polls while changes are streamed, for data without a topic. */
export const TOLD_MS = 30_000;
/** Shortest pause in milliseconds between requests of a page. */
export const GAP_MS = 1500;

/**
 * Calls `refresh` when a topic has changed (any, unless named) while the page is visible, and reports the
 * result. Without a stream it polls every five seconds, or as `every` returns.
 * @param {() => Promise<void>} refresh @param {(state: "live" | "paused" | "stale") => void} tell @param {AbortSignal} signal
 * @param {() => number} [every] @param {string[]} [topics]
 */
export function keepFresh(refresh, tell, signal, every = () => EVERY_MS, topics) {
  let timer = 0;
  let at = Date.now();
  let runs = false;
  let again = false;
  /** @param {number} [ms] */
  const plan = (ms = isConnected() ? Math.max(TOLD_MS, every()) : every()) => { clearTimeout(timer); if (!signal.aborted) timer = setTimeout(run, ms); };
  async function run() {
    if (signal.aborted) return;
    if (document.hidden) return tell("paused");
    at = Date.now();
    runs = true;
    again = false;
    let next;
    try {
      await refresh();
      if (!signal.aborted) tell("live");
    } catch (error) {
      if (!signal.aborted) tell("stale");
      // changes missed by this failure are not reported again
      next = every();
    }
    runs = false;
    plan(again ? GAP_MS : next);
  }
  follow({
    changed(/** @type {string[]} */ names) {
      if (document.hidden || (topics && !names.some((name) => topics.includes(name)))) return;
      if (runs) again = true;
      else plan(Math.max(0, at + GAP_MS - Date.now()));
    },
    moved() { if (!document.hidden && !runs) plan(isConnected() ? Math.max(0, at + every() - Date.now()) : undefined); },
  }, signal);
  const seen = () => {
    if (document.hidden) { clearTimeout(timer); tell("paused"); }
    else if (Date.now() - at >= EVERY_MS) run();
    else { tell("live"); plan(); }
  };
  document.addEventListener("visibilitychange", seen, { signal });
  signal.addEventListener("abort", () => clearTimeout(timer));
  tell(document.hidden ? "paused" : "live");
  plan();
}
