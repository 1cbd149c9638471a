/** The panel: joins conversation, connection and screen, and says to screen readers what changed. */
import { h, icon, set, show } from "../shared/h.js";
import { Connection } from "./net.js";
import { Conversation } from "./state.js";
import { newId } from "./storage.js";
import { timeline } from "./log.js";
import { composer } from "./composer.js";
import { asCommand } from "./slash.js";
import { gauge } from "./gauge.js";
import { spoken } from "./md.js";
import { dir, lang, t } from "./i18n.js";

const NOTES = "M7 3h12v18H7zM4 8h5M4 16h5M12 8h4M12 12h4";
const CROSS = "M6 6l12 12M18 6L6 18";

/**
 * @typedef {object} Options
 * @property {string} site @property {string} title @property {boolean} page full page, with a cookie instead of a token
 * @property {string} [identity] @property {() => void} close
 * @property {(name: string, detail?: any) => void} emit
 * @property {import("./storage.js").Store} store
 */

export class Chat {
  /** @param {Options} options */
  constructor(options) {
    this.options = options;
    this.store = options.store;
    this.status = "closed";
    this.drawing = 0;
    this.order = Date.now();
    this.resynced = 0;
    this.tokenDropped = false;
    this.chat = new Conversation({ changed: () => this.draw(), said: (item) => this.said(item), gap: () => this.resync() });
    this.net = new Connection({
      hello: () => this.hello(), frame: (frame, joined) => this.frame(frame, joined), status: (status) => this.show(status), forget: () => this.forget(),
    });
    /** @type {import("./sheet.js").Sheet | null} */
    this.sheet = null;
    this.build();
    for (const entry of this.store.unsent()) this.chat.send(entry);
    this.sweeper = setInterval(() => this.chat.sweep(Date.now(), this.net.online), 1000);
    this.leaving = () => this.composer.keep();
    addEventListener("pagehide", this.leaving);
    this.paint();
  }

  build() {
    const { options } = this;
    this.gauge = gauge({
      compact: () => this.command("compact", ""), restart: () => this.command("new", ""),
      can: (name) => this.commands().some((/** @type {any} */ one) => one.name === name),
      saved: () => { const card = this.chat.newestCard(); return card?.before && card?.after ? card.before - card.after : 0; },
    });
    this.log = timeline({
      chat: this.chat, store: this.store, copy: (text, button) => void this.copy(text, button), retry: (cid) => this.retry(cid),
      discard: (cid) => this.discard(cid), pin: (item) => this.pin(item), originals: (id) => import("./rare.js").then((one) => one.originals(this, id)), undo: () => this.command("undo", ""),
    });
    this.composer = composer({
      send: (text) => this.send(text), stop: () => this.stop(), commands: () => this.commands(),
      limit: () => Number(this.chat.settings.limits?.max_chars) || 0, store: this.store,
    });
    this.bar = h("div", { class: "bar", hidden: true }, (this.barText = h("span")), (this.meter = h("div", { class: "meter", role: "progressbar", "aria-label": t("organizing"), "aria-valuemin": 0, "aria-valuemax": 100 }, h("i"))));
    this.link = h("div", { class: "bar link", hidden: true });
    this.polite = h("div", { class: "hidden", role: "status", "aria-live": "polite" });
    this.urgent = h("div", { class: "hidden", role: "alert" });
    this.demo = h("span", { class: "chip", hidden: true, title: t("demo_hint") }, t("demo"));
    this.memory = h("button", { class: "icon", type: "button", "aria-haspopup": "dialog", "aria-label": t("remembered"), title: t("remembered"), hidden: true, onclick: () => this.later((one) => one.look(this)) }, icon(NOTES));
    const title = h("h2", { id: "evt-title" }, options.title || t("title"));
    const close = !options.page && h("button", { class: "icon", type: "button", "aria-label": t("close"), title: t("close"), onclick: options.close }, icon(CROSS));
    this.node = h(options.page ? "main" : "div", {
      class: "panel", part: "panel", role: options.page ? null : "dialog", "aria-labelledby": "evt-title", onkeydown: (/** @type {KeyboardEvent} */ event) => this.key(event),
    },
      h("div", { class: "head" }, title, this.demo, h("span", { class: "grow" }), this.gauge.button, this.memory, close), this.gauge.popover,
      h("div", { class: "bars" }, this.link, this.bar), h("div", { class: "middle" }, this.log.node, this.log.jump), this.composer.node, this.polite, this.urgent);
    this.node.addEventListener("pointerdown", (/** @type {Event} */ event) => {
      const path = event.composedPath();
      if (this.gauge.shown && !path.includes(this.gauge.popover) && !path.includes(this.gauge.button)) this.gauge.toggle(false);
    });
  }

