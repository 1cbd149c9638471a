/** Texts for the reasons why a summary is not made, or not now. */
import { t } from "./parts.js";

/** Reasons why automatic summaries are withheld. @type {Record<string, string>} */
export const WITHHELD = {
  off: t("Automatic summaries are off: at the limit, the oldest messages are no longer sent."), manual: t("This assistant makes summaries only when asked with /compact"),
  held: t("After an undo, the next summary waits until the context is full"), thrashing: t("Summaries are paused: the last ones freed too little room"),
  nothing: t("Summaries are paused: the last one found nothing new to keep"), hook: t("A service of the operator has put the summary off once; it comes after a few messages"),
};

/** Reasons why nothing was summarised. @type {Record<string, string>} */
export const REASONS = {
  nothing_old: t("There are only the newest messages, and they stay as they are."),
  open_turn_too_big: t("The message that is being answered takes most of the room."),
  pins: t("All older messages are pinned."),
  gain_too_small: t("This would free too little."),
  unanswered: t("An older message has no answer yet."),
  grows: t("The summary would be longer than what it replaces."),
  all_read: t("Everything was read already."),
};

/** @type {Record<string, string>} */
const ENDS = {
  held: WITHHELD.held, hook: WITHHELD.hook, thrashing: WITHHELD.thrashing, switched_off: t("Automatic summaries are switched off."), done_already: t("Another summary was made meanwhile."),
  busy: t("The conversation kept changing."), talking: t("Waits while the person talks."), backoff: t("Waits after failed summaries."),
  capped: t("The budget of the import is used up."), indexing: t("Waits until the import is searchable."), no_model: t("Waits until a model answers."),
};

/** Returns why a job made no summary or waits; empty for a reason that has no words. @param {string | null} code */
export const reasonOf = (code) => (code && (ENDS[code] ?? REASONS[code])) || "";
