/** The page of one person: channels and conversations, a download of the stored data, and its erasure. */
import { ask, keepFresh } from "./net.js";
import { DASH, card, channelBadge, empty, h, kpi, listItems, liveMark, notFoundPage, money, nameOf, number, problem, repaintTimes, show, skeleton, t, table, time, tn, tokens } from "./parts.js";

const COUNTED = { entries: t("messages"), compactions: t("summaries"), notes: t("notes"), artifacts: t("kept tool results"), attachments: t("files"), pins: t("pins") };

/** Draws the page of the person `id` and refreshes it until `signal` aborts. @param {Page} page */
export function personPage({ root, id, me, say, entitle, signal }) {
  entitle(t("Person"));
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
    show(head, h("div", null, h("p", { class: "crumbs" }, h("a", { href: "/dashboard/people" }, t("People"))), h("h1", { dir: "auto" }, nameOf(one)),
      h("p", { class: "facts" }, h("span", null, one.kind === "group" ? t("group") : one.anonymous ? t("visitor") : t("person")), one.timezone && h("span", null, one.timezone), h("span", null, t("known since {time}", { time: time(one.since) })), one.joined > 0 && h("span", null, tn("{count} joined by {command}", "{count} joined by {command}", one.joined, { command: "/link" })), one.hold && h("span", { class: "badge" }, t("on hold")), mark.node)));
    show(body, h("dl", { class: "kpis four" }, kpi(t("Conversations"), number(one.sessions), tn("{count} turn", "{count} turns", one.turns)), kpi(t("Tokens"), tokens(one.tokens), one.tokens === null ? t("in and out, ever") : t("{into} in ({cached} of it from the cache) · {out} out", { into: tokens(one.tokens - one.output_tokens), cached: tokens(one.cache_read_tokens), out: tokens(one.output_tokens) })),
      kpi(t("Spent"), money(one.cost_micro, one.cost_unknown_calls), one.cost_unknown_calls ? tn("{count} call of unknown price", "{count} calls of unknown price", one.cost_unknown_calls) : t("all calls")),
      kpi(t("Notes"), h("a", { href: `/dashboard/memory?person=${one.id}` }, number(one.notes)), [one.put_away ? tn("{count} archived", "{count} archived", one.put_away) : t("kept"), me.role !== "viewer" && one.sessions > 0 && [" · ", h("a", { href: `/dashboard/memory?person=${one.id}#add` }, t("add one"))]])),
    conversations(one.conversations), places(one.places));
    if (first) { first = false; show(danger, me.role !== "viewer" && exportCard(id), me.role === "admin" && holdCard(one, { say, signal }), me.role === "admin" && eraseCard(one, { say, signal, load })); say(nameOf(one)); }
  }

  /** @param {any} error */
  function failed(error) {
    if (signal.aborted) return;
    if (error.status === 404) return show(root, notFoundPage(t("There is no such person."), "/dashboard/people", t("All people")));
    shown = "";
    show(body, problem(error, () => load().catch(failed)));
  }
  show(root, head, body, danger);
  load().catch(failed);
  keepFresh(() => load(true), mark.tell, signal);
}

/** @param {Api["PersonConversation"][]} talks */
function conversations(talks) {
  const columns = [{ label: t("Conversation") }, { label: t("Turns"), num: true }, { label: t("Context now"), num: true }, { label: t("Spent"), num: true }, { label: t("Started") }, { label: t("Last active") }];
  const rows = talks.map((one) => [h("a", { class: "row-link", href: `/dashboard/sessions/${one.id}`, dir: "auto" }, one.title ?? `${one.agent} · ${one.id.slice(0, 6)}`), number(one.turns),
    one.context_limit ? t("{tokens} of {limit}", { tokens: tokens(one.context_tokens), limit: tokens(one.context_limit) }) : DASH, money(one.cost_micro, one.cost_unknown_calls), time(one.created_at), time(one.last_active_at)]);
  return card(t("Conversations"), [rows.length ? table({ caption: t("Conversations"), className: "wide-grid", columns, rows }) : empty(t("No conversation."))]);
}

/** @param {Api["PersonPlace"][]} places */
function places(places) {
  const columns = [{ label: t("Place") }, { label: t("Known as") }, { label: t("Identity") }, { label: t("Since") }];
  const rows = places.map((one) => [h("span", null, channelBadge(one.channel), one.channel === "telegram" ? t("chat {id}", { id: String(one.chat) }) : t("site {site}", { site: one.account })), one.title ? h("span", { dir: "auto" }, one.title) : DASH,
    one.unreachable_since ? h("span", { class: "state problem" }, t("cannot be reached")) : one.channel === "web" ? listItems([one.signed_in ? t("signed in by the site") : t("anonymous"), tn("{count} browser", "{count} browsers", one.browsers)]) : t("by Telegram"), time(one.since)]);
  return card(t("Identities"), [rows.length ? table({ caption: t("Identities"), className: "wide-grid", columns, rows }) : empty(t("No place is known."))]);
}

