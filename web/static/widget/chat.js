/** The panel: connects conversation, connection and screen, and announces changes to screen readers. */
import { h, icon, set, show } from "../shared/h.js";
import { Connection } from "./net.js";
import { Conversation } from "./state.js";
import { newId } from "./storage.js";
import { timeline } from "./log.js";
import { asCommand, composer } from "./composer.js";
import { gauge } from "./gauge.js";
import { lang, t } from "./i18n.js";

const DOTS = "M12 5h.01M12 12h.01M12 19h.01";
const CROSS = "M6 6l12 12M18 6L6 18";
const SAID_MS = 7000;

/** Returns a function that loads a part once, so that calls to it keep their order; a failed load is tried again. @template T @param {() => Promise<T>} load */
const once = (load) => {
  /** @type {Promise<T> | null} */
  let came = null;
  return () => (came ??= load().catch((error) => { came = null; throw error; }));
};
const acts = once(() => import("./acts.js"));
const attach = once(() => import("./attach.js"));
const toast = once(() => import("./toast.js"));

/**
 * @typedef {object} Options
 * @property {string} site @property {string} title @property {boolean} page full page, with a cookie instead of a token
 * @property {string} [identity] @property {() => void} close @property {(site: any) => void} dress
 * @property {(name: string, detail?: any) => void} emit
 * @property {import("./storage.js").Store} store
 */

/** The open chat of one visitor: conversation, connection and screen. */
export class Chat {
  /** @param {Options} options */
  constructor(options) {
    this.options = options;
    this.store = options.store;
    this.signed = this.store.get("signed");
    this.status = "closed";
    this.drawing = 0;
    this.order = Date.now();
    this.resynced = 0;
    this.count = 0;
    this.tokenDropped = false;
    this.denied = this.barred = false;
    this.offline = "";
    this.renewing = false;
    /** Commands and opinions that wait for a reply, by client id. @type {Map<string, any>} */
    this.asked = new Map();
    this.chat = new Conversation({ changed: () => this.draw(), said: (item) => this.said(item), gap: (turn) => this.resync(turn) });
    this.net = new Connection({
      hello: () => this.hello(), frame: (frame, joined) => this.frame(frame, joined), status: (status) => this.show(status), forget: () => this.forget(),
      missed: () => void import("./rare.js").then((one) => one.probe(this)).catch(() => {}),
    });
    /** @type {import("./sheet.js").Sheet | null} */
    this.sheet = null;
    /** The list of conversations next to the chat; null until it is loaded. @type {{shown: boolean, changed: (frame: any) => void} | null} */
    this.side = null;
    /** @type {import("./attach.js").Attachments | null} */
    this.files = null;
    this.build();
    if (this.store.get("files")) this.attach(() => {});
    for (const entry of this.store.unsent()) this.chat.send(entry);
    this.sweeper = setInterval(() => this.chat.sweep(Date.now(), this.net.online), 1000);
    this.leaving = () => this.composer.keep();
    addEventListener("pagehide", this.leaving);
    /** Handles a start, sign-out or sign-in in another tab. @param {StorageEvent} event */
    this.elsewhere = ({ key, newValue }) => {
      if (key === `${this.store.prefix}session` && newValue && !this.chat.session && !this.net.stopped) this.net.reconnect();
      if (key === `${this.store.prefix}signed` && this.signed && newValue !== this.signed) void import("./site.js").then((one) => one.leave(this));
    };
    addEventListener("storage", this.elsewhere);
    this.paint();
  }

