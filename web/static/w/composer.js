/** Where the person writes: grows with the text, keeps a draft, sends on Enter, offers commands and Stop. */
import { h, icon, set, show } from "../shared/h.js";
import { number } from "../shared/fmt.js";
import { t, lang } from "./i18n.js";
import { slash } from "./slash.js";

const ARROW = "M12 19V5M6 11l6-6 6 6";
const SQUARE = "M7 7h10v10H7z";

/**
 * @param {object} tools
 * @param {(text: string) => boolean} tools.send whether the text was taken
 * @param {() => void} tools.stop
 * @param {() => import("./slash.js").Command[]} tools.commands
 * @param {() => number} tools.limit
 * @param {import("./storage.js").Store} tools.store
 */
export function composer(tools) {
  const input = h("textarea", {
    rows: 1, "aria-label": t("message"), placeholder: t("placeholder"), enterkeyhint: "send", dir: "auto",
    "aria-haspopup": "listbox", "aria-controls": "evt-commands", autocomplete: "off", oninput: changed, onkeydown: key,
  });
  const send = h("button", { class: "send", type: "submit", "aria-label": t("send"), title: t("send") }, icon(ARROW, 18));
  const stop = h("button", { class: "stop", type: "button", "aria-label": t("stop"), title: t("stop"), hidden: true, onclick: tools.stop }, icon(SQUARE, 18));
  const note = h("p", { class: "composer-note", id: "evt-note", role: "status", hidden: true });
  const popup = slash(input, tools.commands, (text) => { input.value = text; changed(); });
  const node = h("form", { class: "composer", onsubmit: submit }, popup.list, note, h("div", { class: "field" }, input, stop, send));
  let timer = 0;

  function changed() {
    popup.update();
    grow();
    const limit = tools.limit();
    const long = limit > 0 && input.value.length > limit;
    note.hidden = !long;
    show(note, long && t("too_long", { count: number(input.value.length, lang()), limit: number(limit, lang()) }));
    set(input, { "aria-invalid": long ? "true" : null, "aria-describedby": long ? "evt-note" : null });
    set(send, { "aria-disabled": long || !input.value.trim() ? "true" : null });
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
    if (event.isComposing || event.keyCode === 229 || popup.key(event)) return;
    if (event.key === "Enter" && !event.shiftKey && !event.altKey) { event.preventDefault(); submit(event); }
  }

  /** @param {Event} event */
  function submit(event) {
    event.preventDefault();
    const text = input.value.trim();
    if (!text || (tools.limit() > 0 && text.length > tools.limit()) || !tools.send(text)) return;
    input.value = "";
    changed();
    keep();
    input.focus();
  }

  input.value = tools.store.get("draft");
  queueMicrotask(changed);
  return {
    node, input, keep, grow, popup,
    /** @param {boolean} busy */
    busy: (busy) => { stop.hidden = !busy; },
  };
}
