/** A form of settings, drawn from the server's description of each. Typed text survives errors, reloads and others' changes. */
import { targetsCard } from "./alerts.js";
import { choice, code, tick } from "./forms.js";
import { ask } from "./net.js";
import { card, chatButton, h, labelOf, named, problem, set, show, t, time, ts } from "./parts.js";
import { providerCards } from "./settings_providers.js";
import { rowsField, secretsOf } from "./settings_rows.js";

/** Typed values of all forms, by setting; null removes a setting. @type {Map<string, string | null>} */
const typed = new Map();
/** Restores typed text after a new login; secrets are kept in the form only. @param {string} who @param {Api["Setting"][]} rows */
function recall(who, rows) {
  const key = `evertalk.settings.${who}`;
  const secrets = new Set(rows.filter((one) => one.secret).map((one) => one.name));
  try { for (const [name, text] of JSON.parse(sessionStorage.getItem(key) ?? "[]")) if (!typed.has(name)) typed.set(name, text); } catch { /* nothing is kept in this browser */ }
  addEventListener("pagehide", () => { try { sessionStorage.setItem(key, JSON.stringify([...typed].filter(([name]) => !secrets.has(name)))); } catch { /* nor now */ } });
}
let recalled = false;
const FOLLOWS_MS = 60_000;
const AGAIN_MS = 1000;
/** @param {number} ms */
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/**
 * Returns the form of one section of settings; text that was typed but not saved is kept.
 * @param {import("./settings_fields.js").Section} section
 * @param {{now: () => any, took: (answer: any) => void, may: boolean, who: string, say: (words: string) => void, signal: AbortSignal}} page `now` is the newest answer of the server, `took` hears of a newer one
 */
