/** Styles of the open chat, loaded with the chat so that the launcher stays small. */
import { sheet } from "./styles.js";

const PANEL = /* css */ `
h1, h2, h3, h4, h5, h6, p, ul, ol, dl, dd, pre, blockquote { margin: 0; padding: 0; font: inherit; }
.muted { color: var(--muted); } .small { font-size: 13px; line-height: 1.45; } .bad { color: var(--crit); }
.grow { flex: 1; }
.hidden { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }

.panel {
  position: fixed; bottom: 92px; inset-inline-end: 20px; width: min(400px, calc(100vw - 40px)); height: min(680px, calc(100dvh - 112px));
  display: flex; flex-direction: column; background: var(--card); border: 1px solid var(--line); border-radius: var(--radius-l); overflow: hidden;
  box-shadow: 0 16px 48px rgb(0 0 0 / .2); animation: rise .16s ease-out;
}
@keyframes rise { from { opacity: 0; transform: translateY(8px); } }
.head { display: flex; align-items: center; gap: 8px; min-height: 58px; padding: 0 14px; border-bottom: 1px solid var(--line); }
.head :is(h1, h2) { font-size: 15px; font-weight: 640; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.chip { font-size: 12px; line-height: 1; padding: 4px 7px; border-radius: 999px; color: var(--muted); border: 1px solid var(--line); }
.icon { width: 36px; height: 36px; display: grid; place-items: center; color: var(--muted); }
.icon:hover, .quiet:hover { background: var(--soft); color: var(--fg); }

.gauge { display: flex; align-items: center; gap: 7px; min-height: 30px; padding-inline: 7px 10px; border-radius: 999px; background: var(--soft); font-size: 13px; color: var(--muted); font-variant-numeric: tabular-nums; }
.gauge:hover { color: var(--fg); }
.gauge[data-stale="true"] { opacity: .6; }
.ring { fill: none; stroke-width: 2.5; } .track { stroke: var(--line); } .arc { stroke: var(--ok); transition: stroke-dasharray .2s ease-out; }
[data-status="warning"] .arc { stroke: var(--warn); } [data-status="critical"] .arc { stroke: var(--crit); }
.gauge[data-status="warning"] .pct { color: var(--warn); } .gauge[data-status="critical"] .pct { color: var(--crit); font-weight: 640; }

.row { display: flex; flex-wrap: wrap; gap: 8px; }
.action { min-height: 34px; padding: 0 13px; font-size: 14px; font-weight: 560; }
.action.solid { background: var(--accent-fill); color: var(--on-accent); } .action.line { box-shadow: inset 0 0 0 1px var(--line); }

.bar { display: flex; align-items: center; gap: 10px; padding: 6px 14px; overflow-wrap: anywhere; font-size: 13px; color: var(--muted); background: var(--soft); border-bottom: 1px solid var(--line); }
.meter { flex: 1; height: 3px; border-radius: 2px; background: var(--line); overflow: hidden; }
.meter i { display: block; height: 100%; background: var(--accent); transform-origin: 0 0; transform: scaleX(var(--done, 0)); transition: transform .2s ease-out; }
.root[dir="rtl"] .meter i { transform-origin: 100% 0; }

.middle { flex: 1; min-height: 0; position: relative; display: flex; }
.log { flex: 1; min-width: 0; overflow: hidden auto; overscroll-behavior: contain; padding: 16px 14px; overflow-wrap: anywhere; }
.log:focus-visible { outline-offset: -3px; }
.items { display: flex; flex-direction: column; gap: 14px; }
.empty { min-height: 100%; display: grid; place-content: safe center; text-align: center; gap: 6px; }
.hello { font-size: 20px; font-weight: 620; letter-spacing: -.01em; }
.jump {
  position: absolute; bottom: 10px; inset-inline-start: calc(50% - 18px); width: 36px; height: 36px; border-radius: 50%; display: grid; place-items: center;
  background: var(--card); border: 1px solid var(--line); box-shadow: 0 4px 14px rgb(0 0 0 / .16);
}
article { display: flex; flex-direction: column; min-width: 0; }
.body { min-width: 0; overflow-wrap: anywhere; }
.plain { white-space: pre-wrap; animation: late 0s .4s both; } @keyframes late { from { visibility: hidden; } }
.person { align-items: flex-end; }
.person .body { max-width: 85%; padding: 8px 13px; white-space: pre-wrap; background: var(--accent-fill); color: var(--on-accent); border-radius: 16px; border-end-end-radius: 4px; }
.person[data-status="sending"] .body, .person[data-queued="true"] .body { background: color-mix(in srgb, var(--accent-fill) 80%, #000); }
.person[data-status="failed"] .body { background: var(--soft); color: var(--fg); box-shadow: inset 0 0 0 1px var(--crit); }
.meta { display: flex; flex-wrap: wrap; align-items: center; gap: 2px 6px; margin-top: 3px; font-size: 12px; line-height: 1.5; color: var(--muted); font-variant-numeric: tabular-nums; }
.meta:empty { display: none; }
.person .meta { justify-content: flex-end; }
.assistant .meta, .notice .meta { margin-inline-start: -6px; } .meta .bad, .meta .tag, .meta time, .meta .muted { padding: 0 6px; }
.person .meta { padding-inline-end: 2px; } .person .meta time { padding: 0; }
.quiet { min-height: 26px; padding: 0 8px; font-size: 12.5px; color: var(--muted); white-space: nowrap; }
.notice { padding: 9px 12px; border: 1px solid var(--line); border-radius: var(--radius-m); background: var(--soft); font-size: 14px; }
.notice .meta { margin-inline-start: 0; } .notice .meta:has(.action) { margin-top: 9px; gap: 8px; color: var(--fg); } .notice .meta time { padding: 0; }
.result[data-broken="true"] { border-color: var(--crit); }
.command { font: 12.5px/1.5 var(--mono); color: var(--muted); text-align: start; }
.more svg { stroke-width: 3.2; }
.dots { display: flex; align-items: center; gap: 5px; min-height: 23px; }
.dots i { width: 7px; height: 7px; border-radius: 50%; background: var(--muted); animation: blink 1.2s infinite; }
.dots i:nth-child(2) { animation-delay: .18s; } .dots i:nth-child(3) { animation-delay: .36s; }
@keyframes blink { 0%, 60%, 100% { opacity: .3; } 30% { opacity: 1; } }

.composer { position: relative; padding: 10px; border-top: 1px solid var(--line); }
.composer-note { padding: 0 4px 6px; font-size: 13px; color: var(--crit); }
.field { display: flex; align-items: flex-end; gap: 6px; padding: 6px; border: 1px solid var(--line); border-radius: 14px; background: var(--soft); }
.field:focus-within { outline: 2px solid var(--accent); outline-offset: -1px; }
textarea { flex: 1; min-width: 0; display: block; height: 34px; max-height: 152px; padding: 5px 7px; resize: none; border: 0; background: none; font-size: 16px; line-height: 24px; }
textarea:focus-visible { outline: none; } .root[dir="rtl"] textarea:placeholder-shown { direction: rtl; } textarea::placeholder { color: var(--muted); opacity: 1; }
.send, .stop { flex: none; width: 34px; height: 34px; display: grid; place-items: center; border-radius: 10px; }
.send { background: var(--accent-fill); color: var(--on-accent); } .stop { color: var(--fg); box-shadow: inset 0 0 0 1px var(--line); background: var(--card); }
.stop svg { fill: currentColor; }

.root[data-mode="page"] { position: static; width: auto; height: auto; }
.root[data-mode="page"] .panel { inset: 0; width: 100%; height: 100dvh; border: 0; border-radius: 0; box-shadow: none; animation: none; background: var(--card); }
.root[data-mode="page"] .items, .root[data-mode="page"] .composer { width: 100%; max-width: 780px; margin-inline: auto; }
.root[data-mode="page"] .composer { border-top: 0; max-width: 800px; padding-bottom: max(14px, env(safe-area-inset-bottom)); }
@media (max-width: 560px) {
  .panel { inset: 0 !important; width: 100%; height: var(--visible, 100dvh); border: 0; border-radius: 0; padding: env(safe-area-inset-top) env(safe-area-inset-right) env(safe-area-inset-bottom) env(safe-area-inset-left); }
  .panel { bottom: auto !important; top: var(--top, 0px) !important; }
  .root[data-open="true"] .launcher { display: none; }
}
@media (prefers-reduced-motion: reduce) { .dots i { opacity: .6; } }
@media (forced-colors: active) {
  .panel, .send, .action, .person .body { border: 1px solid; }
  .meter i { forced-color-adjust: none; }
}
@media print {
  .composer, .jump, .bars, .head button, .meta button { display: none; }
  :host([data-mode="page"]) { position: static; width: auto; height: auto; }
  .root[data-mode="page"] .panel { position: static !important; height: auto; overflow: visible; padding: 0; }
  .root[data-mode="page"] :is(.panel, .middle, .log) { display: block; overflow: visible; }
}
`;

/** Adds the styles of the open chat to the shadow root. @param {ShadowRoot} shadow the root that the panel will stand in */
export function dress(shadow) {
  shadow.adoptedStyleSheets.push(sheet(PANEL));
}
