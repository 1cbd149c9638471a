/** Keeps one WebSocket alive: hello, backoff with full jitter, heartbeat, resume after every break. */

const HELLO_MS = 10_000;
const FATAL = new Set([4400, 4403]);

/** The address of the socket: on the server this module came from. */
export function socketUrl() {
  const url = new URL("../../ws", import.meta.url);
  url.protocol = url.protocol.replace("http", "ws");
  return url.href;
}

/**
 * @typedef {object} Hooks
 * @property {() => object} hello makes the first frame
 * @property {(frame: any, joined: boolean) => void} frame
 * @property {(status: "connecting" | "online" | "reconnecting" | "offline" | "refused" | "closed") => void} status
 * @property {() => boolean} forget called when the token was refused; true when a fresh start makes sense
 */

export class Connection {
  /** @param {Hooks} hooks */
  constructor(hooks) {
    this.hooks = hooks;
    /** @type {WebSocket | null} */
    this.socket = null;
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
    this.gone = () => this.drop("offline");
  }

  start() {
    if (!this.stopped) return;
    this.stopped = false;
    addEventListener("online", this.wake);
    addEventListener("offline", this.gone);
    document.addEventListener("visibilitychange", this.seen);
    this.hooks.status("connecting");
    this.open();
  }

  stop() {
    this.stopped = true;
    removeEventListener("online", this.wake);
    removeEventListener("offline", this.gone);
    document.removeEventListener("visibilitychange", this.seen);
    for (const name of Object.keys(this.timers)) this.timer(name);
    this.close();
    this.hooks.status("closed");
  }

  /** @param {object} frame @returns {boolean} whether it was handed to an open socket */
  send(frame) {
    if (!this.online || this.socket?.readyState !== WebSocket.OPEN) return false;
    this.socket.send(JSON.stringify(frame));
    return true;
  }

  /** Leaves the socket and comes back at once: the welcome then fills what was missed. */
  resync() {
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
    if (navigator.onLine === false) return this.hooks.status("offline");
    const socket = new WebSocket(socketUrl());
    this.socket = socket;
    this.timer("hello", () => this.drop("reconnecting"), HELLO_MS);
    socket.onopen = () => socket.send(JSON.stringify(this.hooks.hello()));
    socket.onmessage = (event) => { if (this.socket === socket) this.read(event.data); };
    socket.onclose = (event) => { if (this.socket === socket) this.lost(event.code); };
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
    this.hint = 0;
    this.online = true;
    this.heartbeat = Math.max(Number(frame.heartbeat_ms) || 25_000, 250);
    this.beat();
    this.hooks.status("online");
  }

  /** A socket that stays silent for two heartbeats is dead, whatever the browser says. */
  beat() {
    this.timer("beat", () => {
      if (Date.now() - this.heard > this.heartbeat * 2) return this.drop("reconnecting");
      this.send({ t: "ping", n: ++this.pings });
      this.beat();
    }, this.heartbeat);
  }

  close() {
    const socket = this.socket;
    this.socket = null;
    this.online = false;
    this.timer("hello");
    this.timer("beat");
    if (socket) socket.close(1000);
  }

  /** @param {"offline" | "reconnecting"} status */
  drop(status) {
    this.close();
    if (this.stopped) return;
    this.hooks.status(status);
    if (status !== "offline") this.later(0);
  }

  /** @param {number} code */
  lost(code) {
    this.close();
    if (FATAL.has(code) || (code === 4401 && !this.hooks.forget())) {
      this.stopped = true;
      return this.hooks.status("refused");
    }
    this.hooks.status(navigator.onLine === false ? "offline" : "reconnecting");
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
    this.timer("beat", () => (this.heard < asked ? this.drop("reconnecting") : this.beat()), Math.min(this.heartbeat, 5000));
  }
}
