/** "Which provider?" as cards; a choice fills in key, address and model in the form below. */
import { ask } from "./net.js";
import { h, set, show, t } from "./parts.js";

/** Providers: name, API, and address; "" stands for the API's usual address. @type {[string, string, string][]} */
export const PROVIDERS = [["Anthropic", "messages", ""], ["OpenAI", "openai", ""], ["OpenRouter", "openai", "https://openrouter.ai/api/v1"], ["Google Gemini", "openai", "https://generativelanguage.googleapis.com/v1beta/openai"],
  ["Mistral", "openai", "https://api.mistral.ai/v1"], ["DeepSeek", "openai", "https://api.deepseek.com/v1"], ["Groq", "openai", "https://api.groq.com/openai/v1"], ["xAI", "openai", "https://api.x.ai/v1"], ["Moonshot AI", "openai", "https://api.moonshot.ai/v1"],
  ["Ollama", "messages", "http://127.0.0.1:11434"], ["LM Studio", "openai", "http://127.0.0.1:1234/v1"], ["llama.cpp", "openai", "http://127.0.0.1:8080/v1"], ["vLLM", "openai", "http://127.0.0.1:8000/v1"]];
/** Base URL of OpenAI's own server. */
export const OPENAI = "https://api.openai.com/v1";
const CARDS = ["Anthropic", "OpenAI", "Google Gemini", "Mistral", "DeepSeek", "OpenRouter", "Ollama", "LM Studio"];
const OTHER = "other";
/** Settings of key and address, by API. @type {Record<string, [string, string]>} */
const PAIRS = { messages: ["ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"], openai: ["OPENAI_API_KEY", "OPENAI_BASE_URL"] };
const MODEL = "EVERTALK_MODEL";

/**
 * A field of the form: `text` is the typed or stored value ("set" for a secret), `put` types a value, `rename` changes the label.
 * @typedef {{node: HTMLElement, text: () => string, kept: () => boolean, stored: () => string, locked: () => boolean, put: (text: string | null) => void, rename: (label: string) => void, explain: (help: string) => void}} Field
 */

/** Returns the cards of providers, of which one is chosen; a choice types into the fields that `fieldOf` finds. @param {(name: string) => Field} fieldOf @param {boolean} may @param {AbortSignal} signal */
export function providerCards(fieldOf, may, signal) {
  const models = h("datalist", { id: "chat-models" });
  let listed = "";
  const lost = h("p", { class: "small warn-text", role: "status" });
  let picked = "";
  const radios = [...CARDS, OTHER].map((name) => h("input", { type: "radio", name: "provider", value: name, onchange: () => pick(name) }));
  /** @param {string} name */
  const called = (name) => name === OTHER ? t("Another server") : name;
  /** @param {string} name */
  const hostOf = (name) => { const [, wire, url] = PROVIDERS.find(([one]) => one === name) ?? []; return url === undefined ? "Chat Completions" : new URL(url || (wire === "openai" ? OPENAI : "https://api.anthropic.com")).host; };

  /** Returns the card that fits the settings; if both are set, Anthropic takes precedence over OpenAI. */
  function current() {
    const wire = fieldOf("ANTHROPIC_API_KEY").text() || fieldOf("ANTHROPIC_BASE_URL").text() || !(fieldOf("OPENAI_API_KEY").text() || fieldOf("OPENAI_BASE_URL").text()) ? "messages" : "openai";
    const url = fieldOf(PAIRS[wire][1]).text();
    const name = PROVIDERS.find((one) => one[1] === wire && one[2] === url)?.[0] ?? "";
    return { wire, name: CARDS.includes(name) ? name : wire === "messages" ? "Anthropic" : OTHER };
  }

  /** Fills in the choice; a key that was stored for another address is removed, since it must not be sent elsewhere. @param {string} name */
  function pick(name) {
    const former = current();
    const [, wire, url] = PROVIDERS.find(([one]) => one === name) ?? ["", "openai", former.name === OTHER ? fieldOf("OPENAI_BASE_URL").text() : ""];
    const [key, address] = PAIRS[wire].map(fieldOf);
    if (key.kept() && address.stored() !== url) key.put(null);
    else if (address.text() !== url || !key.text()) key.put("");
    address.put(url);
    if (wire === "openai") for (const one of PAIRS.messages.map(fieldOf)) one.put(one.kept() ? null : "");
    fieldOf(MODEL).put("");
    picked = name;
    paint();
    list();
    (name === OTHER ? address : key).node.querySelector("input")?.focus();
  }

  /** Lists the models of a Chat Completions server, since such a server has no default model. */
  async function list() {
    const [key, address] = PAIRS.openai.map(fieldOf);
    const of = { base_url: address.text() || OPENAI, key: key.kept() && key.text() === "set" ? "" : key.text() };
    if (key.node.hidden || JSON.stringify(of) === listed || !(of.key || key.kept() || /^https?:\/\/(127\.|localhost)/.test(of.base_url))) return;
    listed = JSON.stringify(of);
    try {
      const { servers } = await ask("/settings/models", { method: "POST", body: of, signal });
      if (JSON.stringify(of) === listed) show(models, servers.flatMap((server) => server.models.map((one) => h("option", { value: one }))));
    } catch { show(models); }
  }
  for (const one of PAIRS.openai.map(fieldOf)) one.node.addEventListener("change", list);
  set(/** @type {Element} */ (fieldOf(MODEL).node.querySelector("input")), { list: models.id });

  function paint() {
    const now = current();
    const name = picked || now.name;
    const wire = name === OTHER ? "openai" : PROVIDERS.find(([one]) => one === name)?.[1] ?? now.wire;
    const locked = Object.values(PAIRS).flat().some((one) => fieldOf(one).locked());
    for (const one of radios) { one.checked = one.value === name; one.disabled = !may || locked; }
    for (const [api, pair] of Object.entries(PAIRS)) {
      const [key, address] = pair.map(fieldOf);
      for (const one of [key, address]) one.node.hidden = api !== wire;
      const other = api === wire && name === OTHER;
      const provider = api === wire ? name : api === "messages" ? "Anthropic" : "OpenAI";
      key.rename(other ? t("Key") : t("{provider}: key", { provider }));
      address.rename(other ? t("Address") : t("{provider}: address", { provider }));
    }
    fieldOf(MODEL).explain(wire === "openai" ? t("Needed with this provider; its models are listed once it has the key.") : t("Answers people; if empty, chosen from the account's models."));
    const [hidden] = PAIRS[wire === "openai" ? "messages" : "openai"].map(fieldOf);
    show(lost, wire === "openai" && hidden.kept() && !hidden.text() && [t("{provider}: key", { provider: "Anthropic" }), " – ", t("Removed when you save.")]);
  }

  const node = h("fieldset", { class: "providers" }, h("legend", null, t("Which provider?")),
    h("div", { class: "provider-cards" }, radios.map((one) => h("label", { class: "provider-card" }, one, h("span", null, h("b", { translate: one.value === OTHER ? null : "no" }, called(one.value)), h("span", { class: "small muted", dir: "ltr", translate: "no" }, hostOf(one.value)))))), lost, models);
  return { node, paint, /** Follows what is stored. */ follow() { picked = ""; paint(); } };
}
