/** The words for files, which come with them. */
import { wordsOf } from "./words.js";

/** @type {Record<string, string>} */
export const FILE_WORDS = {
  files: "Files to send", drop_here: "Drop files here", remove_file: "Remove {name}", file_progress: "Sending {name}",
  file_ready: "{name} is ready to be sent.", file_failed: "{name}: {why}", file_removed: "{name} was removed.", file_waits: "waits for the connection",
  sends_then: "Your message goes out as soon as the files are there.", sends_online: "You are offline. The files stay here, and your message goes out with them when you are back.",
  remove_first: "Remove the file that did not work, or try it again.", most_files: "{most} files are the most for one message.",
  lost_files: "Not kept when the page was reloaded, please add again: {names}", save_file: "Save {name} {words}", file_gone: "This file could not be loaded.", file_cut: "only the beginning is read",
  file_too_large: "larger than {mb} MB", file_empty: "there is nothing in it to read", file_unreadable: "damaged or too large to be opened", file_locked: "locked by a password",
  file_unknown_kind: "only pictures, texts, PDF, office files and e-books can be read", rate_limited: "too many at once, try again in a moment", too_many_files: "too many files for one day",
  files_not_allowed: "files cannot be sent here", not_taken: "it could not be sent",
};

export const fileWord = wordsOf("files", FILE_WORDS);

/** Whether a reason of the server has words here. @param {string} key */
export const hasWord = (key) => key in FILE_WORDS;
