/** Settings in sentences: people read the label of a setting, which leads to its form, in place of its variable. */
import { h } from "../shared/h.js";
import { FORMS } from "./settings_fields.js";

const VARIABLE = /\b((?:EVERTALK|CONTEXT|ANTHROPIC|OPENAI|TELEGRAM)_[A-Z_]*[A-Z])(?:=\w+)?/;

/** @param {string} name of a setting */
export const labelOf = (name) => FORMS.get(name)?.label ?? name;

/** A text in which each setting with a form has its label. @param {string} text */
export const named = (text) => text.split(VARIABLE).map((piece, at) => at % 2 ? `“${labelOf(piece)}”` : piece).join("");

/** The same, with each label a link to the form. @param {string} text */
export const linked = (text) => text.split(VARIABLE).map((piece, at) => at % 2 === 0 ? piece
  : h("a", { href: FORMS.has(piece) ? addressOf(piece) : `/dashboard/settings?section=all&q=${piece}` }, labelOf(piece)));

/** @param {string} name of a setting that has a form */
export const addressOf = (name) => `/dashboard/settings?section=${FORMS.get(name)?.id}&field=${name}`;
