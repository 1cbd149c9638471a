/** Knowledge of an agent: its files, uploads, and a search of passages. */
import { ask } from "./net.js";
import { card, joinWithDots, empty, h, problem, show, t, time, tn } from "./parts.js";

const MOST_SECONDS = 150;

/** Returns the card with an agent's files, which it loads; `may` allows adding and deleting. @param {{path: `/agents/${string}`, may: boolean, say: (words: string) => void, signal: AbortSignal}} of */
export function knowledgeCard({ path, may, say, signal }) {
  const list = h("div");
  const reply = h("div", { role: "status" });
  const found = h("div", { role: "status" });
  const file = h("input", { type: "file", name: "file", accept: ".md,.markdown,.txt,.csv,.pdf,.docx,.xlsx,.pptx,.odt,.ods,.odp,.rtf,.epub,.doc,.xls,.ppt,.html,.htm,.eml,.msg,.zip,.ipynb,.ics,.vcf", required: true });
  const button = h("button", { type: "submit", class: "line" }, t("Add"));
  const words = h("input", { type: "search", name: "q", maxlength: 200, required: true, autocomplete: "off", "aria-label": t("Search the files"), placeholder: t("Search the files") });
  /** @param {any} error */
  const failed = (error) => { if (!signal.aborted) show(reply, problem(error), error.details?.reason && h("p", { class: "words small", dir: "auto" }, error.details.reason)); };

  const load = async () => {
    try {
      const { files } = await ask(`${path}/knowledge`, { signal });
      show(list, files.length ? h("ul", { class: "plain-list" }, files.map(row)) : empty(t("No file yet. The agent finds and cites what its files say.")));
    } catch (error) { if (!signal.aborted) show(list, problem(error, load)); }
  };

  /** @param {Api["KnowledgeFile"]} one */
  const row = (one) => h("li", { class: "split" }, h("span", null, h("b", { dir: "auto", class: "words" }, one.path), " ", h("span", { class: "muted small" }, joinWithDots([tn("{count} passage", "{count} passages", one.passages), one.uploaded_by === null ? t("from the folder") : h("bdi", null, one.uploaded_by), time(one.at)]))),
    may && one.uploaded_by !== null && h("button", { type: "button", class: "line", "aria-label": t("Remove {name}", { name: one.path }), onclick: async () => {
      try {
        await ask(`${path}/knowledge?file=${encodeURIComponent(one.path)}`, { method: "DELETE", signal });
        say(t("The file is removed."));
        show(reply);
        await load();
        file.focus();
      } catch (error) { failed(error); }
    } }, t("Remove")));

  /** @param {Event} event */
  async function add(event) {
    event.preventDefault();
    const [chosen] = file.files;
    button.disabled = true;
    show(reply, h("p", { class: "muted" }, t("Reading the file…")));
    try {
      const kept = await ask(`${path}/knowledge?file=${encodeURIComponent(chosen.name)}`, { method: "PUT", body: chosen, signal, seconds: MOST_SECONDS });
      file.value = "";
      show(reply, h("p", { class: "done" }, joinWithDots([h("bdi", null, kept.path), tn("{count} passage", "{count} passages", kept.passages)])));
      await load();
    } catch (error) { failed(error); }
    button.disabled = false;
  }

  /** @param {Event} event */
  async function search(event) {
    event.preventDefault();
    try {
      const { passages = [] } = await ask(`${path}/knowledge?q=${encodeURIComponent(words.value)}`, { signal });
      show(found, passages.length ? h("ul", { class: "plain-list" }, passages.map((one) => h("li", null, h("p", { class: "small muted", dir: "auto" }, joinWithDots([one.path, one.heading])), h("p", { class: "words clamp", dir: "auto" }, one.text)))) : empty(t("Nothing was found.")));
    } catch (error) { if (!signal.aborted) show(found, problem(error)); }
  }
  load();
  return card(t("Knowledge"), [list, may && h("form", { class: "stack", onsubmit: add }, h("label", null, h("span", { class: "small muted" }, t("A file of at most 20 MB: text, CSV, PDF, office file, web page, mail, e-book or archive")), file), reply, h("p", { class: "actions" }, button)),
    h("form", { class: "filters", role: "search", "aria-label": t("Search the files"), onsubmit: search }, words, h("button", { type: "submit", class: "line" }, t("Search"))), found]);
}
