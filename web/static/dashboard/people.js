/** Who there is: searched and paged, the last ones seen first. */
import { channelBadge, empty, h, money, nameOf, number, table, time } from "./parts.js";
import { listPage } from "./lists.js";

const COLUMNS = [{ label: "Person" }, { label: "Channels" }, { label: "Conversations", num: true }, { label: "Turns", num: true }, { label: "Notes", num: true }, { label: "Spent", num: true }, { label: "Last seen" }];

/** @param {any} page */
export function peoplePage(page) {
  page.entitle("People");
  listPage(page, {
    title: "People", path: "/dashboard/people", api: "/people", search: "Search name, place or id", names: ["q", "channel", "kind", "cursor"],
    filters: [
      ["channel", "Channel", [["", "All channels"], ["web", "Web"], ["telegram", "Telegram"]]],
      ["kind", "Kind", [["", "People and groups"], ["person", "People"], ["group", "Groups"]]],
    ],
    draw: (answer) => answer.people.length > 0 && h("div", { class: "card flush-card" }, table({ caption: "People", className: "wide-grid", columns: COLUMNS, rows: answer.people.map(cells) })),
    count: (answer) => answer.people.length, noun: "people",
    nothing: () => empty("Nobody has come yet.", h("p", { class: "muted" }, "Whoever writes first appears here: ", h("a", { href: "/chat" }, "open the chat"), ".")),
  });
}

/** @param {any} one */
function cells(one) {
  return [
    h("a", { class: "row-link", href: `/dashboard/people/${one.id}`, dir: "auto" }, nameOf(one)),
    h("span", null, one.channels.length ? one.channels.map(channelBadge) : "–"), number(one.sessions), number(one.turns),
    h("a", { class: "over", href: `/dashboard/memory?person=${one.id}`, "aria-label": `${number(one.notes)} notes of ${nameOf(one)}` }, number(one.notes)), money(one.cost_micro, one.cost_unknown_calls), time(one.last_active_at),
  ];
}
