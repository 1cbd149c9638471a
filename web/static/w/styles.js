/** The chat's one style sheet, adopted by its shadow root so that it needs no permission from the page. */

const TOKENS = `
  --bg: light-dark(#f7f7f9, #0b0b0e); --card: light-dark(#ffffff, #131318); --soft: light-dark(#f4f4f8, #1c1c23);
  --fg: light-dark(#17171c, #f2f2f5); --muted: light-dark(#5c5c68, #9d9dab); --line: light-dark(#e5e5ec, #262630);
  --accent: light-dark(#4f46e5, #8b85ff); --accent-fill: #4f46e5; --on-accent: #ffffff;
  --ok: light-dark(#15803d, #4ade80); --warn: light-dark(#a16207, #facc15); --crit: light-dark(#b91c1c, #f87171);
  --system: light-dark(#64748b, #94a3b8); --memory: light-dark(#7c3aed, #a78bfa); --summary: light-dark(#0f766e, #2dd4bf);
  --history: light-dark(#4f46e5, #818cf8); --tools: light-dark(#c2410c, #fb923c);
  --font: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif;
  --mono: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
  --radius-s: 8px; --radius-m: 12px; --radius-l: 16px;
`;

const CSS = `
:host { all: initial !important; display: contents !important; }
:host([hidden]) { display: none !important; }
*, *::before, *::after { box-sizing: border-box; }
[hidden] { display: none !important; }
.root {
  ${TOKENS}
  --accent-fill: var(--evertalk-accent, #4f46e5); --radius-l: var(--evertalk-radius, 16px);
  all: unset; color-scheme: light dark; position: fixed; inset: auto; width: 0; height: 0; overflow: visible; z-index: 2147483000;
  font: 15px/1.55 var(--evertalk-font, var(--font)); color: var(--fg); text-align: start; -webkit-text-size-adjust: 100%;
}
.root { display: block; margin: 0; padding: 0; border: 0; background: none; }
.root[dir="rtl"] { direction: rtl; }
.root[data-theme="light"] { color-scheme: light; }
.root[data-theme="dark"] { color-scheme: dark; }
button, textarea { font: inherit; color: inherit; letter-spacing: inherit; margin: 0; }
button { cursor: pointer; background: none; border: 0; padding: 0; border-radius: var(--radius-s); -webkit-tap-highlight-color: transparent; }
button[aria-disabled="true"] { cursor: default; opacity: .5; }
:focus { outline: none; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
h2, h3, h4, h5, h6, p, ul, ol, dl, dd, pre, blockquote { margin: 0; padding: 0; font: inherit; }
.muted { color: var(--muted); } .small { font-size: 13px; line-height: 1.45; } .bad { color: var(--crit); }
.grow { flex: 1; }
.hidden { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }

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

.panel {
  position: fixed; bottom: 92px; inset-inline-end: 20px; width: min(400px, calc(100vw - 40px)); height: min(680px, calc(100dvh - 112px));
  display: flex; flex-direction: column; background: var(--card); border: 1px solid var(--line); border-radius: var(--radius-l); overflow: hidden;
  box-shadow: 0 16px 48px rgb(0 0 0 / .2); animation: rise .16s ease-out;
}
@keyframes rise { from { opacity: 0; transform: translateY(8px); } }
.head { display: flex; align-items: center; gap: 8px; min-height: 58px; padding: 0 14px; border-bottom: 1px solid var(--line); }
.head h2 { font-size: 15px; font-weight: 640; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.chip { font-size: 12px; line-height: 1; padding: 4px 7px; border-radius: 999px; color: var(--muted); border: 1px solid var(--line); }
.icon { width: 36px; height: 36px; display: grid; place-items: center; color: var(--muted); }
.icon:hover, .quiet:hover, .card-toggle:hover { background: var(--soft); color: var(--fg); }

.gauge { display: flex; align-items: center; gap: 7px; min-height: 30px; padding-inline: 7px 10px; border-radius: 999px; background: var(--soft); font-size: 13px; color: var(--muted); font-variant-numeric: tabular-nums; }
.gauge:hover { color: var(--fg); }
.gauge[data-stale="true"] { opacity: .6; }
.ring { fill: none; stroke-width: 2.5; } .track { stroke: var(--line); } .arc { stroke: var(--ok); transition: stroke-dasharray .2s ease-out; }
[data-status="warning"] .arc { stroke: var(--warn); } [data-status="critical"] .arc { stroke: var(--crit); }
.gauge[data-status="warning"] .pct { color: var(--warn); } .gauge[data-status="critical"] .pct { color: var(--crit); font-weight: 640; }

.popover {
  position: absolute; z-index: 3; top: 52px; inset-inline: 14px; max-height: calc(100% - 66px); overflow: auto; padding: 14px; display: grid; gap: 12px;
  background: var(--card); border: 1px solid var(--line); border-radius: var(--radius-m); box-shadow: 0 12px 32px rgb(0 0 0 / .18);
}
.popover-title { font-weight: 600; font-variant-numeric: tabular-nums; }
.stack { display: flex; gap: 2px; height: 8px; border-radius: 4px; overflow: hidden; }
.part { flex: var(--share) 1 0; min-width: 2px; background: var(--line); }
.dot { display: inline-block; width: 9px; height: 9px; margin-inline-end: 8px; border-radius: 3px; background: var(--line); }
.dot.free { background: none; box-shadow: inset 0 0 0 1.5px var(--muted); }
.part.system, .dot.system { background: var(--system); } .part.memory, .dot.memory { background: var(--memory); }
.part.summary, .dot.summary { background: var(--summary); } .part.history, .dot.history { background: var(--history); }
.part.tools, .dot.tools { background: var(--tools); }
.parts { display: grid; gap: 3px; font-size: 14px; }
.parts > div { display: flex; justify-content: space-between; } .parts dd { font-variant-numeric: tabular-nums; color: var(--muted); }
.row { display: flex; flex-wrap: wrap; gap: 8px; }
.action { min-height: 34px; padding: 0 13px; font-size: 14px; font-weight: 560; }
.action.solid { background: var(--accent-fill); color: var(--on-accent); } .action.line { box-shadow: inset 0 0 0 1px var(--line); }

.bar { display: flex; align-items: center; gap: 10px; padding: 6px 14px; font-size: 13px; color: var(--muted); background: var(--soft); border-bottom: 1px solid var(--line); }
.meter { flex: 1; height: 3px; border-radius: 2px; background: var(--line); overflow: hidden; }
.meter i { display: block; height: 100%; background: var(--accent); transform-origin: 0 0; transform: scaleX(var(--done, 0)); transition: transform .2s ease-out; }
.root[dir="rtl"] .meter i { transform-origin: 100% 0; }

.middle { flex: 1; min-height: 0; position: relative; display: flex; }
.log { flex: 1; min-width: 0; overflow: hidden auto; overscroll-behavior: contain; padding: 16px 14px; }
.log:focus-visible { outline-offset: -3px; }
.items { display: flex; flex-direction: column; gap: 14px; }
.empty { height: 100%; display: grid; place-content: center; text-align: center; gap: 6px; }
.hello { font-size: 20px; font-weight: 620; letter-spacing: -.01em; }
.jump {
  position: absolute; bottom: 10px; inset-inline-start: calc(50% - 18px); width: 36px; height: 36px; border-radius: 50%; display: grid; place-items: center;
  background: var(--card); border: 1px solid var(--line); box-shadow: 0 4px 14px rgb(0 0 0 / .16);
}
article { display: flex; flex-direction: column; min-width: 0; }
.body { min-width: 0; overflow-wrap: anywhere; }
.person { align-items: flex-end; }
.person .body { max-width: 85%; padding: 8px 13px; white-space: pre-wrap; background: var(--accent-fill); color: var(--on-accent); border-radius: 16px; border-end-end-radius: 4px; }
.person[data-status="sending"] .body { opacity: .65; }
.person[data-status="failed"] .body { background: var(--soft); color: var(--fg); box-shadow: inset 0 0 0 1px var(--crit); }
.person[data-queued="true"] .body { opacity: .8; }
.meta { display: flex; flex-wrap: wrap; align-items: center; gap: 2px 6px; margin-top: 3px; font-size: 12px; line-height: 1.5; color: var(--muted); font-variant-numeric: tabular-nums; }
.meta:empty { display: none; }
.person .meta { justify-content: flex-end; }
.assistant .meta, .notice .meta { margin-inline-start: -6px; } .meta .bad, .meta .tag, .meta time, .meta .muted { padding: 0 6px; }
.person .meta { padding-inline-end: 2px; } .person .meta time { padding: 0; }
.quiet { min-height: 26px; padding: 0 8px; font-size: 12.5px; color: var(--muted); white-space: nowrap; }
.notice { padding: 9px 12px; border: 1px solid var(--line); border-radius: var(--radius-m); background: var(--soft); font-size: 14px; }
.notice .meta { margin-inline-start: 0; } .notice .meta time { padding: 0; }
.result[data-success="false"] { border-color: var(--crit); }
.command { font: 12.5px/1.5 var(--mono); color: var(--muted); text-align: start; }
.dots { display: flex; align-items: center; gap: 5px; min-height: 23px; }
.dots i { width: 7px; height: 7px; border-radius: 50%; background: var(--muted); animation: blink 1.2s infinite; }
.dots i:nth-child(2) { animation-delay: .18s; } .dots i:nth-child(3) { animation-delay: .36s; }
@keyframes blink { 0%, 60%, 100% { opacity: .3; } 30% { opacity: 1; } }

.card { border: 1px solid var(--line); border-radius: var(--radius-m); background: var(--soft); font-size: 14px; }
.card-head { display: flex; align-items: center; padding: 5px; }
.card-head .quiet:hover, .card-head .card-toggle:hover { background: var(--card); }
.card-toggle { flex: 1; min-width: 0; min-height: 30px; display: flex; align-items: center; gap: 8px; padding: 3px 8px; text-align: start; font-size: 13.5px; line-height: 1.35; color: var(--muted); font-variant-numeric: tabular-nums; }
.chevron { flex: none; width: 7px; height: 7px; border: solid currentColor; border-width: 0 1.6px 1.6px 0; transform: rotate(-45deg); transition: transform .15s; }
.root[dir="rtl"] .chevron { transform: rotate(135deg); }
.root .card-toggle[aria-expanded="true"] .chevron { transform: rotate(45deg) translate(-1px, -1px); }
.card > .small { padding: 0 13px 8px; }
.card-body { padding: 0 12px 12px; }
.tabs { display: inline-flex; gap: 4px; margin-bottom: 8px; }
.tab { min-height: 30px; padding: 0 12px; font-size: 13px; color: var(--muted); border: 1px solid transparent; border-radius: 15px; }
.tab[aria-selected="true"] { background: var(--card); color: var(--fg); border-color: var(--line); }
.pane { max-height: 40vh; overflow: auto; border-radius: 6px; }
.original { margin-bottom: 10px; } .original b { font-size: 13px; }

.md > * + *, .pane > * + *, li > * + *, blockquote > * + * { margin-top: 9px; }
.md p, .pane p { white-space: pre-wrap; }
b, strong { font-weight: 650; } em { font-style: italic; }
h3, h4, h5, h6 { font-weight: 650; line-height: 1.35; } h3 { font-size: 1.13em; } h4 { font-size: 1.06em; }
ul, ol { padding-inline-start: 24px; } li { white-space: pre-wrap; } li + li, li > ul, li > ol { margin-top: 3px; }
.items a { color: var(--accent); text-decoration: underline; text-underline-offset: 2px; border-radius: 3px; } .host { color: var(--muted); font-size: .88em; }
hr { height: 0; border: 0; border-top: 1px solid var(--line); }
blockquote { padding-inline-start: 11px; border-inline-start: 3px solid var(--line); color: var(--muted); }
code { font: .88em/1.5 var(--mono); padding: 1px 5px; border-radius: 5px; background: light-dark(#ececf2, #26262f); }
.code { border: 1px solid var(--line); border-radius: var(--radius-s); background: var(--soft); overflow: hidden; }
.card .code, .notice .code { background: var(--card); }
.code-head { display: flex; justify-content: space-between; align-items: center; min-height: 30px; padding: 0 4px 0 12px; font-size: 12.5px; color: var(--muted); }
pre { overflow: auto; padding: 6px 12px 12px; tab-size: 4; } pre code { padding: 0; background: none; white-space: pre; font-size: 13px; line-height: 1.6; }
pre:focus-visible, .table:focus-visible, .pane:focus-visible { outline-offset: -2px; }
.hl-k { color: light-dark(#6d28d9, #c4b5fd); } .hl-s { color: light-dark(#166534, #86efac); } .hl-n { color: light-dark(#9a3412, #fdba74); } .hl-c { color: var(--muted); font-style: italic; }
.table { overflow-x: auto; } table { border-collapse: collapse; font-size: 14px; }
th, td { padding: 4px 9px; border: 1px solid var(--line); } th { background: var(--soft); font-weight: 650; }
.at-start { text-align: start; } .at-center { text-align: center; } .at-end { text-align: end; font-variant-numeric: tabular-nums; }

.composer { position: relative; padding: 10px; border-top: 1px solid var(--line); }
.composer-note { padding: 0 4px 6px; font-size: 13px; color: var(--crit); }
.field { display: flex; align-items: flex-end; gap: 6px; padding: 6px; border: 1px solid var(--line); border-radius: 14px; background: var(--soft); }
.field:focus-within { outline: 2px solid var(--accent); outline-offset: -1px; }
textarea { flex: 1; min-width: 0; display: block; height: 34px; max-height: 152px; padding: 5px 7px; resize: none; border: 0; background: none; font-size: 16px; line-height: 24px; }
textarea:focus-visible { outline: none; } textarea::placeholder { color: var(--muted); opacity: 1; }
.send, .stop { flex: none; width: 34px; height: 34px; display: grid; place-items: center; border-radius: 10px; }
.send { background: var(--accent-fill); color: var(--on-accent); } .stop { color: var(--fg); box-shadow: inset 0 0 0 1px var(--line); background: var(--card); }
.stop svg { fill: currentColor; }
.slash {
  position: absolute; z-index: 2; bottom: calc(100% - 4px); inset-inline: 10px; max-height: min(300px, 45vh); overflow: auto; padding: 5px; list-style: none;
  background: var(--card); border: 1px solid var(--line); border-radius: var(--radius-m); box-shadow: 0 10px 30px rgb(0 0 0 / .18);
}
.slash li { margin: 0; display: flex; flex-wrap: wrap; align-items: baseline; gap: 0 9px; padding: 7px 10px; border-radius: var(--radius-s); cursor: pointer; white-space: normal; }
.slash li[aria-selected="true"], .slash li:hover { background: light-dark(#ececf2, #26262f); }
.args:empty { display: none; } .slash .muted, .slash .args { font-size: 13px; } .slash .args { font-family: var(--mono); color: var(--muted); }

.root[data-mode="page"] { position: static; width: auto; height: auto; }
.root[data-mode="page"] .panel { inset: 0; width: 100%; height: 100dvh; border: 0; border-radius: 0; box-shadow: none; animation: none; background: var(--card); }
.root[data-mode="page"] .items, .root[data-mode="page"] .composer, .root[data-mode="page"] .popover { width: 100%; max-width: 780px; margin-inline: auto; }
.root[data-mode="page"] .composer { border-top: 0; max-width: 800px; padding-bottom: max(14px, env(safe-area-inset-bottom)); }
.root[data-mode="page"] .popover { inset-inline: auto max(14px, env(safe-area-inset-right)); max-width: min(400px, calc(100vw - 28px)); }
@media (max-width: 560px) {
  .panel { inset: 0 !important; width: 100%; height: var(--visible, 100dvh); border: 0; border-radius: 0; padding: env(safe-area-inset-top) env(safe-area-inset-right) env(safe-area-inset-bottom) env(safe-area-inset-left); }
  .panel { bottom: auto !important; top: var(--top, 0px) !important; }
  .root[data-open="true"] .launcher { display: none; }
}
@media (prefers-reduced-motion: reduce) { *, *::before, *::after { animation: none !important; transition: none !important; scroll-behavior: auto !important; } .dots i { opacity: .6; } }
@media (forced-colors: active) {
  .panel, .popover, .slash, .send, .action, .launcher, .tab[aria-selected="true"] { border: 1px solid; }
  .part, .dot, .meter i { forced-color-adjust: none; } .slash li[aria-selected="true"] { outline: 2px solid Highlight; }
}
@media print { .launcher, .composer, .jump { display: none; } }
`;

let shared = /** @type {CSSStyleSheet | null} */ (null);

/** The sheet, made once. */
export function sheet() {
  if (!shared) {
    shared = new CSSStyleSheet();
    shared.replaceSync(CSS);
  }
  return shared;
}
