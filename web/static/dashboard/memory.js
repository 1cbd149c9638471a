/** Notes about people: their sources, and buttons to correct, archive and restore them. */
import { ask } from "./net.js";
import { KINDS, VOUCHES, keptWords, noteAdder } from "./adding.js";
import { DASH, card, joinWithDots, empty, h, nameOf, problem, show, t, time, tn, ts } from "./parts.js";
import { listPage } from "./lists.js";

const STATES = { kept: t("kept"), replaced: t("replaced"), put_away: t("archived") };

/** Names of those who change notes, by cause. */
const CAUSES = { ...VOUCHES, tool: VOUCHES.assistant, flush: t("the assistant, before a summary"), edit: t("an edited message"), tidy: t("another note said the same"), unknown: t("before changes were recorded") };

/** Draws the list of notes about people; operators, but not viewers, can add and change notes. @param {Page} page */
export function memoryPage(page) {
  const { me, say, signal } = page;
  page.entitle(t("Memory"));
  const may = me.role !== "viewer";
  const note = h("div", { class: "list", role: "status" });
  const adder = may ? noteAdder({ signal, added }) : null;
  const list = listPage(page, {
    title: t("Memory"), path: "/dashboard/memory", api: "/notes", search: t("Search notes"), names: ["q", "person", "kind", "state", "authority", "cursor"],
    filters: [
      ["state", t("State"), [["", t("All states")], ...Object.entries(STATES)]],
      ["kind", t("Kind"), [["", t("All kinds")], ...KINDS.map((kind) => [kind, ts(kind)])]],
      ["authority", t("Source"), [["", t("Any source")], ["person", t("The person")], ["assistant", t("The assistant")], ["tool", t("Only a tool")], ["operator", t("An operator")]]],
    ],
    aside: adder?.node, above: note,
    draw: (answer, params, change) => [
      adder?.about(params.get("person") ? answer.person : null),
      params.get("person") && h("p", { class: "chip-line" }, answer.person ? t("Notes of {person}", { person: h("a", { href: `/dashboard/people/${answer.person.id}`, dir: "auto" }, nameOf(answer.person)) }) : t("Notes of an unknown person"),
        h("button", { type: "button", class: "line", onclick: () => change({ person: "" }) }, t("Show all notes"))),
      answer.notes.length ? h("ul", { class: "notes-list", "aria-label": t("Notes") }, answer.notes.map((one) => item(one))) : null,
    ],
    count: (answer) => answer.notes.length, told: (count) => tn("{count} note", "{count} notes", count),
    nothing: () => empty(t("Nothing is remembered yet."), h("p", { class: "muted" }, t("Notes are saved when a person says something worth keeping, and before a conversation is summarised."))),
  });

  /** @param {any} told */
  async function added({ note: one, changed, redacted }) {
    const words = keptWords({ changed, redacted });
    say(words);
    await list.load();
    show(note, h("p", { class: "done actions" }, words, changed && undo(one), !changed && h("a", { href: `/dashboard/memory?q=${one.id}` }, t("Show it"))));
  }

  /** @param {Api["FoundNoteShown"]} one */
  const undo = (one) => h("button", { type: "button", class: "line", onclick: () => act(`/notes/${one.id}`, { method: "DELETE" }, t("The note is archived."), one) }, t("Undo"));

  /** @param {Api["FoundNoteShown"]} one */
  function item(one) {
    const node = h("li", { class: `card note ${one.state}` });
    const draw = () => show(node, facts(one), h("p", { class: "note-text", dir: "auto" }, one.text), origin(one), may && actions(one, node, draw), earlierTexts(one));
    draw();
    return node;
  }

  /** @param {Api["FoundNoteShown"]} one @param {HTMLElement} node @param {() => void} draw */
  function actions(one, node, draw) {
    if (one.state === "kept") {
      return h("p", { class: "actions" },
        h("button", { type: "button", class: "line", "aria-label": t("Edit: {note}", { note: one.text }), onclick: () => edit(one, node, draw) }, t("Edit")),
        h("button", { type: "button", class: "line", "aria-label": t("Archive: {note}", { note: one.text }), onclick: () => act(`/notes/${one.id}`, { method: "DELETE" }, t("The note is archived."), one) }, t("Archive")));
    }
    return one.state === "put_away" && h("p", { class: "actions" },
      h("button", { type: "button", class: "line", "aria-label": t("Restore: {note}", { note: one.text }), onclick: () => act(`/notes/${one.id}/restore`, { method: "POST" }, t("The note is restored."), one) }, t("Restore")));
  }

  /** Loads the earlier texts of a note when they are unfolded. @param {Api["FoundNoteShown"]} one */
  function earlierTexts(one) {
    const place = h("div");
    const summary = h("summary", { "aria-label": t("Earlier texts: {note}", { note: one.text }) }, t("Earlier texts"));
    return h("details", { class: "small", ontoggle: async (/** @type {Event} */ event) => {
      if (!(/** @type {HTMLDetailsElement} */ (event.target).open)) return;
      try {
        const { versions } = await ask(`/notes/${one.id}/versions`, { signal });
        const offered = new Set(versions.filter((each) => each.current).map((each) => each.id));
        show(place, versions.length > 1 ? h("ol", { class: "plain-list" }, versions.map((each) => version(one, each, offered))) : h("p", { class: "muted" }, t("This note has had no other text.")));
      } catch (error) { if (!signal.aborted) show(place, problem(error)); }
    } }, summary, place);
  }

  /** @param {Api["FoundNoteShown"]} one @param {Api["NoteVersionFound"]} each @param {Set<string>} offered those that are there or offered already */
  function version(one, each, offered) {
    const back = may && one.state === "kept" && !offered.has(each.id);
    offered.add(each.id);
    return h("li", null, h("p", { class: "muted" }, joinWithDots([CAUSES[/** @type {keyof typeof CAUSES} */ (each.cause)] ?? each.cause, each.by && h("span", { dir: "auto" }, each.by), time(each.at)])),
      h("p", null, each.replaced && [h("del", { dir: "auto" }, each.replaced), " → "], h("span", { dir: "auto" }, each.text)),
      back && h("p", { class: "actions" }, h("button", { type: "button", class: "line", "aria-label": t("Restore: {note}", { note: each.text }), onclick: () => act(`/notes/${one.id}/versions/${each.id}/restore`, { method: "POST" }, t("The note is restored."), one) }, t("Restore"))));
  }

  /** @param {string} path @param {any} how @param {string} words @param {Api["FoundNoteShown"]} one */
  async function act(path, how, words, one) {
    show(note);
    try {
      await ask(path, { ...how, signal });
      say(words);
      const undo = how.method === "DELETE" && h("button", { type: "button", class: "line", onclick: () => act(`/notes/${one.id}/restore`, { method: "POST" }, t("The note is restored."), one) }, t("Undo"));
      show(note, h("p", { class: "done actions" }, words, undo));
      await list.load();
    } catch (error) { if (!signal.aborted) show(note, problem(error)); }
  }

  /** @param {Api["FoundNoteShown"]} one @param {HTMLElement} node @param {() => void} draw @param {string} [typed] */
  function edit(one, node, draw, typed = one.text) {
    const field = h("textarea", { name: "text", maxlength: 600, rows: 3, dir: "auto", "aria-label": t("Text of the note") });
    field.value = typed;
    const trouble = h("div");
    const form = h("form", { class: "note-edit", onsubmit: async (/** @type {Event} */ event) => {
      event.preventDefault();
      try {
        await ask(`/notes/${one.id}`, { method: "PATCH", body: { text: field.value }, match: one.etag, signal });
        say(t("The note is corrected."));
        show(note, h("p", { class: "done" }, t("The note is corrected. The earlier text is kept as “replaced”.")));
        await list.load();
      } catch (error) { if (!signal.aborted) show(trouble, problem(error), /** @type {any} */ (error).code === "stale" && twoVersions(/** @type {any} */ (error).details, node, field.value)); }
    } }, field, trouble, h("p", { class: "actions" }, h("button", { type: "submit", class: "solid" }, t("Save")), h("button", { type: "button", class: "line", onclick: () => { list.hold(false); draw(); } }, t("Cancel"))));
    list.hold(true);
    show(node, facts(one), form);
    field.focus();
  }

  /** @param {any} details @param {HTMLElement} node @param {string} typed */
  function twoVersions({ theirs }, node, typed) {
    if (!theirs) return h("p", null, t("The note is not there any more."));
    return h("div", { class: "two-versions" }, card(t("Current version"), [h("p", { dir: "auto" }, theirs.text)]), card(t("What you typed"), [h("p", { dir: "auto" }, typed)]),
      theirs.state === "kept" && h("button", { type: "button", class: "line", onclick: () => edit(theirs, node, () => { list.hold(false); list.load(); }, typed) }, t("Replace it with mine")));
  }
}

