"""Drawing of bar and line charts as PNG. Only the sandbox process imports this module."""

from __future__ import annotations

import io
import math
import unicodedata
from collections.abc import Sequence
from typing import Any

from PIL import Image, ImageDraw, ImageFont

WIDTH, HEIGHT = 1_200, 720
_LEFT, _RIGHT, _TOP, _BOTTOM = 110, 40, 120, 90
_COLOURS = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9"
"""Colours of series by Okabe and Ito, which colour-blind people can distinguish."""
_INK, _PALE = "#222222", "#d9d9d9"
_FONTS = "DejaVuSans.ttf", "NotoSans-Regular.ttf", "LiberationSans-Regular.ttf", "Arial.ttf", "arial.ttf"
_TICKS = 6


def draw_chart(wish: dict[str, Any]) -> bytes:
    """Return a chart as PNG.

    `wish` has `kind` (bar or line), `labels`, `series`, and perhaps `title` and `unit`. Each series has a
    `name` and as many `values` as there are labels; a value of None is a gap.
    """
    return _Chart(wish).draw()


class _Chart:
    def __init__(self, wish: dict[str, Any]) -> None:
        self._bars = wish["kind"] == "bar"
        self._title, self._unit = str(wish.get("title", "")), str(wish.get("unit", ""))
        self._labels = [str(one) for one in wish["labels"]]
        self._series: list[tuple[str, list[float | None]]] = [
            (str(one.get("name", "")), one["values"]) for one in wish["series"]
        ]
        known = [value for _, values in self._series for value in values if value is not None]
        low, high = min(known, default=0.0), max(known, default=1.0)
        if self._bars or (low >= 0 and low < high / 2):
            low, high = min(low, 0.0), max(high, 0.0)
        self._ticks = _ticks(low, high)
        self._image = Image.new("RGB", (WIDTH, HEIGHT), "white")
        self._pen = ImageDraw.Draw(self._image)

    def draw(self) -> bytes:
        self._write(self._title, (WIDTH / 2, 36), 32, "mm", most=WIDTH - 80)
        self._write(self._unit, (_LEFT, _TOP - 22), 20, "rm", most=_LEFT - 10)
        self._draw_legend()
        for tick in self._ticks:
            y = self._y(tick)
            self._pen.line((_LEFT, y, WIDTH - _RIGHT, y), fill=_PALE, width=1)
            self._write(f"{tick:,.10g}", (_LEFT - 12, y), 20, "rm", most=_LEFT - 16)
        self._draw_labels()
        for number, (_, values) in enumerate(self._series):
            colour = _COLOURS[number % len(_COLOURS)]
            if self._bars:
                self._draw_bars(number, values, colour)
            else:
                self._draw_line(values, colour)
        y = self._y(min(max(0.0, self._ticks[0]), self._ticks[-1]))
        self._pen.line((_LEFT, y, WIDTH - _RIGHT, y), fill=_INK, width=2)
        out = io.BytesIO()
        self._image.save(out, "PNG", optimize=True)
        return out.getvalue()

    @property
    def _step(self) -> float:
        return (WIDTH - _LEFT - _RIGHT) / max(1, len(self._labels))

    def _x(self, place: int) -> float:
        return _LEFT + (place + 0.5) * self._step

    def _y(self, value: float) -> float:
        low, high = self._ticks[0], self._ticks[-1]
        return HEIGHT - _BOTTOM - (value - low) / (high - low) * (HEIGHT - _TOP - _BOTTOM)

    def _draw_bars(self, number: int, values: Sequence[float | None], colour: str) -> None:
        width = self._step * 0.8 / len(self._series)
        for place, value in enumerate(values):
            if value is None:
                continue
            left = self._x(place) - self._step * 0.4 + number * width
            top, bottom = sorted((self._y(value), self._y(0.0)))
            self._pen.rectangle((left, top, left + max(1.0, width - 2), bottom), fill=colour)

    def _draw_line(self, values: Sequence[float | None], colour: str) -> None:
        before: tuple[float, float] | None = None
        for place, value in enumerate(values):
            now = None if value is None else (self._x(place), self._y(value))
            if now is not None:
                if before is not None:
                    self._pen.line((*before, *now), fill=colour, width=4)
                self._pen.ellipse((now[0] - 5, now[1] - 5, now[0] + 5, now[1] + 5), fill=colour)
            before = now

    def _draw_labels(self) -> None:
        font = _font(20)
        widest = max((font.getlength(_drawable(label[:24], font)) for label in self._labels), default=0.0)
        every = max(1, math.ceil((min(widest, 260.0) + 16) / self._step))
        for place in range(0, len(self._labels), every):
            where = (self._x(place), HEIGHT - _BOTTOM + 28)
            self._write(self._labels[place], where, 20, "mm", most=max(self._step * every - 8, 40))

    def _draw_legend(self) -> None:
        named = [(number, name) for number, (name, _) in enumerate(self._series) if name]
        if len(self._series) < 2:
            return
        room = (WIDTH - _LEFT - _RIGHT) / max(1, len(named))
        for place, (number, name) in enumerate(named):
            x = _LEFT + place * room
            self._pen.rectangle((x, 66, x + 20, 86), fill=_COLOURS[number % len(_COLOURS)])
            self._write(name, (x + 30, 76), 20, "lm", most=room - 40)

    def _write(self, words: str, where: tuple[float, float], size: int, anchor: str, *, most: float) -> None:
        font = _font(size)
        shown = _drawable(" ".join(words.split()), font)
        while shown and font.getlength(shown) > most:
            shown = shown.rstrip("…")[:-1] + "…" if len(shown) > 2 else ""
        self._pen.text(where, shown, fill=_INK, font=font, anchor=anchor)


def _ticks(low: float, high: float) -> list[float]:
    """Return evenly spaced round numbers that begin at or below `low` and end at or above `high`."""
    if not low < high:
        low, high = low - 1, high + 1
    raw = (high - low) / (_TICKS - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * one for one in (1, 2, 2.5, 5, 10) if power * one >= raw * 0.999)
    return [number * step for number in range(math.floor(low / step), math.ceil(high / step) + 1)]


def _font(size: int) -> ImageFont.FreeTypeFont:
    """Return the first installed font of _FONTS in this size; else Pillow's built-in font."""
    for name in _FONTS:
        try:
            return ImageFont.truetype(name, size)
        except OSError:
            continue
    own = ImageFont.load_default(size)
    assert isinstance(own, ImageFont.FreeTypeFont)
    return own


def _drawable(words: str, font: ImageFont.FreeTypeFont) -> str:
    """Return text that the font can draw: missing letters lose their accents or become question marks."""
    missing = bytes(font.getmask("\uffff"))
    said = []
    for sign in words:
        for one in (sign, unicodedata.normalize("NFKD", sign)[0]):
            if one == " " or bytes(font.getmask(one)) != missing:
                said.append(one)
                break
        else:
            said.append("?")
    return "".join(said)
