/** Earlier texts of a note, each with its day and a button that restores it. */
import { h, set, show } from "../shared/h.js";
import { stamp } from "../shared/fmt.js";
import { tongue } from "./i18n.js";
import { t } from "./sheet-parts.js";

/** @typedef {{id: string, text: string, at: string, cause: string, replaced: string | null, current: boolean}} Version */

/**
 * Shows the versions of a note below its buttons, or hides them.
 * @param {import("./sheet-parts.js").SheetTools} tools @param {string} id @param {HTMLElement} button @param {() => void} changed
 */
export async function history(tools, id, button, changed) {
  const acts = /** @type {HTMLElement} */ (button.parentElement);
  const there = acts.nextElementSibling;
  if (there?.matches(".former")) return close(there, button);
  const list = h("ul", { class: "former notes" }, h("li", null, t("loading")));
  acts.after(list);
  set(button, { "aria-expanded": "true" });
  try {
    const answer = await tools.reach(`api/v1/memory/${id}/versions`);
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const { versions } = await answer.json();
    const texts = new Set(versions.filter((/** @type {Version} */ one) => one.current).map((/** @type {Version} */ one) => one.id));
    show(list, versions.map((/** @type {Version} */ one) => {
      // a text that was restored is offered once
      const offered = !texts.has(one.id);
      texts.add(one.id);
      return h("li", { class: "note-meta" }, h("span", null, `${stamp(one.at, tongue())} · ${t(`cause_${one.cause}`)}`),
        h("span", { dir: "auto" }, one.replaced && h("del", null, one.replaced), one.replaced && " → ", one.text),
        offered && h("button", { class: "quiet", type: "button", "aria-label": `${t("restore")}: ${one.text}`, onclick: () => void restore(one.id) }, t("restore")));
    }), versions.length < 2 && h("li", { class: "note-meta" }, t("versions_none")));
  } catch {
    show(list, h("li", { class: "note-meta" }, t("note_failed")));
  }

  /** @param {string} version */
  async function restore(version) {
    const answer = await tools.reach(`api/v1/memory/${id}/versions/${version}/restore`, { method: "POST" }).catch(() => null);
    if (!answer?.ok) return list.prepend(h("li", { class: "note-hint" }, t("note_failed")));
    close(list, button);
    button.focus();
    changed();
  }
}

/** @param {Element} list @param {HTMLElement} button */
function close(list, button) {
  list.remove();
  set(button, { "aria-expanded": "false" });
}
