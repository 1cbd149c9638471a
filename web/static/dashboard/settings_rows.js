/** Settings that are lists: further models, and bots, each with a secret that is never shown again. */
import { ask } from "./net.js";
import { OPENAI, PROVIDERS } from "./settings_providers.js";
import { choice, code, figure, figured, formOf, putAt, several, tick, valueAt } from "./forms.js";
import { h, named, problem, set, show, t, ts } from "./parts.js";

const SECRETS = { models: "EVERTALK_MODEL_KEYS", bots: "EVERTALK_TELEGRAM_TOKENS" };
const WORDS = { models: { add: t("Add a model"), none: t("No other model is set.") }, bots: { add: t("Add a bot"), none: t("No other bot is set.") } };
const SECRET = "secret", PROVIDER = "provider";
const USUAL = t("same as the first bot");
/** A control for a secret; its placeholder tells whether one is stored. @type {import("./forms.js").Kind} */
const secret = { ...code(), make: ({ stored }) => h("input", { type: "password", dir: "ltr", autocomplete: "new-password", placeholder: stored ? t("set, never shown") : "" }) };
/** A control that sets API and address at once. @type {import("./forms.js").Kind} */
const provider = {
  ...choice([...PROVIDERS.map(([who], place) => [place, who]), ["other", t("Another server")]], { stored: true }),
  fill: (field, entry) => { field.value = isOther(entry) ? "other" : String(providerOf(entry)); },
  read: (field) => { const [, wire, base_url] = PROVIDERS[Number(field.value)] ?? ["", "openai", "https://"]; return { wire, base_url }; },
};
/** Abilities of a model that sees pictures, by its API. @type {import("./forms.js").Kind} */
const pictures = { ...tick(), fill: (field, value) => { field.checked = Boolean(value?.includes("images")); },
  read: (field, _, { entry }) => field.checked ? ["tools", ...(entry.wire && entry.wire !== "messages" ? ["json"] : []), "images"] : undefined };

/** @param {any} entry */
const providerOf = (entry) => PROVIDERS.findIndex(([, wire, url]) => wire === (entry.wire ?? "messages") && url === (entry.base_url ?? ""));
/** @param {any} entry */
const isOther = (entry) => providerOf(entry) < 0;
/** @param {any} entry */
const addressOf = (entry) => entry.base_url ?? (entry.wire && entry.wire !== "messages" ? OPENAI : "");

/** Returns the controls of a model. One on another server has an address, an API and a separate key. @param {any} entry @param {string} ids @returns {import("./forms.js").Control[]} */
const modelControls = (entry, ids) => [
  { path: "name", label: t("Name"), kind: code() },
  { path: PROVIDER, label: t("Provider"), kind: provider, help: !entry.base_url && t("Uses the key above.") },
  ...isOther(entry) ? [{ path: "base_url", label: t("Address"), kind: code({ inputmode: "url" }) },
    { path: "wire", label: "API", kind: choice([["messages", "Messages"], ["openai", "Chat Completions"], ["responses", "Responses"]]) }] : [],
  { path: "model", label: t("Model ID"), kind: code({ list: ids, placeholder: entry.name ?? "" }) },
  ...entry.base_url ? [{ path: SECRET, label: t("Key"), kind: secret }] : [],
  { path: "window", label: t("Context window"), kind: figure({ inputmode: "numeric" }, t("as reported by the server")) },
  { path: "prices.input", label: t("Dollars per million tokens in"), kind: figure() },
  { path: "prices.output", label: t("Dollars per million tokens out"), kind: figure() },
  { path: "prices.cache_read", label: t("Dollars per million tokens from the cache"), kind: figure() },
  { path: "fallback", label: t("Fallback models"), kind: several() },
  { path: "capabilities", label: t("It sees pictures"), kind: pictures },
];
/** @type {import("./forms.js").Control[]} */
const BOT = [
  { path: SECRET, label: t("Token of the bot"), kind: secret },
  { path: "agent", label: t("Agent"), kind: code({ placeholder: "default" }) },
  { path: "access", label: t("Who may write"), kind: choice([["", USUAL], ["pairing", "pairing"], ["allowlist", "allowlist"], ["open", "open"]]) },
  { path: "audience", label: t("Audience"), kind: choice([["", USUAL], ["personal", "personal"], ["public", "public"]]) },
  { path: "allowed", label: t("Allowed people and groups"), kind: several({}, figured) },
];
let count = 0;

/** Returns the setting that holds the secrets of such a list; "" if there is none. @param {string} kind */
export const secretsOf = (kind) => SECRETS[/** @type {"models" | "bots"} */ (kind)] ?? "";

/**
 * Returns the field of a setting that is a list of models or bots, with controls for each entry.
 * @param {Api["Setting"]} row @param {string} label @param {boolean} may
 * @param {{typed: Map<string, string | null>, rowOf: (name: string) => any, changes: () => Record<string, string | null>, signal: AbortSignal}} form
 */
