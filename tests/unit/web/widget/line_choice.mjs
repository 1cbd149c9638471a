/**
 * Plays a `Connection` against ways that open, hang, stay mute or are refused, on a clock of its own.
 * Usage: node line_choice.mjs NET_JS SCENARIO; prints what happened as JSON.
 */
import { pathToFileURL } from "node:url";

const [, , path, scenario] = process.argv;

/* ---- a clock that only moves when all that is due now is done ---- */
let now = 1_000_000;
let timers = [];
const realTimeout = globalThis.setTimeout;
globalThis.setTimeout = (run, ms = 0) => { const timer = { run, at: now + Math.max(0, ms) }; timers.push(timer); return timer; };
globalThis.clearTimeout = (timer) => { timers = timers.filter((one) => one !== timer); };
Date.now = () => now;
Math.random = () => 1;
const settle = async () => { for (let n = 0; n < 12; n++) await new Promise((done) => realTimeout(done)); };
async function pass(ms) {
  const end = now + ms;
  for (;;) {
    await settle();
    const [next] = timers.filter((one) => one.at <= end).sort((a, b) => a.at - b.at);
    if (!next) break;
    timers = timers.filter((one) => one !== next);
    now = Math.max(now, next.at);
    next.run();
  }
  now = end;
}

/* ---- the network: `way` says what each of the three does ---- */
/** @type {{socket: string, stream: string, poll: string, cut: number}} */
const way = { socket: "works", stream: "works", poll: "works", cut: 0 };
const log = { sockets: 0, streams: 0, polls: 0, waits: [], sent: [] };
const open = new Set();
let number = 0;
const frames = [];
const welcome = () => ({ t: "welcome", session: "s", head: number, resumed: true, events: [], heartbeat_ms: 25_000 });
/** The server says something to whoever is there. */
function event() {
  const frame = { t: "msg", role: "person", mid: `m${++number}`, event_seq: number };
  frames.push(frame);
  for (const one of open) one.hear(frame);
}

globalThis.WebSocket = class WebSocket {
  static OPEN = 1;
  constructor() {
    log.sockets++;
    this.readyState = 0;
    if (way.socket === "works" || way.socket === "mute") setTimeout(() => { this.readyState = 1; this.onopen?.(); }, 20);
    if (way.socket === "refused") setTimeout(() => this.lose(1006), 20);
  }
  send(text) {
    const frame = JSON.parse(text);
    if (way.socket !== "works") return;
    if (frame.t === "hello") { open.add(this); this.hear(welcome()); }
    if (frame.t === "ping") this.hear({ t: "pong", n: frame.n });
  }
  hear(frame) { setTimeout(() => this.readyState === 1 && this.onmessage?.({ data: JSON.stringify(frame) }), 10); }
  lose(code) { open.delete(this); this.readyState = 3; this.onclose?.({ code }); }
  close() { open.delete(this); this.readyState = 3; }
};
globalThis.EventSource = class EventSource {
  constructor() {
    log.streams++;
    if (way.stream === "refused") setTimeout(() => this.onerror?.(), 20);
    if (way.stream === "works" || way.stream === "mute later") { open.add(this); this.hear(welcome()); }
  }
  addEventListener() {}
  hear(frame) { if (way.stream === "works" || frame.t === "welcome") setTimeout(() => open.has(this) && this.onmessage?.({ data: JSON.stringify(frame) }), 10); }
  close() { open.delete(this); }
};
const json = (body, status = 200) => ({ ok: status < 400, status, json: async () => body });
const html = (status) => ({ ok: status < 400, status, json: async () => { throw new SyntaxError("<html>"); } });
globalThis.fetch = (url, { method = "GET", body }) => new Promise((done, fail) => {
  const { pathname, searchParams } = new URL(url);
  if (way.poll === "away") return setTimeout(() => fail(new TypeError("refused")), 20);
  if (method === "POST") {
    const frame = JSON.parse(body);
    if (frame.t === "hello") return setTimeout(() => done(json({ ticket: "t", stream: "a".repeat(24), token: "v" })), 20);
    log.sent.push(...frame.frames);
    return setTimeout(() => {
      const acks = frame.frames.map((one) => (one.t === "ping" ? { t: "pong", n: one.n } : { t: "ack", cid: one.cid, mid: "m1", event_seq: number + 1 }));
      if (frame.frames.some((one) => one.t === "msg")) event();
      done(json({ frames: acks }));
    }, 20);
  }
  if (!pathname.endsWith("/events")) return fail(new Error(`unknown ${url}`));
  log.polls++;
  if (/^\d+$/.test(way.poll)) return setTimeout(() => done(html(Number(way.poll))), 20);
  const wait = Number(searchParams.get("wait"));
  log.waits.push(wait);
  const answer = (found) => done(json({ frames: found, batch: `b${log.polls}` }));
  if (!searchParams.get("batch")) return setTimeout(() => answer([welcome()]), 20);
  const seen = Number(searchParams.get("after"));
  const missed = frames.filter((one) => one.event_seq > seen);
  if (missed.length) return setTimeout(() => answer(missed), 20);
  const waiting = { hear: (frame) => { open.delete(waiting); clearTimeout(timer); answer([frame]); } };
  open.add(waiting);
  const timer = setTimeout(() => {
    open.delete(waiting);
    if (way.cut && wait * 1000 >= way.cut) fail(new TypeError("cut"));
    else done({ ok: true, status: 204 });
  }, way.cut ? Math.min(way.cut, wait * 1000) : wait * 1000);
});
Object.assign(globalThis, { document: { addEventListener() {}, removeEventListener() {}, visibilityState: "visible" }, addEventListener() {}, removeEventListener() {} });
Object.defineProperty(globalThis, "navigator", { value: { onLine: true }, configurable: true });
AbortSignal.timeout = () => undefined;

