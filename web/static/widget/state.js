/** State of the conversation: takes protocol frames and keeps one ordered timeline; independent of the screen. */

/**
 * @typedef {object} Item
 * @property {string} key stays the same from the first sketch to the confirmed entry
 * @property {"msg" | "card" | "result" | "mark" | "gap" | "start"} kind
 * @property {number} rev raised by every change
 * @property {string} [role] @property {string} [mid] @property {string} [cid] @property {string} [text]
 * @property {string} [at] @property {number | null} [turn] @property {boolean} [partial] @property {string} [stop] @property {any} [error]
 * @property {"sending" | "failed" | "sent" | "draft"} [status] @property {boolean} [queued] @property {string} [advice]
 * @property {number} [retryAfter] @property {boolean} [refused] @property {number} [order] @property {number} [sentAt] @property {number} [attempt]
 * @property {number} [seq] its number in the log @property {number} [place] among the numbers, of what has none @property {string} [name] @property {string} [picture] @property {number} [feedback] @property {boolean} [waiting] @property {{mid?: string, text: string, at?: string}[]} [earlier] @property {boolean} [memory] whether notes or recalled messages were before its writer @property {boolean} [edited] @property {number} [outdated] the turn whose answer was shown before an edit
 * @property {number} [chars] of a text of which only the beginning is here @property {boolean} [open] whether a long one is unfolded
 * @property {number} [after] @property {number} [until] of a gap: what is not here lies after the one event and before the other
 * @property {boolean} [failed] @property {boolean} [busy] @property {number} [tall] how high it was drawn
 * @property {any[]} [attachments] @property {any} [card] @property {string} [command] @property {boolean} [success] @property {boolean} [pending]
 * @property {string} [cut] of a mark: "new", "separator" or "fork" @property {{label: string, args: string}[]} [choices] of a command
 * @property {boolean} [broken] of a command: it could not be carried out; a plain "no" is an answer
 */

const RUNNING = new Set(["started", "tool"]);
/** Milliseconds for which a confirmed message can be sent again under its id, if the server has lost it. */
const AGAIN_MS = 600_000;

/** The conversation as one screen shows it: items in order, and what runs at this moment. */
export class Conversation {
  /** @param {{changed: () => void, said: (item: Item) => void, gap: (turn?: number) => void}} hooks */
  constructor(hooks) {
    this.hooks = hooks;
    this.read = 0;
    /** @type {number | null} */
    this.epoch = null;
    /** Number of gaps that a resync did not fill; they are intended, as this audience does not see every event. */
    this.gaps = 0;
    /** @type {any} */
    this.settings = { commands: [], limits: {}, audience: "public", model: {} };
    /** @type {any} */
    this.ctx = null;
    /** Handlers of answers that are not drawn, by client id. @type {Map<string, (event: any) => void>} */
    this.silent = new Map();
    this.clear();
  }

  /** Forgets all items and states, as before the first welcome; `settings` stay. */
  clear() {
    this.last = 0;
    this.session = "";
    /** @type {Item[]} */
    this.items = [];
    /** @type {{turn: number, state: string, tool?: string, subject?: string, since: number} | null} */
    this.run = null;
    /** @type {{id: string, percent: number, since: number, failed?: boolean} | null} */
    this.organizing = null;
    /** @type {Set<string>} */
    this.pinned = new Set();
    /** @type {Set<number>} */
    this.answered = new Set();
    /** @type {Set<string>} */
    this.closed = new Set();
    /** Answers that replaced an earlier one that is not loaded, by the id of the earlier one. @type {Map<string, Item>} */
    this.wanted = new Map();
    /** Ids of erased messages, since an earlier request may still return them. @type {Set<string>} */
    this.forgotten = new Set();
    /** Turn up to which the assistant no longer sees the messages. */
    this.begun = 0;
    /** @type {{state: string, name?: string} | null} */
    this.handover = null;
  }

  /** Handles a frame of the server and reports the change; anything else is ignored. @param {any} frame */
  take(frame) {
    if (!frame || typeof frame.t !== "string") return;
    if (frame.t === "welcome") this.welcome(frame);
    else if (typeof frame.event_seq === "number" && frame.t !== "ack") this.durable(frame, true);
    else this.ephemeral(frame);
    this.moved();
  }

