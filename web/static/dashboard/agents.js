/** List of agents and the sites they answer. */
import { DASH, empty, h, number, t, table, tn } from "./parts.js";
import { listPage, maker } from "./lists.js";

const COLUMNS = [{ label: t("Agent") }, { label: t("Model") }, { label: t("Preset") }, { label: t("Overrides"), num: true }, { label: t("Conversations"), num: true }, { label: t("Sites") }, { label: t("Bots") }, { label: t("Version"), num: true }];

/** Draws the list of agents, with a form for a new one. @param {Page} page */
export function agentsPage(page) {
  page.entitle(t("Agents"));
  listPage(page, {
    title: t("Agents"), aside: maker(page, [t("New agent"), t("Create agent")], "/agents", "/dashboard/agents"), path: "/dashboard/agents", api: "/agents", names: [], filters: [], told: (count) => tn("{count} agent", "{count} agents", count),
    count: (answer) => answer.agents.length, nothing: () => empty(t("No agent yet."), h("p", { class: "muted" }, t("{command} creates one.", { command: "./evertalk agent create NAME" }))),
    draw: (answer) => h("div", { class: "card flush-card" }, table({ caption: t("Agents"), className: "wide-grid", columns: COLUMNS, rows: answer.agents.map((one) => [
      h("a", { class: "row-link", href: `/dashboard/agents/${one.name}` }, one.name, one.called && h("span", { class: "muted" }, [" ", h("q", null, one.called)])),
      one.model ?? t("automatic"), one.preset, one.overrides ? number(one.overrides) : DASH, number(one.sessions), one.sites.join(", ") || DASH, one.bots.join(", ") || DASH, number(one.version)]) })),
  });
}
