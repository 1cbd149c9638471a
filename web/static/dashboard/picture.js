/** The picture that people see next to an operator's name; it is cropped and shrunk here before it is sent. */
import { ask } from "./net.js";
import { h, problem, show, t } from "./parts.js";

const SIDE = 256;
const MOST_BYTES = 40_960;

/** Returns the form by which an operator changes or removes their picture. @param {Api["Me"]} me @param {(words: string) => void} say @param {AbortSignal} signal */
export function pictureForm(me, say, signal) {
  const note = h("div");
  const place = h("div", { class: "face-place" });
  const field = h("input", { type: "file", name: "picture", accept: "image/png,image/jpeg,image/webp,image/gif", onchange: () => field.files[0] && change(field.files[0]) });

  function draw() {
    show(place, me.picture ? h("img", { class: "face", src: `/pictures/${me.picture}`, alt: t("Your picture"), width: 64, height: 64 }) : h("span", { class: "face none", "aria-hidden": "true" }),
      me.picture && h("button", { type: "button", class: "line", onclick: () => change(null) }, t("Remove the picture")));
  }

  /** @param {File | null} file */
  async function change(file) {
    show(note);
    try {
      if (file) me.picture = (await ask("/me/picture", { method: "PUT", body: { picture: await small(file) }, signal })).picture;
      else { await ask("/me/picture", { method: "DELETE", signal }); me.picture = ""; }
      draw();
      say(file ? t("The picture is set.") : t("The picture is removed."));
    } catch (error) { if (!signal.aborted) show(note, problem(error)); }
    field.value = "";
  }
  draw();
  return h("div", { class: "narrow picture" }, place, h("label", null, t("Picture"), field), h("p", { class: "muted small" }, t("Its middle is shown next to your name, in a circle.")), note);
}

/** Returns the middle square of a picture, as base64. @param {File} file */
async function small(file) {
  const whole = await createImageBitmap(file).catch(() => { throw new Error(t("This file is not a picture that the browser can open.")); });
  const side = Math.min(whole.width, whole.height);
  const canvas = new OffscreenCanvas(SIDE, SIDE);
  const pen = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext("2d"));
  pen.imageSmoothingQuality = "high";
  pen.fillStyle = "#fff";
  pen.fillRect(0, 0, SIDE, SIDE);
  pen.drawImage(whole, (whole.width - side) / 2, (whole.height - side) / 2, side, side, 0, 0, SIDE, SIDE);
  for (const quality of [0.9, 0.7, 0.4]) {
    const blob = await canvas.convertToBlob({ type: "image/jpeg", quality });
    if (blob.size > MOST_BYTES) continue;
    return btoa(Array.from(new Uint8Array(await blob.arrayBuffer()), (byte) => String.fromCharCode(byte)).join(""));
  }
  throw new Error(t("This picture cannot be made small enough."));
}
