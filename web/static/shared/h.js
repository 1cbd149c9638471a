/** Builds DOM nodes from function calls, so that no text is ever parsed as markup. */

const SVG = "http://www.w3.org/2000/svg";

/**
 * @typedef {Node | string | number | false | null | undefined} Child what is falsy is not drawn
 * @typedef {Record<string, any>} Props
 */

/**
 * Sets one property of a node. Handlers are functions under "onclick" and the like, `data` is a map of
 * data attributes, `vars` one of CSS variables; `true` is an empty attribute, `false` and `null` none.
 * @param {Element} node @param {string} name @param {any} value
 */
function put(node, name, value) {
  if (name === "style" || name === "srcdoc") throw new Error(`attribute ${name} is not allowed here`);
  if (typeof value === "function") node.addEventListener(name.slice(2), value);
  else if (name === "data") for (const [key, item] of Object.entries(value)) /** @type {any} */ (node).dataset[key] = item;
  else if (name === "vars") for (const [key, item] of Object.entries(value)) /** @type {any} */ (node).style.setProperty(key, String(item));
  else if (value === false || value === null || value === undefined) node.removeAttribute(name);
  else if (name.startsWith("on")) throw new Error(`handler ${name} must be a function`);
  else node.setAttribute(name, value === true ? "" : String(value));
}

/** @param {Element} node @param {Props | null} props @param {any[]} children */
function fill(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) put(node, name, value);
  add(node, children);
  return node;
}

/**
 * Appends children; arrays are flattened, and strings become text. False values are skipped, also 0, so a number to be shown has to be given as text.
 * @param {ParentNode} node @param {any} children
 */
export function add(node, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child) node.append(child instanceof Node ? child : String(child));
  }
}

/**
 * Returns an HTML element: `h("button", {class: "x", onclick: run}, "Run")`.
 * @param {string} tag @param {Props | null} [props] @param {...any} children @returns {any}
 */
export function h(tag, props = null, ...children) {
  return fill(document.createElement(tag), props, children);
}

/**
 * Returns an SVG element: `svg("circle", {r: 4})`.
 * @param {string} tag @param {Props | null} [props] @param {...any} children @returns {any}
 */
export function svg(tag, props = null, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

/**
 * Changes properties of an existing node.
 * @param {Element} node @param {Props} props
 */
export function set(node, props) {
  for (const [name, value] of Object.entries(props)) put(node, name, value);
}

/**
 * Replaces all children of a node.
 * @param {ParentNode} node @param {...any} children
 */
export function show(node, ...children) {
  node.replaceChildren();
  add(node, children);
}

/**
 * Returns a line icon from path data on a grid of 24 units.
 * @param {string} path @param {number} [size]
 */
export function icon(path, size = 20) {
  return svg("svg", {
    viewBox: "0 0 24 24", width: size, height: size, fill: "none", stroke: "currentColor",
    "stroke-width": 2, "stroke-linecap": "round", "stroke-linejoin": "round", "aria-hidden": "true",
  }, svg("path", { d: path }));
}
