/** Settings in sentences: people read the label of a setting, which leads to its form, in place of its variable. */
import { h } from "../shared/h.js";
import { t, translate } from "./i18n.js";
import { FORMS } from "./settings_fields.js";

const VARIABLE = /\b((?:EVERTALK|CONTEXT|ANTHROPIC|OPENAI|TELEGRAM)_[A-Z_]*[A-Z])(?:=\w+)?/;

/** Labels of settings of the machine, which have no form. @type {Record<string, string>} */
const MACHINE = { EVERTALK_SECRET_KEY: t("Secret key") };

/** Returns what people call a setting; the name of a variable stands on the page of all settings alone. @param {string} name */
export const labelOf = (name) => FORMS.get(name)?.label ?? MACHINE[name] ?? name.replace(/^EVERTALK_/, "").replaceAll("_", " ").toLowerCase();

/** A text in which each setting with a form has its label. @param {string} text */
export const named = (text) => text.split(VARIABLE).map((piece, at) => at % 2 ? `“${labelOf(piece)}”` : piece).join("");

/** Translates a text of the server, and names settings by their labels. @param {string | null | undefined} text */
export const ts = (text) => named(translate(text));

/** The same, with each label a link to the form. @param {string} text */
export const linked = (text) => translate(text).split(VARIABLE).map((piece, at) => at % 2 === 0 ? piece
  : h("a", { href: FORMS.has(piece) ? addressOf(piece) : `/dashboard/settings?section=all&q=${piece}` }, labelOf(piece)));

/** @param {string} name of a setting that has a form */
export const addressOf = (name) => `/dashboard/settings?section=${FORMS.get(name)?.id}&field=${name}`;
