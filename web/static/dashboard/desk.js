/** The operator's part of a session: who has it, take it or give it back, and write in it. */
import { follow } from "./live.js";
import { ask } from "./net.js";
import { h, number, problem, set, show, t, time } from "./parts.js";

/** Who asked for a human, and when. @type {Record<string, (time: any) => any>} */
const ASKED = { person: (time) => t("asked for by the person {time}", { time }), assistant: (time) => t("asked for by the assistant {time}", { time }) };
const MOST = 8000;
const AGAIN_SECONDS = 3;
/** Who writes says so this often, and is shown to write this long. */
const TELL_MS = 3000, TYPES_MS = 6000;
const AWAY = new Set([0, 502, 503, 504]);
/** @param {any} held */
const isMine = (held) => held?.state === "human" && held.mine;

/**
 * The line below the heading, and the composer below the transcript. `data` of the session goes to `update`.
 * @param {{id: string, me: any, say: (words: string) => void, signal: AbortSignal, reload: () => Promise<any>, taken: () => void}} of
 */
export function operatorDesk({ id, me, say, signal, reload, taken }) {
  const line = h("div", { class: "desk-line", role: "group", "aria-label": t("Who has this conversation"), tabindex: -1 });
  const note = h("div");
  const bar = h("section", { class: "card desk", "aria-label": t("Conversation") }, line, note);
  const composer = replies({ id, me, say, signal, reload });
  const types = h("p", { class: "muted small types", role: "status" });
  let drawn = "";
  let writes = 0;
  let said = "";

  follow({
    changed() {}, moved() {},
    typing(session) {
      if (session !== id) return;
      clearTimeout(writes);
      writes = setTimeout(() => show(types), TYPES_MS);
      if (!types.textContent) show(types, t("The person is writing…"));
    },
  }, signal);

  /** @param {"take" | "return"} action @param {HTMLButtonElement} button */
  async function move(action, button) {
    set(button, { "aria-disabled": "true" });
    show(note);
    try {
      await ask(`/sessions/${id}/handover`, { method: "POST", body: { action }, signal });
      say(action === "take" ? t("The conversation is yours.") : t("The assistant answers here again."));
      await reload();
      if (action === "take") taken(); else line.focus();
    } catch (error) {
      if (signal.aborted) return;
      show(note, problem(error));
      drawn = "";
      reload();
    }
    set(button, { "aria-disabled": null });
  }

  /** @param {string} words @param {"take" | "return"} action @param {boolean} [solid] */
  const button = (words, action, solid = false) => h("button", { type: "button", class: solid ? "solid" : "line", data: { act: action }, onclick: (/** @type {any} */ event) => {
    if (event.currentTarget.getAttribute("aria-disabled") !== "true") move(action, event.currentTarget);
  } }, words);

  /** @param {any} held */
  function sentence(held) {
    if (!held) return h("p", null, h("span", { class: "state" }, t("The assistant answers here.")));
    const asked = held.asked_by !== "operator" && h("span", { class: "muted" }, ASKED[/** @type {keyof typeof ASKED} */ (held.asked_by)]?.(time(held.asked_at)));
    if (held.state === "waiting") return h("p", null, h("span", { class: "state waiting" }, t("Waits for a human")), asked);
    return h("p", null, h("span", { class: "state answering" }, held.mine ? t("You have this conversation") : held.operator ? t("{operator} has this conversation", { operator: held.operator }) : t("An operator has this conversation")),
      h("span", { class: "muted" }, t("since {time}", { time: time(held.taken_at) })), asked, held.waits_since && h("span", { class: "warn-text" }, t("a word is awaited since {time}", { time: time(held.waits_since) })));
  }

  /** @param {any} held */
  function actions(held) {
    const returns = held?.mine || (held?.state === "waiting" && me.role !== "viewer") || (held && me.role === "admin");
    return h("div", { class: "actions" }, me.can_take && held?.state !== "human" && button(t("Take"), "take", held?.state === "waiting"),
      returns && button(t("Give back to the assistant"), "return"));
  }

  /** @param {any} session */
  function update(session) {
    const held = session.handover;
    const now = JSON.stringify([session.turns, held?.waits_since]);
    if (now !== said) { clearTimeout(writes); show(types); }
    said = now;
    composer.update(held);
    const next = JSON.stringify(held);
    if (next === drawn) return;
    if (isMine(held)) show(note);
    const act = /** @type {any} */ (document.activeElement)?.dataset?.act;
    const inside = line.contains(document.activeElement);
    drawn = next;
    show(line, h("div", { class: "desk-words" }, sentence(held), held?.reason && h("p", { class: "reason-words", dir: "auto" }, h("q", null, held.reason))), actions(held));
    if (inside) (line.querySelector(`button[data-act=${act}]`) ?? line).focus({ preventScroll: true });
  }

  return { bar, types, composer, update };
}

