/** Puts the chat on a page: launcher, panel and public calls; removes everything again on shutdown. */
import { h, icon, set, show } from "../shared/h.js";
import { dir, lang, speak, spokenLang, t } from "./i18n.js";
import { sheet } from "./styles.js";
import { Store } from "./storage.js";

const BUBBLE = "M21 11.5a8.4 8.4 0 0 1-12.2 7.5L3 21l2-5.6A8.5 8.5 0 1 1 21 11.5z";
const NARROW = "(max-width: 560px)";

/**
 * @typedef {object} Config
 * @property {string} site @property {string} [title] @property {string} [theme] @property {string} [locale]
 * @property {string} [position] @property {boolean} [open] @property {boolean} [page] @property {string} [accent]
 * @property {string} [dock] true for a panel at the side of the page
 * @property {string} [starters] ways to begin, with a | between them
 */

/** The chat on one page of a site: the launcher, and the panel once it is needed. */
export class Widget {
  /** @param {Config} config */
  constructor(config) {
    this.config = config;
    this.store = new Store(config.site);
    this.opened = false;
    this.unread = 0;
    this.identity = "";
    /** @type {any} */
    this.site = this.keys = null;
    /** @type {import("./chat.js").Chat | null} */
    this.chat = null;
    /** @type {Promise<import("./chat.js").Chat | null> | null} */
    this.loading = null;
    /** @type {Element[]} */
    this.inert = [];
    this.fit = () => this.measure();
  }

  /** Adds the chat to the page; connects if a conversation exists, and opens the panel if the config says so. */
  async mount() {
    await speak(this.config.locale || document.documentElement.lang || navigator.language);
    this.host = h("div", { id: "evertalk", lang: spokenLang(), dir: dir(), data: { mode: this.config.page ? "page" : "widget" } });
    const shadow = this.host.attachShadow({ mode: "open" });
    shadow.adoptedStyleSheets = [sheet()];
    const { page, theme, position, accent } = this.config;
    this.root = h("div", { class: "root", dir: dir(), lang: spokenLang(), data: { theme: this.store.get("theme") || theme || "auto", position: position || "", mode: page ? "page" : "widget", open: "false" }, vars: { "--site-accent": accent || "" } });
    if (!page) this.buildLauncher();
    shadow.append(this.root);
    document.body.append(this.host);
    this.raise();
    // Some sites change pages by replacing the body or its content; the chat moves along.
    this.moving = new MutationObserver(() => {
      if (!document.body) return;
      this.moving.observe(document.body, { childList: true });
      if (this.host.isConnected) return;
      document.body.append(this.host);
      this.raise();
      this.modal(this.opened);
    });
    for (const node of [document.documentElement, document.body]) this.moving.observe(node, { childList: true });
    this.emit("ready");
    if (!page) void this.ask();
    // An existing conversation connects at once; a new one begins when the panel is opened.
    if (page || this.config.open) await this.open(!page);
    else if (this.store.get("token") || this.store.unsent().length) (await this.load())?.start();
  }

  /** Applies the stored look of the site, then loads the current one; a failed load changes nothing. */
  async ask() {
    await this.dress(this.store.get("site"));
    try {
      await this.dress(await (await fetch(new URL(`../../api/v1/sites/${this.config.site}?locale=${lang()}`, import.meta.url))).json());
    } catch {}
  }

  /** Applies the site's look; loads nothing for a site without one. @param {any} look */
  async dress(look) {
    if (look && (this.site || this.config.starters || look.starters?.length || Object.keys(look).length > 1)) (await import("./site.js")).dress(this, look);
  }

  /** Adds the button that opens and closes the panel. */
  buildLauncher() {
    this.badge = h("span", { class: "badge", "aria-hidden": "true", hidden: true });
    this.launcher = h("button", { class: "launcher", part: "launcher", type: "button", "aria-expanded": "false", "aria-label": t("open"), title: t("open"), onclick: () => this.toggle() }, icon(BUBBLE, 26), this.badge);
    this.root.append(this.launcher);
  }

  /** Raises the chat to the top layer, above every z-index of the page. */
  raise() {
    if (this.config.page || !("showPopover" in this.root)) return;
    set(this.root, { popover: "manual" });
    try { this.root.showPopover(); } catch { set(this.root, { popover: null }); }
  }

  /** Returns the chat, loaded on first need; null if the load fails or the widget was removed. @returns {Promise<import("./chat.js").Chat | null>} the panel, loaded on first need */
  load() {
    this.loading ??= Promise.all([import("./chat.js"), import("./panel.js")]).then(([{ Chat }, { dress }]) => {
      if (!this.host) return null;
      dress(this.host.shadowRoot);
      this.chat = new Chat({
        site: this.config.site, title: this.config.title ?? "", page: Boolean(this.config.page), identity: this.identity,
        dress: (site) => this.dress(site), store: this.store, close: () => this.close(), emit: (name, detail) => this.heard(name, detail),
      });
      this.chat.node.hidden = true;
      this.root.prepend(this.chat.node);
      void this.dress(this.site);
      if (this.config.dock || this.store.get("dock")) void import("./dock.js").then((one) => one.begin(this), () => {});
      return this.chat;
    }).catch(() => { this.loading = null; return null; });
    return this.loading;
  }

