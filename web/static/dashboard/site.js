/** The page of one site of the widget: its addresses, look and texts, its secrets, and a live preview. */
import { add } from "../shared/h.js";
import { area, choice, code, formOf, json, line, lines, tick } from "./forms.js";
import { languages } from "./i18n.js";
import { ask } from "./net.js";
import { card, h, notFoundPage, number, problem, show, skeleton, t, time, tn } from "./parts.js";
import { copier } from "./copier.js";
import { conflict, problemList, watchTyping } from "./editing.js";

/** @param {number} most */
const words = (most) => line({ maxlength: most, dir: "auto", spellcheck: null });
/** @param {number} most */
const long = (most) => area({ maxlength: most, rows: 2 });

/** Draws the page of the site `id`: its form, snippet, secrets and preview. @param {Page} page */
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
    const mine = structuredClone(typed);
    const { node: form, judge: mark } = fields(mine, site, may);
    /** @param {string[]} problems */
    function tell(problems) {
      show(judge, problemList(problems));
      mark(problems);
    }
    async function check() {
      const found = await ask(`${path}/check`, { method: "POST", body: { settings: mine, language: look.language() }, signal });
      tell(found.problems);
      if (found.look) look.wear(found.look);
    }
    watchTyping(form, check, signal);
    look.node.addEventListener("change", () => check().catch(() => {}));
    form.addEventListener("submit", async (/** @type {any} */ event) => {
      event.preventDefault();
      try {
        const saved = await ask(`${path}/settings`, { method: "PUT", body: { settings: mine }, match: `"${site.version}"`, signal });
        say(t("Saved."));
        draw(saved, saved.settings, h("p", { class: "done" }, t("Saved. A running Evertalk follows within two seconds.")));
      } catch (/** @type {any} */ error) {
        if (signal.aborted) return;
        if (error.code === "bad_site_config") return tell(error.details.problems);
        show(reply, problem(error), error.code === "stale" && conflict(error.details.theirs.settings, mine, () => draw(error.details.theirs), () => draw(error.details.theirs, mine)));
      }
    });
    form.append(judge, reply, may ? h("p", { class: "actions" }, h("button", { type: "submit", class: "solid" }, t("Save")), h("span", { class: "muted small" }, t("version {number}", { number: site.version }))) : h("p", { class: "muted small" }, t("Only an admin can change a site.")));
    show(body, h("div", { class: "columns even" }, card(t("Settings"), [form]), h("div", { class: "stack" }, card(t("Preview"), [look.node]), snippet(site, say), refusals(site, may), secrets(site, may))));
    check().catch(() => {});
  }

  /** Returns the card of pages that requested the chat but are not on the list of allowed addresses; null without any. @param {Api["SiteWhole"]} site @param {boolean} may */
  function refusals(site, may) {
    const reply = h("div", { role: "status" });
    if (!site.refused.length) return null;
    return card(t("Refused pages"), [h("p", { class: "muted small" }, t("These pages requested the chat but are not among the allowed origins.")),
      h("ul", { class: "plain-list" }, site.refused.map((one) => h("li", { class: "split" }, h("span", null, h("code", null, one.origin), " ", t("{number} ×, last {time}", { number: one.count, time: time(one.last_at) })),
        may && h("button", { type: "button", class: "line", "aria-label": t("Allow {origin}", { origin: one.origin }), onclick: () => allow(one.origin) }, t("Allow"))))), reply]);

    /** @param {string} origin */
    async function allow(origin) {
      try {
        const saved = await ask(`${path}/origins`, { method: "POST", body: { origin }, signal });
        say(t("{origin} is allowed.", { origin }));
        draw(saved, saved.settings, h("p", { class: "done" }, t("{origin} is allowed. A running Evertalk follows within two seconds.", { origin })));
      } catch (error) { if (!signal.aborted) show(reply, problem(error)); }
    }
  }

  /** @param {Api["SiteWhole"]} site @param {boolean} may */
  function secrets(site, may) {
    const fresh = h("div");
    const section = card(t("Secrets that sign people in"), [
      site.secrets.length ? h("ul", { class: "plain-list" }, site.secrets.map((one) => h("li", { class: "split" }, h("span", null, h("code", null, one.id), " ", t("made {time}", { time: time(one.created_at) })),
        may && h("button", { type: "button", class: "line danger", "aria-label": t("Revoke {secret}", { secret: one.id }), onclick: () => revoke(one.id) }, t("Revoke"))))) : h("p", { class: "muted" }, t("None: all people are anonymous visitors.")),
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

/** @param {Api["SiteWhole"]} site @param {(words: string) => void} say */
const snippet = (site, say) => card(t("On your page"), [h("p", { class: "copy-line" }, h("code", { class: "secret", tabindex: 0 }, site.snippet), copier(site.snippet, t("Copy the snippet"), say)), h("p", { class: "muted small" }, tn("{count} visitor came so far.", "{count} visitors came so far.", site.visitors))]);

/** Sections of the form, with the controls that stand in one row. @type {[string, import("./forms.js").Control[][]][]} */
const FORM = [
  [t("Pages and audience"), [
    [{ path: "origins", label: t("Allowed origins, one per line"), kind: lines({ maxlength: 8000, rows: 2, dir: "ltr" }, true) }],
    [{ path: "agent", label: t("Agent"), kind: choice((site) => site.agents.map((/** @type {string} */ one) => [one, one]), { stored: true }) },
      { path: "audience", label: t("Audience"), kind: choice([["personal", t("personal: shows everything")], ["public", t("public: a plain chat")]], { stored: true }) },
      { path: "verified", label: t("Signed-in people"), kind: choice([["off", t("off")], ["optional", t("optional")], ["required", t("required")]]) }],
  ]],
  [t("Appearance"), [[{ path: "accent", label: t("Colour"), kind: code({ placeholder: "#4f46e5", maxlength: 7 }) }, { path: "font", label: t("Font"), kind: code({ placeholder: "Inter, sans-serif", maxlength: 200 }) }, { path: "position", label: t("Side"), kind: choice([["", t("Follow page direction")], ["left", t("left")], ["right", t("right")]]) }]]],
  [t("Texts"), [
    [{ path: "title", label: t("Title"), kind: words(60) }],
    [{ path: "welcome", label: t("Welcome"), kind: long(500) }],
    [{ path: "ai_notice", label: t("AI notice"), kind: long(500) }],
    [{ path: "offline_text", label: t("Message when no operator is available"), kind: long(500) }],
    [{ path: "launcher_label", label: t("Launcher label"), kind: words(60) }],
    [{ path: "starters", label: t("Starter questions (one per line, max 6)"), kind: lines({ maxlength: 600, rows: 2 }) }],
    [{ path: "privacy_url", label: t("Privacy page"), kind: code({ type: "url", placeholder: "https://", maxlength: 500 }) }],
    [{ path: "texts", label: t("Translations, as JSON by language"), kind: json({ maxlength: 40_000, rows: 3 }) }],
  ]],
  [t("Visitor permissions"), [
    [{ path: "uploads", label: t("Send files"), kind: choice([[null, t("in personal chats only")], [true, t("yes")], [false, t("no")]]) }],
    [{ path: "imports", label: t("Import their conversations"), kind: choice([[null, t("signed-in people, and personal chats")], [true, t("yes")], [false, t("no")]]) }],
    [{ path: "conversations", label: t("Conversations per person"), kind: choice([["one", t("one")], ["many", t("many")]]) }],
    [{ path: "handover", label: t("Ask for a human"), kind: tick(true) }], [{ path: "memory_toasts", label: t("Show when something is remembered"), kind: tick() }], [{ path: "ask_name", label: t("Ask visitors for their first name"), kind: tick() }], [{ path: "webview", label: t("Allow native apps (no Origin header)"), kind: tick() }],
  ]],
];

/** Draws the form, read-only for operators who may not change it. @param {any} draft which the form changes @param {Api["SiteWhole"]} site @param {boolean} may */
function fields(draft, site, may) {
  const form = formOf(draft, { id: "site", of: site });
  return { judge: form.judge, node: h("form", { class: "site-form" }, FORM.map(([title, rows]) => h("fieldset", { disabled: !may }, h("legend", null, title),
    rows.map((row) => row.length > 1 ? h("div", { class: "pair" }, row.map(form.draw)) : form.draw(row[0]))))) };
}

/** Shows the real widget in a frame, without a server. */
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
