/** Keeps one connection alive: hello, backoff with full jitter, heartbeat, and resume after every interruption. */
import { shut, socketUrl } from "./socket.js";

const HELLO_MS = 10_000;
/** Milliseconds without a welcome after which another transport is tried as well, since a proxy may hold everything back. */
const SOON_MS = 3000;
const FATAL = new Set([4400, 4403]);
/** Close code of a connection that is open but brings no more frames. */
const MUTE = 4000;

/** Connection to the server that is opened again after each interruption until `stop`. */
export class Connection {
  /** @param {{hello: () => object, frame: (frame: any, joined: boolean) => void, status: (status: string) => void, forget: () => boolean, missed: () => void}} hooks */
  constructor(hooks) {
    this.hooks = hooks;
    /** @type {any} */
    this.socket = null;
    /** Attempts without a welcome; they also choose the transport of the next attempt. */
    this.misses = 0;
    this.way = 0;
    /** @type {typeof import("./sse.js") | null} */
    this.other = null;
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

  /** Opens the connection and keeps it open; further calls do nothing. */
  start() {
    if (!this.stopped) return;
    this.stopped = false;
    addEventListener("online", this.wake);
    // A server on the same machine needs no network, so only a server that does not answer counts as unreachable.
    addEventListener("offline", this.wake);
    document.addEventListener("visibilitychange", this.seen);
    this.hooks.status("connecting");
    this.open();
  }

  /** Closes the connection until `start` is called again. */
  stop() {
    this.stopped = true;
    removeEventListener("online", this.wake);
    removeEventListener("offline", this.wake);
    document.removeEventListener("visibilitychange", this.seen);
    this.reconnect();
    this.hooks.status("closed");
  }

  /** Sends a frame; returns false without sending if there is no welcomed connection. @param {object} frame */
  send(frame) {
    if (!this.online || this.socket?.readyState !== WebSocket.OPEN) return false;
    this.socket.send(JSON.stringify(frame));
    return true;
  }

  /** Closes the socket, and opens a new one if that is still wanted. */
  reconnect() {
    this.close(true);
    this.open();
  }

  /** Sets the timer `name`, which replaces the former one; without `run` it is only cleared. @param {string} name @param {() => void} [run] @param {number} [ms] */
  timer(name, run, ms = 0) {
    clearTimeout(this.timers[name]);
    if (run) this.timers[name] = setTimeout(run, ms);
  }

  /** Opens a socket unless there is one; the transport follows from `misses`. */
  open() {
    if (this.stopped || this.socket) return;
    this.timer("retry");
    this.way = 0;
    const socket = this.other?.open(this) ?? new WebSocket(socketUrl());
    socket.onopen = () => socket.send(JSON.stringify(this.hooks.hello()));
    this.hold(socket);
    this.timer("hello", () => this.drop(), HELLO_MS);
    this.timer("soon", () => this.bring().then((one) => one?.descend(this)), SOON_MS);
  }

  /** Makes a socket the current one; events of former sockets are ignored. @param {any} socket */
  hold(socket) {
    this.socket = socket;
    socket.onmessage = (/** @type {any} */ event) => { if (this.socket === socket) this.read(event.data); };
    socket.onclose = (/** @type {any} */ event) => { if (this.socket === socket) this.lost(event.code); };
  }

  /** Loads the transports other than WebSocket. */
  bring() {
    return import("./sse.js").then((one) => (this.other = one), () => null);
  }

  /** Handles one received text: pongs are dropped, other frames are passed to the hook `frame`. @param {any} data */
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

  /** Marks the connection as online after a welcome, and starts heartbeats. @param {any} frame */
  greeted(frame) {
    this.timer("hello");
    this.timer("soon");
    this.failures = 0;
    if (!this.way) this.misses = 0;
    this.hint = 0;
    this.online = true;
    this.heartbeat = Math.max(Number(frame.heartbeat_ms) || 25_000, 250);
    this.beat();
    if (this.way) this.other?.climb(this);
    this.hooks.status("online");
  }

  // A connection that is silent for two heartbeats is dead, whatever the browser says.
  beat() {
    this.timer("beat", () => {
      if (Date.now() - this.heard > this.heartbeat * 2) return this.lost(MUTE);
      this.send({ t: "ping", n: ++this.pings });
      this.beat();
    }, this.heartbeat);
  }

  /** Closes the current socket and clears all timers. @param {boolean} [meant] no failure of the line */
  close(meant = false) {
    const { socket } = this;
    if (socket && !this.online && !meant && ++this.misses === 1) { this.hooks.missed(); void this.bring(); }
    this.socket = null;
    this.online = false;
    for (const name in this.timers) this.timer(name);
    shut(socket);
  }

  /** Gives up the current socket after a failure, and plans the next attempt. */
  drop() {
    this.close();
    if (this.stopped) return;
    this.away();
    this.later(0);
  }

  /** Reports the network's state as the browser sees it, but only after a failure, since it explains a failure and proves nothing. */
  away() {
    this.hooks.status(navigator.onLine === false ? "offline" : "reconnecting");
  }

  /** Handles the end of a socket: plans the next attempt, or stops if the close code is final. @param {number} code */
  lost(code) {
    // A refusal by the server is no fault of the connection.
    this.close(code > MUTE);
    // the next transport, not the same again
    if (code === MUTE) this.misses++;
    if (FATAL.has(code) || (code === 4401 && !this.hooks.forget())) {
      this.stopped = true;
      return this.hooks.status("refused");
    }
    this.away();
    this.later(code === 4429 ? 15_000 : this.hint);
  }

  /** Plans the next attempt after `least` milliseconds and a random wait that grows with each failure to 30 seconds. @param {number} least */
  later(least) {
    const wait = least + Math.random() * Math.min(30_000, 500 * 2 ** this.failures);
    this.failures = Math.min(this.failures + 1, 10);
    this.timer("retry", () => this.open(), wait);
  }

  /** Opens the connection at once if there is none, else checks by a ping that the socket still works. */
  hurry() {
    if (this.stopped) return;
    if (!this.socket) return this.open();
    // After sleep a socket often looks open but is not: send a ping and wait only briefly for the answer.
    if (!this.send({ t: "ping", n: ++this.pings })) return;
    const asked = Date.now();
    this.timer("beat", () => (this.heard < asked ? this.drop() : this.beat()), Math.min(this.heartbeat, 5000));
  }
}
