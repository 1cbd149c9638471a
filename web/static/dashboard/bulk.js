/** Actions on the selected conversations of the inbox: resolve, assign, snooze, label, or run a macro. */
import { drawIcon } from "./icons.js";
import { chooseMacro } from "./macros.js";
import { ask } from "./net.js";
import { h, problem, show, t, tn, ts } from "./parts.js";
import { askAssignee, askLabel, askSnooze } from "./picker.js";

/**
 * Returns the bar of actions. While it is shown, keys of the inbox press its buttons instead of those of the open conversation.
 * @param {{me: any, say: (words: string) => void, signal: AbortSignal, chosen: () => Api["ListedHandover"][], nameOf: (one: any) => string, done: () => Promise<void>, clear: () => void}} of
 */
export function bulkBar({ say, signal, chosen, nameOf, done, clear }) {
  const count = h("b", { role: "status" });
  const note = h("div", { role: "status" });
  /** Dialogs of the actions; null if the operator cancels. @type {Record<string, () => Promise<any>>} */
  const asked = {
    resolve: async () => ({}),
    assign: async () => { const operator = await askAssignee({}, signal); return operator && { operator }; },
    snooze: () => askSnooze(signal),
    label: async () => { const labels = await askLabel([], signal); return labels && { labels }; },
  };

  /** Lists conversations, each with the reason why it was not changed. @param {string} title @param {Api["ListedHandover"][]} all @param {{session: string, reason?: string}[]} which */
  const listed = (title, all, which) => which.length > 0 && h("div", { class: "trouble", role: "alert" }, h("p", null, title),
    h("ul", { class: "findings" }, which.map((one) => { const row = all.find(({ session }) => session === one.session); return h("li", null, h("bdi", null, row ? nameOf(row) : one.session), one.reason && ": ", one.reason && ts(one.reason)); })));

  /** @param {string} action */
  async function act(action) {
    if (action === "macro") return runMacro();
    const all = chosen();
    const more = await asked[action]();
    if (!more || !all.length) return;
    show(note);
    try {
      const { conversations } = await ask("/handovers/moves", { method: "POST", body: { action, conversations: all.map(({ session, version }) => ({ session, version })), ...more }, signal });
      const refused = conversations.filter((one) => one.error);
      const changed = conversations.length - refused.length;
      clear();
      await done();
      say(tn("{count} conversation was changed.", "{count} conversations were changed.", changed));
      show(note, listed(tn("{count} conversation was not changed:", "{count} conversations were not changed:", refused.length), all, refused));
    } catch (error) { if (!signal.aborted) show(note, problem(error)); }
  }

  /** Runs a macro on the selection; a failed call is repeated under the same `cid`, which sends each reply once. */
  async function runMacro() {
    const all = chosen();
    show(note);
    try {
      const macro = await chooseMacro({ signal, say });
      if (!macro || !all.length) return;
      const cid = crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
      const run = async () => {
        show(note, h("p", { class: "muted" }, t("{name} is running…", { name: macro.name })));
        try {
          const { conversations } = await ask(`/macros/${macro.name}/runs`, { method: "POST", body: { cid, sessions: all.map(({ session }) => session) }, signal, seconds: 120 });
          /** @param {string} outcome */
          const of = (outcome) => conversations.filter((one) => one.outcome === outcome);
          const [ran, resolved, refused] = [of("done"), of("already_resolved"), of("refused")];
          clear();
          await done();
          const sentence = tn("{name} ran on {count} conversation.", "{name} ran on {count} conversations.", ran.length, { name: macro.name });
          say(sentence);
          show(note, h("p", null, sentence), listed(tn("{count} conversation was already resolved:", "{count} conversations were already resolved:", resolved.length), all, resolved),
            listed(tn("{count} conversation was not changed:", "{count} conversations were not changed:", refused.length), all, refused));
        } catch (error) { if (!signal.aborted) show(note, problem(error, run)); }
      };
      await run();
    } catch (error) { if (!signal.aborted) show(note, problem(error)); }
  }

  /** @param {string} action @param {string} words */
  const button = (action, words) => h("button", { type: "button", class: "line icon-button", title: words, data: { act: action }, onclick: () => { void act(action); } }, drawIcon(action), h("span", { class: "unseen" }, words));
  const bar = h("div", { class: "bulk", role: "group", "aria-label": t("Selected conversations"), hidden: true }, count, h("button", { type: "button", class: "link", onclick: clear }, t("Clear the selection")), h("span", { class: "actions" }, button("resolve", t("Resolve")), button("assign", t("Assign")), button("snooze", t("Snooze")), button("label", t("Labels")), button("macro", t("Macros"))));
  return {
    node: h("div", null, bar, note),
    /** @param {number} selected */
    update(selected) {
      bar.hidden = selected === 0;
      if (selected) show(count, tn("{count} selected", "{count} selected", selected));
    },
  };
}
