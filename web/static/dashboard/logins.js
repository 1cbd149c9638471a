/** Open logins as a list, with a button that ends each; shared by the pages Account and Operators. */
import { DASH, h, t, time } from "./parts.js";

const HOW = { password: t("by password"), link: t("by a link"), provider: t("by the identity provider") };

/**
 * Returns the list of open logins; `end` is called when the button of a login other than this one is pressed.
 * @param {Api["Login"][]} logins @param {string} whose for the buttons' names @param {(login: any, button: HTMLButtonElement) => void} end
 */
export function loginList(logins, whose, end) {
  return h("ul", { class: "plain-list logins" }, logins.map((login) => h("li", null,
    h("p", null, h("b", null, login.browser || t("Unknown browser")), login.this && h("span", { class: "badge here" }, t("this one")),
      h("span", { class: "muted block small" }, HOW[/** @type {keyof typeof HOW} */ (login.how)] ?? login.how, " · ", t("from {address}", { address: login.source || DASH }), " · ", t("since {time}", { time: time(login.at) }), " · ", t("seen {time}", { time: time(login.seen_at) }))),
    login.this ? null : h("button", { type: "button", class: "line", "aria-label": t("Log out {operator}: {browser}, {address}", { operator: whose, browser: login.browser || t("Unknown browser"), address: login.source || t("unknown address") }), onclick: (/** @type {any} */ event) => end(login, event.currentTarget) }, t("Log out")))));
}
