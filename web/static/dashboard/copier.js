/** A button that copies a text. */
import { h, show } from "../shared/h.js";
import { t } from "./i18n.js";

/** Returns a button that copies `text`; `label` names it for screen readers, `say` announces the result. @param {string} text @param {string} label @param {(words: string) => void} say */
export function copier(text, label, say) {
  const button = h("button", { type: "button", class: "line", "aria-label": label, onclick: async () => {
    try { await navigator.clipboard.writeText(text); show(button, t("Copied")); say(t("Copied.")); } catch { say(t("It cannot be copied here: select it manually.")); }
  } }, t("Copy"));
  return button;
}
