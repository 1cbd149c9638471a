/** One event stream for a tab: it reports which topics have changed, without their content, and the progress of jobs. */

/** Milliseconds before a refused stream is tried again; pages poll until then. */
const AGAIN_MS = 60_000;

/** @typedef {{job: number, percent: number, stage: string}} Progress */
/** @typedef {{changed: (topics: string[]) => void, moved: () => void, progress?: (one: Progress) => void, typing?: (session: string) => void}} Listener */

/** @type {Set<Listener>} */
const listeners = new Set();
/** @type {EventSource | null} */
let source = null;
let open = false;
let timer = 0;

/** Returns whether the stream of changes is open. */
export const isConnected = () => open;

/** @param {boolean} now */
function become(now) {
  if (open === now) return;
  open = now;
  for (const one of listeners) one.moved();
}

function close() {
  clearTimeout(timer);
  source?.close();
  source = null;
  become(false);
}

function connect() {
  if (source || document.hidden || !listeners.size || !("EventSource" in window)) return;
  clearTimeout(timer);
  const mine = source = new EventSource("/api/v1/live");
  mine.addEventListener("hello", () => become(true));
  mine.addEventListener("changed", (event) => {
    const { topics } = JSON.parse(event.data);
    for (const one of listeners) one.changed(topics);
  });
  mine.addEventListener("progress", (event) => {
    const progress = JSON.parse(event.data);
    for (const one of listeners) one.progress?.(progress);
  });
  mine.addEventListener("typing", (event) => {
    const { session } = JSON.parse(event.data);
    for (const one of listeners) one.typing?.(session);
  });
  mine.addEventListener("end", () => { close(); timer = setTimeout(connect, 3000); });
  mine.addEventListener("error", () => {
    if (mine !== source) return;
    if (mine.readyState !== EventSource.CLOSED) return become(false);
    close();
    timer = setTimeout(connect, AGAIN_MS);
  });
}

document.addEventListener("visibilitychange", () => document.hidden ? close() : connect());

/**
 * Adds a listener until the signal aborts. `changed` gets the names of topics; `moved` is called when the stream opens or is lost; `progress` gets the progress of a job, and `typing` the session in which a person writes.
 * @param {Listener} one @param {AbortSignal} signal
 */
export function follow(one, signal) {
  listeners.add(one);
  signal.addEventListener("abort", () => {
    listeners.delete(one);
    // The tab's next page joins at once, so only a tab that shows nothing closes the stream.
    setTimeout(() => { if (!listeners.size) close(); }, 1000);
  });
  connect();
}
