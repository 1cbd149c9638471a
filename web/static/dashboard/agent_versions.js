/** Earlier versions of an agent, each compared with the current one, with a button to restore it. */
import { ask } from "./net.js";
import { DASH, card, h, number, problem, show, t, time } from "./parts.js";
import { linesOf } from "./diff.js";

/**
 * Returns the card with an agent's earlier versions, which it loads; `may` allows restoring one.
 * @param {{agent: Api["Agent"], path: `/agents/${string}`, may: boolean, signal: AbortSignal, back: (saved: any, former: number) => void, stale: (error: any, config: any) => void}} of `back` hears of a version that is in force again, `stale` of somebody who was faster
 */
export function versionsCard({ agent, path, may, signal, back, stale }) {
  const list = h("div");
  const load = async () => {
    try {
      const { versions } = await ask(`${path}/versions`, { signal });
      show(list, versions.length ? h("ul", { class: "plain-list agent-versions" }, versions.map(row)) : h("p", { class: "muted" }, t("Nothing was changed.")));
    } catch (error) { if (!signal.aborted) show(list, problem(error, load)); }
  };

  /** @param {Api["AgentVersionMade"]} one */
  function row(one) {
    const diff = h("div", { class: "diff", role: "status" });
    const now = one.version === agent.version;
    const compare = h("button", { type: "button", class: "line", "aria-expanded": "false", "aria-label": t("Compare version {number} with the one in force", { number: one.version }), onclick: toggle }, t("Compare"));
    async function toggle() {
      const open = compare.getAttribute("aria-expanded") === "true";
      compare.setAttribute("aria-expanded", String(!open));
      if (open) return show(diff);
      try {
        const found = await ask(`${path}/versions/${one.version}`, { signal });
        const same = found.lines.every((line) => line.change === "same");
        show(diff, same ? h("p", { class: "muted" }, t("Both versions say the same.")) : linesOf(found.lines, (count) => t("Unchanged: {number}", { number: number(count) })),
          may && !same && h("p", { class: "actions" }, h("button", { type: "button", class: "line", onclick: () => roll(found.config) }, t("Roll back to version {number}", { number: one.version }))));
      } catch (error) { if (!signal.aborted) show(diff, problem(error)); }
    }

    /** @param {any} config */
    async function roll(config) {
      try { back(await ask(path, { method: "PUT", body: { config }, match: `"${agent.version}"`, signal }), one.version); }
      catch (/** @type {any} */ error) {
        if (signal.aborted) return;
        if (error.code === "stale") stale(error, config);
        else show(diff, problem(error), error.details.problems && h("ul", { class: "findings crit-text" }, error.details.problems.map((/** @type {string} */ one) => h("li", { dir: "auto" }, one))));
      }
    }
    return h("li", null, h("div", { class: "split" }, h("span", null, h("b", null, t("version {number}", { number: one.version })), " ", h("bdi", null, one.by ?? DASH), ", ", time(one.at)), now ? h("span", { class: "badge" }, t("in force")) : compare), diff);
  }
  load();
  return card(t("Versions"), [list, h("p", { class: "muted small" }, t("The newest hundred are kept."))]);
}
