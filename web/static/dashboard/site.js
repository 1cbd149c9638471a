/** One site of the widget: where it may live, how it looks and speaks, its secrets, and a live preview. */
import { add } from "../shared/h.js";
import { languages } from "./i18n.js";
import { ask } from "./net.js";
import { card, h, notFoundPage, number, problem, show, skeleton, t, time, tn } from "./parts.js";
import { conflict, problemList, watchTyping } from "./editing.js";

const TEXTS = [["title", t("Title"), 60], ["welcome", t("Welcome"), 500], ["ai_notice", t("Notice that this is an AI"), 500], ["offline_text", t("When nobody can be reached"), 500], ["launcher_label", t("Launcher label"), 60]];
const LONG = new Set(["welcome", "ai_notice", "offline_text"]);

/** @param {Page} page */
export function sitePage({ root, id: name, me, say, entitle, signal }) {
  entitle(name);
  const path = /** @type {const} */ (`/sites/${encodeURIComponent(name)}`);
  const body = h("div", { class: "list" }, skeleton(8));
  show(root, h("div", { class: "page-head" }, h("div", null, h("p", { class: "crumbs" }, h("a", { href: "/dashboard/sites" }, t("Sites"))), h("h1", null, name))), body);

  async function load() {
    try { draw(await ask(`${path}/settings`, { signal })); }
    catch (error) {
      if (signal.aborted) return;
      if (/** @type {any} */ (error).status === 404) show(root, notFoundPage(t("There is no such site."), "/dashboard/sites", t("All sites")));
      else show(body, problem(error, load));
    }
  }

  /** @param {Api["SiteWhole"]} site @param {any} [typed] @param {any} [note] */
  function draw(site, typed = site.settings, note = null) {
    const may = me.role === "admin";
    const judge = h("div", { role: "status" });
    const reply = h("div", null, note);
    const look = preview();
    const form = fields(site, typed, may);
    const settings = () => read(form, typed);
    async function check() {
      const found = await ask(`${path}/check`, { method: "POST", body: { settings: settings(), language: look.language() }, signal });
      show(judge, problemList(found.problems));
      if (found.look) look.wear(found.look);
    }
    watchTyping(form, check, signal);
    look.node.addEventListener("change", () => check().catch(() => {}));
    form.addEventListener("submit", async (/** @type {any} */ event) => {
      event.preventDefault();
      const mine = settings();
      try {
        const saved = await ask(`${path}/settings`, { method: "PUT", body: { settings: mine }, match: `"${site.version}"`, signal });
        say(t("Saved."));
        draw(saved, saved.settings, h("p", { class: "done" }, t("Saved. A running Evertalk follows within ten seconds.")));
      } catch (/** @type {any} */ error) {
        if (signal.aborted) return;
        if (error.code === "bad_site_config") return show(judge, problemList(error.details.problems));
        show(reply, problem(error), error.code === "stale" && conflict(error.details.theirs.settings, mine, () => draw(error.details.theirs), () => draw(error.details.theirs, mine)));
      }
    });
    form.append(judge, reply, may ? h("p", { class: "actions" }, h("button", { type: "submit", class: "solid" }, t("Save")), h("span", { class: "muted small" }, t("version {number}", { number: site.version }))) : h("p", { class: "muted small" }, t("Only an admin changes a site.")));
    show(body, h("div", { class: "columns even" }, card(t("Settings"), [form]), h("div", { class: "stack" }, card(t("Preview"), [look.node]), snippet(site, say), refusals(site, may), secrets(site, may))));
    check().catch(() => {});
  }

  /** Pages that have the snippet and are not on the list. @param {Api["SiteWhole"]} site @param {boolean} may */
  function refusals(site, may) {
    const reply = h("div", { role: "status" });
    if (!site.refused.length) return null;
    return card(t("Refused pages"), [h("p", { class: "muted small" }, t("The chat was asked for there, and they are not among the origins.")),
      h("ul", { class: "plain-list" }, site.refused.map((one) => h("li", { class: "split" }, h("span", null, h("code", null, one.origin), " ", t("{number} ×, last {time}", { number: one.count, time: time(one.last_at) })),
        may && h("button", { type: "button", class: "line", "aria-label": t("Allow {origin}", { origin: one.origin }), onclick: () => allow(one.origin) }, t("Allow"))))), reply]);

    /** @param {string} origin */
    async function allow(origin) {
      try {
        const saved = await ask(`${path}/origins`, { method: "POST", body: { origin }, signal });
        say(t("{origin} is allowed.", { origin }));
        draw(saved, saved.settings, h("p", { class: "done" }, t("{origin} is allowed. A running Evertalk follows within ten seconds.", { origin })));
      } catch (error) { if (!signal.aborted) show(reply, problem(error)); }
    }
  }

  /** @param {Api["SiteWhole"]} site @param {boolean} may */
  function secrets(site, may) {
    const fresh = h("div");
    const section = card(t("Secrets that sign people in"), [
      site.secrets.length ? h("ul", { class: "plain-list" }, site.secrets.map((one) => h("li", { class: "split" }, h("span", null, h("code", null, one.id), " ", t("made {time}", { time: time(one.created_at) })),
        may && h("button", { type: "button", class: "line danger", "aria-label": t("Revoke {secret}", { secret: one.id }), onclick: () => revoke(one.id) }, t("Revoke"))))) : h("p", { class: "muted" }, t("None: everybody comes as a visitor.")),
      fresh, may && h("p", { class: "actions" }, h("button", { type: "button", class: "line", disabled: site.secrets.length > 1, onclick: add }, t("Generate secret"))),
      h("p", { class: "muted small" }, t("Two secrets can be active at once: generate the new one, put it on your server, then revoke the old one."))]);

    async function add() {
      try {
        const made = await ask(`${path}/secrets`, { method: "POST", signal });
        const now = await ask(`${path}/settings`, { signal });
        const next = secrets(now, may);
        section.replaceWith(next);
        next.querySelector(".card-head").after(h("div", { class: "fresh", role: "status" }, h("p", null, t("Secret {secret}, shown this once; keep it on your server only:", { secret: made.id })), h("p", { class: "copy-line" }, h("code", { class: "secret" }, made.secret), copier(made.secret, t("Copy the secret"), say))));
      } catch (error) { if (!signal.aborted) show(fresh, problem(error)); }
    }

    /** @param {string} secret */
    function revoke(secret) {
      show(fresh, h("div", { class: "trouble" }, h("p", null, t("Revoke {secret}? Whoever it signed in has to come with a new signature.", { secret })),
        h("p", { class: "actions" }, h("button", { type: "button", class: "solid danger", onclick: async () => {
          try {
            await ask(`${path}/secrets/${secret}`, { method: "DELETE", signal });
            say(t("The secret is revoked."));
            section.replaceWith(secrets(await ask(`${path}/settings`, { signal }), may));
          } catch (error) { if (!signal.aborted) show(fresh, problem(error)); }
        } }, t("Revoke")), h("button", { type: "button", class: "line", onclick: () => show(fresh) }, t("Cancel")))));
      /** @type {HTMLElement | null} */ (fresh.querySelector("button"))?.focus();
    }
    return section;
  }
  load();
}