/** @param {string} id */
const exportCard = (id) => card(t("Export data"), [h("p", { class: "muted" }, t("Conversations, summaries, notes and files’ names, as the person would get them by /export. It is written into the audit log.")),
  h("p", { class: "actions" }, h("a", { class: "button line", href: `/api/v1/people/${id}/export?format=json`, download: "" }, t("Export as JSON")), h("a", { class: "button line", href: `/api/v1/people/${id}/export?format=md`, download: "" }, t("Export as Markdown")))]);

/** @param {Api["Person"]} one @param {{say: Page["say"], signal: AbortSignal}} page */
function holdCard(one, { say, signal }) {
  const place = h("div", { class: "stack" });
  /** @param {boolean} on */
  const change = (on) => async () => {
    try {
      await ask(`/people/${one.id}/hold`, { method: "POST", body: { on }, signal });
      say(on ? t("This person is on legal hold.") : t("The hold is lifted."));
      draw((await ask(`/people/${one.id}`, { signal })).hold);
    } catch (error) { if (!signal.aborted) place.append(problem(error)); }
  };
  /** @param {Api["Hold"] | null} hold */
  function draw(hold) {
    show(place, hold ? h("p", null, t("On legal hold since {time}, set by {operator}. Retention and deletion requests are suspended.", { time: time(hold.since), operator: h("bdi", null, hold.by) }))
      : h("p", { class: "muted" }, t("Legal hold keeps all data: retention and deletion requests are suspended.")),
    h("p", { class: "actions" }, h("button", { type: "button", class: "line", onclick: change(!hold) }, hold ? t("Lift the hold") : t("Put on hold"))));
  }
  draw(one.hold);
  return card(t("Legal hold"), [place]);
}

/** @param {Api["Person"]} one @param {{say: Page["say"], signal: AbortSignal, load: () => Promise<void>}} page */
function eraseCard(one, { say, signal, load }) {
  const place = h("div", { class: "stack" }, h("p", { class: "muted" }, t("Permanently erases every conversation, note and file, like /forget everything. Earlier backups still contain them.")),
    h("p", { class: "actions" }, h("button", { type: "button", class: "line danger", onclick: prepare }, t("Erase this person …"))));
  const section = card(t("Erase this person"), [place]);

  async function prepare() {
    try {
      const { counts, erasure } = await ask(`/people/${one.id}/erasure`, { signal });
      const field = h("input", { type: "text", name: "confirm", autocomplete: "off", spellcheck: "false", dir: "auto", required: true, maxlength: 300 });
      const trouble = h("div");
      show(place, erasure?.state === "running" && progress(erasure), h("p", null, t("This would be erased permanently:")), amounts(counts),
        h("form", { class: "narrow", onsubmit: async (/** @type {Event} */ event) => {
          event.preventDefault();
          try {
            const done = await ask(`/people/${one.id}/erasure`, { method: "POST", body: { confirm: field.value }, signal });
            say(t("The person is being erased."));
            await follow(done.erasure);
          } catch (error) { if (!signal.aborted) show(trouble, problem(error)); }
        } }, h("label", null, one.name ? h("span", null, t("Type “{name}” or the id", { name: h("bdi", null, one.name) })) : h("span", null, t("Type the id {id}", { id: h("code", null, one.id) })), field), trouble,
        h("p", { class: "actions" }, h("button", { type: "submit", class: "solid danger" }, t("Erase permanently")), h("button", { type: "button", class: "line", onclick: () => section.replaceWith(eraseCard(one, { say, signal, load })) }, t("Cancel")))));
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

/** @param {Api["ErasureProgress"]} erasure */
function progress(erasure) {
  const done = erasure.state === "done";
  return h("div", { class: "stack" }, h("p", { class: done ? "done" : "warn-text", role: "status" }, done ? t("Erased. Erasure {id} is in the log, without content.", { id: String(erasure.id) }) : t("Erasure {id} is in progress: step {step} of {steps}. A worker continues it.", { id: String(erasure.id), step: erasure.step, steps: erasure.steps })),
    !done && h("progress", { max: erasure.steps, value: erasure.step, "aria-label": t("Progress") }), amounts(erasure.counts));
}

/** @param {Record<string, number>} counts */
const amounts = (counts) => h("dl", { class: "pairs" }, Object.entries(COUNTED).map(([name, words]) => h("div", null, h("dt", null, words), h("dd", { class: "num" }, number(counts[name] ?? 0)))));