  /* ---- connection ---- */

  start() {
    this.net.start();
  }

  hello() {
    const token = this.options.page ? "" : this.store.get("token");
    return {
      t: "hello", v: 1, site: this.options.site, last_seq: this.chat.last, locale: lang(), tz: Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC",
      ...(this.chat.session && { session: this.chat.session }), ...(token && { token }), ...(this.options.identity && { identity: this.options.identity }),
    };
  }

  /** @param {any} frame @param {boolean} joined whether it opens a new socket */
  frame(frame, joined) {
    if (frame?.t === "welcome") {
      if (frame.token && !this.options.page) this.store.put("token", frame.token);
      const { epoch, last } = this.chat;
      if (frame.resumed && epoch !== null && frame.log_epoch !== epoch && last > 0) {
        // The numbers we counted by were undone by a restore: only the whole history is true now.
        this.chat.last = 0;
        return this.net.resync();
      }
    }
    const organizing = Boolean(this.chat.organizing);
    const run = this.chat.run?.turn;
    const { session } = this.chat;
    this.chat.take(frame);
    if (session && session !== this.chat.session) this.later((one) => one.moved(this));
    this.sheet?.changed(frame);
    if (joined) this.flush();
    if (frame?.t === "ack") this.store.drop(frame.cid);
    if (frame?.t === "error") this.refused(frame);
    if (this.chat.run && this.chat.run.turn !== run) this.replying(this.chat.run.turn);
    if (this.chat.settings.audience === "public") return;
    if (this.chat.organizing && !organizing) this.say(t("organizing"));
    if (frame?.t === "compaction" && frame.state === "done" && !frame.replaces) this.say(t("organized"));
  }

  /** @param {(sheet: typeof import("./sheet.js")) => void} then */
  later(then) {
    import("./sheet.js").then(then, () => this.say(t("lost")));
  }

  /** @param {any} frame */
  refused(frame) {
    const item = frame.cid && this.chat.byCid(frame.cid);
    if (item?.status === "failed") this.store.keep({ cid: item.cid, text: item.text, at: item.at, order: item.order, error: frame.message || frame.code, advice: frame.advice });
    if (!item) { show(this.urgent, [frame.message, frame.advice].filter(Boolean).join(" ")); }
    this.options.emit("error", { code: frame.code, message: frame.message });
  }

  /** Everything unconfirmed goes again, in order and under its old id: the server knows repeats. */
  flush() {
    for (const item of this.chat.items) {
      if (item.status === "sending" && item.kind === "msg") this.transmit(item);
      if (item.kind === "result" && item.pending) this.net.send({ t: "command", cid: item.cid, command: item.command, args: item.args ?? "" });
    }
    for (const entry of this.store.unsent()) if (this.chat.byCid(entry.cid)?.status === "sent") this.store.drop(entry.cid);
  }

  /** @param {any} item */
  transmit(item) {
    if (this.net.send({ t: "msg", cid: item.cid, text: item.text })) item.sentAt = Date.now();
  }

  resync() {
    if (Date.now() - this.resynced < 2000) return;
    this.resynced = Date.now();
    setTimeout(() => this.net.resync());
  }

  forget() {
    const had = Boolean(this.store.get("token")) && !this.tokenDropped;
    this.tokenDropped = true;
    this.store.put("token", "");
    this.chat.last = 0;
    return had;
  }

  /** @param {string} status */
  show(status) {
    const before = this.status;
    this.status = status;
    clearTimeout(this.linkTimer);
    const words = { offline: "offline", reconnecting: "reconnecting", refused: "refused", connecting: "connecting" }[status];
    // Most breaks heal at once: only one that lasts is worth a line.
    const wait = status === "connecting" ? 1500 : status === "reconnecting" ? 700 : 0;
    if (!words || wait) this.link.hidden = !words || (this.link.hidden && wait > 0);
    if (words) this.linkTimer = setTimeout(() => { show(this.link, t(words)); this.link.hidden = false; if (status !== "connecting") this.say(t(words)); }, wait);
    else if (status === "online" && before !== "connecting") this.say(t("back"));
    set(this.node, { data: { status } });
  }