/** @param {string} text @param {string} label @param {(words: string) => void} say */
function copier(text, label, say) {
  const button = h("button", { type: "button", class: "line", "aria-label": label, onclick: async () => {
    try { await navigator.clipboard.writeText(text); show(button, t("Copied")); say(t("Copied.")); } catch { say(t("It cannot be copied here: select it by hand.")); }
  } }, t("Copy"));
  return button;
}

/** @param {Api["SiteWhole"]} site @param {(words: string) => void} say */
const snippet = (site, say) => card(t("On your page"), [h("p", { class: "copy-line" }, h("code", { class: "secret", tabindex: 0 }, site.snippet), copier(site.snippet, t("Copy the snippet"), say)), h("p", { class: "muted small" }, tn("{count} visitor came so far.", "{count} visitors came so far.", site.visitors))]);

/**
 * One control of the form: it is drawn from a setting and read back into it by the same row; `null` leaves the setting out.
 * @typedef {{name: string, draw: (value: any, off: any, site: Api["SiteWhole"]) => any, read: (field: any) => any}} Control
 */

/** @param {string} name @param {(value: any, off: any, site: Api["SiteWhole"]) => any} draw @param {(field: any) => any} read @returns {Control} */
const control = (name, draw, read) => ({ name, draw, read });
const typed = (/** @type {any} */ field) => field.value.trim();
const lined = (/** @type {any} */ field) => typed(field).split("\n").map((/** @type {string} */ one) => one.trim()).filter(Boolean);
const labelled = (/** @type {string} */ label, /** @type {any} */ node) => h("label", null, h("span", null, label), node);

/** @param {string} name @param {string} label @param {number} most */
const text = (name, label, most) => control(name, (value, off) => labelled(label, LONG.has(name)
  ? area(name, value ?? "", most, 2, off) : h("input", { type: "text", name, value: value ?? "", maxlength: most, dir: "auto", autocomplete: "off", ...off })), (field) => typed(field) || null);

/** The first option is the default, and is not stored. @param {string} name @param {string} label @param {[any, string][]} options */
const choice = (name, label, options) => control(name, (value, off) => labelled(label, h("select", { name, ...off }, options.map(([one, words]) => h("option", { value: String(one), selected: one === (value ?? options[0][0]) }, words)))), (field) => {
  const chosen = options.find(([one]) => String(one) === field.value)?.[0];
  return chosen === options[0][0] ? null : chosen;
});

/** @param {string} name @param {string} label @param {boolean} usual the default, which is not stored */
const tick = (name, label, usual = false) => control(name, (value, off) => h("label", { class: "tick" }, h("input", { type: "checkbox", name, checked: value ?? usual, ...off }), h("span", null, label)), (field) => field.checked === usual ? null : field.checked);

/** @param {string} name @param {string} label @param {string} type @param {string} placeholder @param {number} most */
const code = (name, label, type, placeholder, most) => control(name, (value, off) => labelled(label, h("input", { type, dir: "ltr", name, value: value ?? "", placeholder, maxlength: most, spellcheck: "false", autocomplete: "off", ...off })), (field) => typed(field) || null);