  /** Builds the nodes of the panel; draws no message yet. */
  build() {
    const { options } = this;
    this.gauge = gauge({
      compact: () => this.command("compact", ""), restart: () => this.menu((one) => one.begin(this)),
      can: (name) => this.commands().some((/** @type {any} */ one) => one.name === name),
      saved: () => { const card = this.chat.newestCard(); return card?.before && card?.after ? card.before - card.after : 0; },
    });
    this.log = timeline({
      chat: this.chat, store: this.store, copy: (text, button) => void this.copy(text, button), retry: (cid) => this.retry(cid),
      discard: (cid) => this.discard(cid), choose: (command, args) => { this.command(command, args); this.composer.input.focus(); }, originals: (id, before) => import("./rare.js").then((one) => one.originals(this, id, before)), undo: () => this.command("undo", ""),
      page: (query) => import("./rare.js").then((one) => one.earlierPage(this, query)), say: (words) => this.say(words), dates: (at) => this.later((one) => one.look(this, "dates", at)),
      acts: () => this.acts((one) => { this.log.adorn(one.adorn(this)); this.draw(); }),
      attached: (place, metas) => this.attach((attached) => attached.place(place, metas)),
    });
    this.composer = composer({
      send: (text) => this.send(text), stop: () => this.stop(), commands: () => this.commands(),
      limit: () => Number(this.chat.settings.limits?.max_chars) || 0, store: this.store,
      attach: () => this.attach((attached) => attached.pick()), filled: () => Boolean(this.files?.count()),
    });
    this.bar = h("div", { class: "bar", hidden: true }, (this.barText = h("span")), (this.meter = h("div", { class: "meter", role: "progressbar", "aria-label": t("summarising") }, h("i"))));
    this.link = h("div", { class: "bar link", hidden: true });
    this.polite = h("div", { class: "hidden", role: "status", "aria-live": "polite", "aria-atomic": "false" });
    this.urgent = h("div", { class: "hidden", role: "alert" });
    this.demo = h("span", { class: "chip", hidden: true, title: t("demo_hint") }, t("demo"));
    this.more = h("button", { class: "icon more", type: "button", "aria-haspopup": "menu", "aria-expanded": "false", "aria-label": t("menu"), title: t("menu"), hidden: true, onclick: () => this.menu((one) => one.toggle(this)) }, icon(DOTS));
    this.human = h("div", { class: "bar", hidden: true });
    /** A timer while the human writes; when the human was last told that the person writes; whether the person writes now. */
    this.writes = this.told = 0;
    this.title = h(options.page ? "h1" : "h2", { id: "evt-title", dir: "auto" }, options.title || (options.page ? "Evertalk" : t("title")));
    const close = !options.page && h("button", { class: "icon", type: "button", "aria-label": t("close"), title: t("close"), onclick: options.close }, icon(CROSS));
    const given = this.given.bind(this);
    this.node = h(options.page ? "main" : "div", {
      class: "panel", part: "panel", role: options.page ? null : "dialog", "aria-labelledby": "evt-title", onkeydown: (/** @type {KeyboardEvent} */ event) => this.key(event),
      onpaste: given, ondragover: given, ondrop: given,
    },
      h("div", { class: "head" }, this.title, this.demo, h("span", { class: "grow" }), this.gauge.button, this.more, close), this.gauge.popover,
      h("div", { class: "bars" }, this.link, this.human, this.bar), h("div", { class: "middle" }, options.page && h("h2", { class: "hidden" }, t("log")), this.log.node, this.log.jump), this.composer.node, this.polite, this.urgent);
    this.node.addEventListener("pointerdown", (/** @type {Event} */ event) => {
      const path = event.composedPath();
      if (this.gauge.shown && !path.includes(this.gauge.popover) && !path.includes(this.gauge.button)) this.gauge.toggle(false);
    });
  }

  /* ---- connection ---- */

  /** Opens the connection, unless the server refused this visitor or page. */
  start() {
    if (!this.denied && !this.barred) this.net.start();
  }

  /** Returns the first frame of a connection, with the visitor's token and the last event number. */
  hello() {
    const token = this.options.page ? "" : this.store.get("token");
    return {
      t: "hello", v: 1, site: this.options.site, last_seq: this.chat.last, locale: lang(), tz: Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC",
      session: this.chat.session || this.store.talk, ...(!this.chat.session && { begin: false }), ...(token && { token }), ...(this.options.identity && { identity: this.options.identity }),
    };
  }

  /** Discards all data of the former visitor. */
  discardAll() {
    // otherwise another tab has done so already
    if (this.store.get("signed") === this.signed) this.store.leave();
    this.signed = "";
    for (const cid of this.asked.keys()) this.chat.heard({ cid, t: "error" });
    this.asked.clear();
    this.chat.silent.clear();
    this.files?.clear();
    this.composer.input.value = "";
    this.composer.changed();
    this.chat.clear();
    void import("./rare.js").then((one) => one.sweep(this));
    this.draw();
  }

