/** Settings that are lists: models beside the first one, and bots, each with a secret that is never shown again. */
import { ask } from "./net.js";
import { h, problem, set, show, t, ts } from "./parts.js";

/** Providers by name: which API they speak, and where; an address that is left out is the usual one. */
const PROVIDERS = [["Anthropic", "messages", ""], ["OpenAI", "openai", ""], ["OpenRouter", "openai", "https://openrouter.ai/api/v1"], ["Google Gemini", "openai", "https://generativelanguage.googleapis.com/v1beta/openai"],
  ["Mistral", "openai", "https://api.mistral.ai/v1"], ["DeepSeek", "openai", "https://api.deepseek.com/v1"], ["Groq", "openai", "https://api.groq.com/openai/v1"], ["xAI", "openai", "https://api.x.ai/v1"], ["Moonshot AI", "openai", "https://api.moonshot.ai/v1"],
  ["Ollama", "messages", "http://127.0.0.1:11434"], ["LM Studio", "openai", "http://127.0.0.1:1234/v1"], ["llama.cpp", "openai", "http://127.0.0.1:8080/v1"], ["vLLM", "openai", "http://127.0.0.1:8000/v1"]];
const OPENAI = "https://api.openai.com/v1";
const SECRETS = { models: "EVERTALK_MODEL_KEYS", bots: "EVERTALK_TELEGRAM_TOKENS" };
const WORDS = { models: { add: t("Add a model"), none: t("No other model is set.") }, bots: { add: t("Add a bot"), none: t("No other bot is set.") } };
const ACCESS = { "": t("as the first bot"), pairing: "pairing", allowlist: "allowlist", open: "open" };
const AUDIENCE = { "": t("as the first bot"), personal: "personal", public: "public" };
let count = 0;

/** The setting that holds the secrets of such a list. @param {string} kind */
export const secretsOf = (kind) => SECRETS[/** @type {"models" | "bots"} */ (kind)] ?? "";

/**
 * @param {Api["Setting"]} row @param {string} label @param {boolean} may
 * @param {{typed: Map<string, string | null>, rowOf: (name: string) => any, changes: () => Record<string, string | null>, signal: AbortSignal}} form
 */