export function rowsField(row, label, may, { typed, rowOf, changes, signal }) {
  const { name } = row, kind = /** @type {"models" | "bots"} */ (row.kind), secrets = SECRETS[kind];
  const list = h("div", { class: "stack" });
  const error = h("p", { class: "crit-text small", role: "alert" });
  const found = h("div", { class: "actions" });
  const add = h("button", { type: "button", class: "line", onclick: () => { entries.push(kind === "models" ? { name: "", wire: "openai" } : {}); changed(); draw(); list.lastElementChild?.querySelector("input")?.focus(); } }, WORDS[kind].add);
  const search = kind === "models" && h("button", { type: "button", class: "line", onclick: look }, t("Find models on this machine"));
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

  /** Binds an entry to the list; its secret is kept apart. @param {any} entry @param {HTMLElement} heading */
  function bound(entry, heading) {
    const place = () => kind === "models" ? entry.base_url : entry.token_env;
    const get = (/** @type {string} */ path) => path === SECRET ? place() && given()[place()] : path === PROVIDER ? entry : valueAt(entry, path);
    /** @param {string} path @param {any} value */
    function put(path, value) {
      const former = place();
      if (path === PROVIDER) Object.assign(entry, value);
      else if (path !== SECRET) putAt(entry, path, value);
      else if (kind === "models") keep(place(), value);
      else moveToken(entry, value ?? "");
      for (const [name, one] of Object.entries(entry)) if (one === "" || one === undefined) delete entry[name];
      if (kind === "models" && former !== place()) moveKey(former, place());
      changed();
      show(heading, nameOf(entry));
      if (path === PROVIDER) draw();
    }
    return formOf(entry, { id: `entry-${count += 1}`, of: { entry, stored: known().has(place()) }, get, put });
  }

  /** Moves a key that was just typed to an entry's new address. @param {string | undefined} from @param {string | undefined} to */
  function moveKey(from, to) {
    const key = from && given()[from];
    if (!key || entries.some((one) => one.base_url === from)) return;
    keep(from, undefined);
    if (to) keep(to, key);
  }

  /** Moves a token that was just typed to its bot, which is named by the number in the token. @param {any} entry @param {string} token */
  function moveToken(entry, token) {
    const [id] = token.split(":");
    if (entry.token_env && entry.token_env !== id) keep(entry.token_env, null);
    entry.token_env = id;
    if (id) keep(id, token);
  }

  /** @param {any} entry */
  const nameOf = (entry) => kind === "models" ? entry.name || t("New model") : entry.token_env ? t("Bot {id}", { id: entry.token_env }) : t("New bot");

  /** Lists the models of an entry's server, for its name field. @param {any} entry @param {HTMLElement} told @param {HTMLElement} ids */
  async function listed(entry, told, ids) {
    try {
      const typedKey = entry.base_url ? given()[entry.base_url] : typed.get("OPENAI_API_KEY");
      const { servers: [server], message } = await ask("/settings/models", { method: "POST", body: { base_url: addressOf(entry), key: typedKey ?? "" }, signal });
      show(ids, (server?.models ?? []).map((/** @type {string} */ one) => h("option", { value: one })));
      show(told, server ? t("The models are listed where its name is typed.") : ts(message));
    } catch (failed) { if (!signal.aborted) show(told, problem(failed)); }
  }

  /** @param {any} entry */
  function entryNode(entry) {
    const told = h("p", { class: "small", role: "status" });
    const which = () => kind === "models" ? entry.name : entry.token_env;
    const heading = h("span", null, nameOf(entry));
    const ids = h("datalist", { id: `models-${count += 1}` });
    const form = bound(entry, heading);
    const controls = (kind === "models" ? modelControls(entry, ids.id) : BOT).map(form.draw);
    async function test() {
      show(told, t("Testing…"));
      try {
        const answer = await ask("/settings/test", { method: "POST", body: { what: kind === "models" ? "model" : "telegram", name: which() ?? "", changes: changes() }, signal, seconds: 45 });
        show(told, h("span", { class: answer.ok ? "done" : "crit-text" }, ts(answer.message), answer.reason && ` ${named(answer.reason)}`));
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
    const node = h("fieldset", { disabled: !may || !now.editable }, h("legend", { dir: "auto" }, heading), h("div", { class: "pair" }, controls, ids), told,
      may && h("p", { class: "actions" }, kind === "models" && addressOf(entry) && h("button", { type: "button", class: "line", onclick: () => listed(entry, told, ids) }, t("List its models")), h("button", { type: "button", class: "line", onclick: test }, t("Test")), h("button", { type: "button", class: "line", onclick: remove }, t("Remove"))));
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
