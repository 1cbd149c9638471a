/** Files: entries with their progress in the composer, sent files in the bubbles; loaded with the first file. */
import english from "../locales/en/chat_parts.json" with { type: "json" };
import { h, icon, set, show } from "../shared/h.js";
import { tongue } from "./i18n.js";
import { headers, reach } from "./rare.js";
import { adopt } from "./styles.js";
import { wordsOf } from "./words.js";

const t = wordsOf("files", english.files);
const UPLOAD_URL = new URL("../../api/v1/uploads", import.meta.url).href;
const UPLOAD_MS = 150_000;
const AT_ONCE = 2;
const THUMB = 88;
const SHOWN = 520;
const SHEET_OF_PAPER = "M7 3h7l4 4v14H7zM14 3v4h4";
const TIMES = "M6 6l12 12M18 6L6 18";
const FILE_CSS = /* css */ `
.files { display: flex; flex-wrap: wrap; gap: 6px; margin: 0; padding: 0; list-style: none; }
.files li { margin: 0; white-space: normal; } .file > * { margin: 0; }
.composer .files { padding: 0 2px 8px; } .composer .files:empty { display: none; }
.file { display: flex; align-items: center; gap: 8px; max-width: 230px; min-height: 40px; padding: 4px 6px 4px 8px; font-size: 13px; line-height: 1.3; text-align: start;
  color: var(--fg); background: var(--card); border: 1px solid var(--line); border-radius: var(--radius-s); }
.file canvas { flex: none; width: 32px; height: 32px; object-fit: cover; border-radius: 5px; } .file svg { flex: none; color: var(--muted); }
.file-words { min-width: 0; flex: 1; } .file-name { display: block; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; unicode-bidi: isolate; }
.file[data-state="failed"] { max-width: 100%; border-color: var(--crit); } .file[data-state="failed"] .muted { color: var(--crit); }
.file .icon { flex: none; width: 28px; height: 28px; } .file .meter { flex: none; width: 100%; margin-top: 3px; }
.assistant .files { margin-top: 6px; } .person .files { justify-content: flex-end; align-items: flex-end; margin-top: 4px; max-width: 85%; }
.sent-file { cursor: pointer; } .sent-file.seen { flex-direction: column; align-items: stretch; padding: 4px; gap: 3px; max-width: 260px; }
.sent-file.seen canvas { width: auto; height: auto; max-width: 100%; max-height: 260px; border-radius: 6px; object-fit: contain; align-self: center; }
.drop { position: absolute; inset: 8px; z-index: 5; display: grid; place-items: center; font-weight: 600; color: var(--fg); background: var(--card); opacity: .95;
  border: 2px dashed var(--accent); border-radius: var(--radius-m); pointer-events: none; }
@media (forced-colors: active) { .file, .drop { border: 1px solid; } }
`;

/**
 * @typedef {import("./chat.js").Chat} Chat
 * @typedef {{id: string, name: string, mime: string, size: number, width?: number, height?: number, cut?: boolean, heard?: string}} Meta
 * @typedef {object} Chip
 * @property {string} name @property {number} size @property {"waiting" | "sending" | "ready" | "failed"} state @property {HTMLElement} node
 * @property {number} done @property {string} why @property {File} [file] @property {Meta} [meta] @property {XMLHttpRequest} [request] @property {HTMLCanvasElement} [look]
 * @typedef {ReturnType<typeof createAttachments>} Attachments
 */

/** @param {number} bytes */
const sizeOf = (bytes) => {
  const [unit, size] = bytes < 1e6 ? ["kilobyte", Math.max(1, Math.round(bytes / 1e3))] : ["megabyte", Math.round(bytes / 1e5) / 10];
  return size.toLocaleString(tongue(), { style: "unit", unit });
};

/** Returns a picture redrawn on a canvas, which no page's policy forbids and which runs nothing from the file. @param {Blob} blob @param {number} most */
async function redraw(blob, most) {
  const bitmap = await createImageBitmap(blob);
  const scale = Math.min(1, most / Math.max(bitmap.width, bitmap.height));
  const canvas = h("canvas", { width: Math.max(1, Math.round(bitmap.width * scale)), height: Math.max(1, Math.round(bitmap.height * scale)), "aria-hidden": "true" });
  canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
  return canvas;
}

