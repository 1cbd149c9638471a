/** List of people, with search and pages, last seen first. */
import { channelBadge, chatButton, empty, h, money, nameOf, number, t, table, time, tn } from "./parts.js";
import { listPage } from "./lists.js";

const COLUMNS = [{ label: t("Person") }, { label: t("Channels") }, { label: t("Conversations"), num: true }, { label: t("Turns"), num: true }, { label: t("Notes"), num: true }, { label: t("Spent"), num: true }, { label: t("Last seen") }];

/** Draws the list of people and groups. @param {Page} page */
export function peoplePage(page) {
  page.entitle(t("People"));
  listPage(page, {
    title: t("People"), path: "/dashboard/people", api: "/people", search: t("Search name, place or id"), names: ["q", "channel", "kind", "cursor"],
    filters: [
      ["channel", t("Channel"), [["", t("All channels")], ["web", t("Web")], ["telegram", "Telegram"]]],
      ["kind", t("Kind"), [["", t("People and groups")], ["person", t("People")], ["group", t("Groups")]]],
    ],
    draw: (answer) => answer.people.length > 0 && h("div", { class: "card flush-card" }, table({ caption: t("People"), className: "wide-grid people-grid", columns: COLUMNS, rows: answer.people.map(cells) })),
    count: (answer) => answer.people.length, told: (count) => tn("{count} person", "{count} people", count),
    nothing: () => empty(t("No people yet."), [h("p", null, t("The first person to write appears here.")), chatButton()]),
  });
}

/** @param {Api["FoundPerson"]} one */
function cells(one) {
  return [
    h("a", { class: "row-link", href: `/dashboard/people/${one.id}`, dir: "auto" }, nameOf(one)),
    h("span", null, one.channels.length ? one.channels.map(channelBadge) : "–"), number(one.sessions), number(one.turns),
    h("a", { class: "over", href: `/dashboard/memory?person=${one.id}`, "aria-label": tn("{count} note of {person}", "{count} notes of {person}", one.notes, { person: nameOf(one) }) }, number(one.notes)), money(one.cost_micro, one.cost_unknown_calls), time(one.last_active_at),
  ];
}
