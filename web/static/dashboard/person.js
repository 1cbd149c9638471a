/** One person: their places and conversations, a copy of what is kept of them, and forgetting them. */
import { ask, keepFresh } from "./net.js";
import { DASH, card, channelBadge, empty, h, kpi, liveMark, missing, money, nameOf, number, problem, repaintTimes, show, skeleton, table, time, tokens } from "./parts.js";

const COUNTED = { entries: "messages", links: "summaries", notes: "notes", artifacts: "kept tool results", attachments: "files", pins: "pins" };

/** @param {any} page */
export function personPage({ root, id, me, say, entitle, signal }) {
  entitle("Person");
  const head = h("div", { class: "page-head" });
  const body = h("div", { class: "stack" }, skeleton(8));
  const danger = h("div", { class: "stack" });
  const mark = liveMark();
  let shown = "";
  let first = true;

  /** @param {boolean} [refresh] */
  async function load(refresh = false) {
    const one = await ask(`/people/${id}`, { refresh, signal });
    const next = JSON.stringify(one);
    if (next === shown) return repaintTimes(body);
    shown = next;
    entitle(nameOf(one));
    show(head, h("div", null, h("p", { class: "crumbs" }, h("a", { href: "/dashboard/people" }, "People")), h("h1", { dir: "auto" }, nameOf(one)),
      h("p", { class: "facts" }, h("span", null, one.kind === "group" ? "group" : one.anonymous ? "visitor" : "person"), one.timezone && h("span", null, one.timezone), h("span", null, "known since ", time(one.since)), one.joined > 0 && h("span", null, `${number(one.joined)} joined by /link`), one.hold && h("span", { class: "badge" }, "on hold"), mark.node)));
    show(body, h("dl", { class: "kpis four" }, kpi("Conversations", number(one.sessions), `${number(one.turns)} turns`), kpi("Tokens", tokens(one.tokens), one.tokens === null ? "in and out, ever" : `${tokens(one.tokens - one.output_tokens)} in (${tokens(one.cache_read_tokens)} of it from the cache) · ${tokens(one.output_tokens)} out`),
      kpi("Spent", money(one.cost_micro, one.cost_unknown_calls), one.cost_unknown_calls ? `${number(one.cost_unknown_calls)} calls of unknown price` : "every call"),
      kpi("Notes", h("a", { href: `/dashboard/memory?person=${one.id}` }, number(one.notes)), [one.put_away ? `${number(one.put_away)} put away` : "kept", me.role !== "viewer" && one.sessions > 0 && [" · ", h("a", { href: `/dashboard/memory?person=${one.id}#add` }, "add one")]])),
    conversations(one.conversations), places(one.places));
    if (first) { first = false; show(danger, me.role !== "viewer" && exporting(id), me.role === "admin" && holding(one, { say, signal }), me.role === "admin" && erasing(one, { say, signal, load })); say(nameOf(one)); }
  }

  /** @param {any} error */
  function failed(error) {
    if (signal.aborted) return;
    if (error.status === 404) return show(root, missing("There is no such person.", "/dashboard/people", "All people"));
    shown = "";
    show(body, problem(error, () => load().catch(failed)));
  }
  show(root, head, body, danger);
  load().catch(failed);
  keepFresh(() => load(true), mark.tell, signal);
}

/** @param {any[]} talks */
function conversations(talks) {
  const columns = [{ label: "Conversation" }, { label: "Turns", num: true }, { label: "Context now", num: true }, { label: "Spent", num: true }, { label: "Begun" }, { label: "Last active" }];
  const rows = talks.map((one) => [h("a", { class: "row-link", href: `/dashboard/sessions/${one.id}` }, `${one.agent} · ${one.id.slice(0, 6)}`), number(one.turns),
    one.context_limit ? `${tokens(one.context_tokens)} of ${tokens(one.context_limit)}` : DASH, money(one.cost_micro, one.cost_unknown_calls), time(one.created_at), time(one.last_active_at)]);
  return card("Conversations", [rows.length ? table({ caption: "Conversations", className: "wide-grid", columns, rows }) : empty("No conversation.")]);
}

/** @param {any[]} places */
function places(places) {
  const columns = [{ label: "Place" }, { label: "Known as" }, { label: "Who it is" }, { label: "Since" }];
  const rows = places.map((one) => [h("span", null, channelBadge(one.channel), one.channel === "telegram" ? `chat ${one.chat}` : `site ${one.account}`), one.title ? h("span", { dir: "auto" }, one.title) : DASH,
    one.unreachable_since ? h("span", { class: "state problem" }, "cannot be reached") : one.channel === "web" ? `${one.signed_in ? "signed in by the site" : "anonymous"}, ${number(one.browsers)} ${one.browsers === 1 ? "browser" : "browsers"}` : "by Telegram", time(one.since)]);
  return card("Identities", [rows.length ? table({ caption: "Identities", className: "wide-grid", columns, rows }) : empty("No place is known.")]);
}

