/** Replaces the variables of settings in sentences by their labels, which lead to their forms. */
import { h } from "../shared/h.js";
import { t, translate } from "./i18n.js";
import { FORMS } from "./settings_fields.js";

const VARIABLE = /\b((?:EVERTALK|CONTEXT|ANTHROPIC|OPENAI|TELEGRAM)_[A-Z_]*[A-Z])(?:=\w+)?/;

/** Labels of settings that belong to the machine and have no form. @type {Record<string, string>} */
const MACHINE = { EVERTALK_SECRET_KEY: t("Secret key") };

/** Returns the label of a setting; only the page of all settings shows variables. @param {string} name */
export const labelOf = (name) => FORMS.get(name)?.label ?? MACHINE[name] ?? name.replace(/^EVERTALK_/, "").replaceAll("_", " ").toLowerCase();

/** Returns a text in which each setting that has a form is named by its label. @param {string} text */
export const named = (text) => text.split(VARIABLE).map((piece, at) => at % 2 ? `“${labelOf(piece)}”` : piece).join("");

/** Translates a text of the server, and names settings by their labels. @param {string | null | undefined} text */
export const ts = (text) => named(translate(text));

/** Translates a text of the server, and makes each label of a setting a link to its form. @param {string} text */
export const linked = (text) => translate(text).split(VARIABLE).map((piece, at) => at % 2 === 0 ? piece
  : h("a", { href: FORMS.has(piece) ? addressOf(piece) : `/dashboard/settings?section=all&q=${piece}` }, labelOf(piece)));

/** Returns the address of a setting's field on the settings page. @param {string} name of a setting that has a form */
export const addressOf = (name) => `/dashboard/settings?section=${FORMS.get(name)?.id}&field=${name}`;
