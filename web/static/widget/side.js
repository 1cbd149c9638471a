/** A person's conversations next to the chat, on our page if it is wide enough. */
import { h } from "../shared/h.js";
import { enter, start } from "./menu.js";
import { reach } from "./rare.js";
import { SHEET_LOOK } from "./sheet-look.js";
import { t } from "./sheet-parts.js";
import { adopt } from "./styles.js";
import { talks } from "./talks.js";

const WIDE = "(min-width: 900px)";
/** Milliseconds to wait for further events before the list is loaded again. */
const REST_MS = 400;
/** Events that change titles, order or marks in the list. */
const NEWS = /^(welcome|ack|msg|compaction|erased)$/;
const LOOK = /* css */ `
.side { display: none; }
@media (min-width: 900px) {
  .side { position: fixed; inset-block: 0; inset-inline-start: 0; width: 280px; display: flex; background: var(--soft); border-inline-end: 1px solid var(--line); }
  .side + .panel { inset-inline-start: 280px !important; width: auto !important; }
  .side .found li + li { border-top: 0; } .side .found button:hover, .side [aria-current] { background: var(--card); } .side li { position: relative; } .side .found .quiet { position: absolute; top: 6px; inset-inline-end: 4px; background: var(--card); opacity: 0; } .side li:is(:hover, :focus-within) .quiet { opacity: 1; }
}
@media (min-width: 900px) and (hover: none) { .side .found .quiet { opacity: 1; } }
@media print { .side { display: none; } .side + .panel { inset-inline-start: 0 !important; } }
`;

/** Shows the list; later calls change nothing. @param {import("./chat.js").Chat} chat */
export function beside(chat) {
  if (chat.side) return;
  const view = talks({ reach: (path, init) => reach(chat, path, init), session: () => chat.chat.session, open: (session) => leave(() => enter(chat, session)), begin: () => leave(() => void start(chat)) });
  const node = h("nav", { class: "side", "aria-label": t("talks") }, view.node);
  const wide = matchMedia(WIDE);
  let timer = 0;

  /** @param {() => void} go */
  function leave(go) {
    chat.sheet?.toggle(false);
    go();
    chat.composer.input.focus();
  }

  function later() {
    clearTimeout(timer);
    timer = setTimeout(() => { if (wide.matches && !node.querySelector("input")) void view.refresh(); }, REST_MS);
  }

  adopt(chat.node, SHEET_LOOK);
  adopt(chat.node, LOOK);
  chat.node.before(node);
  chat.side = { get shown() { return wide.matches; }, changed: (frame) => { if (NEWS.test(frame?.t)) later(); } };
  wide.addEventListener("change", later);
  addEventListener("focus", later);
  void view.load();
}
