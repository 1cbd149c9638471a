/** Facts about the visitor next to a conversation, as their page and site report them. */
import { ask } from "./net.js";
import { card, joinWithDots, h, show, t, time, tn } from "./parts.js";

/** Returns the card about a conversation's visitor: `node`, and `load`, which draws it for a session. @param {{id: string, me: any, signal: AbortSignal}} of */
export function contactCard({ id, signal }) {
  const node = h("div", { class: "inbox-contact" });

  /** @param {Api["SessionWhole"]} session */
  async function load(session) {
    const [one, person] = await Promise.all([ask(`/sessions/${id}/contact`, { refresh: true, signal }), ask(`/people/${session.contact}`, { refresh: true, signal })]).catch(() => [null, null]);
    if (!one || !person || signal.aborted) return;
    const facts = [[t("Page"), one.page && link(one.page)], [t("Browser"), one.browser], [t("Language"), one.language], [t("Time zone"), one.timezone], [t("E-mail"), one.email], ...Object.entries(one.attributes)].filter(([, value]) => value);
    const earlier = person.conversations.filter((other) => other.id !== id).slice(0, 5);
    show(node, card(t("Contact"), [
      facts.length > 0 && h("dl", { class: "contact-facts" }, facts.map(([name, value]) => h("div", null, h("dt", { dir: "auto" }, name), h("dd", { dir: "auto" }, value)))),
      h("p", { class: "facts" }, h("a", { href: `/dashboard/people/${session.contact}` }, t("Person")), h("a", { href: `/dashboard/memory?person=${session.contact}` }, tn("{count} note", "{count} notes", person.notes))),
      earlier.length > 0 && [h("h3", null, t("Conversations")), h("ul", { class: "plain-list" }, earlier.map((other) => h("li", null, h("a", { href: `/dashboard/sessions/${other.id}` }, joinWithDots([other.agent, tn("{count} turn", "{count} turns", other.turns)])), " ", h("span", { class: "muted" }, time(other.last_active_at)))))],
    ]));
  }
  return { node, load };
}

/** Returns a link to a page if its address is http or https, else the address as text. @param {string} page */
const link = (page) => /^https?:\/\//.test(page) ? h("a", { href: page, target: "_blank", rel: "noopener noreferrer" }, page.replace(/^https?:\/\//, "")) : page;