/** @param {Api["FoundNoteShown"]} one */
function facts(one) {
  return h("p", { class: "note-facts" }, h("a", { href: `/dashboard/people/${one.person.id}`, dir: "auto" }, nameOf(one.person)),
    h("span", { class: "badge" }, ts(one.kind)), h("span", { class: `state ${{ kept: "answering", put_away: "waiting" }[/** @type {string} */ (one.state)] ?? ""}` }, STATES[/** @type {keyof typeof STATES} */ (one.state)] ?? one.state),
    h("span", { class: one.authority === "tool" ? "warn-text" : "muted" }, VOUCHES[/** @type {keyof typeof VOUCHES} */ (one.authority)] ?? one.authority), time(one.observed_at));
}

/** Returns the source of a note, and what happened to it. @param {Api["FoundNoteShown"]} one */
function origin(one) {
  const turns = one.from_turn === null ? "" : one.through_turn && one.through_turn !== one.from_turn ? t("turns {first} – {last}", { first: one.from_turn, last: one.through_turn }) : t("turn {turn}", { turn: one.from_turn });
  const place = one.session ? h("a", { href: `/dashboard/sessions/${one.session}` }, turns || t("the conversation")) : turns || DASH;
  return h("p", { class: "muted small" }, joinWithDots([one.authority === "operator" && one.from_turn === null ? t("Text of an operator") : t("From {place}", { place }), one.flush && t("saved before turns {first} – {last} were summarised", { first: one.flush.from_turn, last: one.flush.through_turn }), t("agent {agent}", { agent: one.agent }), t("importance {number}", { number: one.importance }),
    one.event_date && t("about {date}", { date: one.event_date }), one.subject && t("on {subject}", { subject: h("span", { dir: "auto" }, one.subject) }),
    one.superseded_by && h("a", { href: `/dashboard/memory?q=${one.superseded_by}` }, one.superseded_reason === "duplicate" ? t("another note says the same") : t("replaced by a newer text")),
    one.undo_until && t("erased permanently {date}", { date: h("time", { datetime: one.undo_until }, one.undo_until.slice(0, 10)) })]));
}

