/** Counts on every page: unseen alerts, and people who wait for a human. */
import { follow, isConnected } from "./live.js";
import { GAP_MS, TOLD_MS, ask } from "./net.js";

/** Returns whether a person waits for this operator: for any operator, or for the one who took them. @param {Api["ListedHandover"]} one @param {Api["Me"]} me */
export const needsAttention = (one, me) => one.state === "waiting" || (one.operator === me.name && Boolean(one.waits_since));

/**
 * Calls `look` when the stream reports a change of the topic; without a stream every `seenMs`, in a hidden tab every `hiddenMs` (0: never).
 * @param {{look: () => Promise<void>, topic: string, seenMs: number, hiddenMs: number}} what
 */
function watcher({ look, topic, seenMs, hiddenMs }) {
  let timer = 0;
  let at = 0;
  let runs = false;
  let again = false;
  function plan(ms = document.hidden ? hiddenMs : isConnected() ? TOLD_MS : seenMs) {
    clearTimeout(timer);
    if (ms || !document.hidden) timer = setTimeout(run, ms);
  }
  async function run() {
    at = Date.now();
    runs = true;
    again = false;
    let next;
    // changes missed by a failed call are not reported again
    try { await look(); } catch { next = document.hidden ? hiddenMs : seenMs; }
    runs = false;
    plan(again ? GAP_MS : next);
  }
  follow({
    changed(names) {
      if (!names.includes(topic)) return;
      if (runs) again = true;
      else plan(Math.max(0, at + GAP_MS - Date.now()));
    },
    // changes before the stream opened were not reported
    moved() { if (!runs) plan(isConnected() ? Math.max(0, at + seenMs - Date.now()) : undefined); },
  }, new AbortController().signal);
  document.addEventListener("visibilitychange", () => { if (document.hidden) plan(); else run(); });
  run();
  return { plan, run };
}

/** Keeps the number of unseen alerts fresh: `tell` gets each new count, `told` takes a count that a page has received. @param {(count: number) => void} tell */
export function watchAlerts(tell) {
  const { plan } = watcher({ look: async () => tell((await ask("/alerts?limit=1", { refresh: true })).unseen), topic: "alerts", seenMs: 15_000, hiddenMs: 0 });
  return { told(/** @type {number} counts that the page has just received */ count) { tell(count); plan(); } };
}

/** Keeps the number of waiting people fresh: `tell` gets each new count, `told` takes hand-overs that a page has received. @param {Api["Me"]} me @param {(count: number) => void} tell */
export function watchWaiting(me, tell) {
  /** @param {Api["ListedHandover"][]} handovers */
  const count = (handovers) => tell(handovers.filter((one) => needsAttention(one, me)).length);
  const { plan, run } = watcher({ look: async () => count((await ask("/handovers", { refresh: true })).handovers), topic: "handovers", seenMs: 5000, hiddenMs: 15_000 });
  return { told(/** @type {Api["ListedHandover"][]} */ handovers) { count(handovers); plan(); }, look: run };
}