/** Returns the files of a chat's composer: adds, uploads, keeps and sends them, and draws those of messages. @param {Chat} chat */
export function createAttachments(chat) {
  /** @type {Chip[]} */
  let chips = [];
  /** Whether Send was pressed while files were being uploaded. */
  let wanted = false;
  let hiding = 0;
  /** @type {Map<string, Blob>} */
  const local = new Map();
  let loading = Promise.resolve();
  const picker = h("input", { type: "file", multiple: true, hidden: true, onchange: () => { add([...picker.files]); picker.value = ""; } });
  const list = h("ul", { class: "files", "aria-label": t("files") });
  const note = h("p", { class: "composer-note muted", hidden: true });
  const target = h("div", { class: "drop", hidden: true }, t("drop_here"));
  chat.composer.node.lastElementChild?.before(note, list, picker);
  chat.composer.input.addEventListener("input", () => { if (wanted) { wanted = false; tell(""); } });
  chat.node.append(target);
  adopt(chat.node, FILE_CSS);
  const root = chat.node.getRootNode();
  restore();

  const limit = () => chat.chat.settings.limits?.files;

  /** Shows a line above the composer, which screen readers announce. @param {string} words */
  function tell(words) {
    note.hidden = !words;
    show(note, words);
    if (words) chat.say(words);
  }

  /** @param {File[]} files */
  function add(files) {
    const { most = 0, bytes = 0 } = limit() ?? {};
    over(false);
    wanted = false;
    const room = Math.max(0, most - chips.length);
    tell(files.length > room ? t("most_files", { count: most }) : "");
    for (const file of files.slice(0, room)) {
      const chip = made({ name: file.name || "file", size: file.size, file });
      if (file.size > bytes) fail(chip, "file_too_large");
      else if (!file.size) fail(chip, "file_empty");
      else if (file.type.startsWith("image/")) redraw(file, THUMB).then((canvas) => { chip.look = canvas; draw(chip); }, () => {});
    }
    changed();
    go();
  }

  /** @param {{name: string, size: number, file?: File, meta?: Meta}} values @returns {Chip} */
  function made(values) {
    const chip = /** @type {Chip} */ ({ ...values, state: values.meta ? "ready" : "waiting", done: 0, why: "", node: h("li", { class: "file" }) });
    chips.push(chip);
    list.append(chip.node);
    draw(chip);
    return chip;
  }

  function pick() {
    set(picker, { accept: [...(limit()?.mimes ?? []), "text/*"].join() });
    picker.click();
  }

  /** @param {Chip} chip */
  function draw(chip) {
    const { name, state } = chip;
    const words = { failed: chip.why, sending: chip.done === 1 && chip.file?.type.startsWith("audio/") && limit()?.voice ? t("hearing") : sizeOf(chip.size), waiting: chat.net.online ? sizeOf(chip.size) : t("file_waits"), ready: chip.meta?.cut ? t("file_cut") : sizeOf(chip.size) }[state];
    const focused = /** @type {ShadowRoot} */ (root).activeElement?.parentElement === chip.node;
    set(chip.node, { data: { state } });
    show(chip.node, chip.look ?? icon(SHEET_OF_PAPER, 22),
      h("span", { class: "file-words" }, h("span", { class: "file-name", dir: "auto", title: name }, name), h("span", { class: "muted" }, words),
        state === "sending" && h("div", { class: "meter", role: "progressbar", "aria-label": t("file_progress", { name }), "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": Math.round(chip.done * 100), vars: { "--done": String(chip.done) } }, h("i"))),
      state === "failed" && chip.file && h("button", { class: "quiet", type: "button", "aria-label": `${t("retry")}: ${name}`, onclick: () => { chip.state = "waiting"; draw(chip); go(); } }, t("retry")),
      h("button", { class: "icon", type: "button", "aria-label": t("remove_file", { name }), title: t("remove_file", { name }), onclick: () => remove(chip) }, icon(TIMES, 16)));
    if (focused) /** @type {HTMLElement | null} */ (chip.node.querySelector(".icon"))?.focus();
  }

  /** @param {Chip} chip */
  function remove(chip) {
    const at = chips.indexOf(chip);
    chips.splice(at, 1);
    chip.request?.abort();
    chip.node.remove();
    const next = /** @type {HTMLElement | null} */ ((chips[at] ?? chips[at - 1])?.node.querySelector(".icon") ?? chat.composer.input);
    next?.focus();
    tell("");
    chat.say(t("file_removed", { name: chip.name }));
    changed();
    go();
  }

  /** @param {Chip} chip @param {string} code @param {string} [message] of the server, which knows how much is left */
  function fail(chip, code, message) {
    chip.state = "failed";
    chip.why = /cap_/.test(code) && message || t(code in english.files ? code : "not_taken", { mb: Math.floor((limit()?.bytes ?? 0) / 2 ** 20) });
    wanted = false;
    draw(chip);
    tell(t("file_failed", chip));
  }

  /** Starts the uploads that can start, and sends the message that waited for its files. */
  function go() {
    const running = chips.filter((chip) => chip.state === "sending").length;
    // the server has no session yet that the files could belong to
    if (!chat.chat.session && chips.length) chat.net.send({ t: "begin" });
    if (chat.net.online && limit() && chat.chat.session) for (const chip of chips.filter((one) => one.state === "waiting").slice(0, AT_ONCE - running)) begin(chip);
    if (wanted && chips.every((chip) => chip.state === "ready")) { wanted = false; tell(""); chat.composer.submit(); }
  }

  /** @param {Chip} chip */
  function begin(chip) {
    const request = new XMLHttpRequest();
    Object.assign(chip, { request, state: "sending", done: 0 });
    request.open("POST", UPLOAD_URL + (chat.store.talk && `?session_id=${chat.store.talk}`));
    request.timeout = UPLOAD_MS;
    for (const [name, value] of Object.entries(headers(chat))) request.setRequestHeader(name, value);
    request.setRequestHeader("X-File-Name", encodeURIComponent(chip.name.replace(/\p{Surrogate}/gu, "").slice(-200).replace(/^[\udc00-\udfff]/, "")));
    request.upload.onload = () => { chip.done = 1; draw(chip); };
    request.upload.onprogress = (event) => { if (event.total) { chip.done = event.loaded / event.total; advance(chip); } };
    request.onload = () => answered(chip, request);
    request.onerror = request.ontimeout = () => {
      if (chat.net.online) fail(chip, "not_taken");
      else { chip.state = "waiting"; draw(chip); }
      go();
    };
    draw(chip);
    request.send(chip.file);
  }

  /** @param {Chip} chip */
  function advance(chip) {
    const meter = chip.node.querySelector(".meter");
    if (meter) set(meter, { "aria-valuenow": Math.round(chip.done * 100), vars: { "--done": String(chip.done) } });
  }

  /** @param {Chip} chip @param {XMLHttpRequest} request */
  function answered(chip, request) {
    let body;
    try { body = JSON.parse(request.responseText); } catch { body = {}; }
    if (request.status !== 200 || !body.id) fail(chip, String(body.code ?? ""), body.message);
    else {
      Object.assign(chip, { state: "ready", meta: body, name: body.name });
      if (chip.file) local.set(body.id, chip.file);
      draw(chip);
      if (!wanted) chat.say(t("file_ready", chip));
    }
    changed();
    go();
  }

  /** Stores names and server ids of the files; their content cannot survive a reload. */
  function changed() {
    chat.store.put("files", chips.length ? JSON.stringify(chips.map(({ name, size, meta }) => ({ name, size, meta }))) : "");
    chat.composer.changed();
  }

  function restore() {
    let kept = [];
    try { kept = JSON.parse(chat.store.get("files") || "[]"); } catch { /* nothing readable, nothing to bring back */ }
    const lost = kept.filter((/** @type {Chip} */ one) => !one.meta).map((/** @type {Chip} */ one) => one.name);
    for (const one of kept) if (one.meta) made(one);
    if (lost.length) tell(t("lost_files", { names: lost.join(", ") }));
    if (kept.length) changed();
  }

  /** @param {string} text @returns {boolean} whether it went out */
  function send(text) {
    if (chips.some((chip) => chip.state === "failed")) {
      tell(t("remove_first"));
      return false;
    }
    if (chips.some((chip) => chip.state !== "ready")) {
      wanted = true;
      tell(t(chat.net.online ? "sends_then" : "sends_online"));
      go();
      return false;
    }
    const metas = chips.map((chip) => chip.meta);
    chips = [];
    show(list);
    tell("");
    chat.store.put("files", "");
    return chat.post([text, ...metas.filter((one) => one?.heard).map((one) => `🎤 ${one?.heard}`)].filter(Boolean).join("\n\n"), metas);
  }

  /** Removes the files of the former visitor. */
  function clear() {
    for (const chip of chips) chip.request?.abort();
    chips = [];
    wanted = false;
    local.clear();
    show(list);
    tell("");
  }

  /** Shows or hides the area to drop files on. @param {boolean} on */
  function over(on) {
    target.hidden = !on;
    clearTimeout(hiding);
    if (on) hiding = setTimeout(() => { target.hidden = true; }, 400);
  }

  /** Shows sent files in their bubble. @param {HTMLElement} place @param {Meta[]} metas */
  function place(place, metas) {
    show(place, metas.map((meta) => {
      const words = meta.cut ? t("file_cut") : sizeOf(meta.size);
      const button = h("button", { class: "file sent-file", type: "button", "aria-label": t("save_file", { name: meta.name, words }) },
        icon(SHEET_OF_PAPER, 22), h("span", { class: "file-words" }, h("span", { class: "file-name", dir: "auto", title: meta.name }, meta.name), " ", h("span", { class: "muted" }, words)));
      // one after the other, since an old conversation may hold many
      button.onclick = () => void save(meta);
      if (meta.mime.startsWith("audio/")) import("./voice.js").then((one) => one.player(button, `${meta.name} ${words}`, () => load(meta), () => chat.say(t("file_gone"))), () => {});
      if (meta.mime.startsWith("image/")) loading = loading.then(() => picture(button, meta)).catch(() => {});
      return button;
    }));
  }

  /** @param {HTMLElement} button @param {Meta} meta */
  async function picture(button, meta) {
    if (!button.isConnected) return;
    const canvas = await redraw(local.get(meta.id) ?? (await load(meta)), SHOWN);
    button.firstElementChild?.replaceWith(canvas);
    button.classList.add("seen");
  }

  /** @param {Meta} meta */
  async function load(meta) {
    const answer = await reach(chat, `api/v1/attachments/${meta.id}`);
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    return answer.blob();
  }

  /** @param {Meta} meta */
  async function save(meta) {
    try {
      const url = URL.createObjectURL(await load(meta));
      h("a", { href: url, download: meta.name }).click();
      setTimeout(() => URL.revokeObjectURL(url), 10_000);
    } catch { chat.say(t("file_gone")); }
  }

  return { add, over, pick, send, go, place, clear, count: () => chips.length };
}
