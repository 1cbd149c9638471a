/** Open logins as a list, with a button that ends each; shared by the pages Account and Operators. */
import { DASH, h, time } from "./parts.js";

const HOW = { password: "by password", link: "by a link", provider: "by the identity provider" };

/**
 * @param {any[]} logins @param {string} whose for the buttons' names @param {(login: any, button: HTMLButtonElement) => void} end
 */
export function loginList(logins, whose, end) {
  return h("ul", { class: "plain-list logins" }, logins.map((login) => h("li", null,
    h("p", null, h("b", null, login.browser || "Unknown browser"), login.this && h("span", { class: "badge here" }, "this one"),
      h("span", { class: "muted block small" }, `${HOW[/** @type {keyof typeof HOW} */ (login.how)] ?? login.how} · from ${login.source || DASH} · `, "since ", time(login.at), " · seen ", time(login.seen_at))),
    login.this ? null : h("button", { type: "button", class: "line", "aria-label": `Log out ${whose}: ${login.browser || "unknown browser"}, ${login.source || "unknown address"}`, onclick: (/** @type {any} */ event) => end(login, event.currentTarget) }, "Log out"))));
}