/** @param {string} id */
const exporting = (id) => card("A copy of everything", [h("p", { class: "muted" }, "Conversations, summaries, notes and files’ names, as the person would get them by /export. It is written into the audit log."),
  h("p", { class: "actions" }, h("a", { class: "button line", href: `/api/v1/people/${id}/export?format=json`, download: "" }, "Export as JSON"), h("a", { class: "button line", href: `/api/v1/people/${id}/export?format=md`, download: "" }, "Export as Markdown"))]);

/** @param {any} one @param {any} page */
function holding(one, { say, signal }) {
  const place = h("div", { class: "stack" });
  /** @param {boolean} on */
  const change = (on) => async () => {
    try {
      await ask(`/people/${one.id}/hold`, { method: "POST", body: { on }, signal });
      say(on ? "Nothing of this person goes any more." : "The hold is lifted.");
      draw((await ask(`/people/${one.id}`, { signal })).hold);
    } catch (error) { if (!signal.aborted) place.append(problem(error)); }
  };
  /** @param {any} hold */
  function draw(hold) {
    show(place, hold ? h("p", null, "On hold since ", time(hold.since), " by ", h("bdi", null, hold.by), ": neither a rule nor anybody deletes what is kept of this person.")
      : h("p", { class: "muted" }, "On hold, nothing of this person goes: no rule about age applies, and nobody can forget them, they themselves included."),
    h("p", { class: "actions" }, h("button", { type: "button", class: "line", onclick: change(!hold) }, hold ? "Lift the hold" : "Put on hold")));
  }
  draw(one.hold);
  return card("Legal hold", [place]);
}

/** @param {any} one @param {any} page */
function erasing(one, { say, signal, load }) {
  const place = h("div", { class: "stack" }, h("p", { class: "muted" }, "Every conversation, note and file goes for good, as with /forget everything. Backups made before hold it still."),
    h("p", { class: "actions" }, h("button", { type: "button", class: "line danger", onclick: prepare }, "Forget this person …")));
  const section = card("Forget this person", [place]);

  async function prepare() {
    try {
      const { counts, erasure } = await ask(`/people/${one.id}/erasure`, { signal });
      const field = h("input", { type: "text", name: "confirm", autocomplete: "off", spellcheck: "false", dir: "auto", required: true, maxlength: 300 });
      const trouble = h("div");
      show(place, erasure?.state === "running" && progress(erasure), h("p", null, "This would be gone for good:"), amounts(counts),
        h("form", { class: "narrow", onsubmit: async (/** @type {Event} */ event) => {
          event.preventDefault();
          try {
            const done = await ask(`/people/${one.id}/erasure`, { method: "POST", body: { confirm: field.value }, signal });
            say("The person is being forgotten.");
            await follow(done.erasure);
          } catch (error) { if (!signal.aborted) show(trouble, problem(error)); }
        } }, h("label", null, one.name ? h("span", null, "Type “", h("bdi", null, one.name), "” or the id") : h("span", null, "Type the id ", h("code", null, one.id)), field), trouble,
        h("p", { class: "actions" }, h("button", { type: "submit", class: "solid danger" }, "Forget for good"), h("button", { type: "button", class: "line", onclick: () => section.replaceWith(erasing(one, { say, signal, load })) }, "Cancel"))));
      field.focus();
    } catch (error) { if (!signal.aborted) show(place, problem(error, prepare)); }
  }

  /** @param {number} number */
  async function follow(number) {
    const { erasure } = await ask(`/people/${one.id}/erasure`, { refresh: true, signal });
    show(place, erasure && progress(erasure));
    if (erasure && erasure.id === number && erasure.state === "running") setTimeout(() => follow(number).catch(() => {}), 1500);
    else load().catch(() => {});
  }
  return section;
}

/** @param {any} erasure */
function progress(erasure) {
  const done = erasure.state === "done";
  return h("div", { class: "stack" }, h("p", { class: done ? "done" : "warn-text", role: "status" }, done ? `Forgotten. Erasure ${erasure.id} is in the log, without content.` : `Erasure ${erasure.id} is under way: step ${erasure.step} of ${erasure.steps}. A worker goes on with it.`),
    !done && h("progress", { max: erasure.steps, value: erasure.step, "aria-label": "How far it is" }), amounts(erasure.counts));
}

/** @param {Record<string, number>} counts */
const amounts = (counts) => h("dl", { class: "pairs" }, Object.entries(COUNTED).map(([name, words]) => h("div", null, h("dt", null, words), h("dd", { class: "num" }, number(counts[name] ?? 0)))));
