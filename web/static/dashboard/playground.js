/** A test conversation with the draft of an agent. It exists on this page only; nothing but its cost is stored. */
import { ask } from "./net.js";
import { card, joinWithDots, h, money, problem, show, t, tn } from "./parts.js";

/** Returns the node of a test conversation with an agent's unsaved config. @param {{path: `/agents/${string}`, draft: () => any, signal: AbortSignal}} of `draft` is the config as it is typed, null while it cannot be read */
export function playground({ path, draft, signal }) {
  /** @type {{role: string, text: string}[]} */
  let said = [];
  const log = h("div", { class: "playground-log", role: "log", tabindex: 0, "aria-label": t("Playground") });
  const trouble = h("div");
  const text = h("textarea", { name: "text", rows: 2, dir: "auto", required: true, maxlength: 8000, "aria-label": t("Message to the draft"), placeholder: t("Write a message, as a visitor would."), onkeydown: (/** @type {KeyboardEvent} */ event) => { if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); form.requestSubmit(); } } });
  const button = h("button", { type: "submit", class: "solid" }, t("Send"));
  const form = h("form", { class: "stack", onsubmit: send }, text, trouble, h("p", { class: "actions" }, button, h("button", { type: "button", class: "line", onclick: begin }, t("Start over"))));

  function begin() {
    said = [];
    show(log);
    show(trouble);
    text.focus();
  }

  /** @param {string} role @param {string} words @param {any} [more] */
  function add(role, words, more) {
    log.append(h("div", { class: `said ${role}` }, h("b", { class: "small" }, role === "user" ? t("The visitor") : t("The assistant")), words && h("p", { dir: "auto", class: "words" }, words), more));
    log.scrollTop = log.scrollHeight;
  }

  /** @param {Event} event */
  async function send(event) {
    event.preventDefault();
    const [words, config] = [text.value.trim(), draft()];
    if (!words || button.disabled) return;
    if (config === null) return show(trouble, h("p", { class: "crit-text" }, t("The draft cannot be used as it is.")));
    button.disabled = true;
    log.setAttribute("aria-busy", "true");
    show(trouble, h("p", { class: "muted", role: "status" }, t("Answering"), "…"));
    const before = said;
    try {
      const asked = [...said, { role: "user", text: words }];
      const answer = await ask(`${path}/try`, { method: "POST", body: { config, messages: asked }, signal, seconds: 90 });
      if (said !== before) return;
      said = answer.text ? [...asked, { role: "assistant", text: answer.text }] : asked;
      add("user", words);
      add("assistant", answer.text, [answer.tools.map((one) => h("p", { class: "small" }, t("Uses {tool}", { tool: h("code", null, one.name) }), " ", h("code", { class: "about" }, JSON.stringify(one.arguments)))),
        h("p", { class: "small muted" }, joinWithDots([h("span", { translate: "no" }, answer.model), tn("{count} token", "{count} tokens", answer.context_tokens), money(answer.cost_micro)]))]);
      text.value = "";
      show(trouble);
    } catch (/** @type {any} */ error) {
      if (signal.aborted || said !== before) return;
      show(trouble, problem(error), error.details?.reason && h("p", { class: "words small", dir: "auto" }, error.details.reason),
        error.details?.problems && h("ul", { class: "findings crit-text" }, error.details.problems.map((/** @type {string} */ one) => h("li", { dir: "auto" }, one))));
    } finally {
      button.disabled = false;
      log.removeAttribute("aria-busy");
      if (!signal.aborted) text.focus();
    }
  }
  return card(t("Playground"), [h("p", { class: "muted small" }, t("Uses the settings on this page, saved or not. Tools are not run, and only the cost is stored.")), log, form]);
}