  /* ---- snapshots ---- */

  /** Applies the server's welcome: adds missed events to a resumed conversation; replaces any other, but keeps unsent messages. @param {any} frame */
  welcome(frame) {
    const unsent = this.items.filter((item) => item.status === "sending" || item.status === "failed");
    const commands = this.items.filter((item) => item.kind === "result" && (item.pending || item.broken));
    const fresh = !frame.resumed;
    const again = fresh && this.undone(frame) ? this.items.filter((item) => Date.now() - (item.sentAt ?? 0) < AGAIN_MS && item.status === "sent") : [];
    if (fresh) this.clear();
    this.session = frame.session ?? "";
    this.epoch = frame.log_epoch ?? null;
    for (const name of ["commands", "limits", "audience", "model"]) if (frame[name]) this.settings[name] = frame[name];
    this.ctx = frame.ctx ?? null;
    this.read = Number(frame.read) || 0;
    for (const item of again) this.change(item, { status: "sending", mid: undefined, turn: null, seq: undefined, queued: false });
    if (fresh) for (const item of [...again, ...unsent, ...commands]) this.items.push(Object.assign(item, { place: undefined }));
    for (const event of frame.events ?? []) this.durable(event, !fresh, true);
    const first = frame.events?.[0]?.event_seq ?? (Number(frame.head) || 0) + 1;
    if (fresh && first > 1) this.items.unshift({ key: "gap", kind: "gap", rev: 1, after: 0, place: 0.1, until: first });
    this.pinned = new Set(frame.pinned ?? []);
    this.last = Math.max(this.last, Number(frame.head) || 0);
    this.snapshot(frame.state ?? {});
  }

  /** Returns whether the server may have lost confirmed messages, because an older copy of its data took over. @param {any} frame */
  undone(frame) {
    return this.epoch !== null && (frame.log_epoch !== this.epoch || (frame.session === this.session && frame.head < this.last));
  }

  /** Applies a full state. Whatever is absent has ended, so that a missed event leaves nothing open. @param {any} state */
  snapshot(state) {
    this.handover = state.handover && state.handover.state !== "bot" ? state.handover : null;
    this.organizing = state.compaction ? { id: state.compaction.id, percent: state.compaction.percent ?? 0, since: Date.now() } : null;
    const queued = new Set(state.queued ?? []);
    for (const item of this.items) if (item.role === "person") this.change(item, { queued: queued.has(item.mid) });
    const run = state.run;
    this.run = run ? { turn: run.turn, state: run.state ?? "started", tool: run.tool, subject: run.subject, since: Date.now() } : null;
    this.items = this.items.filter((item) => item.status !== "draft" || (run && item.turn === run.turn));
    if (!run) return;
    const draft = this.draft(run.turn);
    if (draft && typeof run.text === "string") this.change(draft, { text: run.text, status: "draft" });
  }

  /* ---- durable events ---- */

  /** Applies an event of the log, in order and once; after a gap it calls the hook `gap` instead. A `live` event is announced. @param {any} event @param {boolean} live @param {boolean} [backlog] */
  durable(event, live, backlog = false) {
    if (event.event_seq <= this.last) return;
    if (!backlog && event.event_seq > this.last + 1 && this.last > 0 && this.gaps < 2) {
      this.gaps++;
      return this.hooks.gap();
    }
    this.last = event.event_seq;
    if (event.t === "msg") this.message(event, live);
    else if (/^(compaction|fork)$/.test(event.t)) this.compaction(event);
    else if (event.t === "command.result") this.result(event);
    else if (event.t === "pin") this.pin(event);
    else if (event.t === "feedback") this.judged(event);
    else if (event.t === "handover") this.hand(event);
    else if (event.t === "edited") this.reworded(event);
    else if (event.t === "erased") this.erased(event);
  }

  /** Shows the new text of an edited message in its place. @param {any} event */
  reworded({ mid, replaces, text, chars, outdated }) {
    const item = this.items.find((one) => one.mid === replaces);
    if (item) this.change(item, { mid, text, chars, outdated, edited: true, open: false });
    if (this.pinned.delete(replaces)) this.pinned.add(mid);
  }