  /** Handles one frame of the server. @param {any} frame @param {boolean} joined whether it opens a new socket */
  frame(frame, joined) {
    if (frame?.t === "welcome") {
      const { identified: who = "" } = frame;
      if (this.signed && this.signed !== who) this.discardAll();
      if (frame.token && !this.options.page) this.store.put("token", frame.token);
      this.store.put("signed", this.signed = who);
      this.store.put("session", frame.session);
      /** Whether a person may have several conversations. */
      this.many = frame.site?.conversations === "many";
      this.store.enter(this.many ? frame.session : "");
      this.options.dress(frame.site);
      const { epoch, last } = this.chat;
      if (frame.resumed && epoch !== null && frame.log_epoch !== epoch && last > 0) {
        // a restore of the server has reset the event numbers: the whole history must be loaded again
        this.chat.last = 0;
        return this.net.reconnect();
      }
    }
    const organizing = Boolean(this.chat.organizing);
    const run = this.chat.run?.turn;
    const { session } = this.chat;
    this.chat.take(frame);
    if (session && session !== this.chat.session) this.later((one) => one.tellMove(this));
    this.sheet?.changed(frame);
    this.side?.changed(frame);
    if (joined) {
      this.composer.changed();
      this.flush();
    } else if (frame?.t === "welcome") this.files?.go();
    if (frame?.t === "ack") this.store.drop(frame.cid);
    // a command is answered later; an opinion gets nothing but this frame
    if (/^(ack|error)$/.test(frame?.t) && this.asked.get(frame.cid)?.t === "feedback") this.asked.delete(frame.cid);
    if (frame?.t === "error") this.refused(frame);
    if (/^(typing|handover)$/.test(frame?.t) || frame?.state?.handover || (this.writes && frame?.t === "msg")) this.acts((one) => one.human(this, frame));
    if (this.chat.run && this.chat.run.turn !== run) this.replying(this.chat.run.turn);
    if (this.chat.settings.audience === "public") return;
    if (frame?.t === "memory") toast().then((one) => one.tell(this, frame), () => {});
    if (this.chat.organizing && !organizing) this.say(t("summarising"));
    if (frame?.t === "compaction" && frame.state === "done" && !frame.replaces) this.say(t("summarised"));
  }

  /** Loads the buttons next to messages and passes that module to `then`; says so if the load fails. @param {(acts: typeof import("./acts.js")) => void} then */
  acts(then) {
    return acts().then((one) => (then(one), true), () => this.say(t("lost")));
  }

  /** Loads the menu and passes that module to `then`; says so if the load fails. @param {(menu: typeof import("./menu.js")) => void} then */
  menu(then) {
    import("./menu.js").then(then, () => this.say(t("lost")));
  }

  /** Loads the sheet and passes that module to `then`; says so if the load fails. @param {(sheet: typeof import("./sheet.js")) => void} then */
  later(then) {
    import("./sheet.js").then(then, () => this.say(t("lost")));
  }

  /** Loads the part for files and passes the composer's files to `run`; says so if the load fails. @param {(attached: import("./attach.js").Attachments) => void} run */
  attach(run) {
    attach().then((one) => run((this.files ??= one.createAttachments(this))), () => this.say(t("lost")));
  }

  /** Takes pasted or dropped content; text is preferred to a picture of the same text. @param {any} event */
  given(event) {
    const data = event.dataTransfer ?? event.clipboardData;
    if (!data.types.includes("Files") || data.getData("text") || !this.chat.settings.limits.files) return;
    event.preventDefault();
    const files = [...data.files];
    this.attach((attached) => (event.type === "dragover" ? attached.over(true) : attached.add(files)));
  }

  /** Shows an error of the server: at its message, which is kept with the reason, else as a warning. @param {any} frame */
  refused(frame) {
    this.denied = /^identity/.test(frame.code);
    const item = frame.cid && this.chat.byCid(frame.cid);
    if (item?.status === "failed") this.store.keep({ cid: item.cid, text: item.text, at: item.at, order: item.order, attachments: item.attachments, error: frame.message || frame.code, advice: frame.advice });
    if (!item && !frame.mid && !this.asked.has(frame.cid)) this.warn([frame.message, frame.advice].filter(Boolean).join(" "));
    this.options.emit("error", { code: frame.code, message: frame.message });
  }

  /** Sends all unconfirmed messages again, in order and under the same ids, by which the server recognises repeats. */
  flush() {
    for (const entry of this.store.unsent()) {
      if (this.chat.byCid(entry.cid)?.status === "sent") this.store.drop(entry.cid);
      else this.chat.send(entry);
    }
    for (const item of this.chat.items) {
      if (item.status === "sending" && item.kind === "msg") this.transmit(item);
      if (item.kind === "result" && item.pending) this.net.send({ t: "command", cid: item.cid, command: item.command, args: item.args ?? "" });
    }
    for (const frame of this.asked.values()) this.net.send(frame);
    this.files?.go();
  }

  /** Sends a message and notes the time; without a connection the message waits for the next one. @param {any} item */
  transmit(item) {
    if (this.net.send({ t: "msg", cid: item.cid, text: item.text, attachments: item.attachments?.map((/** @type {any} */ one) => one.id) })) item.sentAt = Date.now();
  }

