/** Pinned messages: a list to read, show in the conversation, and unpin. */
import { h, show } from "../shared/h.js";
import { state, t } from "./sheet-parts.js";

/** Returns the view of the sheet with pinned messages; `load` draws them. @param {import("./sheet-parts.js").SheetTools} tools */
export function pinned(tools) {
  const status = h("p", { class: "state", role: "status", dir: "auto" });
  const list = h("ul", { class: "found pins" });
  const node = h("div", { class: "view" }, h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": t("pins") }, status, list));

  function load() {
    const pins = tools.pins();
    show(list, pins.map(({ mid, text }) => h("li", null, h("p", { dir: "auto" }, text === undefined ? t("pin_old") : text.slice(0, 200)),
      h("button", { class: "quiet", type: "button", onclick: () => tools.jump(mid) }, t("show")),
      h("button", { class: "quiet", type: "button", onclick: () => { tools.unpin(mid); load(); (list.querySelector("button") ?? tools.title()).focus(); } }, t("unpin")))));
    state(status, pins.length ? "" : t("pins_none"));
  }
  return { node, load };
}
