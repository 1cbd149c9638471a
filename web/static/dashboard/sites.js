/** Sites of the widget: for whom each is, and which agent answers there. */
import { DASH, empty, h, number, t, table, tn, ts } from "./parts.js";
import { listPage, maker } from "./lists.js";

const COLUMNS = [{ label: t("Site") }, { label: t("Agent") }, { label: t("Audience") }, { label: t("Sign-in") }, { label: t("Origins") }, { label: t("Visitors"), num: true }];

/** Draws the list of sites, with a form for a new one. @param {Page} page */
export function sitesPage(page) {
  page.entitle(t("Sites"));
  listPage(page, {
    title: t("Sites"), aside: maker(page, [t("New site"), t("Create site")], "/sites", "/dashboard/sites"), path: "/dashboard/sites", api: "/sites", names: [], filters: [], told: (count) => tn("{count} site", "{count} sites", count),
    count: (answer) => answer.sites.length, nothing: () => empty(t("No site yet."), h("p", { class: "muted" }, t("{command} creates one.", { command: "./evertalk site add NAME" }))),
    draw: (answer) => h("div", { class: "card flush-card" }, table({ caption: t("Sites"), className: "wide-grid", columns: COLUMNS, rows: answer.sites.map((one) => [
      h("a", { class: "row-link", href: `/dashboard/sites/${one.name}` }, one.name, one.title && h("span", { class: "muted", dir: "auto" }, [" ", h("q", null, one.title)])),
      one.agent, ts(one.audience), ts(one.verified), one.origins.length ? h("span", { class: "reason", title: one.origins.join(" ") }, one.origins.join(", ")) : DASH, number(one.visitors)]) })),
  });
}