  /** Requests what is missing, at most every two seconds: the text of `turn`, else everything by a new connection. @param {number} [turn] that only a piece is missing of */
  resync(turn) {
    if (Date.now() - this.resynced < 2000) return;
    this.resynced = Date.now();
    if (turn) this.net.send({ t: "resync", mid: `t${turn}` });
    else setTimeout(() => this.net.reconnect());
  }

  /** Drops the visitor's token after the server refused it; returns whether another attempt without it makes sense. */
  forget() {
    if (this.denied) return false;
    const had = Boolean(this.store.get("token")) && !this.tokenDropped;
    this.tokenDropped = true;
    this.store.put("token", "");
    this.chat.last = 0;
    return had;
  }

  /** Shows the state of the connection; a short interruption shows nothing. @param {string} status */
  show(status) {
    const before = this.status;
    // repeated attempts without network, or a change to a better connection, need no second line
    if (status === before && /line$/.test(status)) return;
    this.status = status;
    clearTimeout(this.linkTimer);
    const words = /closed|online/.test(status) ? "" : status;
    // Most interruptions end within a second, so only a longer one gets a line.
    const wait = status === "connecting" ? 1500 : status === "reconnecting" ? 700 : 0;
    if (!words || wait) this.link.hidden = !words || (this.link.hidden && wait > 0);
    const told = this.denied ? t("sign_in") : (/^re/.test(status) && !this.barred && this.offline) || t(words);
    if (words) this.linkTimer = setTimeout(() => { show(this.link, told); this.link.hidden = false; if (status !== "connecting") this.say(told); }, wait);
    else if (status === "online" && before !== "connecting") this.say(t("back"));
    set(this.node, { data: { status } });
  }

  /* ---- what the person does ---- */

  /** Returns the commands that the server offers this visitor. */
  commands() {
    return this.chat.settings.commands ?? [];
  }

  /** Sends a text as a command, with waiting files, or as a message; returns whether the composer may be emptied. @param {string} text @returns {boolean} */
  send(text) {
    const command = asCommand(text, this.commands());
    if (command) return this.command(command.name, command.args);
    return this.files?.count() ? this.files.send(text) : this.post(text);
  }

  /** Stores a message in this browser, shows it, and sends it; always returns true. @param {string} text @param {any[]} [attachments] */
  post(text, attachments) {
    const entry = { cid: newId(), text, at: new Date().toISOString(), order: ++this.order, attachments };
    this.store.keep(entry);
    this.chat.send(entry);
    this.log.end();
    this.transmit(this.chat.byCid(entry.cid));
    this.start();
    return true;
  }

  /** Sends a command, or carries it out here; always returns true. A command acts on the present, so it is kept for later only before the first welcome. @param {string} name @param {string} args @returns {boolean} */
  command(name, args) {
    if (name === "search" && this.commands().some((/** @type {any} */ one) => one.name === name)) {
      this.later((one) => one.look(this, "find", args));
      return true;
    }
    if (name === "new" && this.many) return this.menu((one) => void one.start(this)), true;
    const cid = newId();
    const isSent = this.net.send({ t: "command", cid, command: name, args });
    this.chat.command(cid, name, "");
    if (!isSent && this.chat.session) this.chat.take({ t: "error", cid, message: t("command_offline") });
    else {
      Object.assign(this.chat.byCid(cid) ?? {}, { sentAt: Date.now(), args });
      if (name === "export") void import("./rare.js").then((one) => one.download(this, args.trim() === "json" ? "json" : "md")).catch(() => this.chat.take({ t: "error", cid, message: t("command_offline") }));
    }
    this.log.end();
    return true;
  }

  /** Asks the server to stop the running answer; does nothing if none runs. */
  stop() {
    if (this.chat.run) this.net.send({ t: "stop", mid: `t${this.chat.run.turn}` });
  }

  /** Sends a failed message again. A refused one gets a new id; an unconfirmed one keeps its id, so that it is stored once. @param {string} cid */
  retry(cid) {
    const item = this.chat.byCid(cid);
    if (!item) return;
    // A refused message was surely not stored, so it gets a new id; an unconfirmed one may have been, so it keeps its id.
    const entry = { cid: item.refused ? newId() : cid, text: item.text ?? "", at: item.at ?? "", order: item.refused ? ++this.order : item.order ?? 0, attachments: item.attachments };
    this.discard(cid);
    this.store.keep(entry);
    this.chat.send(entry);
    this.transmit(this.chat.byCid(entry.cid));
  }

  /** Removes an unsent message from the screen and from this browser. @param {string} cid */
  discard(cid) {
    this.store.drop(cid);
    this.chat.remove(cid);
  }

