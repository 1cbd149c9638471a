/** The same talk where no WebSocket gets through: an event stream brings the frames, requests carry ours. */

const QUIET_MS = 40_000;
const CODES = { bad_frame: 4400, unknown_token: 4401, identity_required: 4401, identity_invalid: 4401, identity_expired: 4401, unknown_site: 4403, foreign_origin: 4403, rate_limited: 4429 };

/** Behaves like a WebSocket, as far as a connection asks. */
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

  /** @param {string} text */
  send(text) {
    const frame = JSON.parse(text);
    if (frame.t === "hello") return void this.begin(frame);
    this.queue.push(frame);
    void this.pump();
  }

  /** @param {any} hello */
  async begin(hello) {
    this.hello = hello;
    const answer = await this.ask("", hello);
    if (!answer || this.readyState !== 1) return;
    this.fresh = answer.token ?? "";
    this.token = this.fresh || (hello.token ?? "");
    this.name = answer.stream;
    const source = this.source = new EventSource(`${this.base}?ticket=${encodeURIComponent(answer.ticket)}`);
    source.onmessage = (event) => this.take(event.data);
    source.addEventListener("close", (event) => this.end(JSON.parse(event.data).code));
    // Never again by itself: the ticket is spent, a new hello gets a new one.
    source.onerror = () => this.end(1006);
  }

  /** @param {string} data */
  take(data) {
    this.heard = Date.now();
    const frame = JSON.parse(data);
    if (frame.t === "welcome") {
      if (this.fresh) frame.token = this.fresh;
      this.session = frame.session;
      clearInterval(this.probing);
      this.probing = setInterval(() => this.probe(), 4 * (Number(frame.heartbeat_ms) || 25_000));
    }
    this.say(frame);
  }

  /** @param {any} frame */
  say(frame) {
    if (this.readyState === 1) this.onmessage({ data: JSON.stringify(frame) });
  }

  /** One request at a time keeps the order; what piles up meanwhile goes together. */
  async pump() {
    while (!this.busy && this.queue.length && this.readyState === 1) {
      const frames = [this.queue.shift()];
      while (this.queue.length && frames.length < 30 && JSON.stringify([frames, this.queue[0]]).length < 80_000) frames.push(this.queue.shift());
      this.busy = true;
      const answer = await this.ask("/send", { site: this.hello.site, locale: this.hello.locale, stream: this.name, ...(this.session && { session: this.session }), frames });
      this.busy = false;
      for (const frame of answer?.frames ?? []) {
        // An answer to a request is no sign that the stream still lives.
        if (frame.t !== "pong" || Date.now() - this.heard < QUIET_MS) this.say(frame);
      }
      if (answer?.close) this.end(answer.close.code);
    }
  }

  /** @param {string} path @param {object} body @returns {Promise<any>} null when this line is over */
  async ask(path, body) {
    let code = 1006;
    try {
      const response = await fetch(this.base + path, {
        method: "POST", body: JSON.stringify(body), signal: AbortSignal.timeout(20_000),
        headers: { "Content-Type": "application/json", ...(this.token && { Authorization: `Bearer ${this.token}` }) },
      });
      const answer = await response.json();
      if (response.ok) return answer;
      code = /** @type {any} */ (CODES)[answer.code] ?? code;
      // A socket would say so in a frame: else the token is thought to be at fault, and thrown away.
      if (/^identity/.test(answer.code)) this.say({ t: "error", code: answer.code, message: answer.message });
    } catch { /* as if a socket broke */ }
    this.end(code);
    return null;
  }

  /** A socket that opens is the better line: the connection says hello there at once. */
  probe() {
    const socket = new WebSocket(this.address);
    socket.onopen = () => { socket.close(); this.end(1000); };
  }

  close() {
    this.end(1000);
  }

  /** @param {number} code */
  end(code) {
    if (this.readyState === 3) return;
    this.readyState = 3;
    clearInterval(this.probing);
    this.source?.close();
    this.onclose({ code });
  }
}
