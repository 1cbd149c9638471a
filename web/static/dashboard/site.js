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

/** Returns the form, read-only for operators who may not change it. @param {Api["SiteWhole"]} site @param {any} now @param {boolean} may */
function fields(site, now, may) {
  const off = may ? null : { disabled: true };
  const text = (/** @type {string} */ name, /** @type {string} */ label, /** @type {number} */ most) => h("label", null, h("span", null, label), LONG.has(name)
    ? area(name, now[name] ?? "", most, 2, off) : h("input", { type: "text", name, value: now[name] ?? "", maxlength: most, dir: "auto", autocomplete: "off", ...off }));
  const choose = (/** @type {string} */ name, /** @type {string} */ label, /** @type {string} */ value, /** @type {string[][]} */ options) => h("label", null, h("span", null, label),
    h("select", { name, ...off }, options.map(([one, words]) => h("option", { value: one, selected: one === value }, words))));
  const tick = (/** @type {string} */ name, /** @type {string} */ label, /** @type {boolean} */ on) => h("label", { class: "tick" }, h("input", { type: "checkbox", name, checked: on, ...off }), h("span", null, label));
  return h("form", { class: "site-form" },
    h("fieldset", null, h("legend", null, t("Where and for whom")),
      h("label", null, h("span", null, t("Origins of its pages, one a line")), area("origins", now.origins.join("\n"), 8000, 2, off, "ltr")),
      h("div", { class: "pair" }, choose("agent", t("Agent"), now.agent, (site.agents.includes(now.agent) ? site.agents : [now.agent, ...site.agents]).map((/** @type {string} */ one) => [one, one])),
        choose("audience", t("Audience"), now.audience, [["personal", t("personal: shows everything")], ["public", t("public: a plain chat")]]),
        choose("verified", t("Signed-in people"), now.verified ?? "off", [["off", t("off")], ["optional", t("optional")], ["required", t("required")]]))),
    h("fieldset", null, h("legend", null, t("Look")),
      h("div", { class: "pair" }, h("label", null, h("span", null, t("Colour")), h("input", { type: "text", dir: "ltr", name: "accent", value: now.accent ?? "", placeholder: "#4f46e5", maxlength: 7, spellcheck: "false", autocomplete: "off", ...off })),
        choose("position", t("Side"), now.position ?? "", [["", t("Follow page direction")], ["left", t("left")], ["right", t("right")]]))),
    h("fieldset", null, h("legend", null, t("Words")), TEXTS.map(([name, label, most]) => text(/** @type {string} */ (name), /** @type {string} */ (label), /** @type {number} */ (most))),
      h("label", null, h("span", null, t("Starter questions (one per line, max 6)")), area("starters", (now.starters ?? []).join("\n"), 600, 2, off)),
      h("label", null, h("span", null, t("Privacy page")), h("input", { type: "url", dir: "ltr", name: "privacy_url", value: now.privacy_url ?? "", placeholder: "https://", maxlength: 500, ...off })),
      h("label", null, h("span", null, t("The same in other languages, as JSON by language")), area("texts", now.texts ? JSON.stringify(now.texts, null, 2) : "", 40_000, 3, off, "ltr"))),
    h("fieldset", null, h("legend", null, t("What visitors may")),
      choose("uploads", t("Send files"), now.uploads === true ? "yes" : now.uploads === false ? "no" : "", [["", t("in personal chats only")], ["yes", t("yes")], ["no", t("no")]]),
      choose("conversations", t("Conversations of one person"), now.conversations ?? "one", [["one", t("one")], ["many", t("many")]]),
    tick("handover", t("Ask for a human"), now.handover ?? true), tick("memory_toasts", t("See when something is remembered"), now.memory_toasts ?? false), tick("webview", t("Allow native apps (no Origin header)"), now.webview ?? false)));
}

/** @param {string} name @param {string} value @param {number} most @param {number} rows @param {any} off @param {string} [dir] */
function area(name, value, most, rows, off, dir = "auto") {
  const field = h("textarea", { name, maxlength: most, rows, dir, spellcheck: dir === "ltr" ? "false" : null, ...off });
  field.value = value;
  return field;
}

/** Returns the form as settings; values that it does not show stay. @param {any} form @param {any} before */
function read(form, before) {
  const value = (/** @type {string} */ name) => form.elements[name].value.trim();
  const lines = (/** @type {string} */ name) => value(name).split("\n").map((/** @type {string} */ one) => one.trim()).filter(Boolean);
  /** @type {any} */
  const settings = { ...before, agent: value("agent"), audience: value("audience"), origins: lines("origins") };
  const put = (/** @type {string} */ name, /** @type {any} */ said) => { if (said === null) delete settings[name]; else settings[name] = said; };
  for (const name of ["title", "welcome", "ai_notice", "offline_text", "launcher_label", "accent", "position", "privacy_url"]) put(name, value(name) || null);
  put("starters", lines("starters").length ? lines("starters") : null);
  put("verified", value("verified") === "off" ? null : value("verified"));
  put("uploads", /** @type {Record<string, boolean>} */ ({ yes: true, no: false })[value("uploads")] ?? null);
  put("handover", form.elements.handover.checked ? null : false);
  for (const name of ["memory_toasts", "webview"]) put(name, form.elements[name].checked ? true : null);
  let texts = null;
  if (value("texts")) try { texts = JSON.parse(value("texts")); } catch { texts = value("texts"); }
  put("texts", texts);
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
