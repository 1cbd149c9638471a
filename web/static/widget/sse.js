/** The connection where WebSockets do not work: frames come by an event stream or by waiting requests, and go out by requests. */
import { shut, socketUrl } from "./socket.js";

const QUIET_MS = 40_000;
/** Most milliseconds from an acknowledgement to its event. */
const ECHO_MS = 6000;
const HOLD_SECONDS = 25;
const CODES = { bad_frame: 4400, unknown_token: 4401, unauthorized: 4401, identity_required: 4401, identity_invalid: 4401, identity_expired: 4401, unknown_site: 4403, foreign_origin: 4403, rate_limited: 4429 };
/** Close code of a connection on which an acknowledged message brought no event. */
const MUTE = 4000;
/** Seconds that a request may wait; fewer behind a proxy that cuts requests. */
let hold = HOLD_SECONDS;
/** Whether streams fall silent here after their welcome; then only WebSockets are tried again. */
let mute = false;
/** Searches for a better transport since the last WebSocket. */
let climbs = 0;

/** An event stream with the part of a WebSocket's interface that `Connection` uses. */
export class Line {
  /** @param {string} address that a WebSocket would have */
  constructor(address) {
    this.address = address;
    this.base = new URL("api/v1/stream", address.replace("ws", "http")).href;
    this.readyState = 0;
    /** @type {any[]} */
    this.queue = [];
    this.busy = false;
    this.heard = Date.now();
    this.token = this.fresh = this.name = this.session = "";
    /** @type {any} */
    this.hello = {};
    /** @type {EventSource | null} */
    this.source = null;
    this.onopen = () => {};
    /** @type {(event: {data: string}) => void} */
    this.onmessage = () => {};
    /** @type {(event: {code: number}) => void} */
    this.onclose = () => {};
    queueMicrotask(() => { if (!this.readyState) { this.readyState = 1; this.onopen(); } });
  }

  /** Sends a frame as a WebSocket would: the hello opens the stream, other frames are queued. @param {string} text */
  send(text) {
    const frame = JSON.parse(text);
    if (frame.t === "hello") return void this.begin(frame);
    this.queue.push(frame);
    void this.pump();
  }

  /** Sends the hello by a request, and listens to the stream that the answer names. @param {any} hello */
  async begin(hello) {
    this.hello = hello;
    const answer = await this.ask("", hello);
    if (!answer || this.readyState !== 1) return;
    this.fresh = answer.token ?? "";
    this.token = this.fresh || (hello.token ?? "");
    this.name = answer.stream;
    this.listen(answer);
  }

  /** Opens the event stream with the ticket of the answer. @param {any} answer */
  listen(answer) {
    const source = this.source = new EventSource(`${this.base}?ticket=${encodeURIComponent(answer.ticket)}`);
    source.onmessage = (event) => this.take(JSON.parse(event.data));
    source.addEventListener("close", (event) => this.end(JSON.parse(event.data).code));
    // No reconnection by the browser: the ticket is used up, and a new hello gets a new one.
    source.onerror = () => this.end(1006);
  }

  /** Handles a frame of the stream, which also shows that the stream works. @param {any} frame */
  take(frame) {
    this.heard = Date.now();
    if (frame.t === "welcome") {
      if (this.fresh) frame.token = this.fresh;
      this.session = frame.session;
    }
    this.say(frame);
  }

  /** Passes a frame to `onmessage` unless the line has ended. @param {any} frame */
  say(frame) {
    if (this.readyState === 1) this.onmessage({ data: JSON.stringify(frame) });
  }

  /** Sends queued frames, one request at a time to keep their order; frames that wait go together. */
  async pump() {
    while (!this.busy && this.queue.length && this.readyState === 1) {
      const frames = [this.queue.shift()];
      while (this.queue.length && frames.length < 30 && JSON.stringify([frames, this.queue[0]]).length < 80_000) frames.push(this.queue.shift());
      this.busy = true;
      const asked = Date.now();
      const answer = await this.ask("/send", { site: this.hello.site, locale: this.hello.locale, stream: this.name, ...(this.session && { session: this.session }), frames });
      this.busy = false;
      for (const frame of answer?.frames ?? []) {
        // an answer to a request does not show that the stream still works
        if (frame.t !== "pong" || Date.now() - this.heard < QUIET_MS) this.say(frame);
      }
      if (answer?.close) this.end(answer.close.code);
      // Accepted, but no event came: a proxy holds back what the server sends.
      if (answer?.frames.some((/** @type {any} */ one) => one.t === "ack" && one.mid && !one.dup)) setTimeout(() => { if (this.heard < asked) { mute = true; this.end(MUTE); } }, ECHO_MS);
    }
  }

