/** Styles of the launcher and the basics, adopted by the shadow root so that no permission of the page is needed. */

const TOKENS = /* css */ `
  --card: light-dark(#ffffff, #131318); --soft: light-dark(#f4f4f8, #1c1c23);
  --fg: light-dark(#17171c, #f2f2f5); --muted: light-dark(#5c5c68, #9d9dab); --line: light-dark(#e5e5ec, #262630);
  --accent: light-dark(#4f46e5, #8b85ff);
  --ok: light-dark(#15803d, #4ade80); --warn: light-dark(#935b08, #facc15); --crit: light-dark(#b91c1c, #f87171);
  --font: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif;
  --mono: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
  --radius-s: 8px; --radius-m: 12px;
`;

const LOOK = /* css */ `
:host { all: initial !important; display: contents !important; }
:host([hidden]) { display: none !important; }
*, *::before, *::after { box-sizing: border-box; }
[hidden] { display: none !important; }
.root {
  ${TOKENS}
  --accent-fill: var(--evertalk-accent, var(--site-accent, #4f46e5)); --on-accent: var(--evertalk-on-accent, var(--site-on-accent, #fff)); --radius-l: var(--evertalk-radius, 16px);
  all: unset; display: block; color-scheme: light dark; position: fixed; inset: auto; width: 0; height: 0; overflow: visible; z-index: 2147483000;
  font: 15px/1.55 var(--evertalk-font, var(--site-font, var(--font))); color: var(--fg); text-align: start; -webkit-text-size-adjust: 100%;
}
.root[dir="rtl"] { direction: rtl; }
.root[data-theme="light"] { color-scheme: light; }
.root[data-theme="dark"] { color-scheme: dark; }
button, textarea { font: inherit; color: inherit; letter-spacing: inherit; margin: 0; }
button { cursor: pointer; background: none; border: 0; padding: 0; border-radius: var(--radius-s); -webkit-tap-highlight-color: transparent; }
button[aria-disabled="true"] { cursor: default; opacity: .5; }
:focus { outline: none; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
.launcher {
  position: fixed; bottom: 20px; inset-inline-end: 20px; width: 56px; height: 56px; border-radius: 50%; display: grid; place-items: center;
  background: var(--accent-fill); color: var(--on-accent); box-shadow: 0 6px 20px rgb(0 0 0 / .22); transition: transform .15s ease-out;
}
.launcher:hover { transform: translateY(-2px); }
.badge {
  position: absolute; top: -3px; inset-inline-end: -3px; min-width: 20px; height: 20px; padding: 0 5px; border-radius: 10px; display: grid; place-items: center;
  background: var(--crit); color: var(--card); font-size: 12px; line-height: 1; font-weight: 640;
}
.root[data-position="left"] .launcher, .root[data-position="left"] .panel { inset-inline: 20px auto; }
@media (prefers-reduced-motion: reduce) { *, *::before, *::after { animation: none !important; transition: none !important; scroll-behavior: auto !important; } }
@media (forced-colors: active) { .launcher { border: 1px solid; } }
@media print { .launcher { display: none; } }
`;

/** Returns a style sheet of these rules, by default of the launcher and the basics. */
export function sheet(rules = LOOK) {
  const made = new CSSStyleSheet();
  made.replaceSync(rules);
  return made;
}

/** @type {Map<string, CSSStyleSheet>} */
const sheets = new Map();

/** Adds rules of a part that is loaded later to a node's shadow root, once. @param {Node} node in its shadow root @param {string} rules */
export function adopt(node, rules) {
  const { adoptedStyleSheets: worn } = /** @type {ShadowRoot} */ (node.getRootNode());
  const made = sheets.get(rules) ?? sheet(rules);
  sheets.set(rules, made);
  if (!worn.includes(made)) worn.push(made);
}
