/** Who answers: every agent, and where it does. */
import { DASH, empty, h, number, table } from "./parts.js";
import { listPage, maker } from "./lists.js";

const COLUMNS = [{ label: "Agent" }, { label: "Model" }, { label: "Preset" }, { label: "Own numbers", num: true }, { label: "Conversations", num: true }, { label: "Sites" }, { label: "Bots" }, { label: "Version", num: true }];

/** @param {any} page */
export function agentsPage(page) {
  page.entitle("Agents");
  listPage(page, {
    title: "Agents", above: maker(page, "agent", "/agents", "/dashboard/agents"), path: "/dashboard/agents", api: "/agents", names: [], filters: [], noun: "agents",
    count: (answer) => answer.agents.length, nothing: () => empty("No agent yet.", h("p", { class: "muted" }, "./evertalk agent create NAME makes one.")),
    draw: (answer) => h("div", { class: "card flush-card" }, table({ caption: "Agents", className: "wide-grid", columns: COLUMNS, rows: answer.agents.map((/** @type {any} */ one) => [
      h("a", { class: "row-link", href: `/dashboard/agents/${one.name}` }, one.name, one.called && h("span", { class: "muted" }, ` “${one.called}”`)),
      one.model ?? "chosen", one.preset, one.overrides ? number(one.overrides) : DASH, number(one.sessions), one.sites.join(", ") || DASH, one.bots.join(", ") || DASH, number(one.version)]) })),
  });
}