  /** Removes erased messages; unsent ones and pending commands stay. @param {any} event */
  erased(event) {
    if (event.mids) {
      for (const mid of event.mids) this.forgotten.add(mid);
      for (const item of this.items) {
        if (event.mids.includes(item.mid)) this.change(item, { text: "[erased]", attachments: undefined, sentAt: 0 });
        if (item.earlier) this.change(item, { earlier: item.earlier.filter((one) => !event.mids.includes(one.mid)) });
      }
      return;
    }
    this.items = this.items.filter((item) => item.pending || item.status === "sending" || item.status === "failed");
    this.run = null;
    this.organizing = null;
    this.pinned.clear();
  }

  /** Adds or updates a message; an answer takes the place of its draft and of the answer that it replaces. @param {any} event @param {boolean} live */
  message(event, live) {
    const answer = event.role === "assistant";
    const known = this.items.find((item) => (event.cid && item.cid === event.cid) || item.mid === event.mid ||
      (answer && item.status === "draft" && item.turn === event.turn));
    /** @type {Partial<Item>} */
    const values = {
      mid: event.mid, role: event.role, text: event.text ?? "", at: event.at, turn: event.turn ?? null,
      partial: event.partial, stop: event.stop, error: event.error, status: "sent", refused: false, attachments: event.attachments,
      waiting: event.waiting, seq: event.event_seq, name: event.name, picture: event.picture, feedback: event.feedback ?? 0,
      outdated: event.outdated, memory: event.memory,
      edited: event.role === "person" && Boolean(event.replaces || event.edited),
    };
    // The writer's tab has the whole text already; of others' long messages only the beginning comes.
    if (event.chars && known?.text?.[4000]) values.text = known.text;
    else values.chars = event.chars;
    if (values.edited && event.replaces) {
      this.items = this.items.filter((/** @type {any} */ item) => item.mid !== event.replaces && !(item.role !== "person" && item.turn >= event.from_turn && item.turn < event.turn));
    }
    const former = answer && event.replaces && this.items.find((item) => item.mid === event.replaces);
    if (former) {
      values.earlier = [...(former.earlier ?? []), { mid: former.mid, text: former.text ?? "", at: former.at }];
      this.items = this.items.filter((item) => item !== former);
    }
    /** @type {Item} */
    const item = known ?? { key: event.cid ?? event.mid, kind: "msg", rev: 0, cid: event.cid, role: event.role, turn: event.turn };
    if (answer && event.turn !== null && event.turn !== undefined) this.answered.add(event.turn);
    if (event.role === "person" && live) values.queued = this.busyWithout(event.turn);
    this.change(item, values);
    if (answer && event.replaces && !former) this.wanted.set(event.replaces, item);
    if (!known) this.items.push(item);
    if (live && event.role !== "person") this.hooks.said(item);
  }

  /** Adds, updates or removes the card of a summary; the public audience sees none. @param {any} event */
  compaction(event) {
    const key = `c${event.id}`;
    if (event.replaces) this.items = this.items.filter((item) => item.key !== `c${event.replaces}`);
    const at = this.items.findIndex((item) => item.key === key);
    // The progress has a job's id and not this one; a job that goes on shows its progress again.
    this.organizing = null;
    if (/^(new|separator|fork)$/.test(event.state)) return this.cut(event);
    if (this.settings.audience === "public") return;
    if (event.state !== "done") {
      if (at >= 0) this.items.splice(at, 1);
    } else if (at >= 0) this.change(this.items[at], { card: event });
    else this.items.push({ key, kind: "card", rev: 1, card: event, place: this.boundary(event) });
    for (const item of this.items) if (item.kind === "card") item.rev++;
  }

  /** Adds a line above which the assistant sees nothing, or where a copy ends. @param {any} event */
  cut(event) {
    const key = `c${event.id || event.event_seq}`;
    this.begun = event.through_turn ?? this.begun;
    const known = this.items.find((item) => item.key === key);
    if (known) return this.change(known, { cut: event.state });
    this.items.push({ key, kind: "mark", rev: 1, cut: event.state, card: event, ...(event.id ? { place: this.boundary(event) } : { seq: event.event_seq }) });
  }

