/** Who asked to write to the bots of Telegram, and the word of yes or no. */
import { ask } from "./net.js";
import { DASH, card, empty, h, problem, show, table, time } from "./parts.js";
import { listPage } from "./lists.js";

const WORDS = { pending: "asks", lapsed: "lapsed", allowed: "may write", refused: "may not" };
const TONES = { pending: "waiting", allowed: "answering", refused: "problem" };
const columns = () => [{ label: "Who" }, { label: "State" }, { label: "Code" }, { label: "Number", num: true }, { label: "Bot" }, { label: "Asked" }, { label: "Decided by" }, { label: h("span", { class: "unseen" }, "Action"), text: "" }];

/** @param {any} page */
export function pairingPage(page) {
  const { me, say, signal } = page;
  page.entitle("Pairing");
  const note = h("div", { class: "list" });
  const list = listPage(page, {
    title: "Pairing", path: "/dashboard/pairing", api: "/pairing", names: [], filters: [], above: note, noun: "requests",
    count: (answer) => answer.requests.length,
    nothing: () => empty("Nobody has asked yet.", h("p", { class: "muted" }, "Whoever writes to the bot gets a code, which can be approved here.")),
    draw: (answer) => {
      const asks = answer.requests.filter((/** @type {any} */ one) => one.state === "pending");
      const rest = answer.requests.filter((/** @type {any} */ one) => one.state !== "pending");
      return h("div", { class: "stack" },
        answer.requests.length > 0 && card(`Requests${asks.length ? ` (${asks.length})` : ""}`, [asks.length ? grid("Requests", asks) : empty("No request waits."), h("p", { class: "muted small" }, `A code lives for ${answer.code_hours} hour; whoever writes again gets a new one.`)]),
        rest.length > 0 && card("Decided", [grid("Decided", rest)]));
    },
  });

  /** @param {string} caption @param {any[]} rows */
  const grid = (caption, rows) => table({ caption, className: "wide-grid pairing-grid", columns: columns(), rows: rows.map(cells) });

  /** @param {any} one */
  function cells(one) {
    const name = one.name ?? (one.group ? "a group" : "somebody");
    return [
      h("span", { dir: "auto", class: "strong" }, name, one.handle && h("span", { class: "muted" }, ` @${one.handle}`)),
      h("span", { class: `state ${TONES[/** @type {keyof typeof TONES} */ (one.state)] ?? ""}` }, one.owner ? "owner" : WORDS[/** @type {keyof typeof WORDS} */ (one.state)]),
      one.code ? h("code", null, one.code) : DASH, String(one.chat), one.username ? `@${one.username}` : String(one.bot), time(one.asked_at), one.decided_by ?? DASH,
      me.role === "viewer" ? null : h("span", { class: "actions tight" }, acts(one, name)),
    ];
  }

  /** @param {any} one @param {string} name */
  function acts(one, name) {
    /** @param {string} words @param {any} body @param {string} done @param {string} [kind] */
    const button = (words, body, done, kind = "line") => h("button", { type: "button", class: kind, "aria-label": `${words} ${name}`, onclick: () => decide(body, `${name} ${done}`) }, words);
    const place = { bot: one.bot, chat: one.chat };
    if (one.state === "pending") {
      return [button("Approve", { action: "approve", code: one.code }, "can write from now on.", "solid"), button("Refuse", { action: "refuse", code: one.code }, "was refused."), button("Block", { action: "block", ...place }, "is shut out.")];
    }
    return one.state === "allowed" ? button("Block", { action: "block", ...place }, "can no longer write.") : button("Allow", { action: "allow", ...place }, "can write from now on.");
  }

  /** @param {any} body @param {string} words */
  async function decide(body, words) {
    show(note);
    try {
      await ask("/pairing", { method: "POST", body, signal });
      say(words);
      show(note, h("p", { class: "done", dir: "auto" }, words));
    } catch (error) { if (!signal.aborted) show(note, problem(error)); }
    await list.load();
  }
}
