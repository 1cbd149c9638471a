/** The checklist of the first days: what is set up and what is not, with a link for each step. */
import { card, h, t } from "./parts.js";

/** Name, reason and place of each step, by its id. @type {Record<string, [string, any, string]>} */
const STEPS = {
  model: [t("Enter a model key"), t("Until then the built-in demo answers."), "/dashboard/settings?section=model"],
  try: [t("Try it"), t("Write a message, as a visitor would."), "/chat"],
  telegram: [t("Connect a Telegram bot"), t("The same assistant answers there."), "/dashboard/settings?section=telegram"],
  widget: [t("Add the chat to a page"), t("A site has the snippet for your page."), "/dashboard/sites"],
  account: [t("Protect your login"), t("With a password and a second factor."), "/dashboard/account"],
  backups: [t("Keep backups elsewhere"), t("In a folder on another disk; each backup is copied there."), "/dashboard/settings?section=backups"],
};
const STATES = { done: [t("done"), "answering"], todo: [t("to do"), "idle"], broken: [t("needs attention"), "problem"] };

/** Returns the card of steps for setting up; its button calls `hide`, which is offered only while no step is broken. @param {Api["Checklist"]} list @param {() => void} hide */
export function checklistCard({ steps }, hide) {
  const done = steps.filter((one) => one.state === "done").length;
  const next = steps.find((one) => one.state !== "done");
  const broken = steps.some((one) => one.state === "broken");
  return card(t("Set up Evertalk"), [h("ol", { class: "checklist" }, steps.map((one) => step(one, one === next)))], [h("span", { class: "muted small" }, t("{done} of {all} done", { done, all: steps.length })),
    !broken && h("button", { type: "button", class: "line", onclick: hide }, t("Hide"))]);
}

/** Draws a step; the next one and broken ones also show their reason. @param {{name: string, state: "done" | "todo" | "broken"}} one @param {boolean} isNext */
function step({ name, state }, isNext) {
  const [title, why, href] = STEPS[name];
  const [words, look] = STATES[state];
  return h("li", { class: state }, href ? h("a", { href, ...href === "/chat" ? { target: "_blank", rel: "noopener" } : null }, title) : h("b", null, title),
    h("span", { class: `state ${look}` }, words), (isNext || state === "broken") && h("p", { class: "muted small" }, why));
}
