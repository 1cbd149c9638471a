/** Look and texts of a site, and its signed-in visitor; loaded for sites with any of these. */
import { h, set, show } from "../shared/h.js";
import { t } from "./i18n.js";
import { adopt } from "./styles.js";

const MOST_STARTERS = 6;
const SITE_LOOK = /* css */ `
.empty .hello { white-space: pre-wrap; } .empty a { color: var(--accent); }
.starters { justify-content: center; padding: 8px 0; } .starters .action { padding: 6px 13px; }
`;

/** Applies a site's look to launcher, colours, header and the empty chat. @param {import("./main.js").Widget} widget @param {any} site */
export function dress(widget, site) {
  const { config, chat } = widget;
  if (typeof site === "string") try { site = JSON.parse(site); } catch { return; }
  if (!site || site.code || !widget.host) return;
  if (!widget.site) adopt(widget.root, SITE_LOOK);
  widget.site = site;
  // The site's colour also serves for text and borders: it is darkened or lightened until it can be read.
  const tint = config.accent ? "" : site.accent;
  const dark = /^#f/i.test(site.on_accent ?? "") ? "85%" : "40%";
  widget.store.put("site", JSON.stringify(site));
  set(widget.root, {
    data: { position: config.position || site.position || "" },
    vars: { "--site-font": site.font ?? "", "--site-accent": config.accent || site.accent || "", "--site-on-accent": (!config.accent && site.on_accent) || "",
      "--accent": tint ? `light-dark(color-mix(in srgb, ${tint} ${dark}, #000), color-mix(in srgb, ${tint} 40%, #fff))` : "" },
  });
  widget.reflect();
  if (!chat) return;
  chat.offline = site.offline_text ?? "";
  const title = config.title || site.title;
  if (title) show(chat.title, title);
  if (title && config.page) document.title = title;
  if (config.page && site.conversations === "many") void import("./side.js").then((one) => one.beside(chat), () => {});
  const own = config.starters?.split("|").map((one) => one.trim()).filter(Boolean).slice(0, MOST_STARTERS);
  begin(chat, own?.length ? { ...site, starters: own } : site);
  if (site.ask_name) void import("./name.js").then((one) => one.askName(chat), () => {});
}

/** Shows a welcome, suggestions for a first message, and the note that an AI answers. @param {import("./chat.js").Chat} chat @param {any} site */
function begin(chat, { welcome, starters, ai_notice: notice, privacy_url: privacy }) {
  const starter = (/** @type {string} */ text) => h("button", { class: "action line", type: "button", dir: "auto", onclick: () => chat.send(text) }, text);
  const link = /^https:/.test(privacy ?? "") && [" ", h("a", { href: privacy, target: "_blank", rel: "noopener noreferrer" }, t("privacy"))];
  show(/** @type {HTMLElement} */ (chat.log.node.querySelector(".empty")), h("h3", { class: "hello", dir: "auto" }, welcome || t("welcome")),
    starters?.[0] && h("div", { class: "row starters" }, starters.map(starter)), h("p", { class: "muted small", dir: "auto" }, notice || t("ai_line"), link));
}

/** Leaves the conversation after another tab has signed a person in or out; what our page has said about that no longer holds. @param {import("./chat.js").Chat} chat */
export function leave(chat) {
  chat.options.identity = "";
  chat.discardAll();
  chat.net.close();
  // until that tab has stored its token
  chat.net.later(1500);
}

/** Returns a number for the person of a signed token, which stays the same when the person signs in again. @param {string} identity */
function about(identity) {
  let who = identity;
  try { who = String(JSON.parse(atob(identity.split(".")[1].replace(/-/g, "+").replace(/_/g, "/"))).sub ?? who); } catch { /* then the whole of it */ }
  let sum = 0;
  for (const char of who) sum = (Math.imul(sum, 31) + (char.codePointAt(0) ?? 0)) | 0;
  return `${sum}`;
}

/** Signs the visitor in or, without an identity, out. @param {import("./main.js").Widget} widget */
export function identify({ chat, identity, store }) {
  const signed = store.get("signed");
  const who = identity && about(identity);
  // Before the server can answer: another person must not see the former one's draft.
  const was = store.get("who");
  const other = signed && (!who || (was && was !== who));
  if (chat && identity === (chat.options.identity ?? "") && (identity || !signed)) return;
  const heard = !identity && signed && chat?.net.send({ t: "identify", identity: null });
  if (other) {
    store.leave();
    chat?.discardAll();
  }
  store.put("who", who);
  if (!chat) return;
  chat.options.identity = identity;
  chat.denied = false;
  Object.assign(chat.chat, { last: 0, session: "" });
  if (heard) return;
  if (chat.status === "refused") chat.start();
  else if (!chat.net.stopped) chat.net.reconnect();
}
