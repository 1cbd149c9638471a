/** The operator's own account: a password, so that the next login needs no link. */
import { ask } from "./net.js";
import { card, h, problem, show } from "./parts.js";

/** @param {any} page */
export function accountPage({ root, me, say, signal }) {
  document.title = "Account · Evertalk";
  const note = h("div");
  const field = h("input", { type: "password", name: "password", autocomplete: "new-password", minlength: 10, maxlength: 1000, required: true });
  const form = h("form", { class: "narrow", onsubmit: async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      await ask("/me/password", { method: "POST", body: { password: field.value }, signal });
      me.has_password = true;
      field.value = "";
      show(note, h("p", { class: "done" }, "The password is set. Other logins of yours have ended."));
      say("The password is set.");
    } catch (error) { if (!signal.aborted) show(note, problem(error)); }
  } },
  h("input", { type: "text", name: "username", autocomplete: "username", value: me.name, hidden: true, readonly: true }),
  h("label", null, me.has_password ? "New password" : "Password", field), h("p", { class: "muted small" }, "At least 10 characters."),
  h("button", { type: "submit", class: "solid" }, me.has_password ? "Change the password" : "Set the password"), note);
  show(root, h("div", { class: "page-head" }, h("div", null, h("h1", null, "Account"), h("p", { class: "facts" }, `${me.name} · ${me.role}`))),
    card("Password", [form]));
}