/** The form: its parts, in rows of controls that stand beside each other. @type {[string, Control[][]][]} */
const FORM = [
  [t("Where and for whom"), [
    [control("origins", (value, off) => labelled(t("Origins of its pages, one a line"), area("origins", value.join("\n"), 8000, 2, off, "ltr")), lined)],
    [control("agent", (value, off, site) => labelled(t("Agent"), h("select", { name: "agent", ...off }, (site.agents.includes(value) ? site.agents : [value, ...site.agents]).map((one) => h("option", { value: one, selected: one === value }, one)))), typed),
      control("audience", (value, off) => labelled(t("Audience"), h("select", { name: "audience", ...off }, [["personal", t("personal: shows everything")], ["public", t("public: a plain chat")]].map(([one, words]) => h("option", { value: one, selected: one === value }, words)))), typed),
      choice("verified", t("Signed-in people"), [["off", t("off")], ["optional", t("optional")], ["required", t("required")]])],
  ]],
  [t("Look"), [[code("accent", t("Colour"), "text", "#4f46e5", 7), choice("position", t("Side"), [["", t("Follow page direction")], ["left", t("left")], ["right", t("right")]])]]],
  [t("Words"), [
    ...TEXTS.map(([name, label, most]) => [text(/** @type {string} */ (name), /** @type {string} */ (label), /** @type {number} */ (most))]),
    [control("starters", (value, off) => labelled(t("Starter questions (one per line, max 6)"), area("starters", (value ?? []).join("\n"), 600, 2, off)), (field) => lined(field).length ? lined(field) : null)],
    [code("privacy_url", t("Privacy page"), "url", "https://", 500)],
    [control("texts", (value, off) => labelled(t("The same in other languages, as JSON by language"), area("texts", value ? JSON.stringify(value, null, 2) : "", 40_000, 3, off, "ltr")), (field) => {
      if (!typed(field)) return null;
      try { return JSON.parse(typed(field)); } catch { return typed(field); }
    })],
  ]],
  [t("What visitors may"), [
    [choice("uploads", t("Send files"), [[null, t("in personal chats only")], [true, t("yes")], [false, t("no")]])],
    [choice("conversations", t("Conversations of one person"), [["one", t("one")], ["many", t("many")]])],
    [tick("handover", t("Ask for a human"), true)], [tick("memory_toasts", t("See when something is remembered"))], [tick("webview", t("Allow native apps (no Origin header)"))],
  ]],
];

/** Returns the form, read-only for operators who may not change it. @param {Api["SiteWhole"]} site @param {any} now @param {boolean} may */
function fields(site, now, may) {
  const off = may ? null : { disabled: true };
  const drawn = (/** @type {Control} */ one) => one.draw(now[one.name], off, site);
  return h("form", { class: "site-form" }, FORM.map(([title, rows]) => h("fieldset", null, h("legend", null, title),
    rows.map((row) => row.length > 1 ? h("div", { class: "pair" }, row.map(drawn)) : drawn(row[0])))));
}

/** @param {string} name @param {string} value @param {number} most @param {number} rows @param {any} off @param {string} [dir] */
function area(name, value, most, rows, off, dir = "auto") {
  const field = h("textarea", { name, maxlength: most, rows, dir, spellcheck: dir === "ltr" ? "false" : null, ...off });
  field.value = value;
  return field;
}

/** Returns the form as settings; values that it does not show stay. @param {any} form @param {any} before */
function read(form, before) {
  const settings = { ...before };
  for (const { name, read: value } of FORM.flatMap(([, rows]) => rows.flat())) {
    const said = value(form.elements[name]);
    if (said === null) delete settings[name]; else settings[name] = said;
  }
  return settings;
}

/** The real widget in a frame of our own, without a server behind it. */
function preview() {
  const frame = h("iframe", { class: "preview", src: "/dashboard/preview", title: t("Preview of the widget"), loading: "eager" });
  const language = h("select", { name: "language", "aria-label": t("Language of the preview") }, h("option", { value: "en", lang: "en" }, "English"));
  languages().then(({ en: _, ...others }) => add(language, Object.entries(others).map(([tag, { name }]) => h("option", { value: tag, lang: tag }, name)))).catch(() => {});
  const theme = h("select", { name: "theme", "aria-label": t("Light or dark") }, [["auto", t("System")], ["light", t("light")], ["dark", t("dark")]].map(([value, words]) => h("option", { value }, words)));
  let last = /** @type {any} */ (null);
  let ready = false;
  const send = () => { if (ready && last) frame.contentWindow?.postMessage({ look: last, language: language.value, theme: theme.value }, location.origin); };
  addEventListener("message", (event) => { if (event.source === frame.contentWindow && event.origin === location.origin && event.data === "ready") { ready = true; send(); } });
  return {
    node: h("div", { class: "stack" }, h("div", { class: "segments" }, language, theme), h("div", { class: "preview-box" }, frame)),
    language: () => language.value,
    wear: (/** @type {any} */ look) => { last = look; send(); },
  };
}
