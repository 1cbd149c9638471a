/** Docks the chat as a side panel for which the page makes room; small screens stay as they are. */
import { set } from "../shared/h.js";
import { adopt } from "./styles.js";

const WIDE = "(min-width: 900px)";
const ROOM = "400px";
const LOOK = /* css */ `
@media (min-width: 900px) {
  .root[data-dock="true"] .panel { inset-block: 0; inset-inline: auto 0; width: 400px; height: 100dvh; border-width: 0; border-inline-start-width: 1px; border-radius: 0; box-shadow: none; animation: none; }
  .root[data-dock="true"][data-position="left"] .panel { inset-inline: 0 auto; border-inline-width: 0 1px; }
  .root[data-dock="true"][data-open="true"] .launcher { display: none; }
}
`;

/** @type {(() => void) | null} */
let place = null;

/** Docks the panel if the visitor wants so; the page's setting counts if the visitor has made no choice. @param {import("./main.js").Widget} widget */
export function begin({ chat, config, store }) {
  if (chat && !config.page && (store.get("dock") || config.dock) === "true") dock(chat, true);
}

/** Docks or undocks the panel. @param {import("./chat.js").Chat} chat @param {boolean} wanted */
export function dock(chat, wanted) {
  const root = /** @type {HTMLElement} */ (chat.node.closest(".root"));
  adopt(chat.node, LOOK);
  set(root, { data: { dock: String(wanted) } });
  if (!place) follow(root, chat.node);
  place?.();
}

/** Makes the page leave room while the docked panel is open. @param {HTMLElement} root @param {HTMLElement} panel */
function follow(root, panel) {
  const page = document.documentElement;
  const wide = matchMedia(WIDE);
  let side = "";
  let former = "";
  const give = () => { if (side) page.style.setProperty(side, former); side = ""; };
  place = () => {
    give();
    if (!root.isConnected || root.dataset.dock !== "true" || root.dataset.open !== "true" || !wide.matches) return;
    const { left, right } = panel.getBoundingClientRect();
    side = left + right > innerWidth ? "margin-right" : "margin-left";
    former = page.style.getPropertyValue(side);
    page.style.setProperty(side, ROOM);
  };
  for (const name of ["open", "close"]) document.addEventListener(`evertalk:${name}`, place);
  document.addEventListener("evertalk:shutdown", () => {
    for (const name of ["open", "close"]) document.removeEventListener(`evertalk:${name}`, /** @type {() => void} */ (place));
    wide.removeEventListener("change", /** @type {() => void} */ (place));
    place = null;
    give();
  }, { once: true });
  wide.addEventListener("change", place);
}
