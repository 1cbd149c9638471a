/** The operator's second factor: set up by a key and a first code, removed by a code. */
import { ask } from "./net.js";
import { svg } from "../shared/h.js";
import { h, problem, show, skeleton, t, time, tn } from "./parts.js";

/** Returns the node in which an operator sets up or removes the second factor. @param {(words: string) => void} say @param {AbortSignal} signal @param {() => void} changed other logins may have ended */
export function secondFactor(say, signal, changed) {
  const place = h("div", null, skeleton(1));
  const note = h("div");
  /** @param {unknown} error */
  const failed = (error) => { if (!signal.aborted) show(note, problem(error)); };
  /** @param {string} path @param {any} body @param {(answer: any) => void} then */
  const send = (path, body, then) => async (/** @type {any} */ event) => {
    event?.preventDefault();
    show(note);
    try { then(await ask(path, { method: "POST", body: body?.(), signal })); } catch (error) { failed(error); }
  };

  async function load() {
    const found = await ask("/me/second-factor", { signal });
    show(place, ...(found.on ? on(found) : off()));
  }
  const again = () => { load().catch(failed); };

  function off() {
    return [h("p", { class: "muted" }, t("In addition to the password, a login can ask for a code from an app on your phone.")),
      h("button", { type: "button", class: "line", onclick: send("/me/second-factor", null, (begun) => show(place, ...begins(begun))) }, t("Set up a second factor"))];
  }

  /** @param {Api["SecondFactorKey"]} begun */
  function begins(begun) {
    const code = codeField(t("Code from the app"));
    return [h("div", { class: "once" }, h("p", null, begun.picture ? t("Scan this with your authenticator app, or enter the key:") : t("Add an account in your authenticator app with this key:")),
      begun.picture && qrCode(begun.picture), h("code", null, begun.key),
      h("a", { href: begun.address }, t("Open an app on this device"))),
    h("form", { class: "narrow", onsubmit: send("/me/second-factor/confirm", () => ({ code: code.value }), (made) => {
      show(place, ...recovery(made.codes));
      say(t("The second factor is on."));
      changed();
    }) }, code.label, h("button", { type: "submit", class: "solid" }, t("Switch it on")))];
  }

  /** @param {string[]} codes */
  function recovery(codes) {
    return [h("p", null, t("The second factor is on; your other logins have ended. Write down these codes: each works once, if you lose your phone. They are not shown again.")),
      h("ul", { class: "codes", "aria-label": t("Recovery codes") }, codes.map((one) => h("li", null, h("code", null, one)))),
      h("button", { type: "button", class: "line", onclick: again }, t("I have saved them"))];
  }

  /** @param {Api["SecondFactor"]} found */
  function on(found) {
    const code = codeField(t("Code from the app, or a recovery code"));
    return [h("p", null, tn("On since {time}, with {count} recovery code left.", "On since {time}, with {count} recovery codes left.", found.codes_left, { time: time(found.since) })),
      h("form", { class: "narrow", onsubmit: send("/me/second-factor/remove", () => ({ code: code.value }), () => { say(t("The second factor is off.")); again(); }) },
        code.label, h("button", { type: "submit", class: "line danger" }, t("Remove it")))];
  }

  again();
  return h("div", null, place, note);
}

/** Draws a QR code, in every theme dark on white and with the margin that cameras need. @param {{size: number, path: string}} picture */
const qrCode = ({ size, path }) => svg("svg", { class: "qr", viewBox: `-4 -4 ${size + 8} ${size + 8}`, role: "img", "aria-label": t("QR code of the key"), "shape-rendering": "crispEdges" },
  svg("rect", { x: -4, y: -4, width: size + 8, height: size + 8, fill: "#fff" }), svg("path", { d: path, fill: "#000" }));

/** @param {string} label */
function codeField(label) {
  const field = /** @type {HTMLInputElement} */ (h("input", { name: "code", autocomplete: "one-time-code", autocapitalize: "none", spellcheck: "false", required: true, maxlength: 40 }));
  return { label: h("label", null, label, field), get value() { return field.value; } };
}
