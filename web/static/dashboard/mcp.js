/** MCP servers: a list, a form for another one, and a test by a real connection. */
import { ask } from "./net.js";
import { card, joinWithDots, h, problem, show, t, time, tn } from "./parts.js";

const TEST_SECONDS = 60;

/** Returns the card of MCP servers, which it loads; `may` allows adding, approving and removing. @param {{may: boolean, say: (words: string) => void, signal: AbortSignal, changed: (names: string[]) => void}} of `changed` hears which there are now */
export function mcpCard({ may, say, signal, changed }) {
  const list = h("div");
  const reply = h("div", { role: "status" });
  /** @type {any} */
  let now = null;
  const name = h("input", { name: "server", required: true, maxlength: 32, pattern: "[A-Za-z0-9_\\-]+", autocomplete: "off", autocapitalize: "none", spellcheck: "false", dir: "ltr" });
  const url = h("input", { type: "url", name: "url", required: true, maxlength: 500, placeholder: "https://", autocomplete: "off", dir: "ltr" });
  const headers = h("textarea", { name: "headers", rows: 2, maxlength: 8000, spellcheck: "false", autocomplete: "off", dir: "ltr", placeholder: "Authorization: Bearer …" });
  const test = h("button", { type: "button", class: "line", onclick: () => { if (form.reportValidity()) tried({ server: name.value.trim(), ...typed() }); } }, t("Test"));
  const form = h("form", { class: "site-form", onsubmit: save },
    h("div", { class: "pair" }, h("label", null, h("span", null, t("Name")), name), h("label", null, h("span", null, t("Address")), url)),
    h("label", null, h("span", null, t("Headers, one per line; stored encrypted and never shown")), headers),
    h("p", { class: "actions" }, h("button", { type: "submit", class: "line" }, t("Add")), test));

  const adding = h("details", { class: "server-add" }, h("summary", null, t("Add a server")), form);

  /** Returns the entry in the form; without headers, those stored for this address stay. */
  function typed() {
    const lines = headers.value.split("\n").map((/** @type {string} */ one) => one.trim()).filter(Boolean);
    return { url: url.value.trim(), headers: lines.length ? Object.fromEntries(lines.map((/** @type {string} */ one) => { const [key, ...rest] = one.split(":"); return [key.trim(), rest.join(":").trim()]; })) : null };
  }

  /** @param {any} error */
  function failed(error) {
    if (signal.aborted) return;
    if (error.code === "stale") draw(error.details.theirs);
    const reasons = (error.details?.problems ?? []).map((/** @type {any} */ one) => one.reason ?? one);
    show(reply, problem(error), reasons.length > 0 && h("ul", { class: "findings crit-text" }, reasons.map((/** @type {string} */ one) => h("li", { dir: "auto" }, one))),
      error.details?.agents && h("p", { class: "facts" }, error.details.agents.map((/** @type {string} */ one) => h("a", { href: `/dashboard/agents/${one}`, translate: "no" }, one))));
  }

  /** @param {Api["McpServers"]} answer */
  function draw(answer) {
    now = answer;
    show(list, answer.servers.length ? h("ul", { class: "plain-list" }, answer.servers.map(row)) : h("p", { class: "muted" }, t("No server yet.")),
      answer.problems.length > 0 && h("ul", { class: "findings warn-text" }, answer.problems.map((/** @type {string} */ one) => h("li", { dir: "auto" }, one))));
  }

  /** @param {Api["McpServerShown"]} one */
  const row = (one) => h("li", null, h("div", { class: "split" }, h("span", null, h("b", { translate: "no" }, one.name), " ", h("code", { class: "small" }, one.where), " ", h("span", { class: "muted small" }, joinWithDots([one.from === "file" && t("from a file"), one.headers.length > 0 && h("code", null, one.headers.join(", ")), !one.running && t("waits for a restart")]))),
    may && one.from === "stored" && h("span", { class: "actions tight" }, h("button", { type: "button", class: "line", "aria-label": t("Edit: {note}", { note: one.name }), onclick: () => { name.value = one.name; url.value = one.where; headers.value = ""; adding.open = true; url.focus(); } }, t("Edit")),
      h("button", { type: "button", class: "line", "aria-label": t("Remove {name}", { name: one.name }), onclick: () => keep("DELETE", one.name) }, t("Remove")))),
    one.waiting.length > 0 ? h("div", { class: "warn-text" }, h("p", null, t("These tools have changed. The assistant cannot use them until an admin approves:"), " ", h("code", { class: "words small" }, one.waiting.join(", "))),
      may && h("p", { class: "actions" }, h("button", { type: "button", class: "line", "aria-label": `${t("Approve changed tools")}: ${one.name}`, onclick: () => approve(one) }, t("Approve changed tools"))))
      : one.changed_at && h("p", { class: "muted small" }, t("Tools changed:"), " ", h("code", { class: "words" }, one.changed.join(", ")), " · ", time(one.changed_at)));

  /** @param {Api["McpServerShown"]} one */
  async function approve(one) {
    try {
      draw(await ask(`/mcp-servers/${encodeURIComponent(one.name)}/approval`, { method: "POST", body: { mark: one.mark }, signal }));
      say(t("Saved."));
    } catch (error) { failed(error); if (!signal.aborted) load(); }
  }

  /** @param {"PUT" | "DELETE"} method @param {string} server @param {any} [body] */
  async function keep(method, server, body) {
    try {
      draw(await ask(`/mcp-servers/${encodeURIComponent(server)}`, { method, body, match: `"${now.version}"`, signal }));
      show(reply, h("p", { class: "done" }, t("Saved. A running Evertalk follows within two seconds.")));
      say(t("Saved."));
      changed([...new Set(now.servers.map((/** @type {Api["McpServerShown"]} */ one) => one.name))]);
      return true;
    } catch (error) { failed(error); }
    return false;
  }

  /** @param {Event} event */
  async function save(event) {
    event.preventDefault();
    if (now && await keep("PUT", name.value.trim(), typed())) form.reset();
    name.focus();
  }

  /** @param {any} body */
  async function tried(body) {
    test.disabled = true;
    show(reply, h("p", { class: "muted" }, t("Testing…")));
    try {
      const found = await ask("/mcp-test", { method: "POST", body, signal, seconds: TEST_SECONDS });
      show(reply, found.ok ? [h("p", { class: "done" }, tn("It works: {count} tool", "It works: {count} tools", found.tools.length)), h("p", { class: "words small" }, h("code", null, found.tools.join(", ")))] : [h("p", { class: "crit-text" }, t("The server cannot be used.")), h("p", { class: "words small", dir: "auto" }, found.problem)],
        found.left_out.length > 0 && h("ul", { class: "findings warn-text" }, found.left_out.map((/** @type {string} */ one) => h("li", { dir: "auto" }, one))));
    } catch (error) { failed(error); }
    test.disabled = false;
  }

  const load = () => ask("/mcp-servers", { signal }).then(draw, (error) => { if (!signal.aborted) show(list, problem(error, load)); });
  load();
  return card(t("MCP servers"), [h("p", { class: "muted small" }, t("For all agents. Each chooses its servers under Tools.")), list, may && adding, reply]);
}
