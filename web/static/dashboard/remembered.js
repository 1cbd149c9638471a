/** The notes about a session's person on the session's page, and a form to add one. */
import { VOUCHES, keptWords, noteAdder } from "./adding.js";
import { ask } from "./net.js";
import { card, empty, h, problem, repaintTimes, show, skeleton, t, time, tn, ts } from "./parts.js";

const SHOWN = 5;

/**
 * Returns the card of notes about a session's person: `node`, and `update` for a newer count.
 * @param {{session: any, me: any, say: (words: string) => void, signal: AbortSignal}} of
 */
export function memoryCard({ session, me, say, signal }) {
  const told = h("div", { class: "remembered-told", role: "status" });
  const list = h("div", null, skeleton(2));
  const adder = me.role !== "viewer" ? noteAdder({ signal, added, heir: session.agent, look: "maker inner" }) : null;
  adder?.about({ id: session.contact, name: session.person, kind: session.kind, anonymous: session.anonymous });
  const all = `/dashboard/memory?person=${session.contact}`;
  const count = h("a", { href: all }, t("All notes"));
  let drawn = "";
  let asked = 0;

  /** @param {unknown} error */
  const failed = (error) => { if (!signal.aborted) { drawn = ""; show(list, problem(error, () => load(true).catch(failed))); } };

  /** @param {boolean} refresh */
  async function load(refresh) {
    const mine = ++asked;
    const { notes } = await ask(`/notes?person=${session.contact}&state=kept&limit=${SHOWN}`, { refresh, signal });
    if (mine !== asked) return;
    const next = JSON.stringify(notes);
    if (next === drawn) return repaintTimes(list);
    drawn = next;
    show(list, notes.length ? h("ul", { class: "plain-list", "aria-label": t("Notes") }, notes.map(item)) : empty(t("Nothing is remembered yet.")));
  }

  /** @param {Api["FoundNoteShown"]} one */
  const item = (one) => h("li", { class: "remembered" },
    h("p", null, h("span", { class: "badge" }, ts(one.kind)), " ", h("span", { dir: "auto" }, one.text)),
    h("p", { class: "muted small" }, h("span", { class: one.authority === "tool" ? "warn-text" : null }, VOUCHES[/** @type {keyof typeof VOUCHES} */ (one.authority)] ?? one.authority),
      one.agent !== session.agent && [" · ", t("agent {agent}", { agent: one.agent })], " · ", time(one.observed_at), " · ",
      h("a", { href: `${all}&q=${one.id}`, "aria-label": adder ? t("Edit: {note}", { note: one.text }) : t("Show: {note}", { note: one.text }) }, adder ? t("Edit") : t("Show"))));

  /** @param {Api["AddedNote"]} answer */
  async function added({ note: one, changed, redacted }) {
    const words = keptWords({ changed, redacted });
    say(words);
    show(told, h("p", { class: "done actions" }, words, changed && one && h("button", { type: "button", class: "line", onclick: () => takeBack(one) }, t("Undo"))));
    await load(true).catch(failed);
  }

  /** @param {Api["FoundNoteShown"]} one */
  async function takeBack(one) {
    try {
      await ask(`/notes/${one.id}`, { method: "DELETE", signal });
      say(t("The note is archived."));
      show(told, h("p", { class: "done" }, t("The note is archived.")));
      await load(true).catch(failed);
    } catch (error) { if (!signal.aborted) show(told, problem(error)); }
  }

  return { node: card(t("Notes"), [adder?.node, told, list], count),
    /** Updates the number of notes and the newest ones, as the session reports them. @param {Api["NoteCount"]} notes @param {boolean} refresh */
    update(notes, refresh) {
      show(count, notes.kept > SHOWN ? tn("All {count} note", "All {count} notes", notes.kept) : t("All notes"));
      load(refresh).catch(failed);
    } };
}