  /** Sends a request by POST; a failure ends the line. @param {string} path @param {object} body @returns {Promise<any>} null when this line is over */
  async ask(path, body) {
    const answer = await this.call(path, 20, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });
    if (!answer.failed) return answer;
    this.end(answer.failed);
    return null;
  }

  /** Sends a request and returns its answer; never rejects. @param {string} path @param {number} seconds @param {any} [how] @returns {Promise<any>} what was answered, or as `failed` the code of a socket that would break so */
  async call(path, seconds, how = {}) {
    try {
      const response = await fetch(this.base + path, {
        ...how, cache: "no-store", signal: AbortSignal.timeout(seconds * 1000), headers: { ...how.headers, ...(this.token && { Authorization: `Bearer ${this.token}` }) },
      });
      if (response.status === 204) return { frames: [{ t: "pong", n: 0 }] };
      const answer = await response.json();
      if (response.ok) return answer;
      // A socket would report this in a frame; without it the connection would blame its token and drop it.
      if (/^identity/.test(answer.code)) this.say({ t: "error", code: answer.code, message: answer.message });
      return { failed: /** @type {any} */ (CODES)[answer.code] ?? 1006 };
    } catch { return { failed: 1006 }; }
  }

  /** Ends the line with the code 1000, as a WebSocket does. */
  close() {
    this.end(1000);
  }

  /** Ends the line with a close code; further calls do nothing. @param {number} code */
  end(code) {
    if (this.readyState === 3) return;
    this.readyState = 3;
    this.source?.close();
    this.onclose({ code });
  }
}

/** Requests that each wait for the next frames, for proxies that hold streams back. */
export class Poll extends Line {
  async listen() {
    let after = this.hello.last_seq;
    let batch = "";
    let failures = 0;
    while (this.readyState === 1) {
      const asked = Date.now();
      const query = { site: this.hello.site, stream: this.name, after, batch, wait: String(hold), locale: this.hello.locale ?? "", session: this.session || (this.hello.session ?? "") };
      const answer = await this.call(`/events?${new URLSearchParams(query)}`, hold + 10);
      if (this.readyState !== 1) return;
      if (!Array.isArray(answer.frames)) {
        // Too many requests break nothing; behind a proxy that cuts waiting requests, they wait for less time.
        const code = answer.failed ?? 1006;
        if (++failures > 4 || !/1006|4429/.test(code)) return this.end(code);
        const waited = (Date.now() - asked) / 1000;
        if (batch && waited > 0.5) hold = Math.max(1, Math.floor(Math.min(hold, waited) * 0.8));
        await new Promise((done) => setTimeout(done, 150 * 2 ** failures));
        continue;
      }
      failures = 0;
      batch = answer.batch ?? batch;
      for (const frame of answer.frames) {
        after = Math.max(after, (frame.t === "welcome" ? frame.head : frame.event_seq) ?? 0);
        this.take(frame);
      }
      if (answer.close) this.end(answer.close.code);
    }
  }
}

const WAYS = [WebSocket, Line, Poll];
/** Transports in the order of attempts: a WebSocket twice, an event stream, waiting requests. */
const ROUND = [0, 0, 1, 2];

/** Opens the transport whose turn it is. @param {import("./net.js").Connection} net @returns {any} */
export const open = (net) => new WAYS[net.way = ROUND[net.misses % 4]](socketUrl());

/** Tries the transports after one that stays without a welcome. @param {import("./net.js").Connection} net */
export const descend = (net) => race(net, [1, 2].slice(net.way));

/** Tries transports one after the other, and changes to the first that gets a welcome. @param {import("./net.js").Connection} net @param {number[]} ways */
function race(net, [way, ...others]) {
  const { socket: from } = net;
  if (!from || way === undefined) return;
  /** @type {any} */
  const trial = new WAYS[way](socketUrl());
  const over = () => {
    clearTimeout(timer);
    trial.onclose = trial.onmessage = () => {};
    shut(trial);
    if (net.socket === from) race(net, others);
  };
  const timer = setTimeout(over, others[0] ? 3000 : 10_000);
  trial.onopen = () => trial.send(JSON.stringify(net.hooks.hello()));
  trial.onclose = over;
  trial.onmessage = (/** @type {any} */ event) => {
    if (net.socket !== from || JSON.parse(event.data).t !== "welcome") return;
    clearTimeout(timer);
    net.close(true);
    net.way = way;
    net.misses = way && way + 1;
    if (!way) climbs = 0;
    net.hold(trial);
    net.read(event.data);
  };
}

/** Looks for a better transport while a worse one is in use, at growing intervals. @param {import("./net.js").Connection} net */
export function climb(net) {
  net.timer("climb", () => { race(net, [0, 1].slice(0, mute ? 1 : net.way)); climb(net); }, net.heartbeat * Math.min(0.4 * 2 ** climbs++, 4));
}