/** What is written and not yet acknowledged, kept for this tab. @param {string} name */
function keeping(name) {
  return {
    read() { try { return JSON.parse(sessionStorage.getItem(name) ?? "{}"); } catch { return {}; } },
    /** @param {{text: string, cid: string}} draft */
    write(draft) {
      try { draft.text ? sessionStorage.setItem(name, JSON.stringify(draft)) : sessionStorage.removeItem(name); } catch { /* the draft then lives as long as the page */ }
    },
  };
}

/** The composer: what is typed stays until the server has it. @param {any} of */
function replies({ id, me, say, signal, reload }) {
  const store = keeping(`desk ${me.name} ${id}`);
  const draft = { text: "", cid: "", ...store.read() };
  const note = h("div", { class: "desk-note", id: "reply-note", role: "status" });
  const input = h("textarea", { id: "reply", rows: 3, "aria-describedby": "reply-note reply-hint", autocomplete: "off", oninput: changed, onkeydown: key });
  const send = h("button", { type: "submit", class: "solid" }, t("Send"));
  const cancel = h("button", { type: "button", class: "line", hidden: true, onclick: () => { sending?.abort(); } }, t("Cancel"));
  const node = h("form", { class: "reply", "aria-label": t("Reply"), hidden: true, onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); submit(); } },
    h("label", null, h("span", null, t("Your reply")), input), note,
    h("div", { class: "actions" }, h("span", { class: "muted small", id: "reply-hint" }, t("Goes out as {name}", { name: me.display_name || "Support" })), cancel, send));
  /** @type {AbortController | null} */
  let sending = null;
  let mine = false;
  let told = 0;

  input.value = draft.text;

  function changed() {
    // Other words are another message.
    if (input.value !== draft.text) draft.cid = "";
    draft.text = input.value;
    store.write(draft);
    judge();
    tellTyping();
  }

  function tellTyping() {
    if (!mine || !draft.text.trim() || Date.now() - told < TELL_MS) return;
    told = Date.now();
    ask(`/sessions/${id}/typing`, { method: "POST", body: {}, signal }).catch(() => {});
  }

  /** Says what keeps the words from being sent. */
  function judge() {
    const count = [...input.value].length;
    const long = count > MOST;
    set(input, { "aria-invalid": long ? "true" : null });
    set(send, { "aria-disabled": long || !mine || !input.value.trim() || sending ? "true" : null });
    if (!sending) show(note, long ? t("{number} of {most} characters: please shorten it.", { number: count, most: MOST }) : !mine && draft.text ? t("This conversation is not yours now. Your words are kept: take it to send them.") : "");
  }

  /** @param {KeyboardEvent} event */
  function key(event) {
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
      store.write(draft);
      sending = null;
      judge();
      say(t("Sent."));
    } catch (error) {
      sending = null;
      judge();
      if (!signal.aborted) show(note, mineAlone.signal.aborted ? t("Not sent again; an attempt before may have arrived.") : problem(error));
    }
    if (document.activeElement === cancel) input.focus();
    set(input, { readonly: null });
    set(cancel, { hidden: true });
    if (!signal.aborted) await reload();
  }

  /** Tries again where that helps: under the same cid, so that it is stored once. @param {AbortSignal} signal */
  async function untilStored(signal) {
    for (;;) {
      try {
        return await ask(`/sessions/${id}/replies`, { method: "POST", body: { cid: draft.cid, text: draft.text.trim() }, signal });
      } catch (error) {
        const failure = /** @type {any} */ (error);
        const waits = failure.code === "answer_runs";
        if (signal.aborted || !(waits || AWAY.has(failure.status))) throw error;
        set(cancel, { hidden: false });
        show(note, waits ? t("The assistant is still answering. Your reply goes out right after.") : t("The server cannot be reached just now. Your reply is kept and sent when it is back."));
        await pause(failure.after || AGAIN_SECONDS, signal);
      }
    }
  }

  return {
    node, input,
    /** @param {any} held */
    update(held) {
      const again = !mine && isMine(held);
      mine = isMine(held);
      // Who is writing is not interrupted, and words are never hidden away.
      node.hidden = !mine && !draft.text;
      if (again || !note.querySelector(".trouble")) judge();
      else set(send, { "aria-disabled": !mine || sending || !draft.text.trim() ? "true" : null });
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