  /** Handles a hand-over from the assistant to a person, or back. @param {any} event */
  hand(event) {
    this.handover = event.state === "bot" ? null : event;
    if (event.state === "human") this.items.push({ key: `h${event.event_seq}`, kind: "mark", rev: 1, seq: event.event_seq, name: event.name, picture: event.picture, at: event.at });
  }

  /** Returns the place after the last message that a summary covers; the top of the loaded items if all of those are older. @param {any} event */
  boundary({ to_mid: mid, through_turn: turn = -1 }) {
    return 0.2 + Math.max(0, ...this.items.map((/** @type {any} */ item) =>
      item.kind === "gap" ? item.place : item.kind === "msg" && (item.mid === mid || (item.turn ?? Infinity) <= turn) ? item.seq ?? 0 : 0));
  }

  /** Returns the answer that may be repeated; undefined while a turn runs, or if there is none. */
  newest() {
    let at = this.items.length;
    while (at > 0 && this.items[at - 1].kind !== "msg") at--;
    const last = this.items[at - 1];
    return !this.run && last && last.status === "sent" && (last.turn ?? Infinity) > this.begun && (last.role === "assistant" || (last.error && !last.waiting)) ? last : undefined;
  }

  /** Returns the question that is answered again when it is edited: the last one, once answered. */
  question() {
    /** @type {any} */
    const last = this.items.filter((item) => item.role === "person").pop();
    return !this.run && !this.handover && last?.status === "sent" && last.turn > Math.max(this.begun, this.newestCard()?.through_turn ?? 0) ? last : undefined;
  }

  /** Returns whether the newest answer was given before its question was edited. @param {Item} item */
  outdated(item) {
    const answer = item.outdated && item === this.question() && this.newest();
    return answer && answer.turn === item.outdated;
  }

  /** Returns the newest summary, the only one that can be undone; null if there is none. */
  newestCard() {
    const cards = this.items.filter((item) => item.kind === "card").map((item) => item.card);
    return cards.reduce((newest, card) => (!newest || card.event_seq > newest.event_seq ? card : newest), null);
  }

  /** Shows the result of a command, unless a handler in `silent` takes it. @param {any} event */
  result(event) {
    if (this.heard(event)) return;
    const known = this.items.find((item) => item.kind === "result" && item.cid === event.cid);
    const text = event.success === false ? event.error ?? event.result : event.result;
    /** @type {Item} */
    const item = known ?? { key: event.cid ?? `r${event.event_seq}`, kind: "result", rev: 0, cid: event.cid, place: this.last + 0.5 };
    this.ended(item, {
      command: event.command, success: event.success !== false, broken: false, at: event.at,
      text: typeof text === "string" ? text : text?.message ?? "", advice: text?.advice ?? "", choices: event.choices, seq: event.event_seq,
    });
    // The button shows as much as the result would, unless the command was typed here.
    if (!known && !(item.success && /^(un)?pin$/.test(event.command))) this.items.push(item);
  }

  /** Ends a command, with or without a result, and reports that once to the tab that sent it. @param {Item} item @param {Partial<Item>} values */
  ended(item, values) {
    const { pending } = item;
    this.change(item, { ...values, pending: false });
    if (pending) this.hooks.said(item);
  }

  /** Passes a frame to the handler of its client id, once; returns whether there was one. @param {any} frame @returns {boolean} */
  heard(frame) {
    const hear = this.silent.get(frame.cid);
    this.silent.delete(frame.cid);
    hear?.(frame);
    return Boolean(hear);
  }

  /** Marks a message as pinned or unpinned. @param {any} event */
  pin(event) {
    if (event.pinned) this.pinned.add(event.mid);
    else this.pinned.delete(event.mid);
    const item = this.items.find((one) => one.mid === event.mid);
    if (item) item.rev++;
  }

  /** Stores the person's opinion of an answer: 1, -1, or 0 for none. @param {{mid?: string, turn?: number, value: number}} event */
  judged({ mid, turn, value }) {
    for (const item of this.items) if (item.role === "assistant" && (item.mid === mid || item.turn === turn)) this.change(item, { feedback: value });
  }

  /** Returns the number of loaded messages of others after the last read event. */
  unread() {
    let count = 0;
    for (const item of this.items) if (item.kind === "msg" && item.role !== "person" && (item.seq ?? 0) > this.read) count++;
    return count;
  }

  /* ---- what passes ---- */

