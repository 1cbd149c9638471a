/** Keeps one line alive: hello, backoff with full jitter, heartbeat, resume after every break. */

const HELLO_MS = 10_000;
const FATAL = new Set([4400, 4403]);
const MISSES = 3;

export function socketUrl() {
  const url = new URL("../../ws", import.meta.url);
  url.protocol = url.protocol.replace("http", "ws");
  return url.href;
}

export class Connection {
  /** @param {{hello: () => object, frame: (frame: any, joined: boolean) => void, status: (status: string) => void, forget: () => boolean, missed: () => void}} hooks */
  constructor(hooks) {
    this.hooks = hooks;
    /** @type {any} */
    this.socket = null;
    // Sockets in a row without a welcome: then every other try is a stream.
    this.misses = 0;
    /** @type {any} */
    this.Line = null;
    this.streams = false;
    this.online = false;
    this.failures = 0;
    this.heartbeat = 25_000;
    this.heard = 0;
    this.pings = 0;
    this.hint = 0;
    this.stopped = true;
    /** @type {Record<string, number>} */
    this.timers = {};
    this.wake = () => this.hurry();
    this.seen = () => document.visibilityState === "visible" && this.hurry();
  }

  start() {
    if (!this.stopped) return;
    this.stopped = false;
    addEventListener("online", this.wake);
    // A machine that serves itself may have no network: only a server that does not answer is out of reach.
    addEventListener("offline", this.wake);
    document.addEventListener("visibilitychange", this.seen);
    this.hooks.status("connecting");
    this.open();
  }

  stop() {
    this.stopped = true;
    removeEventListener("online", this.wake);
    removeEventListener("offline", this.wake);
    document.removeEventListener("visibilitychange", this.seen);
    this.timer("retry");
    this.resync();
    this.hooks.status("closed");
  }

  /** @param {object} frame */
  send(frame) {
    if (!this.online || this.socket?.readyState !== WebSocket.OPEN) return false;
    this.socket.send(JSON.stringify(frame));
    return true;
  }

  /** A new socket, or none any more. */
  resync() {
    const { socket } = this;
    if (socket?.readyState === 0) {
      // Of one that is closed while it still opens, browsers complain on the page's console.
      socket.onopen = () => socket.close(1000);
      this.socket = null;
    }
    this.close();
    this.open();
  }

  /** @param {string} name @param {() => void} [run] @param {number} [ms] */
  timer(name, run, ms = 0) {
    clearTimeout(this.timers[name]);
    if (run) this.timers[name] = setTimeout(run, ms);
  }

  open() {
    if (this.stopped || this.socket) return;
    this.timer("retry");
    this.streams = Boolean(this.Line && this.misses >= MISSES && !this.streams);
    const socket = new (this.streams ? this.Line : WebSocket)(socketUrl());
    this.socket = socket;
    this.timer("hello", () => this.drop(), HELLO_MS);
    socket.onopen = () => socket.send(JSON.stringify(this.hooks.hello()));
    socket.onmessage = (/** @type {any} */ event) => { if (this.socket === socket) this.read(event.data); };
    socket.onclose = (/** @type {any} */ event) => { if (this.socket === socket) this.lost(event.code); };
  }

  /** @param {any} data */
  read(data) {
    this.heard = Date.now();
    let frame;
    try { frame = JSON.parse(data); } catch { return; }
    if (frame?.t === "pong") return;
    if (frame?.t === "bye") this.hint = Number(frame.retry_ms) || 0;
    const joined = frame?.t === "welcome" && !this.online;
    if (frame?.t === "welcome") this.greeted(frame);
    this.hooks.frame(frame, joined);
  }

  /** @param {any} frame */
  greeted(frame) {
    this.timer("hello");
    this.failures = 0;
    if (!this.streams) this.misses = 0;
    this.hint = 0;
    this.online = true;
    this.heartbeat = Math.max(Number(frame.heartbeat_ms) || 25_000, 250);
    this.beat();
    this.hooks.status("online");
  }

  // Silent for two heartbeats is dead, whatever the browser says.
  beat() {
    this.timer("beat", () => {
      if (Date.now() - this.heard > this.heartbeat * 2) return this.drop();
      this.send({ t: "ping", n: ++this.pings });
      this.beat();
    }, this.heartbeat);
  }

  close() {
    const { socket } = this;
    const missed = socket && !this.online && !this.streams && ++this.misses;
    if (missed === 1) this.hooks.missed();
    if (missed === MISSES) {
      import("./sse.js").then((one) => { this.Line = one.Line; }, () => { this.misses = 0; });
    }
    this.socket = null;
    this.online = false;
    this.timer("hello");
    this.timer("beat");
    socket?.close(1000);
  }

  drop() {
    this.close();
    if (this.stopped) return;
    this.away();
    this.later(0);
  }

  /** After a failure only: what the browser says of the network explains it, and proves nothing. */
  away() {
    this.hooks.status(navigator.onLine === false ? "offline" : "reconnecting");
  }

  /** @param {number} code */
  lost(code) {
    this.close();
    if (FATAL.has(code) || (code === 4401 && !this.hooks.forget())) {
      this.stopped = true;
      return this.hooks.status("refused");
    }
    this.away();
    this.later(code === 4429 ? 15_000 : this.hint);
  }

  /** @param {number} least */
  later(least) {
    const wait = least + Math.random() * Math.min(30_000, 500 * 2 ** this.failures);
    this.failures = Math.min(this.failures + 1, 10);
    this.timer("retry", () => this.open(), wait);
  }

  hurry() {
    if (this.stopped) return;
    if (!this.socket) return this.open();
    // After sleep a socket often looks open and is not: ask, and give it little time.
    if (!this.send({ t: "ping", n: ++this.pings })) return;
    const asked = Date.now();
    this.timer("beat", () => (this.heard < asked ? this.drop() : this.beat()), Math.min(this.heartbeat, 5000));
  }
}
