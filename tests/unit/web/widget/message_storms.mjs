/**
 * Plays storms over a model of the server's log and two tabs, each with a real `Conversation`. Prints how many storms
 * ended, or ever stood, in another order than the log, and the first of them.
 * Usage: node message_storms.mjs STATE_JS STORMS SEED
 */
import { pathToFileURL } from "node:url";

const [, , path, storms, start] = process.argv;
const { Conversation } = await import(pathToFileURL(path).href);

let seed = Number(start);
const chance = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
const some = (most) => Math.floor(chance() * most);
const pick = (all) => all[some(all.length)];

/** The log as the database holds it: every event has the next number. */
class Server {
  constructor() {
    this.events = [];
    this.stored = new Map();
    this.asked = this.answered = this.entries = 0;
    this.running = false;
    this.tabs = [];
  }

  add(event) {
    const numbered = { event_seq: this.events.length + 1, ...event };
    this.events.push(numbered);
    for (const tab of this.tabs) tab.hear(numbered);
    return numbered;
  }

  receive(tab, frame) {
    const known = this.stored.get(frame.cid);
    if (known) return tab.hear({ t: frame.t === "msg" ? "ack" : "none", cid: frame.cid, mid: known.mid, event_seq: known.event_seq, dup: true });
    const event = frame.t === "command" ? { t: "command.result", cid: frame.cid, command: "help", success: true, result: "Done" }
      : { t: "msg", role: "person", mid: `m${++this.entries}`, cid: frame.cid, text: frame.text, turn: ++this.asked };
    // The acknowledgement may come before the event, or after it.
    const first = chance() < 0.5;
    const next = this.events.length + 1;
    const ack = frame.t === "msg" && { t: "ack", cid: frame.cid, mid: event.mid, event_seq: next };
    if (ack && first) tab.hear(ack);
    this.stored.set(frame.cid, this.add(event));
    if (ack && !first) tab.hear(ack);
  }

  say(frame) {
    for (const tab of this.tabs) tab.hear(frame);
  }

  work() {
    const turn = this.answered + 1;
    if (!this.running) {
      if (this.asked < turn) return;
      this.running = true;
      this.say({ t: "run", turn, state: "started" });
    } else if (chance() < 0.6) {
      this.say({ t: "delta", turn, attempt: 1, off: 0, text: "It is" });
    } else {
      this.running = false;
      this.answered = turn;
      this.add({ t: "msg", role: "assistant", mid: `m${++this.entries}`, turn, text: "It is so." });
      this.say({ t: "run", turn, state: "done" });
      if (chance() < 0.1) this.add({ t: "compaction", id: `s${turn}`, state: "done", through_turn: turn });
      if (chance() < 0.05) this.add({ t: "handover", state: "human", name: "Ada" });
    }
  }

  welcome(last) {
    const head = this.events.length;
    const resumed = last > 0 && last <= head && chance() < 0.8;
    const newest = chance() < 0.2 ? 8 : 500;
    const events = resumed ? this.events.slice(last) : this.events.slice(-newest);
    // The state is read a moment after the events.
    const run = this.running ? { turn: this.answered + 1, state: "started", ...(chance() < 0.5 && { text: "It" }) } : undefined;
    return { t: "welcome", session: "s", log_epoch: 1, head, resumed, audience: "personal", events, state: { ...(run && { run }), queued: [] } };
  }
}

class Tab {
  constructor(server, name) {
    this.server = server;
    this.name = name;
    this.said = 0;
    /** What the browser's store keeps until it is confirmed. */
    this.kept = new Map();
    this.reload();
  }

  reload() {
    this.up = false;
    this.inbox = [];
    this.outbox = [];
    this.chat = new Conversation({ changed() {}, said() {}, gap: () => { this.lost = true; } });
    for (const entry of this.kept.values()) this.chat.send(entry);
  }

  hear(frame) {
    if (this.up) this.inbox.push(frame);
  }

  cut() {
    this.up = false;
    this.inbox = [];
    // What was on its way may still have arrived.
    for (const frame of this.outbox.splice(0)) if (chance() < 0.3) this.server.receive(this, frame);
  }

  connect() {
    this.up = true;
    this.lost = false;
    this.take(this.server.welcome(this.chat.last));
    for (const entry of this.kept.values()) {
      const item = this.chat.byCid(entry.cid);
      if (!item) this.chat.send(entry);
      if ((item ?? this.chat.byCid(entry.cid)).status === "sending") this.outbox.push({ t: "msg", ...entry });
    }
    for (const item of this.chat.items) if (item.kind === "result" && item.pending) this.outbox.push({ t: "command", cid: item.cid });
  }

  take(frame) {
    this.chat.take(frame);
    for (const one of frame.events ?? [frame]) if (one.cid && (one.t === "ack" || one.t === "msg")) this.kept.delete(one.cid);
  }