export function settingsForm(section, { now, took, may, who, say, signal }) {
  if (!recalled) recall(who, now().settings);
  recalled = true;
  const rowOf = (/** @type {string} */ name) => now().settings.find((/** @type {Api["Setting"]} */ one) => one.name === name);
  const changes = () => Object.fromEntries([...typed].filter(([name]) => names.has(name)));
  const all = [...section.fields.map(([name, label, help = ""]) => [name, label, help]), ...section.rare ?? []];
  const fields = all.map(([name, label, help]) => ["models", "bots"].includes(rowOf(name).kind) ? rowsField(rowOf(name), label, may, { typed, rowOf, changes, signal }) : field(rowOf(name), label, may, { help, told: () => cards?.paint() }));
  const names = new Set(all.flatMap(([name]) => [name, secretsOf(rowOf(name).kind)]));
  const cards = section.id === "model" ? providerCards((name) => /** @type {any} */ (fields.find((one) => one.name === name)), may, signal) : null;
  const rare = fields.slice(section.fields.length);
  const folded = rare.length > 0 && h("details", { open: rare.some((one) => rowOf(one.name).stored !== null) }, h("summary", null, t("More settings")), h("div", { class: "settings-fields" }, rare.map((one) => one.node)));
  const reply = h("div", { class: "stack", role: "status" });
  const tested = h("div", { class: "stack", role: "status" });
  const save = h("button", { type: "submit", class: "solid" }, t("Save"));

  /** Updates all fields except those with typed text. */
  function sync() {
    for (const one of fields) one.sync(rowOf(one.name));
    if (Object.keys(changes()).length) cards?.paint(); else cards?.follow();
  }

  /** @param {Api["AllSettings"]} answer */
  function take(answer) {
    took(answer);
    sync();
  }

  /** @param {Api["SettingProblem"][]} problems by name */
  function refuse(problems) {
    for (const one of fields) one.refuse(problems.find((two) => two.name === one.name)?.reason ?? "");
    const others = problems.filter((one) => !names.has(one.name));
    show(reply, h("p", { class: "crit-text" }, t("This cannot be used; nothing was changed.")), others.length > 0 && h("ul", { class: "findings crit-text" }, others.map((one) => h("li", null, labelOf(one.name), ": ", h("span", { dir: "auto" }, ts(one.reason))))));
    lead(fields.find((one) => problems.some((two) => two.name === one.name)));
  }

  /** Moves the focus to a field, and unfolds it. @param {{node: HTMLElement, focus: () => void} | undefined} one */
  function lead(one) {
    const fold = one?.node.closest("details");
    if (fold) fold.open = true;
    one?.focus();
  }

  /** Shows both versions after another operator has changed a setting. @param {any} details */
  function conflict({ changed, theirs }) {
    took(theirs);
    const both = changed.filter((/** @type {any} */ one) => typed.has(one.name));
    sync();
    const mine = h("button", { type: "button", class: "solid", onclick: () => store() }, t("Save mine"));
    show(reply, h("div", { class: "trouble", role: "alert" }, h("p", null, t("Another operator changed this meanwhile: your changes were not saved.")),
      h("ul", { class: "findings" }, changed.map((/** @type {any} */ one) => h("li", null, h("bdi", null, one.by), ", ", time(one.at), ": ", labelOf(one.name), ": ", h("code", null, one.value ?? "–")))),
      h("p", { class: "actions" }, mine, both.length > 0 && h("button", { type: "button", class: "line", onclick: () => { for (const one of both) typed.delete(one.name); sync(); show(reply); save.focus(); } }, t("Take theirs")))));
    mine.focus();
  }

  async function store() {
    const wanted = changes();
    if (!Object.keys(wanted).length) return show(reply, h("p", { class: "muted" }, t("Nothing was changed.")));
    for (const one of fields) one.refuse("");
    show(reply);
    try {
      const saved = await ask("/settings", { method: "PUT", body: { changes: wanted }, match: `"${now().version}"`, signal });
      for (const [name, text] of Object.entries(wanted)) if (typed.get(name) === text) typed.delete(name);
      take(saved);
      show(reply, h("p", { class: "done" }, t("Saved. A running Evertalk follows within two seconds.")));
      say(t("Saved."));
      await follow();
    } catch (/** @type {any} */ error) {
      if (signal.aborted) return;
      if (error.code === "bad_settings") refuse(error.details.problems);
      else if (error.code === "stale") conflict(error.details);
      else show(reply, problem(error, store));
    }
  }

  /** Waits until the web process uses the stored settings, at most for `FOLLOWS_MS`. */
  async function follow() {
    const until = Date.now() + FOLLOWS_MS;
    const waits = () => now().pending.some((/** @type {string} */ name) => names.has(name));
    if (!waits()) return;
    while (waits() && Date.now() < until) {
      await pause(AGAIN_MS);
      if (signal.aborted) return;
      try { take(await ask("/settings", { signal })); } catch { /* the next look decides */ }
    }
    if (!signal.aborted && !waits() && !Object.keys(changes()).length) show(reply, h("p", { class: "done actions" }, t("Saved, and in force."), section.id === "model" && chatButton()));
  }

  /** @param {"model" | "voice" | "speech" | "pictures" | "recall" | "telegram" | "alerts" | "backups"} what */
  async function test(what) {
    show(tested, h("p", { class: "muted" }, t("Testing…")));
    try {
      if (what === "alerts") return await testAlerts();
      const found = await ask("/settings/test", { method: "POST", body: { what, changes: changes() }, signal, seconds: 45 });
      show(tested, h("p", { class: found.ok ? "done" : "crit-text" }, ts(found.message)), found.reason && h("p", { class: "words small", dir: "auto" }, named(found.reason)));
    } catch (/** @type {any} */ error) {
      if (signal.aborted) return;
      if (error.code === "bad_settings") { show(tested); refuse(error.details.problems); }
      else show(tested, problem(error));
    }
  }

  /** Sends a test alert with the stored settings. */
  async function testAlerts() {
    if (Object.keys(changes()).length) return show(tested, h("p", { class: "crit-text" }, t("Save first: the test uses stored values.")));
    await ask("/alerts/test", { method: "POST", signal });
    for (const until = Date.now() + FOLLOWS_MS; ;) {
      const page = await ask("/alerts?limit=1", { refresh: true, signal });
      show(tested, targetsCard(page));
      if (Date.now() > until || !page.targets.some((one) => ["due", "sending"].includes(one.state ?? ""))) return;
      await pause(AGAIN_MS);
    }
  }

  const form = h("form", { class: "site-form", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); store(); } },
    h("p", { class: "muted" }, section.help), section.more && h("p", { class: "small" }, h("a", { href: section.more[0] }, section.more[1])),
    cards?.node, h("div", { class: "settings-fields" }, fields.slice(0, section.fields.length).map((one) => one.node)), folded, reply, tested,
    may ? h("p", { class: "actions" }, save, section.test && h("button", { type: "button", class: "line", onclick: () => test(/** @type {any} */ (section.test)) }, t("Test"))) : h("p", { class: "muted small" }, t("Only an admin can change them.")));
  cards?.paint();
  return { node: card(section.name, [form]), sync, lead: (/** @type {string} */ name) => lead(fields.find((one) => one.name === name)) };
}

/** Returns the meaning of a setting as a sentence, with labels instead of variables. @param {string} meaning */
const sentence = (meaning) => meaning && `${named(meaning[0].toUpperCase() + meaning.slice(1))}.`;

