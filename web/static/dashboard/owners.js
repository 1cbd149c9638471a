/** Owners of Telegram bots, who decide on access, and a link for a new owner; on the pages Settings and Telegram access. */
import { ask } from "./net.js";
import { card, empty, h, problem, show, skeleton, t, tn } from "./parts.js";
import { copier } from "./copier.js";

/** Returns the card with the owners of each bot, and a button that makes a link for a new owner. @param {{say: (words: string) => void, signal: AbortSignal}} page */
export function ownersCard({ say, signal }) {
  const body = h("div", { class: "stack" }, skeleton(2));
  const made = h("div", { class: "stack", role: "status" });

  /** @param {Api["OwnedBot"]} one */
  const row = (one) => h("li", { class: "split" }, h("span", null, h("b", { dir: "ltr", translate: "no" }, `@${one.username}`), " ",
    h("span", { class: one.owners ? "muted" : "warn-text" }, one.owners ? tn("{count} owner", "{count} owners", one.owners) : t("no owner yet"))),
  h("button", { type: "button", class: "line", "aria-label": t("Create a link for {name}", { name: `@${one.username}` }), onclick: (/** @type {any} */ event) => make(one, event.currentTarget) }, t("Create a link")));

  /** @param {Api["OwnedBot"]} one @param {HTMLButtonElement} button */
  async function make(one, button) {
    button.disabled = true;
    show(made);
    try {
      const { link, minutes } = await ask(`/pairing/${one.bot}/owner-link`, { method: "POST", body: {}, signal });
      show(made, h("div", { class: "fresh" }, h("p", null, tn("Open it in Telegram within {count} minute; it works once.", "Open it in Telegram within {count} minutes; it works once.", minutes)),
        h("p", { class: "copy-line" }, h("code", { class: "secret", dir: "ltr" }, link), copier(link, t("Copy the link"), say))));
    } catch (error) { if (!signal.aborted) show(made, problem(error)); }
    button.disabled = false;
  }

  async function load() {
    try {
      const { owned_bots: bots } = await ask("/pairing", { refresh: true, signal });
      show(body, bots.length ? h("ul", { class: "plain-list" }, bots.map(row)) : empty(t("No bot has reached Telegram yet."), h("p", { class: "muted" }, t("Enter a bot token in the settings; the bot appears here once it runs."))), made);
    } catch (error) { if (!signal.aborted) show(body, problem(error, load)); }
  }
  load();
  return card(t("Owners of bots"), [h("p", { class: "muted" }, t("Owners decide in Telegram who may write to the bot. The first person to open a link becomes one.")), body]);
}
