/** The field to write in: it grows with the text, keeps a draft, sends on Enter, and offers commands and Stop. */
import { h, icon, set, show } from "../shared/h.js";
import { t, tongue } from "./i18n.js";

const ARROW = "M12 19V5M6 11l6-6 6 6";
const CLIP = "M21 11l-9 9a5 5 0 0 1-7-7l9-9a3 3 0 0 1 5 5l-9 9";
const SQUARE = "M7 7h10v10H7z";

/**
 * Returns the command that a text asks for; null if it is ordinary text.
 * @param {string} text @param {import("./slash.js").Command[]} commands
 */
export function asCommand(text, commands) {
  const found = /^\/([\w-]+)(?:\s+([^]*))?$/.exec(text.trim());
  const name = found?.[1].toLowerCase() ?? "";
  // The server suggests what an unknown command may have meant. Text of several lines is a message, not a command.
  const meant = commands.some((one) => one.name === name) || (/^[a-z][\w-]{0,31}$/.test(name) && !text.includes("\n"));
  return found && meant ? { name, args: (found[2] ?? "").trim() } : null;
}

/**
 * Returns the composer: its nodes, and functions to redraw it, keep its draft and fit its height.
 * @param {object} tools
 * @param {(text: string) => boolean} tools.send whether the text was taken
 * @param {() => void} tools.stop
 * @param {() => import("./slash.js").Command[]} tools.commands
 * @param {() => number} tools.limit
 * @param {import("./storage.js").Store} tools.store
 * @param {() => void} tools.attach
 * @param {() => boolean} tools.filled whether files wait
 */
export function composer(tools) {
  const input = h("textarea", {
    rows: 1, "aria-label": t("message"), placeholder: t("placeholder"), enterkeyhint: "send", dir: "auto",
    "aria-haspopup": "listbox", "aria-controls": "evt-commands", autocomplete: "off", oninput: changed, onkeydown: key,
  });
  const send = h("button", { class: "send", type: "submit", "aria-label": t("send"), title: t("send") }, icon(ARROW, 18));
  const stop = h("button", { class: "stop", type: "button", "aria-label": t("stop"), title: t("stop"), hidden: true, onclick: tools.stop }, icon(SQUARE, 18));
  const note = h("p", { class: "composer-note", id: "evt-note", role: "status", hidden: true });
  const clip = h("button", { class: "icon", type: "button", "aria-label": t("attach"), title: t("attach"), hidden: true, onclick: tools.attach }, icon(CLIP));
  const list = h("ul", { class: "slash", role: "listbox", id: "evt-commands", "aria-label": t("commands"), tabindex: 0, hidden: true });
  const node = h("form", { class: "composer", onsubmit: submit }, list, note, h("div", { class: "field" }, clip, input, stop, send));
  let timer = 0;
  /** @type {ReturnType<typeof import("./slash.js").slash> | null} */
  let popup = null;
  let called = false;

  /** Shows the list of commands, which is loaded with the first slash or once the commands are known. */
  function offer() {
    if (popup) return popup.update();
    if (called || input.value[0] !== "/") return;
    called = true;
    import("./slash.js").then((one) => {
      popup = one.slash(list, input, tools.commands, (text) => { input.value = text; changed(); });
      popup.update();
    }).catch(() => { called = false; });
  }

  function changed() {
    offer();
    grow();
    const limit = tools.limit();
    const long = limit > 0 && input.value.length > limit;
    note.hidden = !long;
    show(note, long && t("too_long", { used: input.value.length, limit }));
    set(input, { "aria-invalid": long ? "true" : null, "aria-describedby": long ? "evt-note" : null });
    set(send, { "aria-disabled": long || (!input.value.trim() && !tools.filled()) ? "true" : null });
    clearTimeout(timer);
    timer = setTimeout(keep, 200);
  }

  const keep = () => tools.store.put("draft", input.value);

  function grow() {
    input.style.setProperty("height", "auto");
    if (input.scrollHeight) input.style.setProperty("height", `${Math.min(input.scrollHeight, 152)}px`);
  }

  /** @param {KeyboardEvent} event */
  function key(event) {
    if (event.isComposing || event.keyCode === 229 || popup?.key(event)) return;
    if (event.key === "Enter" && !event.shiftKey && !event.altKey) { event.preventDefault(); submit(event); }
  }

  /** @param {Event} event */
  function submit(event) {
    event.preventDefault();
    const text = input.value.trim();
    if ((!text && !tools.filled()) || (tools.limit() > 0 && text.length > tools.limit()) || !tools.send(text)) return;
    input.value = "";
    changed();
    keep();
    if (event.isTrusted) input.focus();
  }

  input.value = tools.store.get("draft");
  queueMicrotask(changed);
  return {
    node, input, keep, grow, clip, changed, submit: () => submit(new Event("submit")),
    /** @param {boolean} busy */
    busy: (busy) => { stop.hidden = !busy; },
  };
}