  /** Copies a text and confirms that on the button; where a page forbids it, shows the text to copy by hand. @param {string} text @param {HTMLElement} button */
  async copy(text, button) {
    try { await navigator.clipboard.writeText(text); } catch { (await import("./rare.js")).copyByHand(this.node, text, button); }
    show(button, t("copied"));
    this.say(t("copied"));
    setTimeout(() => show(button, t("copy")), 1600);
  }

  /** Handles keys of the panel: F6 moves between log and composer, Escape closes. @param {KeyboardEvent} event */
  key(event) {
    if (event.key === "F6") {
      event.preventDefault();
      const root = /** @type {ShadowRoot} */ (this.node.getRootNode());
      (root.activeElement === this.composer.input ? this.log.node : this.composer.input).focus();
    } else if (event.key === "Escape" && !event.isComposing) {
      event.stopPropagation();
      if (this.gauge.shown) this.gauge.toggle(false, true);
      else this.options.close();
    }
  }

  /* ---- screen ---- */

  /** Plans a redraw for the next frame of the screen. */
  draw() {
    if (this.drawing || !this.log) return;
    this.drawing = requestAnimationFrame(() => { this.drawing = 0; this.paint(); });
  }

  /** Redraws at once what has changed, and marks visible messages as read. */
  paint() {
    const { chat } = this;
    const open = chat.settings.audience !== "public";
    this.log.update();
    this.seen();
    this.gauge.button.hidden = !open || !this.chat.session;
    this.more.hidden = !this.commands().length;
    if (chat.handover || !this.human.hidden) this.acts((one) => one.human(this));
    this.gauge.update(chat.ctx);
    this.composer.busy(Boolean(chat.run));
    this.composer.clip.hidden = !chat.settings.limits.files;
    if (chat.settings.limits.files?.voice) import("./voice.js").then((one) => one.voice(this), () => {});
    this.demo.hidden = !chat.settings.model?.offline;
    if (this.options.page && !this.demo.hidden) import("./guide.js").then((one) => one.guide(this), () => {});
    const working = open ? chat.organizing : null;
    this.bar.hidden = !working;
    if (this.soon || chat.ctx?.next?.soon) import("./shares.js").then((one) => one.announce(this), () => {});
    if (!working) return;
    show(this.barText, t(working.failed ? "summarise_failed" : "summarising"));
    this.meter.hidden = Boolean(working.failed);
    set(this.meter, { "aria-valuenow": Math.round(working.percent), vars: { "--done": String(Math.max(working.percent, 4) / 100) } });
  }

  /** Marks messages as read unless the chat is hidden. */
  seen() {
    const { chat } = this;
    if (!this.node.hidden && chat.last > chat.read && this.net.send({ t: "read", seq: chat.last })) chat.read = chat.last;
    const count = chat.unread();
    if (count !== this.count) this.options.emit("unread", { count: this.count = count });
  }

  /** Announces a text at once and shows it for six seconds in place of the connection's state. @param {string} words */
  warn(words) {
    show(this.urgent, words);
    show(this.link, words);
    this.link.hidden = false;
    clearTimeout(this.linkTimer);
    this.linkTimer = setTimeout(() => this.show(this.status), 6000);
  }

  /** Adds a text to the live region; a following text does not replace it. @param {string} words */
  say(words) {
    const line = h("p", null, words);
    this.polite.append(line);
    setTimeout(() => line.remove(), SAID_MS);
  }

  /** Announces after two seconds that the assistant answers, if that turn still runs. @param {number} turn */
  replying(turn) {
    clearTimeout(this.replyTimer);
    this.replyTimer = setTimeout(() => { if (this.chat.run?.turn === turn) this.say(t("thinking")); }, 2000);
  }

  /** Announces a new answer, notice or result to screen readers and to the page. @param {import("./state.js").Item} item */
  said(item) {
    const tell = (/** @type {string} */ words) => (item.success === false ? show(this.urgent, words) : this.say(words));
    acts().then((one) => tell(one.speech(item)), () => tell(item.text ?? ""));
    if (item.kind === "msg") this.options.emit("message", { mid: item.mid, role: item.role });
  }

  /** Stops timers, listeners and the connection; the draft is kept. */
  end() {
    clearInterval(this.sweeper);
    clearTimeout(this.linkTimer);
    clearTimeout(this.replyTimer);
    cancelAnimationFrame(this.drawing);
    removeEventListener("pagehide", this.leaving);
    removeEventListener("storage", this.elsewhere);
    this.composer.keep();
    this.net.stop();
  }
}
