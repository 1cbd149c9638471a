/** The operator's part of a session: shows who handles it, takes it or returns it, and writes in it. */
import { confirm } from "./acting.js";
import { cannedReplies } from "./canned.js";
import { drawIcon } from "./icons.js";
import { follow } from "./live.js";
import { chooseMacro } from "./macros.js";
import { ask } from "./net.js";
import { askAssignee, askLabel, askSnooze } from "./picker.js";
import { h, number, problem, set, show, t, time, formatWhen } from "./parts.js";

/** Texts for the requester of a human, and the time. @type {Record<string, (time: any) => any>} */
const ASKED = { person: (time) => t("asked for by the person {time}", { time }), assistant: (time) => t("asked for by the assistant {time}", { time }) };
const MOST = 8000, NOTE_MOST = 4000;
const AGAIN_SECONDS = 3;
/** Milliseconds: between two typing notices, and for which a received one is shown. */
const TELL_MS = 3000, TYPES_MS = 6000;
const AWAY = new Set([0, 502, 503, 504]);
/** @param {any} held */
const isMine = (held) => held?.state === "human" && held.mine;

/**
 * Returns the line below the heading and the composer below the transcript. `update` takes the session's `data`.
 * @param {{id: string, me: any, say: (words: string) => void, signal: AbortSignal, reload: () => Promise<any>, taken: () => void, moved?: (action: string) => void}} of
 */
