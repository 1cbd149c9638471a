/** Earlier conversations that were archived when two channels were joined, for reading only. */
import { h, show } from "../shared/h.js";
import { stamp } from "../shared/fmt.js";
import { tongue } from "./i18n.js";
import { original } from "./rare.js";
import { state, t } from "./sheet-parts.js";

/** @typedef {{session_id: string, archived_at: string, messages: {role: string, text: string, at: string}[]}} Kept */

/** Returns the view of the sheet with archived conversations; `load` loads them. @param {import("./sheet-parts.js").SheetTools} tools */
export function earlier(tools) {
  const status = h("p", { class: "state", role: "status", dir: "auto" });
  const list = h("div", { class: "kept" });
  const node = h("div", { class: "view" }, h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": t("earlier") }, status, list));

  async function load() {
    if (!list.childElementCount) state(status, t("loading"));
    try {
      const answer = await tools.reach("api/v1/archived");
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      const { sessions } = await answer.json();
      show(list, sessions.map(conversation));
      state(status, sessions.length ? "" : t("earlier_none"));
    } catch {
      state(status, t("load_failed"), () => void load());
    }
  }

  /** @param {Kept} kept */
  function conversation(kept) {
    return h("section", null, h("h3", null, t("until", { date: stamp(kept.archived_at, tongue()) })), kept.messages.map((message) => original(message, tools.markdown)));
  }
  return { node, load };
}