  say() {
    const cid = `${this.name}${++this.said}`;
    if (chance() < 0.15) {
      this.chat.command(cid, "help", "");
      if (this.up) this.outbox.push({ t: "command", cid });
      return;
    }
    const entry = { cid, text: `words ${cid}`, at: "", order: this.said };
    this.kept.set(cid, entry);
    this.chat.send(entry);
    if (this.up) this.outbox.push({ t: "msg", ...entry });
  }

  /** A message that was not confirmed fails; the person sends it again under the same id. */
  fail() {
    for (const item of this.chat.items) if (item.status === "sending") item.sentAt = Date.now() - 20_000;
    this.chat.sweep(Date.now(), true);
  }

  again() {
    for (const item of this.chat.items.filter((one) => one.status === "failed")) {
      const entry = { cid: item.cid, text: item.text, at: "", order: item.order };
      this.chat.remove(item.cid);
      this.kept.set(item.cid, entry);
      this.chat.send(entry);
      if (this.up) this.outbox.push({ t: "msg", ...entry });
    }
  }

  step() {
    if (!this.up) return;
    if (this.inbox.length) this.take(this.inbox.shift());
    if (this.outbox.length && chance() < 0.6) this.server.receive(this, this.outbox.shift());
    if (this.lost) { this.cut(); this.connect(); }
  }
}

/** What the log says that a screen shows, in order: written without looking at the screen. */
function expected(events) {
  const shown = { msg: (one) => one.mid, "command.result": (one) => one.cid, handover: (one) => `h${one.event_seq}` };
  return events.filter((one) => one.t in shown).sort((a, b) => a.event_seq - b.event_seq).map((one) => shown[one.t](one));
}

const named = (item) => (item.kind === "msg" ? item.mid : item.kind === "result" ? item.cid : item.key);
const there = (chat) => chat.items.filter((item) => /^(msg|result|mark)$/.test(item.kind));

/** Why the screen is not in the order of the log; empty if it is. */
function wrong(chat, events, whole) {
  const order = expected(events);
  const items = there(chat);
  const ids = items.filter((item) => order.includes(named(item)) && (item.kind !== "result" || item.seq)).map(named);
  if (new Set(chat.items.map((item) => item.key)).size < chat.items.length) return "a key stands there twice";
  const places = ids.map((id) => order.indexOf(id));
  if (places.some((place, at) => at && place <= places[at - 1])) return `${ids} is not in the order of ${order}`;
  const states = items.filter((item) => item.seq || /^(draft|sending)$/.test(item.status))
    .map((item) => (item.status === "draft" ? 2 : item.status === "sending" ? 1 : 0));
  if (states.some((state, at) => at && state < states[at - 1])) return `what is unsent or written stands above: ${states}`;
  // Above its lower end a gap hides what nobody has loaded.
  const end = chat.items.find((item) => item.kind === "gap")?.until ?? 0;
  const due = expected(events.filter((one) => one.event_seq >= end));
  if (whole && ids.slice(-due.length).join() !== due.join()) return `${ids} is not ${due}`;
  const cards = chat.items.filter((item) => item.kind === "card").map((item) => item.card.through_turn);
  return cards.some((turn, at) => at && turn < cards[at - 1]) ? `summaries stand as ${cards}` : "";
}

function storm() {
  const server = new Server();
  const tabs = server.tabs = [new Tab(server, "a"), new Tab(server, "b")];
  const check = (whole = false) => tabs.map((tab) => wrong(tab.chat, server.events, whole)).find(Boolean);
  for (let step = 0; step < 150; step++) {
    const tab = pick(tabs);
    const r = chance();
    if (r < 0.12) tab.say();
    else if (r < 0.17) tab.cut();
    else if (r < 0.19) { tab.cut(); tab.reload(); }
    else if (r < 0.27 && !tab.up) tab.connect();
    else if (r < 0.30) tab.fail();
    else if (r < 0.34) tab.again();
    else if (r < 0.55) server.work();
    else tab.step();
    const fault = check();
    if (fault) return `step ${step}: ${fault}`;
  }
  for (const tab of tabs) { tab.cut(); tab.again(); tab.connect(); }
  for (let step = 0; step < 2_000; step++) {
    for (const tab of tabs) tab.step();
    server.work();
  }
  const said = tabs.flatMap((tab) => [...tab.kept.keys()]);
  return said.length ? `${said} were never confirmed` : check(true) ?? "";
}

let bad = 0;
let first = "";
for (let n = 0; n < Number(storms); n++) {
  const fault = storm();
  if (fault) { bad++; first ||= `storm ${n}: ${fault}`; }
}
console.log(JSON.stringify({ bad, first }));