export function operatorControls({ id, me, say, signal, reload, taken, moved }) {
  const line = h("div", { class: "operator-bar-line", role: "group", "aria-label": t("Who has this conversation"), tabindex: -1 });
  const note = h("div");
  const bar = h("section", { class: "card operator-bar", "aria-label": t("Conversation") }, line, note);
  const canned = me.role === "viewer" ? null : cannedReplies({ me, signal, say });
  const composer = composerOf({ id, me, say, signal, reload, canned });
  const notes = me.role === "viewer" ? null : composerOf({ id, me, say, signal, reload, isNote: true });
  const types = h("p", { class: "muted small types", role: "status" });
  let drawn = "";
  let writes = 0;
  let said = "";
  /** @type {any} */
  let held = null;

  follow({
    changed() {}, moved() {},
    typing(session) {
      if (session !== id) return;
      clearTimeout(writes);
      writes = setTimeout(() => show(types), TYPES_MS);
      if (!types.textContent) show(types, t("The person is writing…"));
    },
  }, signal);

  /** Dialogs of further actions; null if the operator cancels. @type {Record<string, () => Promise<any>>} */
  const asked = {
    assign: async () => { const operator = await askAssignee(held, signal); return operator && { operator }; },
    snooze: async () => held.snoozed_until ? {} : askSnooze(signal),
    label: async () => { const labels = await askLabel(held.labels, signal); return labels && { labels }; },
  };
  const SAID = /** @type {Record<string, () => string>} */ ({ take: () => t("The conversation is yours."), return: () => t("The assistant answers again."), resolve: () => t("Resolved"), assign: () => t("Saved."), snooze: () => t("Saved."), label: () => t("Saved.") });

  /** @param {string} action @param {HTMLButtonElement} button */
  async function move(action, button) {
    const { version } = held ?? { version: 0 };
    const more = await (asked[action]?.() ?? {});
    if (!more) return button.focus();
    set(button, { "aria-disabled": "true" });
    show(note);
    try {
      await ask(`/sessions/${id}/handover`, { method: "POST", body: { action, version, ...more }, signal });
      say(SAID[action]());
      await reload();
      if (action === "take") taken(); else if (moved) moved(action); else line.focus();
    } catch (error) {
      if (signal.aborted) return;
      show(note, problem(error));
      drawn = "";
      reload();
    }
    set(button, { "aria-disabled": null });
  }

  /** Runs a macro in one request; a failed one is repeated under the same `cid`. @param {HTMLButtonElement} button */
  async function runMacro(button) {
    show(note);
    try {
      const macro = await chooseMacro({ signal, say });
      if (!macro) return button.focus();
      const cid = crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
      const text = canned?.filled(macro.reply) ?? macro.reply;
      const run = async () => {
        show(note);
        try {
          await ask(`/sessions/${id}/macros/${macro.name}`, { method: "POST", body: { cid, text }, signal, seconds: 30 });
          say(t("{name} is done.", { name: macro.name }));
          await reload();
          if (moved && macro.resolve) moved("resolve"); else line.focus();
        } catch (error) {
          if (signal.aborted) return;
          show(note, problem(error, run));
          reload();
        }
      };
      await run();
    } catch (error) { if (!signal.aborted) show(note, problem(error)); }
  }

  /** @param {string} words @param {string} action @param {boolean} [solid] */
  const button = (words, action, solid = false) => h("button", { type: "button", class: solid ? "solid" : "line", title: words, data: { act: action }, onclick: (/** @type {any} */ event) => {
    if (action === "note") notes?.open();
    else if (action === "macro") void runMacro(event.currentTarget);
    else if (event.currentTarget.getAttribute("aria-disabled") !== "true") move(action, event.currentTarget);
  } }, drawIcon(action), h("span", null, words));

  /** @param {any} held */
  function sentence(held) {
    if (!held) return h("p", null, h("span", { class: "state" }, t("Handled by the assistant.")));
    const asked = held.asked_by !== "operator" && h("span", { class: "muted" }, ASKED[/** @type {keyof typeof ASKED} */ (held.asked_by)]?.(time(held.asked_at)));
    if (held.state === "waiting") return h("p", null, h("span", { class: "state waiting" }, t("Waits for a human")), asked);
    return h("p", null, h("span", { class: "state answering" }, held.mine ? t("You have this conversation") : held.operator ? t("{operator} has this conversation", { operator: held.operator }) : t("An operator has this conversation")),
      h("span", { class: "muted" }, t("since {time}", { time: time(held.taken_at) })), asked, held.waits_since && h("span", { class: "warn-text" }, t("Waiting for your reply ({time})", { time: time(held.waits_since) })));
  }

  /** @param {any} held */
  function actions(held) {
    const returns = held?.mine || (held?.state === "waiting" && me.role !== "viewer") || (held && me.role === "admin");
    const acts = held && me.role !== "viewer";
    return h("div", { class: "actions" }, me.can_take && held?.state !== "human" && button(t("Take"), "take", held?.state === "waiting"),
      returns && button(t("Resolve"), "resolve", held?.mine), acts && button(t("Assign"), "assign"), returns && button(held.snoozed_until ? t("End the snooze") : t("Snooze"), "snooze"), acts && button(t("Labels"), "label"),
      notes && button(t("Private note"), "note"), (acts || me.can_take) && button(t("Macros"), "macro"), returns && button(t("Return to the assistant"), "return"));
  }

  /** @param {Api["SessionWhole"]} session */
  function update(session) {
    held = session.handover;
    canned?.about(session);
    const now = JSON.stringify([session.turns, held?.waits_since]);
    if (now !== said) { clearTimeout(writes); show(types); }
    said = now;
    composer.update(held);
    notes?.update(held);
    const next = JSON.stringify(held);
    if (next === drawn) return;
    if (isMine(held)) show(note);
    const act = /** @type {any} */ (document.activeElement)?.dataset?.act;
    const inside = line.contains(document.activeElement);
    drawn = next;
    show(line, h("div", { class: "operator-bar-words" }, sentence(held), held?.reason && h("p", { class: "reason-words", dir: "auto" }, h("q", null, held.reason)),
      held && (held.snoozed_until || held.labels.length > 0) && h("p", { class: "facts" }, held.snoozed_until && h("span", { class: "muted" }, t("snoozed until {time}", { time: formatWhen(held.snoozed_until) })), labelsOf(held.labels))), actions(held));
    if (inside) (line.querySelector(`button[data-act=${act}]`) ?? line).focus({ preventScroll: true });
  }

  /** Removes a private note after a confirmation; returns whether it was removed. @param {any} one */
  async function drop(one) {
    if (!await confirm({ title: t("Remove the private note?"), words: [t("Its text is deleted for all operators and cannot be restored.")], yes: t("Remove") })) return false;
    show(note);
    try {
      await ask(`/sessions/${id}/private-notes/${one.id}`, { method: "DELETE", signal });
      say(t("The private note is removed."));
      return true;
    } catch (error) {
      if (!signal.aborted) { show(note, problem(error)); void reload(); }
      return false;
    }
  }

  return { bar, types, composer, notes, update, drop };
}

/** Returns a badge for each label of a conversation. @param {string[]} labels */
export const labelsOf = (labels) => labels.map((label) => h("span", { class: "badge label", dir: "auto" }, label));