  /** Opens the panel and connects; `focus` moves the focus to the composer. @param {boolean} [focus] */
  async open(focus = true) {
    const chat = await this.load();
    if (!chat || !this.host) return;
    chat.start();
    if (this.opened) return;
    this.opened = true;
    this.unread = 0;
    this.reflect();
    chat.node.hidden = false;
    chat.draw();
    visualViewport?.addEventListener("resize", this.fit);
    visualViewport?.addEventListener("scroll", this.fit);
    this.measure();
    chat.composer.grow();
    chat.log.end();
    if (focus || this.config.page) chat.composer.input.focus({ preventScroll: true });
    this.modal(true);
    this.emit("open");
  }

  /** Closes the panel, except on the full page; the connection stays. */
  close() {
    if (!this.opened || this.config.page || !this.chat) return;
    this.opened = false;
    this.chat.node.hidden = true;
    this.modal(false);
    this.reflect();
    visualViewport?.removeEventListener("resize", this.fit);
    visualViewport?.removeEventListener("scroll", this.fit);
    this.launcher.focus();
    this.emit("close");
  }

  /** Opens the panel, or closes the open one. */
  toggle() {
    if (this.opened) this.close();
    else void this.open();
  }

  /** Makes the page behind the panel unreachable, or reachable again; on a small screen the panel covers it. @param {boolean} on */
  modal(on) {
    for (const node of this.inert) node.removeAttribute("inert");
    this.inert = [];
    this.chat?.node.removeEventListener("keydown", this.keys);
    const full = on && !this.config.page && matchMedia(NARROW).matches;
    if (this.chat && !this.config.page) set(this.chat.node, { "aria-modal": full ? "true" : null });
    if (!full) return;
    this.inert = [...document.body.children].filter((node) => node !== this.host && !node.hasAttribute("inert") && node.tagName !== "SCRIPT");
    for (const node of this.inert) node.setAttribute("inert", "");
    void import("./phone.js").then(({ stay }) => stay(this));
  }

  /** Fits the panel to the visible area, which the keyboard of a phone makes smaller. */
  measure() {
    const view = visualViewport;
    if (view) set(this.root, { vars: { "--visible": `${Math.round(view.height)}px`, "--top": `${Math.round(view.offsetTop)}px` } });
  }

  /** Updates the launcher: its label, state and number of unread messages. */
  reflect() {
    set(this.root, { data: { open: String(this.opened) } });
    if (!this.launcher) return;
    const unread = this.unread ? `, ${t("unread", { count: this.unread })}` : "";
    const label = this.opened ? t("close") : this.site?.launcher_label || t("open");
    set(this.launcher, { "aria-expanded": String(this.opened), "aria-label": label + unread, title: label });
    this.badge.hidden = !this.unread;
    show(this.badge, this.unread || "");
  }

  /** Handles an event of the chat and passes it to the page. @param {string} name @param {any} detail */
  heard(name, detail) {
    if (name === "unread") { this.unread = this.opened ? 0 : detail.count; this.reflect(); }
    this.emit(name, detail);
  }

  /** Dispatches the event `evertalk:NAME` on the document, for scripts of the page. @param {string} name @param {any} [detail] */
  emit(name, detail = {}) {
    document.dispatchEvent(new CustomEvent(`evertalk:${name}`, { detail }));
  }

  /** Sets the theme for this visit; any other word is ignored. @param {string} theme light, dark or auto */
  setTheme(theme) {
    if (["light", "dark", "auto"].includes(theme)) set(this.root, { data: { theme } });
  }

  /** Sends a text as the visitor's message; an empty text is ignored. @param {string} text */
  async send(text) {
    const words = String(text ?? "").trim();
    if (words) (await this.load())?.send(words);
  }

  /** Signs a person in by a token that the site's server signed; null signs out. @param {string | null} [identity] a signed token */
  async identify(identity) {
    this.identity = String(identity ?? "");
    (await import("./site.js")).identify(this);
  }

  /** Opens the dialog that moves the conversation to another browser. */
  async keep() {
    (await import("./keep.js")).unfold(this);
  }

  /** Signs a person out, closes the connection, and removes all nodes of the chat. */
  async shutdown() {
    this.modal(false);
    if (this.store.get("signed")) await this.identify(null);
    this.chat?.end();
    this.moving?.disconnect();
    visualViewport?.removeEventListener("resize", this.fit);
    visualViewport?.removeEventListener("scroll", this.fit);
    this.host?.remove();
    this.host = null;
    this.emit("shutdown");
  }
}

/**
 * Starts the widget, and carries out the calls that were made before it was loaded.
 * @param {Config} config @param {any} api the global function of the loader
 */
export async function start(config, api) {
  const widget = new Widget(config);
  // otherwise the conversation would begin as another person's
  for (const [name, identity] of api.q) if (name === "identify") await widget.identify(identity);
  await widget.mount();
  const calls = new Set(["open", "close", "toggle", "send", "identify", "keep", "setTheme", "shutdown"]);
  /** @param {string} name @param {...any} args */
  api.run = (name, ...args) => {
    if (!calls.has(name)) throw new Error(`Evertalk has no call named ${name}`);
    if (name === "shutdown") { api.run = null; api.loaded = false; }
    return /** @type {any} */ (widget)[name](...args);
  };
  for (const call of api.q.splice(0)) api.run?.(...call);
}
