/** A form to jump to a day in the conversation. */
import { h, set } from "../shared/h.js";
import { state, t } from "./sheet-parts.js";

/** Returns a day in the form that date fields need (YYYY-MM-DD). @param {Date} day */
const plain = (day) => [day.getFullYear(), day.getMonth() + 1, day.getDate()].map((part) => String(part).padStart(2, "0")).join("-");

/** Returns the view of the sheet that jumps to a day. @param {import("./sheet-parts.js").SheetTools} tools */
export function dates(tools) {
  const status = h("p", { class: "state", role: "status", dir: "auto", hidden: true });
  const field = h("input", { class: "search", type: "date", id: "evt-day" });
  const node = h("div", { class: "view" }, h("form", { class: "search-row", onsubmit: leap }, h("label", { for: "evt-day" }, t("day")), field, status,
    h("p", { class: "row" }, h("button", { class: "action solid", type: "submit" }, t("go")), h("button", { class: "action line", type: "button", onclick: () => void go(new Date(0)) }, t("first_day")))));

  /** @param {Event} event */
  function leap(event) {
    event.preventDefault();
    const since = new Date(`${field.value}T00:00`);
    if (!Number.isNaN(since.getTime())) void go(since);
  }

  /** @param {Date} since */
  async function go(since) {
    state(status, t("loading"));
    try {
      await tools.leap(since);
      state(status, "");
    } catch {
      state(status, t("day_failed"), () => void go(since));
    }
  }

  return {
    node,
    /** @param {string} [at] */
    load(at) {
      const today = plain(new Date());
      set(field, { max: today });
      field.value = at ? plain(new Date(at)) : today;
      state(status, "");
      field.focus();
    },
  };
}
