/** A small menu to download a conversation as a file of a chosen format. */
import { h, t } from "./parts.js";

const FORMS = [["json", "JSON", t("everything, machine-readable")], ["md", "Markdown", t("messages, easy to read")]];

/** Returns a menu with a download link of the session `id` for each format. @param {string} id @param {AbortSignal} signal */
export function exportMenu(id, signal) {
  const button = h("summary", { class: "button line" }, t("Export"));
  const close = () => { menu.open = false; };
  const menu = /** @type {HTMLDetailsElement} */ (h("details", { class: "choices", onkeydown: (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape" && menu.open) { close(); button.focus(); }
  } }, button, h("ul", { class: "card" }, FORMS.map(([form, name, words]) => h("li", null,
    h("a", { href: `/api/v1/sessions/${id}/export?format=${form}`, download: "", onclick: close }, h("b", null, name), h("span", { class: "muted small block" }, words)))))));
  document.addEventListener("pointerdown", (event) => { if (!menu.contains(/** @type {Node} */ (event.target))) close(); }, { signal });
  menu.addEventListener("focusout", (event) => { if (event.relatedTarget && !menu.contains(/** @type {Node} */ (event.relatedTarget))) close(); });
  return menu;
}
