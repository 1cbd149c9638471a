/** A button in the composer that records speech, and a player in the bubbles; loaded where recordings can be transcribed. */
import english from "../locales/en/chat_parts.json" with { type: "json" };
import { h, icon, set, show } from "../shared/h.js";
import { tongue } from "./i18n.js";
import { reach } from "./rare.js";
import { adopt } from "./styles.js";
import { wordsOf } from "./words.js";

const t = wordsOf("voice", english.voice);
const MIC = "M12 3a3 3 0 0 1 3 3v5a3 3 0 0 1-6 0V6a3 3 0 0 1 3-3zM5 11a7 7 0 0 0 14 0M12 18v3";
const TIMES = "M6 6l12 12M18 6L6 18";
const ARROW = "M12 19V5M6 11l6-6 6 6";
const PLAY = "M8 5l11 7-11 7z";
const SQUARE = "M7 7h10v10H7z";
const KINDS = ["audio/webm;codecs=opus", "audio/mp4", "audio/ogg;codecs=opus"];
const BITS = 32_000;
/** Most milliseconds to wait for an answer as speech, which is made when first asked for. */
const SPEAK_MS = 90_000;
const LOOK = /* css */ `
.recording { display: flex; align-items: center; gap: 8px; min-height: 48px; padding: 5px 6px; border: 1px solid var(--line); border-radius: 24px; }
.recording .level { flex: 1; height: 6px; border-radius: 3px; background: var(--soft); overflow: hidden; } .level i { display: block; height: 100%; width: 100%; background: var(--accent); transform: scaleX(var(--level, 0)); transform-origin: left; }
.recording time { font-variant-numeric: tabular-nums; min-width: 3em; text-align: end; } [dir="rtl"] .level i { transform-origin: right; }
.composer[data-recording] .field { display: none; }
@media (forced-colors: active) { .level { border: 1px solid; } .level i { background: Highlight; } }
`;

/** @typedef {import("./chat.js").Chat} Chat */

/** @param {number} seconds */
const clock = (seconds) => `${Math.floor(seconds / 60).toLocaleString(tongue())}:${Math.floor(seconds % 60).toLocaleString(tongue(), { minimumIntegerDigits: 2 })}`;

/** @type {WeakSet<Chat>} */
const known = new WeakSet();

