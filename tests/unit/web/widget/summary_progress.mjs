/**
 * Plays frames of a summary's progress to a real `Conversation`. Prints what it shows after each step.
 * Usage: node summary_progress.mjs STATE_JS
 */
import { pathToFileURL } from "node:url";

const { Conversation } = await import(pathToFileURL(process.argv[2]).href);

const progress = (id, state, percent = 50) => ({ t: "compaction.progress", id, state, percent, stage: "summarising" });
const stored = (state) => ({ t: "compaction", event_seq: 1, id: "public-id", state, kind: "summary", through_turn: 1 });

/** Returns the shown progress after these frames: its job and percent, or null. */
function play(...frames) {
  const chat = new Conversation({ changed() {}, said() {}, send() {} });
  for (const frame of frames) frame.t === "compaction" ? chat.compaction(frame) : chat.progress(frame);
  return chat.organizing && { id: chat.organizing.id, percent: chat.organizing.percent, failed: Boolean(chat.organizing.failed) };
}

console.log(JSON.stringify({
  stored: play(progress("17", "running"), stored("done")),
  undone: play(progress("17", "running"), stored("undone"), progress("17", "running", 60)),
  next: play(progress("17", "running"), stored("done"), progress("17", "done", 100), progress("18", "running", 5)),
  other: play(progress("18", "running", 5), progress("17", "done", 100)),
  late: play(progress("17", "done", 100), progress("17", "running")),
  failed: play(progress("17", "running"), progress("17", "failed", 100)),
}));
