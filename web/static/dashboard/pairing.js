/** Requests for access to Telegram bots, and decisions on them. */
import { ask } from "./net.js";
import { DASH, card, empty, h, problem, show, t, table, time, tn } from "./parts.js";
import { ownersCard } from "./owners.js";
import { listPage } from "./lists.js";

const WORDS = { pending: t("pending"), lapsed: t("expired"), allowed: t("may write"), refused: t("may not") };
const TONES = { pending: "waiting", allowed: "answering", refused: "problem" };
const columns = () => [{ label: t("Who") }, { label: t("State") }, { label: t("Code") }, { label: t("Telegram ID"), num: true }, { label: t("Bot") }, { label: t("Asked") }, { label: t("Decided by") }, { label: h("span", { class: "unseen" }, t("Action")), text: "" }];

/** Draws the list of requests for access to Telegram bots; operators can decide on them. @param {Page} page */
export function pairingPage(page) {
  const { me, say, signal } = page;
  page.entitle(t("Telegram access"));
  const note = h("div", { class: "list" });
  const owners = me.role === "admin" && ownersCard({ say, signal });
  const list = listPage(page, {
    title: t("Telegram access"), path: "/dashboard/pairing", api: "/pairing", names: [], filters: [], above: note, told: (count) => tn("{count} request", "{count} requests", count),
    count: (answer) => answer.requests.length,
    nothing: () => h("div", { class: "stack" }, empty(t("No requests yet."), h("p", { class: "muted" }, t("People who write to the bot get a code, which you can approve here."))), owners),
    draw: (answer) => {
      const asks = answer.requests.filter((one) => one.state === "pending");
      const rest = answer.requests.filter((one) => one.state !== "pending");
      return h("div", { class: "stack" },
        answer.requests.length > 0 && card(asks.length ? t("Requests ({number})", { number: asks.length }) : t("Requests"), [asks.length ? grid(t("Requests"), asks) : empty(t("No request waits.")), h("p", { class: "muted small" }, tn("A code expires after {count} hour; writing again creates a new one.", "A code expires after {count} hours; writing again creates a new one.", answer.code_hours))]),
        rest.length > 0 && card(t("Decided"), [grid(t("Decided"), rest)]), me.role === "admin" && owners);
    },
  });

  /** @param {string} caption @param {any[]} rows */
  const grid = (caption, rows) => table({ caption, className: "wide-grid pairing-grid", columns: columns(), rows: rows.map(cells) });

  /** @param {Api["AccessRequest"]} one */
  function cells(one) {
    const name = one.name ?? (one.group ? t("a group") : t("unknown person"));
    return [
      h("span", { dir: "auto", class: "strong" }, name, one.handle && h("span", { class: "muted" }, ` @${one.handle}`)),
      h("span", { class: `state ${TONES[/** @type {keyof typeof TONES} */ (one.state)] ?? ""}` }, one.owner ? t("owner") : WORDS[/** @type {keyof typeof WORDS} */ (one.state)]),
      one.code ? h("code", null, one.code) : DASH, String(one.chat), one.username ? `@${one.username}` : String(one.bot), time(one.asked_at), one.decided_by ?? DASH,
      me.role === "viewer" ? null : h("span", { class: "actions tight" }, acts(one, name)),
    ];
  }

  /** @param {Api["AccessRequest"]} one @param {string} name */
  function acts(one, name) {
    /** @param {string} words @param {string} label @param {any} body @param {string} done @param {string} [kind] */
    const button = (words, label, body, done, kind = "line") => h("button", { type: "button", class: kind, "aria-label": label, onclick: () => decide(body, done) }, words);
    const block = (/** @type {string} */ done) => button(t("Block"), t("Block {name}", { name }), { action: "block", ...place }, done);
    const place = { bot: one.bot, chat: one.chat };
    if (one.state === "pending") {
      return [button(t("Approve"), t("Approve {name}", { name }), { action: "approve", code: one.code }, t("{name} can write now.", { name }), "solid"), button(t("Refuse"), t("Refuse {name}", { name }), { action: "refuse", code: one.code }, t("{name} was refused.", { name })), block(t("{name} is blocked.", { name }))];
    }
    return one.state === "allowed" ? block(t("{name} can no longer write.", { name })) : button(t("Allow"), t("Allow {name}", { name }), { action: "allow", ...place }, t("{name} can write now.", { name }));
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
