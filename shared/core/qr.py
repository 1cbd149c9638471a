"""A short text as a QR code (ISO/IEC 18004): bytes, correction level L, versions 1 to 15."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

Grid = list[list[bool]]
_CORRECTION = (7, 10, 15, 20, 26, 18, 20, 24, 30, 18, 20, 24, 26, 30, 22)
"""Codewords of correction in each block, by version."""
_BLOCKS = (1, 1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, 4, 6)
_LEVEL_L = 1
_MASKS: tuple[Callable[[int, int], int], ...] = (
    lambda x, y: (x + y) % 2,
    lambda _, y: y % 2,
    lambda x, _: x % 3,
    lambda x, y: (x + y) % 3,
    lambda x, y: (x // 3 + y // 2) % 2,
    lambda x, y: x * y % 2 + x * y % 3,
    lambda x, y: (x * y % 2 + x * y % 3) % 2,
    lambda x, y: ((x + y) % 2 + x * y % 3) % 2,
)
"""Where it is 0, dark and light change places."""


class TooLongForCode(ValueError):
    """More than version 15 holds."""


def qr_modules(text: str) -> tuple[tuple[bool, ...], ...]:
    """Rows of dark modules, without the quiet border of four; raises TooLongForCode."""
    data = text.encode()
    version = _version_for(data)
    words = _with_correction(_words(data, version), version)
    drawn = [_masked(words, version, mask) for mask in range(len(_MASKS))]
    return tuple(tuple(row) for row in min(drawn, key=_lumps))


def qr_path(rows: Sequence[Sequence[bool]]) -> str:
    """The same as the `d` of an SVG path, a module being a unit: dark stretches, row by row."""
    return "".join(
        f"M{x} {y}h{length}v1h-{length}z" for y, row in enumerate(rows) for x, length in _dark(row)
    )


def _dark(row: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Where each dark stretch begins, and how long it is."""
    at = 0
    for dark, stretch in groupby(row):
        length = sum(1 for _ in stretch)
        if dark:
            yield at, length
        at += length


def _version_for(data: bytes) -> int:
    for version in range(1, len(_BLOCKS) + 1):
        if 4 + _length_bits(version) + 8 * len(data) <= 8 * _capacity(version):
            return version
    raise TooLongForCode(f"{len(data)} bytes")


def _length_bits(version: int) -> int:
    return 8 if version < 10 else 16


def _all_words(version: int) -> int:
    """Codewords of both kinds: modules that no pattern takes, by eight."""
    modules = (16 * version + 128) * version + 64
    if version >= 2:
        places = version // 7 + 2
        modules -= (25 * places - 10) * places - 55
    if version >= 7:
        modules -= 36
    return modules // 8


def _capacity(version: int) -> int:
    return _all_words(version) - _CORRECTION[version - 1] * _BLOCKS[version - 1]


