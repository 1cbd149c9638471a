/** Where the widget lives: every site, for whom, and who answers there. */
import { DASH, empty, h, number, table } from "./parts.js";
import { listPage, maker } from "./lists.js";

const COLUMNS = [{ label: "Site" }, { label: "Agent" }, { label: "Audience" }, { label: "Sign-in" }, { label: "Origins" }, { label: "Visitors", num: true }];

/** @param {any} page */
export function sitesPage(page) {
  page.entitle("Sites");
  listPage(page, {
    title: "Sites", above: maker(page, "site", "/sites", "/dashboard/sites"), path: "/dashboard/sites", api: "/sites", names: [], filters: [], noun: "sites",
    count: (answer) => answer.sites.length, nothing: () => empty("No site yet.", h("p", { class: "muted" }, "./evertalk site add NAME makes one.")),
    draw: (answer) => h("div", { class: "card flush-card" }, table({ caption: "Sites", className: "wide-grid", columns: COLUMNS, rows: answer.sites.map((/** @type {any} */ one) => [
      h("a", { class: "row-link", href: `/dashboard/sites/${one.name}` }, one.name, one.title && h("span", { class: "muted", dir: "auto" }, ` “${one.title}”`)),
      one.agent, one.audience, one.verified, one.origins.length ? h("span", { class: "reason", title: one.origins.join(" ") }, one.origins.join(", ")) : DASH, number(one.visitors)]) })),
  });
}
