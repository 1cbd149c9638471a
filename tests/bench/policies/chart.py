"""Draws what each preset costs and keeps as one picture: SVG by hand, made a PNG by the browser."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

WIDTH = 900
ROW, TOP, LEFT, RIGHT = 30, 74, 120, 330
BAR = WIDTH - LEFT - RIGHT
_OPENING = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
    'viewBox="0 0 {width} {height}" font-family="system-ui, sans-serif" font-size="13">'
)
OURS, OTHERS, INK, MUTED, GRID = "#0f766e", "#94a3b8", "#0f172a", "#64748b", "#e2e8f0"


def svg(found: Mapping[str, Mapping[str, Any]], *, title: str, ours: str = "steady") -> str:
    """Bars of dollars per 1,000 turns on a scale of roots, so that tenfold differences stay readable."""
    ranked = sorted(found.items(), key=lambda pair: pair[1]["usd_per_1000_turns"])
    most = max(row["usd_per_1000_turns"] for _, row in ranked) or 1.0
    height = TOP + ROW * len(ranked) + 26
    parts = [
        _OPENING.format(width=WIDTH, height=height),
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="20" y="30" font-size="17" font-weight="600" fill="{INK}">{html.escape(title)}</text>',
        _text(LEFT, 56, "dollars per 1,000 turns", MUTED),
        _text(WIDTH - 185, 56, "reachable", MUTED, anchor="end"),
        _text(WIDTH - 110, 56, "refused", MUTED, anchor="end"),
        _text(WIDTH - 20, 56, "summaries", MUTED, anchor="end"),
    ]
    for place, (name, row) in enumerate(ranked):
        parts += _row(name, row, y=TOP + ROW * place, most=most, colour=OURS if name == ours else OTHERS)
    return "\n".join([*parts, "</svg>"])


def _row(name: str, row: Mapping[str, Any], *, y: int, most: float, colour: str) -> Sequence[str]:
    length = max(2.0, BAR * (row["usd_per_1000_turns"] / most) ** 0.5)
    middle = y + 18
    weight = "600" if colour == OURS else "400"
    refused = row["refused"]
    return (
        f'<line x1="20" x2="{WIDTH - 20}" y1="{y + ROW - 2}" y2="{y + ROW - 2}" stroke="{GRID}"/>',
        f'<text x="20" y="{middle}" fill="{INK}" font-weight="{weight}">{html.escape(name)}</text>',
        f'<rect x="{LEFT}" y="{y + 6}" width="{length:.1f}" height="16" rx="3" fill="{colour}"/>',
        _text(LEFT + length + 8, middle, f"${row['usd_per_1000_turns']:.2f}", INK),
        _text(WIDTH - 185, middle, f"{100 * row['reachable']:.1f} %", INK, anchor="end"),
        _text(WIDTH - 110, middle, str(refused), "#b91c1c" if refused else INK, anchor="end"),
        _text(WIDTH - 20, middle, str(row["compactions"]), INK, anchor="end"),
    )


def _text(x: float, y: float, words: str, colour: str, *, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y}" fill="{colour}" text-anchor="{anchor}">{html.escape(words)}</text>'


def write_png(picture: str, path: Path) -> None:
    """Raises playwright's own error where there is no Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=_chromium())
        try:
            page = browser.new_page(viewport={"width": WIDTH, "height": 100}, device_scale_factor=1.5)
            page.set_content(f"<style>body{{margin:0}}</style>{picture}")
            page.locator("svg").screenshot(path=str(path))
        finally:
            browser.close()


def _chromium() -> str | None:
    import shutil

    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
