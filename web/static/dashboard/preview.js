/** The widget as a visitor would see it, with the look from the form next to it; no text leaves this page. */

/** A socket without a server: it sends a welcome, and ignores what it gets. */
class Deaf extends EventTarget {
  static OPEN = 1;
  constructor() {
    super();
    this.readyState = 1;
    /** @type {any} */ this.onopen = null;
    /** @type {any} */ this.onmessage = null;
    setTimeout(() => { this.onopen?.(); this.onmessage?.({ data: JSON.stringify(WELCOME) }); }, 0);
  }
  send() {}
  close() {}
}
const WELCOME = {
  t: "welcome", v: 1, session: "preview", log_epoch: 1, head: 0, resumed: false, events: [], commands: [], pinned: [], limits: { max_chars: 8000 }, ctx: null,
  state: { run: null, queued: [], compaction: null, handover: null }, audience: "public", heartbeat_ms: 3_600_000, model: { name: "", offline: false }, read: 0, site: null,
};
const none = async () => new Response("{}", { status: 503, headers: { "Content-Type": "application/json" } });
const { fetch: read } = globalThis;
/** Returns the response to a request of the widget; only translations come from the server. @param {URL | string} address */
const words = (address) => String(address).includes("/static/locales/") ? read(address) : none();
Object.assign(globalThis, { WebSocket: Deaf, fetch: words });

/** @type {any} */
let widget = null;
/** @type {any} */
let next = null;
let busy = false;

/** Draws the preview again after each change of its look, one after the other. */
async function applyLook() {
  if (busy) return;
  busy = true;
  while (next) {
    const { look, language, theme } = next;
    next = null;
    const { Widget } = await import("../widget/main.js");
    await widget?.shutdown();
    localStorage.removeItem("evertalk:preview:site");
    document.documentElement.dataset.theme = theme;
    widget = new Widget({ site: "preview", locale: language, theme });
    await widget.mount();
    await widget.open(false);
    await widget.dress(look);
  }
  busy = false;
}

addEventListener("message", (event) => {
  if (event.origin !== location.origin || event.source !== parent || !event.data?.look) return;
  next = event.data;
  applyLook().catch(() => { busy = false; });
});
parent.postMessage("ready", location.origin);