const { Connection } = await import(pathToFileURL(path).href);
// The first import reads a file in real time; the clock here would pass the later ways meanwhile.
await import(new URL("./sse.js", pathToFileURL(path)).href);
const started = now;
const seen = [];
const ways = [];
const states = [];
const net = new Connection({
  hello: () => ({ t: "hello", v: 1, site: "default", last_seq: Math.max(0, ...seen), locale: "en", tz: "UTC", begin: false }),
  frame: (frame, joined) => {
    if (joined) ways.push({ way: net.way, at: now - started });
    if (frame.event_seq && !seen.includes(frame.event_seq)) seen.push(frame.event_seq);
  },
  status: (status) => { if (states.at(-1) !== status) states.push(status); }, forget: () => true, missed: () => {},
});

const scenarios = {
  async "all works"() { net.start(); await pass(60_000); },
  async "socket refused"() { way.socket = "refused"; net.start(); await pass(10_000); },
  async "socket hangs"() { way.socket = "hangs"; net.start(); await pass(10_000); },
  async "socket opens and is mute"() { way.socket = "mute"; net.start(); await pass(10_000); },
  async "socket refused, stream silent"() { Object.assign(way, { socket: "refused", stream: "silent" }); net.start(); await pass(10_000); },
  async "socket hangs, stream silent"() { Object.assign(way, { socket: "hangs", stream: "silent" }); net.start(); await pass(10_000); },
  async "socket hangs, stream refused"() { Object.assign(way, { socket: "hangs", stream: "refused" }); net.start(); await pass(10_000); },
  async "both refused"() { Object.assign(way, { socket: "refused", stream: "refused" }); net.start(); await pass(10_000); },
  async "stream falls silent after its welcome"() {
    Object.assign(way, { socket: "refused", stream: "mute later" });
    net.start();
    await pass(8_000);
    net.send({ t: "msg", cid: "c1", text: "hello" });
    await pass(12_000);
  },
  async "polls are cut after five seconds"() {
    Object.assign(way, { socket: "refused", stream: "refused", cut: 5_000 });
    net.start();
    await pass(60_000);
    event();
    await pass(1_000);
  },
  async "some polls fail"() {
    Object.assign(way, { socket: "refused", stream: "refused" });
    net.start();
    await pass(10_000);
    for (const status of ["502", "403", "200"]) {
      way.poll = status;
      event();
      await pass(900);
      way.poll = "works";
      await pass(5_000);
    }
  },
  async "socket works again"() {
    Object.assign(way, { socket: "refused", stream: "silent" });
    net.start();
    await pass(10_000);
    way.socket = "works";
    event();
    await pass(60_000);
    event();
    await pass(1_000);
  },
  async "stream works again"() {
    Object.assign(way, { socket: "refused", stream: "silent" });
    net.start();
    await pass(10_000);
    way.stream = "works";
    await pass(60_000);
    event();
    await pass(1_000);
  },
  async "server restarts"() {
    net.start();
    await pass(5_000);
    Object.assign(way, { socket: "refused", stream: "refused", poll: "away" });
    for (const one of [...open]) one.lose?.(1012);
    await pass(20_000);
    Object.assign(way, { socket: "works", stream: "works", poll: "works" });
    event();
    await pass(180_000);
  },
};
await scenarios[scenario]();
console.log(JSON.stringify({ ways, states, seen, way: net.way, online: net.online, open: open.size, ...log, sent: log.sent.filter((one) => one.t !== "ping").length }));
process.exit(0);
