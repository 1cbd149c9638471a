/** Asks the server, and tells failures in words; a lost login leads to the login page. */

export class Failure extends Error {
  /** @param {string} message @param {number} status @param {string} [requestId] */
  constructor(message, status, requestId = "") {
    super(message);
    this.status = status;
    this.requestId = requestId;
  }
}

/**
 * @param {string} path below /api/v1 @param {{refresh?: boolean, method?: string, body?: any, signal?: AbortSignal}} [options]
 * @returns {Promise<any>}
 */
export async function ask(path, { refresh = false, method = "GET", body, signal } = {}) {
  const headers = /** @type {Record<string, string>} */ ({ Accept: "application/json" });
  if (refresh) headers["X-Evertalk-Refresh"] = "1";
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const limit = AbortSignal.timeout(20_000);
  let response;
  try {
    response = await fetch(`/api/v1${path}`, {
      method, headers, body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Failure("The server cannot be reached just now.", 0);
  }
  if (response.status === 401) {
    location.assign(`/dashboard/login?next=${encodeURIComponent(location.pathname)}`);
    return new Promise(() => {});
  }
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Failure(answer.message ?? "That did not work.", response.status, answer.request_id);
  return answer;
}

const EVERY_MS = 5000;

/**
 * Calls `refresh` every five seconds while the page is seen, and tells how that goes.
 * @param {() => Promise<void>} refresh @param {(state: "live" | "paused" | "stale") => void} tell @param {AbortSignal} signal
 */
export function keepFresh(refresh, tell, signal) {
  let timer = 0;
  let at = 0;
  const plan = () => { clearTimeout(timer); if (!signal.aborted) timer = setTimeout(run, EVERY_MS); };
  async function run() {
    if (signal.aborted) return;
    if (document.hidden) return tell("paused");
    at = Date.now();
    try {
      await refresh();
      if (!signal.aborted) tell("live");
    } catch (error) {
      if (!signal.aborted) tell("stale");
    }
    plan();
  }
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
