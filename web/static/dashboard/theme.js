/** The theme of this browser (light, dark, or the system's), and the button that changes it. */
import { h, set, show } from "../shared/h.js";
import { t } from "./i18n.js";

const KEY = "evertalk:dash:theme";
const WORDS = { auto: t("System"), light: t("light"), dark: t("dark") };
const NEXT = /** @type {const} */ ({ auto: "light", light: "dark", dark: "auto" });
/** @typedef {keyof typeof WORDS} Theme */

/** @returns {Theme} */
function chosenTheme() {
  let found = null;
  try { found = localStorage.getItem(KEY); } catch { /* without a memory it is as the system */ }
  return found === "light" || found === "dark" ? found : "auto";
}

/** @param {Theme} theme */
function apply(theme) {
  set(document.documentElement, { "data-theme": theme === "auto" ? null : theme });
}

/** @param {Theme} theme */
function keep(theme) {
  try { theme === "auto" ? localStorage.removeItem(KEY) : localStorage.setItem(KEY, theme); } catch { /* for this tab only */ }
}

/** Returns the button that changes the theme to the next one and keeps the choice in this browser. @param {(words: string) => void} say */
export function themeButton(say) {
  let theme = chosenTheme();
  const words = h("span", { class: "muted" }, WORDS[theme]);
  return h("button", { type: "button", class: "line theme", onclick: () => {
    theme = NEXT[theme];
    keep(theme);
    apply(theme);
    show(words, WORDS[theme]);
    say(t("Theme: {theme}.", { theme: WORDS[theme] }));
  } }, t("Theme"), " ", words);
}

apply(chosenTheme());
addEventListener("storage", (event) => { if (event.key === KEY) apply(chosenTheme()); });
