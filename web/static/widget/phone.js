/** Keeps Tab within the panel on a small screen, where the page behind it cannot be seen. */

/** Makes Tab wrap around within the open panel; replaces an earlier handler. @param {import("./main.js").Widget} widget */
export function stay(widget) {
  const node = widget.chat?.node;
  if (!node || !widget.opened) return;
  node.removeEventListener("keydown", widget.keys);
  widget.keys = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Tab" || event.defaultPrevented) return;
    const all = [...node.querySelectorAll("button, textarea, a[href], [tabindex='0']")].filter((/** @type {any} */ one) => one.checkVisibility?.() ?? one.offsetParent);
    const active = widget.root.getRootNode().activeElement;
    const edge = event.shiftKey ? all[0] : all[all.length - 1];
    if (active !== edge) return;
    event.preventDefault();
    (event.shiftKey ? all[all.length - 1] : all[0]).focus();
  };
  node.addEventListener("keydown", widget.keys);
}
