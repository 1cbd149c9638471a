/** Styles of the sheet, loaded with the sheet. */

/** Style rules of the sheet and its views. */
export const SHEET_LOOK = /* css */ `
.sheet { position: absolute; inset: 0; z-index: 4; display: flex; flex-direction: column; background: var(--card); }
.sheet h2:focus-visible { outline-offset: 4px; border-radius: 3px; }
.sheet .head .quiet { min-height: 32px; overflow: hidden; text-overflow: ellipsis; }
.sheet .head .icon { flex: none; }
.sheet .head h2 { flex: none; max-width: 65%; }
.view { flex: 1; min-height: 0; display: flex; flex-direction: column; width: 100%; max-width: 780px; margin-inline: auto; }
.search-row { padding: 12px 14px 0; }
.search {
  width: 100%; min-height: 38px; margin: 0; padding: 6px 12px; font: inherit; font-size: 16px; color: inherit; background: var(--soft);
  border: 1px solid var(--line); border-radius: var(--radius-m); appearance: none;
}
.search::placeholder { color: var(--muted); opacity: 1; }
.search:focus-visible { outline-offset: -1px; }
.scroll { flex: 1; min-height: 0; overflow: hidden auto; overscroll-behavior: contain; padding: 10px 14px 16px; }
.scroll:focus-visible { outline-offset: -3px; }
.state { padding: 2px 0 10px; font-size: 13px; color: var(--muted); }
.state .quiet { margin-inline-start: 6px; }
.state[data-bad="true"] { color: var(--crit); }
.notes { padding: 0; list-style: none; }
.notes[aria-busy="true"] { opacity: .8; }
.note { padding: 10px 0; border-top: 1px solid var(--line); white-space: normal; }
.note-text { overflow-wrap: anywhere; white-space: pre-wrap; }
.note-meta { display: flex; flex-wrap: wrap; align-items: center; gap: 4px 8px; margin-top: 2px; font-size: 12.5px; color: var(--muted); }
.note-meta .tag { padding: 1px 7px; border: 1px solid var(--line); border-radius: 999px; }
.note-acts { display: flex; gap: 2px; margin-top: 2px; margin-inline-start: -8px; }
.note[data-editing] .note-acts { display: none; }
.note-form { display: grid; gap: 8px; margin-top: 8px; }
.sheet .note-area { height: auto; min-height: 84px; max-height: 40vh; padding: 8px 10px; border: 1px solid var(--line); border-radius: var(--radius-s); background: var(--soft); resize: vertical; }
.sheet .note-area:focus-visible { outline: 2px solid var(--accent); outline-offset: -1px; }
.note-hint { font-size: 13px; color: var(--crit); }
.toast { display: flex; align-items: center; gap: 8px; margin: 0 14px 14px; padding: 8px 8px 8px 12px; font-size: 13.5px; background: var(--soft); border: 1px solid var(--line); border-radius: var(--radius-m); }
.root[dir="rtl"] .toast { padding: 8px 12px 8px 8px; }
.toast span { flex: 1; min-width: 0; overflow-wrap: anywhere; }
.toast .quiet { color: var(--accent); font-weight: 600; }
.found { padding: 0; list-style: none; }
.found button { display: block; width: 100%; padding: 9px 8px; text-align: start; white-space: normal; border-radius: var(--radius-s); }
.found button:hover { background: var(--soft); }
.found li + li { border-top: 1px solid var(--line); }
.found span { display: block; overflow-wrap: anywhere; }
.found mark { padding: 0 1px; border-radius: 3px; background: color-mix(in srgb, var(--warn) 28%, transparent); color: inherit; font-weight: 600; }
.pins li { padding: 8px 0; } .found .quiet { display: inline-block; width: auto; padding: 0 8px; } form.search-row { display: grid; gap: 10px; max-width: 420px; }
.talks li { display: flex; align-items: center; gap: 4px; } .talks li:has(input) { display: grid; gap: 8px; padding: 9px 0; } .talks li > button:first-child { flex: 1; min-width: 0; } .talks :is(.quiet, .action) { width: auto; padding: 0 8px; } .talks .action { padding: 0 13px; } .talks [aria-current] .muted { font-weight: 400; } .view .row:has(+ .state) { padding-bottom: 8px; } .talks [aria-current] { font-weight: 600; } .unread { color: var(--accent); }
.kept section + section { margin-top: 20px; padding-top: 14px; border-top: 1px solid var(--line); }
.kept h3 { margin-bottom: 8px; font-size: 14px; color: var(--muted); }
@media (max-width: 560px) {
  .sheet { padding: env(safe-area-inset-top) env(safe-area-inset-right) env(safe-area-inset-bottom) env(safe-area-inset-left); }
  .sheet .quiet { min-height: 34px; }
}
@media (forced-colors: active) { .note-area, .toast { border: 1px solid; } }
`;