/** Adds the recording button next to the one for files, once. @param {Chat} chat */
export function voice(chat) {
  if (known.has(chat) || !self.MediaRecorder || !navigator.mediaDevices) return;
  known.add(chat);
  adopt(chat.node, LOOK);
  const { composer } = chat;
  const mic = h("button", { class: "icon mic", type: "button", "aria-label": t("record"), title: t("record"), onclick: () => void record() }, icon(MIC));
  const note = h("p", { class: "composer-note muted", hidden: true });
  composer.clip.after(mic);
  composer.node.lastElementChild?.before(note);

  /** @param {string} words */
  function tell(words) {
    note.hidden = !words;
    show(note, words);
    if (words) chat.say(words);
  }

  async function record() {
    tell("");
    let stream;
    mic.disabled = true;
    try {
      // the browser asks for permission now, and not earlier
      stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1, echoCancellation: true, noiseSuppression: true } });
    } catch (/** @type {any} */ error) {
      return tell(t(["NotAllowedError", "SecurityError"].includes(error.name) ? "denied" : "no_microphone"));
    } finally { mic.disabled = false; }
    begin(stream);
  }

  /** @param {MediaStream} stream */
  function begin(stream) {
    const { seconds, bytes } = chat.chat.settings.limits.files.voice;
    const kind = KINDS.find((one) => MediaRecorder.isTypeSupported(one));
    const recorder = new MediaRecorder(stream, { mimeType: kind, audioBitsPerSecond: BITS });
    const context = new AudioContext();
    const analyser = context.createAnalyser();
    const wave = new Uint8Array(analyser.fftSize = 512);
    /** @type {Blob[]} */
    const pieces = [];
    let size = 0;
    let wanted = false;
    let frame = 0;
    const began = performance.now();
    const time = h("time", null, clock(0));
    const level = h("div", { class: "level", "aria-hidden": "true" }, h("i"));
    const send = h("button", { class: "send", type: "button", "aria-label": t("send"), title: t("send"), onclick: () => end(true) }, icon(ARROW, 18));
    const bar = h("div", { class: "recording", role: "group", "aria-label": t("recording"), onkeydown: (/** @type {KeyboardEvent} */ event) => { if (event.key === "Escape") { event.stopPropagation(); end(false); } } },
      h("button", { class: "icon", type: "button", "aria-label": t("discard"), title: t("discard"), onclick: () => end(false) }, icon(TIMES)), level, time, send);
    context.createMediaStreamSource(stream).connect(analyser);
    recorder.ondataavailable = (event) => {
      pieces.push(event.data);
      size += event.data.size;
      if (size > bytes * 0.95) quiet();
    };
    recorder.onstop = () => { if (wanted) hand(); };

    function draw() {
      const spent = (performance.now() - began) / 1000;
      analyser.getByteTimeDomainData(wave);
      const loud = Math.max(...wave.map((one) => Math.abs(one - 128))) / 128;
      set(level, { vars: { "--level": Math.min(1, loud * 1.6).toFixed(2) } });
      if (time.textContent !== clock(spent)) show(time, clock(spent));
      if (spent >= seconds) return quiet();
      frame = requestAnimationFrame(draw);
    }

    /** Stops recording; the recording is kept until the person sends or discards it. */
    function quiet() {
      cancelAnimationFrame(frame);
      set(level, { vars: { "--level": "0" } });
      if (recorder.state !== "inactive") recorder.stop();
      for (const track of stream.getTracks()) track.stop();
      if (context.state !== "closed") void context.close();
    }

    /** @param {boolean} keep */
    function end(keep) {
      const over = recorder.state === "inactive";
      wanted = keep;
      quiet();
      bar.remove();
      delete composer.node.dataset.recording;
      composer.grow();
      composer.input.focus();
      if (keep && over) hand();
    }

    function hand() {
      wanted = false;
      const type = (recorder.mimeType || kind || "audio/webm").split(";")[0];
      const file = new File(pieces, `recording.${type.split("/")[1]}`, { type });
      chat.attach((attached) => { attached.add([file]); attached.send(""); });
    }

    composer.node.dataset.recording = "true";
    composer.node.append(bar);
    recorder.start(1000);
    draw();
    send.focus();
    chat.say(t("recording"));
  }
}

/** Makes a button play a recording without a media source that a page's policy could forbid. @param {HTMLElement} button @param {string} label @param {() => Promise<Blob>} load @param {() => void} failed @param {string} [play] @param {number} [size] */
export function player(button, label, load, failed, play = t("play"), size = 22) {
  /** @type {AudioContext | null} */
  let context = null;
  function paint() {
    const words = context ? t("stop") : play;
    button.firstElementChild?.replaceWith(icon(context ? SQUARE : PLAY, size));
    set(button, { "aria-label": label ? `${words}: ${label}` : words, title: words });
  }
  function halt() {
    void context?.close();
    context = null;
    paint();
  }
  button.onclick = async () => {
    if (context) return halt();
    const mine = context = new AudioContext();
    paint();
    try {
      const sound = await mine.decodeAudioData(await (await load()).arrayBuffer());
      if (context !== mine) return;
      const source = mine.createBufferSource();
      source.buffer = sound;
      source.connect(mine.destination);
      source.onended = () => { if (context === mine) halt(); };
      source.start();
    } catch { if (context === mine) { halt(); failed(); } }
  };
  paint();
}

/** Plays an answer by its button. @param {Chat} chat @param {import("./state.js").Item} item @param {HTMLElement} button @param {(key: string) => string} say */
export function listen(chat, item, button, say) {
  const load = async () => {
    const answer = await reach(chat, `api/v1/sessions/${encodeURIComponent(chat.chat.session)}/messages/${item.mid}/speech`, { method: "POST" }, SPEAK_MS);
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    return answer.blob();
  };
  player(button, "", load, () => chat.warn(say("not_spoken")), say("listen"), 15);
  button.click();
}
