/** The form by which an operator adds a note about a person. */
import { ask } from "./net.js";
import { h, nameOf, problem, show, t, ts } from "./parts.js";

/** Kinds of notes, as the server names them. */
export const KINDS = ["profile", "preference", "fact", "decision", "event", "plan", "relation", "instruction"];
/** Names of those on whose word a note rests, by the note's `authority`. */
export const VOUCHES = { person: t("from the user"), assistant: t("from the assistant"), tool: t("from a tool"), operator: t("from an operator") };
const WEIGHTS = [[8, t("high")], [5, t("normal")], [2, t("low, only if there is room")]];

/** Returns the result of adding a note in words. @param {any} told */
export const keptWords = ({ changed, redacted }) => !changed ? t("This is known already.") : redacted ? t("The note is kept, without the secret in it.") : t("The note is kept.");

/**
 * A form for a note, closed at first. `about` is the person of the page; without one the form searches for a
 * person. `heir` is the agent of the page; without one the form asks if there are several.
 * @param {{signal: AbortSignal, added: (told: any) => void, heir?: string, look?: string}} of
 */
export function noteAdder({ signal, added, heir = "", look: looks = "card maker" }) {
  const trouble = h("div");
  const text = h("textarea", { name: "text", maxlength: 600, rows: 2, dir: "auto", required: true, placeholder: t("One fact per note") });
  const kind = h("select", { name: "kind" }, KINDS.map((one) => h("option", { value: one, selected: one === "fact" }, ts(one))));
  const weight = h("select", { name: "importance" }, WEIGHTS.map(([value, words]) => h("option", { value }, words)));
  const agent = h("select", { name: "agent" });
  const agentLine = h("label", { hidden: true }, h("span", null, t("Agent")), agent);
  const who = h("select", { name: "person", required: true, onchange: () => agentsOf(who.value) });
  const search = h("input", { type: "search", placeholder: t("Name, place or id"), autocomplete: "off", spellcheck: "false", oninput: () => { clearTimeout(typing); typing = setTimeout(() => look().catch(failed), 250); } });
  const finding = [h("label", null, h("span", null, t("Look for a person")), search), h("label", null, h("span", null, t("Person")), who)];
  const whose = h("div", { class: "pair" });
  const button = h("button", { type: "submit", class: "solid" }, t("Add the note"));
  const node = h("details", { class: looks, open: location.hash === "#add", ontoggle: () => { if (node.open) opened().catch(failed); } }, h("summary", null, t("Add a note")),
    h("form", { class: "note-add", onsubmit: send }, whose,
      h("label", null, h("span", null, t("What to remember")), text),
      h("div", { class: "pair" }, h("label", null, h("span", null, t("Kind")), kind), h("label", null, h("span", null, t("Weight in prompts")), weight), agentLine),
      trouble, h("p", { class: "actions" }, button, h("span", { class: "muted small" }, t("Its source is an operator.")))));
  let typing = 0;
  let fixed = "";

  /** @param {unknown} error */
  const failed = (error) => { if (!signal.aborted) show(trouble, problem(error)); };
  const chosen = () => fixed || who.value;

  async function opened() {
    if (fixed) return agentsOf(fixed);
    if (!who.options.length) await look();
    search.focus();
  }

  async function look() {
    const asked = search.value.trim();
    const { people } = await ask(`/people?limit=20&q=${encodeURIComponent(asked)}`, { signal });
    if (asked !== search.value.trim()) return;
    const before = who.value;
    show(who, people.length ? people.map((one) => h("option", { value: one.id, selected: one.id === before }, nameOf(one))) : h("option", { value: "" }, t("No person found")));
    await agentsOf(who.value);
  }

  /** Offers the agents that the person has spoken to, since a note belongs to one agent. @param {string} id */
  async function agentsOf(id) {
    if (heir) return;
    const talks = id ? (await ask(`/people/${id}`, { signal })).conversations : [];
    if (id !== chosen()) return;
    const names = [...new Set(talks.map((one) => one.agent))];
    show(agent, names.map((name) => h("option", { value: name }, name)));
    agentLine.hidden = names.length < 2;
  }

  /** @param {Event} event */
  async function send(event) {
    event.preventDefault();
    button.disabled = true;
    show(trouble);
    try {
      const told = await ask("/notes", { method: "POST", body: { person: chosen(), text: text.value, kind: kind.value, agent: heir || agent.value, importance: Number(weight.value) }, signal });
      text.value = "";
      node.open = false;
      node.querySelector("summary")?.focus();
      added(told);
    } catch (error) { failed(error); }
    button.disabled = false;
  }

  return { node, about(/** @type {Api["NotesPerson"] | null} whose notes are shown; null: everybody's */ person) {
    const now = person?.id ?? "";
    if (whose.childNodes.length && now === fixed) return;
    fixed = now;
    show(whose, person ? h("p", null, t("About {person}", { person: h("b", { dir: "auto" }, nameOf(person)) })) : finding);
    if (node.open) opened().catch(failed);
  } };
}