/** Returns how a setting is drawn, filled and read; its default is the placeholder. @param {Api["Setting"]} row @param {string | null} usual */
function kindOf({ kind, choices }, usual) {
  if (kind === "switch") return tick();
  if (kind === "choice") return choice([["", usual ? `${t("default")} (${usual})` : t("default")], ...(choices ?? []).map((one) => [one, one])]);
  return code({ type: kind === "secret" ? "password" : "text", inputmode: kind === "number" ? "decimal" : null, autocomplete: kind === "secret" ? "new-password" : "off", maxlength: 8000, placeholder: usual });
}

/**
 * Draws one setting: its label, its control, its meaning, and who set it.
 * @param {Api["Setting"]} row @param {string} label @param {boolean} may @param {{help?: string, told: () => void}} more `told` hears of each change
 */
function field(row, label, may, { help, told: heard }) {
  const { name, kind } = row;
  const id = `set-${name.toLowerCase()}`;
  const usual = kind === "secret" || ["", "none"].includes(row.default) ? null : row.default;
  const error = h("p", { class: "crit-text small", id: `${id}-error` });
  const state = h("p", { class: "small muted", id: `${id}-state` });
  const told = { id, name, "aria-describedby": `${id}-state ${id}-error ${id}-help`, oninput: () => type(read()) };
  const how = kindOf(row, usual);
  const title = h("span", null, label);
  const meaning = h("p", { class: "small muted meaning", id: `${id}-help`, dir: "auto" }, help ?? sentence(kind === "switch" ? row.meaning.replace(/^true /, "") : row.meaning));
  const input = how.make(null);
  set(input, told);
  const drop = kind === "secret" && h("button", { type: "button", class: "line", "aria-label": t("Remove {name}", { name: label }), onclick: () => { input.value = ""; type(typed.get(name) === null ? undefined : null); paint(); } }, t("Remove"));
  let now = row;

  const read = () => String(how.read(input, null, null) ?? "");
  /** Returns the initial value of a field. */
  function before() {
    const text = now.editable ? now.stored ?? "" : now.value ?? "";
    return kind === "secret" || (kind === "switch" && text !== "true") ? "" : text;
  }

  /** @param {string | null | undefined} text */
  function type(text) {
    if (text === undefined || text === before()) typed.delete(name);
    else typed.set(name, text || null);
    refuse("");
    paint();
    heard();
  }

  /** @param {string} reason */
  function refuse(reason) {
    set(input, { "aria-invalid": reason ? "true" : null });
    show(error, reason && h("span", { dir: "auto" }, [title.textContent, ": ", ts(reason)]));
  }

  function paint() {
    const gone = typed.get(name) === null && kind === "secret";
    const by = now.editable ? now.stored !== null && t("set by {who}, {time}", { who: h("bdi", null, now.changed_by), time: time(now.changed_at) })
      : ["environment", "file"].includes(now.from ?? "") ? t("Set in the environment, which wins.") : t("Its key is set in the environment: set the address there, too.");
    show(state, kind === "secret" && (gone ? [t("Removed when you save."), " "] : now.editable ? now.stored !== null && [t("A value is set and never shown."), " "] : null), by);
    if (drop) set(drop, { hidden: !may || !now.editable || now.stored === null, "aria-pressed": String(gone) });
  }

  /** @param {Api["Setting"]} row */
  function sync(row) {
    now = row;
    set(input, { disabled: !may || !now.editable });
    const text = typed.get(name) ?? (typed.has(name) ? "" : before());
    if (read() !== text) how.fill(input, kind === "switch" ? text === "true" : text);
    paint();
  }

  sync(row);
  const words = h("label", { for: id, class: kind === "switch" ? "tick" : null }, kind === "switch" && input, title);
  return { name, sync, refuse, focus: () => input.focus(),
    text: () => typed.has(name) ? typed.get(name) ?? "" : kind === "secret" ? now.editable ? now.stored ?? "" : now.value === "set" ? "set" : "" : before(),
    kept: () => now.editable && now.stored !== null, stored: () => now.stored ?? "", locked: () => !now.editable,
    put(/** @type {string | null} */ text) {
      if (!now.editable) return;
      how.fill(input, text);
      type(text);
    },
    explain(/** @type {string} */ text) { show(meaning, text); },
    rename(/** @type {string} */ text) { show(title, text); if (drop) set(drop, { "aria-label": t("Remove {name}", { name: text }) }); },
    node: h("div", { class: "setting-field" }, words, kind !== "switch" && (drop ? h("div", { class: "setting-secret" }, input, drop) : input), error, state,
meaning) };
}