  /* ---- what the person does ---- */

  commands() {
    return this.chat.settings.commands ?? [];
  }

  /** @param {string} text @returns {boolean} */
  send(text) {
    const command = asCommand(text, this.commands());
    if (command) return this.command(command.name, command.args);
    const entry = { cid: newId(), text, at: new Date().toISOString(), order: ++this.order };
    this.store.keep(entry);
    this.chat.send(entry);
    this.log.end();
    this.transmit(this.chat.byCid(entry.cid));
    this.start();
    return true;
  }

  /** Commands act on the present, so they are never kept for later. @param {string} name @param {string} args @returns {boolean} */
  command(name, args) {
    const cid = newId();
    if (!this.net.send({ t: "command", cid, command: name, args })) {
      this.chat.command(cid, name, "");
      this.chat.take({ t: "error", cid, message: t("command_offline") });
    } else {
      this.chat.command(cid, name, "");
      Object.assign(this.chat.byCid(cid) ?? {}, { sentAt: Date.now(), args });
      if (name === "export") void import("./rare.js").then((one) => one.download(this, args.trim() === "json" ? "json" : "md")).catch(() => this.chat.take({ t: "error", cid, message: t("command_offline") }));
    }
    this.log.end();
    return true;
  }

  stop() {
    if (this.chat.run) this.net.send({ t: "stop", mid: `t${this.chat.run.turn}` });
  }

  /** @param {string} cid */
  retry(cid) {
    const item = this.chat.byCid(cid);
    if (!item) return;
    // Refused means surely not taken: a new id. Unconfirmed may have arrived: the same one.
    const entry = { cid: item.refused ? newId() : cid, text: item.text ?? "", at: item.at ?? "", order: item.refused ? ++this.order : item.order ?? 0 };
    this.discard(cid);
    this.store.keep(entry);
    this.chat.send(entry);
    this.transmit(this.chat.byCid(entry.cid));
  }

  /** @param {string} cid */
  discard(cid) {
    this.store.drop(cid);
    this.chat.remove(cid);
  }

  /** @param {any} item */
  pin(item) {
    this.net.send({ t: "pin", cid: newId(), mid: item.mid, pinned: !this.chat.pinned.has(item.mid) });
  }

  /** @param {string} text @param {HTMLElement} button */
  async copy(text, button) {
    try { await navigator.clipboard.writeText(text); } catch { (await import("./rare.js")).copyByHand(this.node, text, button); }
    show(button, t("copied"));
    this.say(t("copied"));
    setTimeout(() => show(button, t("copy")), 1600);
  }

  /** @param {KeyboardEvent} event */
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

  draw() {
    if (this.drawing || !this.log) return;
    this.drawing = requestAnimationFrame(() => { this.drawing = 0; this.paint(); });
  }

  paint() {
    const { chat } = this;
    const open = chat.settings.audience !== "public";
    this.log.update();
    this.gauge.button.hidden = !open || !this.chat.session;
    this.memory.hidden = this.gauge.button.hidden;
    this.gauge.update(chat.ctx);
    this.composer.busy(Boolean(chat.run));
    this.demo.hidden = !chat.settings.model?.offline;
    const working = open ? chat.organizing : null;
    this.bar.hidden = !working;
    if (!working) return;
    show(this.barText, t(working.failed ? "organize_failed" : "organizing"));
    this.meter.hidden = Boolean(working.failed);
    set(this.meter, { "aria-valuenow": Math.round(working.percent), vars: { "--done": String(Math.max(working.percent, 4) / 100) } });
  }

  /** @param {string} words */
  say(words) {
    show(this.polite, h("p", { lang: null, dir: dir() }, words));
  }

  /** @param {number} turn */
  replying(turn) {
    clearTimeout(this.replyTimer);
    this.replyTimer = setTimeout(() => { if (this.chat.run?.turn === turn) this.say(t("thinking")); }, 2000);
  }

  /** @param {import("./state.js").Item} item */
  said(item) {
    this.say(spoken(item.text ?? ""));
    this.options.emit("message", { mid: item.mid, role: item.role });
  }

  end() {
    clearInterval(this.sweeper);
    clearTimeout(this.linkTimer);
    clearTimeout(this.replyTimer);
    cancelAnimationFrame(this.drawing);
    removeEventListener("pagehide", this.leaving);
    this.composer.keep();
    this.net.stop();
  }
}