def _words(data: bytes, version: int) -> bytes:
    capacity = 8 * _capacity(version)
    bits = f"0100{len(data):0{_length_bits(version)}b}" + "".join(f"{byte:08b}" for byte in data)
    bits += "0" * min(4, capacity - len(bits))
    bits += "0" * (-len(bits) % 8)
    words = bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits), 8))
    filling = b"\xec\x11" * (capacity // 16 + 1)
    return words + filling[: capacity // 8 - len(words)]


def _with_correction(words: bytes, version: int) -> bytes:
    """Blocks side by side: a blot takes a little of each."""
    count, extra = _BLOCKS[version - 1], _CORRECTION[version - 1]
    short = len(words) // count
    longer = len(words) % count
    blocks, at = [], 0
    for number in range(count):
        size = short + (number >= count - longer)
        blocks.append(words[at : at + size])
        at += size
    divisor = _divisor(extra)
    mended = [_remainder(block, divisor) for block in blocks]
    return bytes([*_by_turns(blocks), *_by_turns(mended)])


def _by_turns(blocks: Sequence[bytes]) -> Iterator[int]:
    for at in range(max(map(len, blocks))):
        yield from (block[at] for block in blocks if at < len(block))


def _times(a: int, b: int) -> int:
    """In the field of 256 elements with the polynomial 0x11D."""
    product = 0
    while b:
        if b & 1:
            product ^= a
        a, b = a << 1 ^ (a >> 7) * 0x11D, b >> 1
    return product


def _divisor(degree: int) -> bytes:
    """Of (x - 1)(x - 2)(x - 4)… without its leading 1."""
    found, root = [0] * (degree - 1) + [1], 1
    for _ in range(degree):
        found = [
            _times(one, root) ^ (found[at + 1] if at + 1 < degree else 0) for at, one in enumerate(found)
        ]
        root = _times(root, 2)
    return bytes(found)


def _remainder(block: bytes, divisor: bytes) -> bytes:
    rest = [0] * len(divisor)
    for byte in block:
        factor = byte ^ rest[0]
        rest = [*rest[1:], 0]
        rest = [one ^ _times(part, factor) for one, part in zip(rest, divisor, strict=True)]
    return bytes(rest)


def _masked(words: bytes, version: int, mask: int) -> Grid:
    size = 17 + 4 * version
    grid: Grid = [[False] * size for _ in range(size)]
    taken: Grid = [[False] * size for _ in range(size)]

    def put(x: int, y: int, dark: bool) -> None:
        if 0 <= x < size and 0 <= y < size:
            grid[y][x], taken[y][x] = dark, True

    _patterns(put, version, size)
    _about_itself(put, version, size, mask)
    bits = (byte >> shift & 1 for byte in words for shift in range(7, -1, -1))
    for x, y in _snake(size):
        if not taken[y][x]:
            grid[y][x] = bool(next(bits, 0)) ^ (_MASKS[mask](x, y) == 0)
    return grid


Put = Callable[[int, int, bool], None]


def _patterns(put: Put, version: int, size: int) -> None:
    """By which a camera finds it, turns it and counts its modules."""
    for at in range(size):
        put(6, at, at % 2 == 0)
        put(at, 6, at % 2 == 0)
    places = _alignment(version, size)
    for x in places:
        for y in places:
            if (x, y) not in ((6, 6), (6, size - 7), (size - 7, 6)):
                _rings(put, x, y, reach=2)
    for x, y in ((3, 3), (size - 4, 3), (3, size - 4)):
        _rings(put, x, y, reach=4)


def _rings(put: Put, x: int, y: int, *, reach: int) -> None:
    light = (1,) if reach == 2 else (2, 4)
    for down in range(-reach, reach + 1):
        for right in range(-reach, reach + 1):
            put(x + right, y + down, max(abs(right), abs(down)) not in light)


def _alignment(version: int, size: int) -> list[int]:
    if version == 1:
        return []
    places = version // 7 + 2
    step = (version * 4 + places * 2 + 1) // (places * 2 - 2) * 2
    return [6, *(size - 7 - step * at for at in range(places - 2, -1, -1))]


def _about_itself(put: Put, version: int, size: int, mask: int) -> None:
    """Level and mask, twice; the version, twice, where there is one to tell."""
    told = _LEVEL_L << 3 | mask
    bits = (told << 10 | _check(told, 10, 0x537)) ^ 0x5412
    first = [(8, at) for at in (0, 1, 2, 3, 4, 5, 7, 8)] + [(at, 8) for at in (7, 5, 4, 3, 2, 1, 0)]
    second = [(size - 1 - at, 8) for at in range(8)] + [(8, size - 7 + at) for at in range(7)]
    for at in range(15):
        for x, y in (first[at], second[at]):
            put(x, y, bool(bits >> at & 1))
    put(8, size - 8, True)
    if version >= 7:
        bits = version << 12 | _check(version, 12, 0x1F25)
        for at in range(18):
            dark, far, near = bool(bits >> at & 1), size - 11 + at % 3, at // 3
            put(far, near, dark)
            put(near, far, dark)


def _check(told: int, bits: int, divisor: int) -> int:
    rest = told
    for _ in range(bits):
        rest = rest << 1 ^ (rest >> bits - 1) * divisor
    return rest


def _snake(size: int) -> Iterator[tuple[int, int]]:
    """Up and down in pairs of columns from the right, past the column that only counts."""
    up = True
    for right in (*range(size - 1, 6, -2), 5, 3, 1):
        for step in range(size):
            y = size - 1 - step if up else step
            yield from ((right, y), (right - 1, y))
        up = not up


def _lumps(grid: Grid) -> int:
    """Squares of four of one kind: the fewer, the easier to read."""
    return sum(
        grid[y][x] == grid[y][x + 1] == grid[y + 1][x] == grid[y + 1][x + 1]
        for y in range(len(grid) - 1)
        for x in range(len(grid) - 1)
    )