  /** Applies a frame that is not in the log, such as progress or a piece of an answer. @param {any} frame */
  ephemeral(frame) {
    if (frame.t === "ack") this.ack(frame);
    else if (frame.t === "error") this.error(frame);
    else if (frame.t === "delta") this.delta(frame);
    else if (frame.t === "stream") this.delta({ ...frame, off: 0 });
    else if (frame.t === "read") this.read = Math.max(this.read, frame.seq);
    else if (frame.t === "run") this.ran(frame);
    else if (frame.t === "ctx") this.ctx = frame;
    else if (frame.t === "compaction.progress") this.progress(frame);
    else if (frame.t === "command.progress") this.advance(frame);
    else if (frame.t === "command.result") this.result(frame);
  }

  /** Marks a message as stored by the server. @param {any} frame */
  ack(frame) {
    const item = this.byCid(frame.cid);
    if ((frame.mid && this.heard(frame)) || !item || item.kind !== "msg") return;
    const first = item.status !== "sent";
    this.change(item, { status: "sent", mid: frame.mid ?? item.mid, seq: frame.event_seq ?? item.seq, error: null, refused: false });
    if (first) this.change(item, { queued: this.busyWithout(null) });
  }

  /** Marks the message or command of an error as failed; other errors are ignored here. @param {any} frame */
  error(frame) {
    if (this.heard(frame)) return;
    const item = frame.cid ? this.byCid(frame.cid) : null;
    if (item?.kind === "result") {
      this.ended(item, { success: false, broken: frame.code !== "unknown_command", text: frame.message ?? "", advice: frame.advice ?? "" });
    } else if (item && item.status !== "sent") {
      this.fail(item, { refused: true, error: frame.message ?? "", advice: frame.advice ?? "", retryAfter: frame.retry_after });
    }
  }

  /** Adds a piece to the draft of an answer; if an earlier piece is missing, calls the hook `gap`. @param {any} frame */
  delta(frame) {
    const text = String(frame.text ?? "");
    const item = this.draft(frame.turn);
    if (!item) return;
    const attempt = frame.attempt ?? item.attempt ?? 0;
    const old = item.text ?? "";
    if (attempt < (item.attempt ?? 0)) return;
    if (attempt > (item.attempt ?? 0) && frame.off !== 0) {
      this.hooks.gap(frame.turn);
      return this.change(item, { attempt, text: "" });
    }
    if (attempt === item.attempt && old.startsWith(text, frame.off) && frame.off + text.length <= old.length) return;
    // A part is missing: the shown text stays until the whole text comes.
    if (frame.off > old.length) return this.hooks.gap(frame.turn);
    this.change(item, { attempt, text: old.slice(0, frame.off) + text });
    if (this.run?.turn !== frame.turn) this.start({ turn: frame.turn, state: "started" });
    else this.run = { ...this.run, state: "started", since: Date.now() };
  }

  /** Applies the state of a turn; the draft of a turn that failed stays if it has text. @param {any} frame */
  ran(frame) {
    if (RUNNING.has(frame.state)) return this.start(frame);
    if (frame.state === "queued") {
      if (!this.run && !this.answered.has(frame.turn)) this.start(frame);
      return;
    }
    if (this.run?.turn === frame.turn) this.run = null;
    const draft = this.items.find((item) => item.status === "draft" && item.turn === frame.turn);
    if (!draft || frame.state === "done") return;
    if (draft.text) this.change(draft, { partial: true });
    else this.items.splice(this.items.indexOf(draft), 1);
  }

  /** Notes that a turn runs, and adds its draft. @param {any} frame */
  start(frame) {
    this.run = { turn: frame.turn, state: frame.state, tool: frame.tool, subject: frame.subject, since: Date.now() };
    for (const item of this.items) {
      const waits = item.turn === null || item.turn === undefined || item.turn <= frame.turn;
      if (item.queued && waits && frame.state !== "queued") this.change(item, { queued: false });
    }
    const draft = this.draft(frame.turn);
    if (draft) draft.rev++;
  }

  /** Applies the progress of a summary that is being made. @param {any} frame */
  progress(frame) {
    if (frame.state === "running") {
      if (!this.closed.has(frame.id)) this.organizing = { id: frame.id, percent: frame.percent ?? 0, since: Date.now() };
    } else {
      this.closed.add(frame.id);
      if (this.organizing?.id === frame.id) this.organizing = frame.state === "failed" ? { ...this.organizing, failed: true, since: Date.now() } : null;
    }
  }