export function rowsField(row, label, may, { typed, rowOf, changes, signal }) {
  const { name } = row, kind = /** @type {"models" | "bots"} */ (row.kind), secrets = SECRETS[kind];
  const list = h("div", { class: "stack" });
  const error = h("p", { class: "crit-text small", role: "alert" });
  const found = h("div", { class: "actions" });
  const add = h("button", { type: "button", class: "line", onclick: () => { entries.push(kind === "models" ? { name: "", wire: "openai" } : {}); changed(); draw(); list.lastElementChild?.querySelector("input")?.focus(); } }, WORDS[kind].add);
  const search = kind === "models" && h("button", { type: "button", class: "line", onclick: look }, t("Look for models on this machine"));
  /** @type {any[]} */
  let entries = [];
  let now = row;
  let drawn = "";
  /** @type {any[]} */
  let places = [];

  const before = () => (now.editable ? now.stored : now.value) ?? "";
  /** Returns the purposes of stored secrets. */
  const known = () => new Set((rowOf(secrets)?.stored ?? "").split(" ").filter(Boolean));
  /** @param {string} text */
  const seen = (text) => `${text} ${rowOf(secrets)?.stored}`;
  /** @returns {Record<string, string | null>} */
  const given = () => JSON.parse(typed.get(secrets) ?? "{}");

  /** @param {string} place @param {string | null | undefined} secret */
  function keep(place, secret) {
    const next = given();
    if (secret === undefined || (secret === null && !known().has(place))) delete next[place]; else next[place] = secret;
    Object.keys(next).length ? typed.set(secrets, JSON.stringify(next)) : typed.delete(secrets);
  }

  function changed() {
    const text = entries.length ? JSON.stringify(entries) : "";
    drawn = seen(text);
    text === before() ? typed.delete(name) : typed.set(name, text || null);
    show(error);
  }

  /** @param {any} entry @param {string} field @param {any} value what is empty is left out */
  function write(entry, field, value) {
    if (value === "" || value === undefined || (Array.isArray(value) && !value.length)) delete entry[field]; else entry[field] = value;
    changed();
  }

  /** @param {string} words @param {any} value @param {(text: string) => void} put @param {any} [more] */
  const asks = (words, value, put, more = {}) => h("label", null, h("span", null, words), h("input", { type: "text", value: value ?? "", dir: "ltr", autocomplete: "off", autocapitalize: "none", spellcheck: "false", ...more, oninput: (/** @type {any} */ event) => put(event.target.value.trim()) }));
  /** @param {string} words @param {string} place @param {(secret: string) => void} put */
  const asksSecret = (words, place, put) => h("label", null, h("span", null, words), h("input", { type: "password", dir: "ltr", autocomplete: "new-password", value: given()[place] ?? "", placeholder: known().has(place) ? t("set, never shown") : "", oninput: (/** @type {any} */ event) => put(event.target.value.trim()) }));
  /** @param {string} words @param {Record<string, string>} choices @param {string} value @param {(value: string) => void} put */
  const chooses = (words, choices, value, put) => h("label", null, h("span", null, words), h("select", { onchange: (/** @type {any} */ event) => put(event.target.value) }, Object.entries(choices).map(([one, said]) => h("option", { value: one, selected: one === value }, said))));
  /** @param {string} text */
  const figure = (text) => text === "" ? "" : Number.isFinite(Number(text)) ? Number(text) : text;
  /** @param {string} text */
  const several = (text) => text.split(/[\s,]+/).filter(Boolean);

  /** @param {any} entry @param {HTMLElement} told @param {HTMLElement} heading @param {HTMLElement} tools */
  function modelFields(entry, told, heading, tools) {
    const id = `models-${count += 1}`, ids = h("datalist", { id });
    const at = PROVIDERS.findIndex(([, wire, url]) => wire === (entry.wire ?? "messages") && url === (entry.base_url ?? ""));
    const address = () => entry.base_url ?? (entry.wire && entry.wire !== "messages" ? OPENAI : "");
    /** @param {string} field @param {string} text */
    const price = (field, text) => { const prices = { ...entry.prices, [field]: figure(text) }; if (text === "") delete prices[field]; write(entry, "prices", Object.keys(prices).length ? prices : ""); };
    async function listed() {
      try {
        const typedKey = entry.base_url ? given()[entry.base_url] : typed.get("OPENAI_API_KEY");
        const { servers: [server], message } = await ask("/settings/models", { method: "POST", body: { base_url: address(), key: typedKey ?? "" }, signal });
        show(ids, (server?.models ?? []).map((/** @type {string} */ one) => h("option", { value: one })));
        show(told, server ? t("The models are listed where its name is typed.") : ts(message));
      } catch (failed) { if (!signal.aborted) show(told, problem(failed)); }
    }
    show(tools, address() && h("button", { type: "button", class: "line", onclick: listed }, t("List its models")));
    return [
      asks(t("Name"), entry.name, (text) => { write(entry, "name", text); show(heading, text || t("New model")); }),
      chooses(t("Provider"), Object.fromEntries([...PROVIDERS.map(([who], place) => [String(place), who]), ["other", t("Another server")]]), at < 0 ? "other" : String(at), (value) => {
        const [, wire, url] = PROVIDERS[Number(value)] ?? ["", "openai", "https://"];
        write(entry, "wire", wire); write(entry, "base_url", url); draw();
      }),
      at < 0 && asks(t("Address"), entry.base_url, (text) => write(entry, "base_url", text), { inputmode: "url" }),
      at < 0 && chooses("API", { openai: "Chat Completions", responses: "Responses", messages: "Messages" }, entry.wire ?? "messages", (wire) => write(entry, "wire", wire)),
      asks(t("Its name there"), entry.model, (text) => write(entry, "model", text), { list: id, placeholder: entry.name ?? "" }), ids,
      entry.base_url ? asksSecret(t("Key"), entry.base_url, (secret) => keep(entry.base_url, secret || undefined)) : h("p", { class: "small muted" }, t("Its key is the one above.")),
      asks(t("Context window"), entry.window, (text) => write(entry, "window", figure(text)), { inputmode: "numeric", placeholder: t("as the server says") }),
      asks(t("Dollars per million tokens in"), entry.prices?.input, (text) => price("input", text), { inputmode: "decimal" }),
      asks(t("Dollars per million tokens out"), entry.prices?.output, (text) => price("output", text), { inputmode: "decimal" }),
      asks(t("Dollars per million tokens from the cache"), entry.prices?.cache_read, (text) => price("cache_read", text), { inputmode: "decimal" }),
      asks(t("Fallback models"), [entry.fallback ?? []].flat().join(", "), (text) => write(entry, "fallback", several(text))),
      h("label", { class: "tick" }, h("input", { type: "checkbox", checked: Boolean(entry.capabilities?.includes("images")), onchange: (/** @type {any} */ event) => write(entry, "capabilities", event.target.checked ? ["tools", ...(entry.wire && entry.wire !== "messages" ? ["json"] : []), "images"] : "") }), h("span", null, t("It sees pictures"))),
    ];
  }

  /** @param {any} entry @param {HTMLElement} _told @param {HTMLElement} heading */
  function botFields(entry, _told, heading) {
    return [
      asksSecret(t("Token of the bot"), entry.token_env ?? "", (secret) => {
        const [id] = secret.split(":");
        if (entry.token_env && entry.token_env !== id) keep(entry.token_env, null);
        write(entry, "token_env", id);
        if (id) keep(id, secret);
        show(heading, id ? t("Bot {id}", { id }) : t("New bot"));
      }),
      asks(t("Agent"), entry.agent, (text) => write(entry, "agent", text), { placeholder: "default" }),
      chooses(t("Who may write"), ACCESS, entry.access ?? "", (value) => write(entry, "access", value)),
      chooses(t("Audience"), AUDIENCE, entry.audience ?? "", (value) => write(entry, "audience", value)),
      asks(t("Allowed people and groups"), (entry.allowed ?? []).join(", "), (text) => write(entry, "allowed", several(text).map(figure))),
    ];
  }

  /** @param {any} entry */
  function entryNode(entry) {
    const told = h("p", { class: "small", role: "status" });
    const which = () => kind === "models" ? entry.name : entry.token_env;
    const heading = h("span", null, kind === "models" ? entry.name || t("New model") : entry.token_env ? t("Bot {id}", { id: entry.token_env }) : t("New bot"));
    const tools = h("span");
    async function test() {
      show(told, t("Testing…"));
      try {
        const answer = await ask("/settings/test", { method: "POST", body: { what: kind === "models" ? "model" : "telegram", name: which() ?? "", changes: changes() }, signal, seconds: 45 });
        show(told, h("span", { class: answer.ok ? "done" : "crit-text" }, ts(answer.message), answer.reason && ` ${answer.reason}`));
      } catch (/** @type {any} */ failed) {
        if (signal.aborted) return;
        show(told);
        if (failed.code === "bad_settings") refuse(failed.details.problems.map((/** @type {any} */ one) => one.reason).join(" ")); else show(told, problem(failed));
      }
    }
    function remove() {
      entries = entries.filter((one) => one !== entry);
      const place = kind === "models" ? entry.base_url : entry.token_env;
      if (place && !entries.some((one) => (one.base_url ?? one.token_env) === place)) keep(place, null);
      changed();
      draw();
      add.focus();
    }
    const node = h("fieldset", { disabled: !may || !now.editable }, h("legend", { dir: "auto" }, heading), h("div", { class: "pair" }, (kind === "models" ? modelFields : botFields)(entry, told, heading, tools)), told,
      may && h("p", { class: "actions" }, tools, h("button", { type: "button", class: "line", onclick: test }, t("Test")), h("button", { type: "button", class: "line", onclick: remove }, t("Remove"))));
    return { node, told };
  }

  function draw() {
    places = entries.map(entryNode);
    show(list, places.length ? places.map((one) => one.node) : h("p", { class: "muted small" }, WORDS[kind].none));
  }

  async function look() {
    show(found, t("Testing…"));
    try {
      const { servers, message } = await ask("/settings/models", { method: "POST", body: {}, signal });
      show(found, message ? ts(message) : servers.flatMap((server) => server.models.map((/** @type {string} */ model) => h("button", { type: "button", class: "line", onclick: () => {
        entries.push({ name: model, wire: server.wire, base_url: server.base_url });
        changed(); draw();
      } }, t("Add {model} of {server}", { model, server: server.name })))));
    } catch (failed) { if (!signal.aborted) show(found, problem(failed)); }
  }

  /** @param {string} reason the number in it says whose */
  function refuse(reason) {
    for (const one of places) set(one.node, { "aria-invalid": null });
    const at = places[Number(/(?:model|entry) (\d+)/.exec(reason)?.[1]) - 1];
    show(at ? at.told : error, reason && h("span", { class: "crit-text", dir: "auto" }, ts(reason)));
    if (at) set(at.node, { "aria-invalid": "true" });
  }

  /** @param {Api["Setting"]} row */
  function sync(row) {
    now = row;
    const text = typed.has(name) ? typed.get(name) ?? "" : before();
    if (seen(text) === drawn) return;
    drawn = seen(text);
    try { entries = JSON.parse(text || "[]"); } catch { entries = []; }
    draw();
    set(add, { hidden: !may || !row.editable });
    if (search) set(search, { hidden: !may || !row.editable });
  }

  sync(row);
  const focus = () => (places.find((one) => one.node.getAttribute("aria-invalid"))?.node.querySelector("input") ?? add).focus();
  return { name, sync, refuse, focus, node: h("div", { class: "setting-rows" }, h("h3", null, label), list, error, found, h("p", { class: "actions" }, add, search)) };
}