/** Returns a store for unsent text of this tab. @param {string} name */
function draftStore(name) {
  return {
    read() { try { return JSON.parse(sessionStorage.getItem(name) ?? "{}"); } catch { return {}; } },
    /** @param {{text: string, cid: string, files: any[]}} draft */
    write(draft) {
      try { draft.text || draft.files?.length ? sessionStorage.setItem(name, JSON.stringify(draft)) : sessionStorage.removeItem(name); } catch { /* the draft then lives as long as the page */ }
    },
  };
}

/** Returns the composer of replies, or of private notes. Typed text is kept until the server has stored it. @param {any} of */
function composerOf({ id, me, say, signal, reload, canned = null, isNote = false }) {
  const [name, most] = isNote ? ["private-note", NOTE_MOST] : ["reply", MOST];
  const store = draftStore(`reply ${me.name} ${id}${isNote ? " note" : ""}`);
  const draft = { text: "", cid: "", files: /** @type {{id: string, name: string}[]} */ ([]), ...store.read() };
  const note = h("div", { class: "operator-bar-note", id: `${name}-note`, role: "status" });
  const input = h("textarea", { id: name, placeholder: isNote ? null : t("Your reply"), rows: isNote ? 2 : 1, "aria-describedby": `${name}-note ${name}-hint`, autocomplete: "off", oninput: changed, onkeydown: key });
  const send = h("button", { type: "submit", class: "solid" }, isNote ? t("Save") : t("Send"));
  const cancel = h("button", { type: "button", class: "line", hidden: true, onclick: () => { sending?.abort(); } }, t("Cancel"));
  const choices = canned?.choices(input, changed);
  const chosen = h("input", { type: "file", multiple: true, hidden: true, onchange: () => { void attach([...chosen.files]); chosen.value = ""; } });
  const chips = h("p", { class: "facts" });
  const files = !isNote && [chosen, h("button", { type: "button", class: "line icon-button", title: t("Attach a file"), onclick: () => chosen.click() }, drawIcon("attach"), h("span", { class: "unseen" }, t("Attach a file")))];
  const hint = h("span", { class: "muted small", id: `${name}-hint` }, isNote ? t("Only operators see it.") : null);
  const node = h("form", { class: isNote ? "reply note" : "reply", "aria-label": isNote ? t("Private note") : t("Reply"), hidden: true, onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); submit(); } },
    h("label", null, h("span", { class: isNote ? null : "unseen" }, isNote ? t("Private note") : t("Your reply")), input), choices?.node, chips, note,
    h("div", { class: "actions" }, files, choices?.button, hint, cancel, send));
  /** @type {AbortController | null} */
  let sending = null;
  let mine = isNote;
  /** Whether sending also takes the conversation. */
  let takes = false;
  let told = 0;

  input.value = draft.text;
  drawFiles();

  function changed() {
    // a changed text is another message
    if (input.value !== draft.text) draft.cid = "";
    draft.text = input.value;
    store.write(draft);
    judge();
    tellTyping();
    choices?.typed();
  }

  /** Uploads files at once; the reply then names them by their ids. @param {any[]} picked */
  async function attach(picked) {
    for (const file of picked) {
      show(note, t("{name} is being sent…", { name: h("bdi", null, file.name) }));
      try {
        await takeFirst(signal);
        const kept = await ask(`/sessions/${id}/uploads`, { method: "POST", body: file, signal, seconds: 120 });
        draft.files = [...draft.files.filter((/** @type {{id: string, name: string}} */ one) => one.id !== kept.id), { id: kept.id, name: kept.name }];
        changedFiles();
      } catch (error) { if (!signal.aborted) show(note, problem(error)); return; }
    }
  }

  function changedFiles() {
    draft.cid = "";
    store.write(draft);
    drawFiles();
    judge();
  }

  function drawFiles() {
    show(chips, draft.files.map((/** @type {{id: string, name: string}} */ one) => h("span", { class: "badge file" }, h("bdi", null, one.name), " ", h("button", { type: "button", class: "link", "aria-label": t("Remove {name}", { name: one.name }), onclick: () => { draft.files = draft.files.filter((/** @type {{id: string, name: string}} */ other) => other !== one); changedFiles(); } }, "×"))));
  }

  function tellTyping() {
    if (isNote || !mine || !draft.text.trim() || Date.now() - told < TELL_MS) return;
    told = Date.now();
    ask(`/sessions/${id}/typing`, { method: "POST", body: {}, signal }).catch(() => {});
  }

  /** Shows what keeps the text from being sent. */
  function judge() {
    const count = [...input.value].length;
    const long = count > most;
    const open = isNote ? undefined : /\{\{[^{}]*\}\}/.exec(input.value)?.[0];
    set(input, { "aria-invalid": long || open ? "true" : null });
    set(send, { "aria-disabled": long || open || !(mine || takes) || !(input.value.trim() || draft.files.length) || sending ? "true" : null });
    if (!sending) show(note, long ? t("{number} of {most} characters: please shorten it.", { number: count, most }) : open ? t("{variable} is not known here. Replace it with text to send the reply.", { variable: open }) : !(mine || takes) && draft.text ? t("This conversation is not yours now. Your text is kept: take the conversation to send it.") : "");
  }

  /** @param {KeyboardEvent} event */
  function key(event) {
    if (choices?.pressed(event)) return event.preventDefault();
    if (event.key === "Escape" && !event.isComposing) { if (isNote && !draft.text) node.hidden = true; return input.blur(); }
    if (event.isComposing || event.keyCode === 229 || event.key !== "Enter" || event.shiftKey || event.altKey) return;
    if (!event.ctrlKey && !event.metaKey && matchMedia("(pointer: coarse)").matches) return;
    event.preventDefault();
    submit();
  }

  async function submit() {
    if (send.getAttribute("aria-disabled") === "true") return;
    draft.cid ||= crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
    store.write(draft);
    const mineAlone = sending = new AbortController();
    set(input, { readonly: true });
    judge();
    try {
      await untilStored(AbortSignal.any([signal, mineAlone.signal]));
      input.value = draft.text = draft.cid = "";
      draft.files = [];
      drawFiles();
      store.write(draft);
      sending = null;
      judge();
      say(isNote ? t("Saved.") : t("Sent."));
      if (isNote) node.hidden = true;
    } catch (error) {
      sending = null;
      judge();
      if (!signal.aborted) show(note, mineAlone.signal.aborted ? t("Not sent again; an earlier attempt may have been delivered.") : problem(error));
    }
    if (document.activeElement === cancel) input.focus();
    set(input, { readonly: null });
    set(cancel, { hidden: true });
    if (!signal.aborted) await reload();
  }

  /** Takes a waiting conversation; another operator may have been faster. @param {AbortSignal} signal */
  async function takeFirst(signal) {
    if (mine || !takes) return;
    await ask(`/sessions/${id}/handover`, { method: "POST", body: { action: "take" }, signal });
    mine = true;
  }

  /** Sends until the text is stored, under the same cid, so that it is stored once. @param {AbortSignal} signal */
  async function untilStored(signal) {
    for (;;) {
      try {
        await takeFirst(signal);
        return await ask(`/sessions/${id}/${isNote ? "private-notes" : "replies"}`, { method: "POST", body: { cid: draft.cid, text: draft.text.trim(), ...(draft.files.length > 0 && { files: draft.files.map((/** @type {{id: string, name: string}} */ one) => one.id) }) }, signal });
      } catch (error) {
        const failure = /** @type {any} */ (error);
        const waits = failure.code === "answer_runs";
        if (signal.aborted || !(waits || AWAY.has(failure.status))) throw error;
        set(cancel, { hidden: false });
        show(note, waits ? t("The assistant is still answering. Your reply is sent right after.") : t("The server cannot be reached just now. Your reply is kept and sent when it is back."));
        await pause(failure.after || AGAIN_SECONDS, signal);
      }
    }
  }

  return {
    node, input,
    open() { node.hidden = false; input.focus(); },
    /** @param {any} held */
    update(held) {
      if (isNote) { if (draft.text) node.hidden = false; return; }
      const again = !mine && isMine(held);
      mine = isMine(held);
      takes = me.can_take && held?.state === "waiting";
      show(hint, takes && !mine ? t("Sending takes the conversation.") : t("Sent as {name}", { name: me.display_name || "Support" }));
      // An operator who writes is not interrupted, and typed text is never hidden.
      node.hidden = !mine && !takes && !draft.text;
      if (again || !note.querySelector(".trouble")) judge();
      else set(send, { "aria-disabled": !(mine || takes) || sending || !(draft.text.trim() || draft.files.length) || input.hasAttribute("aria-invalid") ? "true" : null });
    },
  };
}

/** @param {number} seconds @param {AbortSignal} signal @returns {Promise<void>} */
function pause(seconds, signal) {
  return new Promise((done, fail) => {
    const timer = setTimeout(done, seconds * 1000);
    signal.addEventListener("abort", () => { clearTimeout(timer); fail(signal.reason); }, { once: true });
  });
}