  /** Shows the progress of a pending command. @param {any} frame */
  advance(frame) {
    const item = this.byCid(frame.cid);
    if (item?.pending) this.change(item, { text: frame.message ?? "" });
  }

  /* ---- what the person does ---- */

  /** Adds a message of this tab; one with an `error` counts as failed. A known client id changes nothing. @param {{cid: string, text: string, at: string, order: number, attachments?: any[], error?: string, advice?: string, talk?: string}} entry */
  send(entry) {
    if (this.byCid(entry.cid)) return;
    this.items.push({
      key: entry.cid, kind: "msg", rev: 1, role: "person", turn: null, ...entry,
      status: entry.error ? "failed" : "sending", refused: Boolean(entry.error),
    });
    this.moved();
  }

  /** Adds a pending command of this tab. @param {string} cid @param {string} command @param {string} args */
  command(cid, command, args) {
    this.items.push({ key: cid, kind: "result", rev: 1, cid, command, text: args, pending: true, at: new Date().toISOString(), place: this.last + 0.5 });
    this.moved();
  }

  /** Removes the item of a client id. @param {string} cid */
  remove(cid) {
    this.items = this.items.filter((item) => item.cid !== cid);
    this.hooks.changed();
  }

  /**
   * Ends what has waited too long for its event, so that nothing on the screen waits for ever.
   * @param {number} now @param {boolean} online
   */
  sweep(now, online) {
    const before = this.items.reduce((sum, item) => sum + item.rev, this.items.length);
    const shown = [this.run, this.organizing];
    if (this.organizing && now - this.organizing.since > (this.organizing.failed ? 6_000 : 120_000)) this.organizing = null;
    if (this.run && now - this.run.since > 180_000) this.ran({ turn: this.run.turn, state: "aborted" });
    for (const item of this.items) {
      const waited = now - (item.sentAt ?? now);
      if (item.status === "sending" && online && waited > 15_000) this.fail(item, { error: "", sentAt: 0 });
      if (item.pending && waited > 120_000) this.ended(item, { success: false, text: "" });
    }
    const after = this.items.reduce((sum, item) => sum + item.rev, this.items.length);
    if (before !== after || shown[0] !== this.run || shown[1] !== this.organizing) this.moved();
  }

  /* ---- order ---- */

  /** Returns the item of a client id; undefined if there is none. @param {string} cid */
  byCid(cid) {
    return this.items.find((item) => item.cid === cid);
  }

  /** Returns whether a turn runs that a message does not belong to. @param {number | null | undefined} turn */
  busyWithout(turn) {
    return Boolean(this.run && RUNNING.has(this.run.state) && (turn === null || turn === undefined || turn > this.run.turn));
  }

  /** Returns the draft of a turn, added if there is none; null once the turn is answered. @param {number} turn @returns {Item | null} the draft of a turn that is not answered yet */
  draft(turn) {
    if (this.answered.has(turn)) return null;
    const known = this.items.find((item) => item.status === "draft" && item.turn === turn);
    if (known) return known;
    /** @type {Item} */
    const item = { key: `t${turn}`, kind: "msg", rev: 1, role: "assistant", status: "draft", turn, text: "", attempt: 0 };
    this.items.push(item);
    return item;
  }

  /** Sorts the items in the order of the log; unsent ones come last, drafts after those. */
  moved() {
    /** Unsent messages come after all numbers. @param {any} item */
    const rank = ({ status, seq, place = 9e15 }) => (status === "draft" ? Infinity : seq ?? place);
    this.items.sort((one, other) => rank(one) - rank(other) || 0);
    this.hooks.changed();
  }

  /** Keeps a message that failed in the place where it was written. @param {Item} item @param {Partial<Item>} values */
  fail(item, values) {
    this.change(item, { ...values, status: "failed", place: this.last + 0.5 });
  }

  /** Changes an item and raises its `rev`, so that it is drawn again. @param {Item} item @param {Partial<Item>} values */
  change(item, values) {
    Object.assign(item, values);
    item.rev++;
  }
}
