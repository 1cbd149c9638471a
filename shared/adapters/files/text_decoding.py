"""Decoding of text files in any encoding, which is guessed by letters if the file does not say it."""

from __future__ import annotations

import codecs
import math
import re
import unicodedata
from dataclasses import dataclass, replace

from shared.adapters.files.letter_statistics import (
    KNOWN_LANGUAGES,
    case_cost,
    is_script_of,
    joint_cost,
    least_text_cost,
    text_cost,
)

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
"""Byte order marks and their encodings; UTF-32 comes first, since its mark begins with that of UTF-16."""
_SAMPLE_BYTES = 65_536
_SCORED_BYTES = 6_000
"""Bytes by which candidates are compared; more of the text would not change the result."""
_MOST_CONTROLS = 0.01
_CONTROLS = frozenset(range(32)) - frozenset(b"\x00\t\n\r\x0c\x1a\x1b") | {127}
_BROKEN_SHARE = 0.05
"""Share of damaged characters up to which a text is still read as UTF-8."""
_HINT_BITS = 8.0
"""Bonus in bits for a language that the sender uses: it decides only between nearly equal candidates."""
_WORST_BITS = 17.0
"""Bits per byte beyond ASCII above which no candidate is accepted."""
_WORST_WIDE_BITS = 15.0
"""Bits per character above which a text is not accepted as UTF-16 or UTF-32."""
_ESCAPED_BITS = 8.0
"""Bits by which UTF-7 must be likelier than ASCII, since a formula may look like UTF-7."""
_HOLE_BITS = 3.0
_LONG_HOLE = 8
_NULS = re.compile(rb"\x00+")
_DECLARED = re.compile(
    rb"<\?xml[^>]{1,200}?encoding\s{0,9}=\s{0,9}[\"']([A-Za-z0-9._:-]{1,40})"
    rb"|<meta[^>]{1,200}?charset\s{0,9}=\s{0,9}[\"']?\s{0,9}([A-Za-z0-9._:-]{1,40})"
    rb"|^@charset \"([A-Za-z0-9._:-]{1,40})\""
    rb"|Content-Type: text/plain; charset=([A-Za-z0-9._:-]{1,40})\\n"
    rb"|coding[:=][ \t]{0,9}([A-Za-z0-9._-]{1,40})",
    re.IGNORECASE,
)
"""Patterns by which XML, HTML, CSS, PO files and programs declare their encoding."""
_READ_AS = {
    "ascii": "cp1252", "iso8859-1": "cp1252", "iso8859-9": "cp1254", "iso8859-11": "cp874",
    "tis-620": "cp874", "gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949",
    "big5": "big5hkscs",
}  # fmt: skip
"""Encoding that is used for a declared one, a superset of it, as in browsers.

See https://encoding.spec.whatwg.org/#names-and-labels.
"""


class NotText(ValueError):
    """Raised for bytes that are a text in no known encoding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """Decoded text of a file.

    `guessed` names the encoding if it was guessed from letters, else it is empty.
    """

    text: str
    guessed: str = ""


@dataclass(frozen=True, slots=True)
class _Candidate:
    codec: str
    label: str
    bits: float
    """Penalty for a rare encoding: bits by which the text must be likelier in it than in a common one."""
    script: str = "latin"


_CANDIDATES = (
    _Candidate("cp1252", "Windows-1252", 0),
    _Candidate("iso8859_15", "ISO-8859-15", 3),
    _Candidate("mac_roman", "Mac OS Roman", 5),
    _Candidate("cp850", "DOS code page 850", 4),
    _Candidate("cp437", "DOS code page 437", 5),
    _Candidate("cp865", "DOS code page 865", 8),
    _Candidate("cp861", "DOS code page 861", 8),
    _Candidate("cp860", "DOS code page 860", 8),
    _Candidate("cp863", "DOS code page 863", 9),
    _Candidate("mac_iceland", "Mac OS Icelandic", 9),
    _Candidate("cp1250", "Windows-1250", 1),
    _Candidate("iso8859_2", "ISO-8859-2", 1.5),
    _Candidate("cp852", "DOS code page 852", 4),
    _Candidate("mac_latin2", "Mac OS Central European", 5),
    _Candidate("mac_croatian", "Mac OS Croatian", 8),
    _Candidate("mac_romanian", "Mac OS Romanian", 8),
    _Candidate("iso8859_16", "ISO-8859-16", 4),
    _Candidate("iso8859_3", "ISO-8859-3", 6),
    _Candidate("iso8859_4", "ISO-8859-4", 7),
    _Candidate("iso8859_10", "ISO-8859-10", 8),
    _Candidate("iso8859_14", "ISO-8859-14", 7),
    _Candidate("cp1254", "Windows-1254", 1),
    _Candidate("mac_turkish", "Mac OS Turkish", 6),
    _Candidate("cp857", "DOS code page 857", 5),
    _Candidate("cp1257", "Windows-1257", 1),
    _Candidate("iso8859_13", "ISO-8859-13", 3),
    _Candidate("cp775", "DOS code page 775", 6),
    _Candidate("cp1258", "Windows-1258", 2),
    _Candidate("cp1251", "Windows-1251", 0, "cyrillic"),
    _Candidate("koi8_r", "KOI8-R", 1, "cyrillic"),
    _Candidate("koi8_u", "KOI8-U", 2, "cyrillic"),
    _Candidate("cp866", "DOS code page 866", 2, "cyrillic"),
    _Candidate("iso8859_5", "ISO-8859-5", 2, "cyrillic"),
    _Candidate("mac_cyrillic", "Mac OS Cyrillic", 3, "cyrillic"),
    _Candidate("cp855", "DOS code page 855", 4, "cyrillic"),
    _Candidate("kz1048", "KZ-1048", 4, "cyrillic"),
    _Candidate("ptcp154", "PTCP154", 6, "cyrillic"),
    _Candidate("cp1125", "DOS code page 1125", 6, "cyrillic"),
    _Candidate("cp1253", "Windows-1253", 0, "greek"),
    _Candidate("iso8859_7", "ISO-8859-7", 1, "greek"),
    _Candidate("mac_greek", "Mac OS Greek", 4, "greek"),
    _Candidate("cp737", "DOS code page 737", 3, "greek"),
    _Candidate("cp869", "DOS code page 869", 5, "greek"),
    _Candidate("cp1255", "Windows-1255", 0, "hebrew"),
    _Candidate("iso8859_8", "ISO-8859-8", 1, "hebrew"),
    _Candidate("cp862", "DOS code page 862", 3, "hebrew"),
    _Candidate("cp1256", "Windows-1256", 0, "arabic"),
    _Candidate("iso8859_6", "ISO-8859-6", 1, "arabic"),
    _Candidate("cp720", "DOS code page 720", 5, "arabic"),
    _Candidate("cp874", "Windows-874 (TIS-620)", 0, "thai"),
    _Candidate("gb18030", "GB18030 (GBK)", 0, "chinese"),
    _Candidate("big5hkscs", "Big5", 1, "chinese"),
    _Candidate("cp950", "Big5 (Windows-950)", 1.2, "chinese"),
    _Candidate("cp932", "Shift-JIS", 0, "japanese"),
    _Candidate("shift_jis_2004", "Shift-JIS (JIS X 0213)", 4, "japanese"),
    _Candidate("euc_jis_2004", "EUC-JP", 1, "japanese"),
    _Candidate("euc_jp", "EUC-JP", 1, "japanese"),
    _Candidate("cp949", "EUC-KR (Windows-949)", 0, "korean"),
    _Candidate("johab", "Johab", 6, "korean"),
)  # fmt: skip
_WIDE = (
    ("utf-16-le", "UTF-16LE"),
    ("utf-16-be", "UTF-16BE"),
    ("utf-32-le", "UTF-32LE"),
    ("utf-32-be", "UTF-32BE"),
)


def decode_text(content: bytes, *, languages: tuple[str, ...] = ()) -> Decoded:
    r"""Return a file's text with `\n` as line end; raise NotText if no encoding fits.

    `languages` are codes such as `ru` of languages that the sender uses.
    """
    if (found := decode_plain(content)) is not None:
        return found
    hints = tuple(one.partition("-")[0].lower() for one in languages)
    if b"\x00" in content:
        if (found := _decode_wide(content)) is not None:
            return _tidy(found)
        if not (content := content.replace(b"\x00", b"")):
            raise NotText("NUL")
        refuse_controls(content)
        return decode_text(content, languages=languages)
    if (found := _decode_declared(content) or _decode_escaped(content) or _decode_damaged(content)) is None:
        found = _guess(content, hints)
    return _tidy(found)


def decode_plain(content: bytes) -> Decoded | None:
    """Return the text if its encoding is certain, else None.

    Raises NotText if it is full of control characters.
    """
    for mark, codec in _BOMS:
        if content.startswith(mark):
            text = content[len(mark) :].decode(codec, "replace")
            if text.count("\ufffd") > _BROKEN_SHARE * len(text) or _is_binary(text):
                break
            return _tidy(Decoded(text=text))
    if b"\x00" in content:
        return None
    if _has_escapes(content) or _decode_shifted(content) is not None:
        return None
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return None
    refuse_controls(content)
    return _tidy(Decoded(text=text))


def refuse_controls(content: bytes) -> None:
    """Raise NotText if the bytes are full of control characters, as programs and archives are."""
    if _is_full_of_controls(content):
        raise NotText("control characters")


def _is_full_of_controls(content: bytes) -> bool:
    sample = content[:_SAMPLE_BYTES]
    return len(sample) - len(sample.translate(None, bytes(_CONTROLS))) > _MOST_CONTROLS * len(sample)


def _tidy(decoded: Decoded) -> Decoded:
    text = decoded.text.replace("\x00", "").removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    return replace(decoded, text=text.removesuffix("\x1a"))


def _is_binary(text: str) -> bool:
    sample = text[:_SAMPLE_BYTES]
    return sum(ord(sign) in _CONTROLS for sign in sample) > _MOST_CONTROLS * len(sample)


def _decode_declared(content: bytes) -> Decoded | None:
    named = _DECLARED.search(content[:2_048])
    if named is None:
        return None
    try:
        codec = codecs.lookup(next(filter(None, named.groups())).decode("ascii")).name
        text = content.decode(_READ_AS.get(codec, codec))
    except (LookupError, UnicodeError):
        return None
    return Decoded(text=text)


def _has_escapes(content: bytes) -> bool:
    return b"\x1b$" in content or b"\x1b(J" in content or (b"~{" in content and b"~}" in content)


def _decode_escaped(content: bytes) -> Decoded | None:
    """Decode ASCII bytes in an encoding with escape sequences, as mail uses, else as ASCII.

    Returns None for other bytes.
    """
    if not content.isascii():
        return None
    for sign, codec, label in (
        (b"\x1b$)C", "iso2022_kr", "ISO-2022-KR"),
        (b"\x1b", "iso2022_jp_2", "ISO-2022-JP"),
        (b"\x1b", "iso2022_jp_2004", "ISO-2022-JP"),
        (b"\x1b", "iso2022_jp_ext", "ISO-2022-JP"),
        (b"~{", "hz", "HZ-GB-2312"),
    ):
        if sign not in content:
            continue
        try:
            text = content.decode(codec)
        except UnicodeDecodeError:
            continue
        if not text.isascii():
            return Decoded(text=text, guessed=label)
    refuse_controls(content)
    return _decode_shifted(content) or Decoded(text=content.decode("ascii"))


def _decode_shifted(content: bytes) -> Decoded | None:
    """Return the text in UTF-7 if it looks more like a language than in ASCII, else None."""
    if b"+" not in content or not content.isascii():
        return None
    try:
        text = content.decode("utf-7")
    except UnicodeDecodeError:
        return None
    shifted = [sign for sign in text if not sign.isascii()]
    if not shifted or any(map(_is_strange, shifted)):
        return None
    lines = zip(content.decode("ascii").splitlines(), text.splitlines(), strict=False)
    pairs = [(plain, read) for plain, read in lines if plain != read]
    plain, read = ("\n".join(column)[:_SCORED_BYTES] for column in zip(*pairs, strict=True))
    if least_text_cost(read) + joint_cost(read) + _ESCAPED_BITS >= least_text_cost(plain):
        return None
    return Decoded(text=text, guessed="UTF-7")


def _decode_damaged(content: bytes) -> Decoded | None:
    """Return the text in UTF-8 if few characters are damaged or only the last one is cut, else None."""
    text = content.decode("utf-8", "replace")
    broken = text.count("\ufffd")
    whole = sum(sign >= "\x80" for sign in text[:_SAMPLE_BYTES]) - broken
    if broken == 1 and whole > 1 and text.endswith("\ufffd"):
        return Decoded(text=text.removesuffix("\ufffd"))
    if whole >= 1 and (broken <= _BROKEN_SHARE * whole):
        return Decoded(text=text, guessed="UTF-8, with damaged characters")
    return None


def _decode_wide(content: bytes) -> Decoded | None:
    """Return the text in UTF-16 or UTF-32 without byte order mark.

    Returns None if neither fits better than single bytes.
    """
    best: tuple[float, str, str] | None = None
    for codec, label in _WIDE:
        width = 4 if "32" in codec else 2
        sample = content[: min(_SCORED_BYTES, len(content) - len(content) % width)].decode(codec, "replace")
        strange = sum(_is_strange(sign) for sign in sample)
        if len(sample) < 2 or strange > 0.02 * len(sample):
            continue
        cost = least_text_cost(sample)
        if cost <= _WORST_WIDE_BITS * len(sample) and (best is None or cost < best[0]):
            best = cost, codec, label
    if best is None or _narrow_cost(content[:_SCORED_BYTES]) < best[0]:
        return None
    return Decoded(text=content.decode(best[1], "replace").removesuffix("\ufffd"), guessed=best[2])


def _narrow_cost(sample: bytes) -> float:
    """Return the cost in bits of a sample, read as single bytes with meaningless NULs in between."""
    text = sample.replace(b"\x00", b"").decode("utf-8", "replace")
    holes = sum(min(len(run), _LONG_HOLE) for run in _NULS.findall(sample))
    return _HOLE_BITS * holes + (math.inf if not text or _is_binary(text) else least_text_cost(text))


def _is_strange(sign: str) -> bool:
    return sign == "\ufffd" or (
        unicodedata.category(sign) in ("Cc", "Cn", "Co", "Cs") and sign not in "\t\n\r\x0c\ufeff"
    )


def _guess(content: bytes, hints: tuple[str, ...]) -> Decoded:
    """Return the text in the encoding in which it looks most like a language. Raises NotText if none fits."""
    sample = _sample(content)
    ranked: list[tuple[float, _Candidate]] = []
    bare_carriage = b"\r" in content and b"\n" not in content
    for one in () if _is_full_of_controls(content) else _CANDIDATES:
        try:
            text = codecs.getincrementaldecoder(one.codec)().decode(sample)
        except UnicodeDecodeError:
            continue
        bits = one.bits
        if bare_carriage:
            bits += -3 if one.codec.startswith("mac") else 2
        ranked.append((bits + _score(text, one, hints), one))
    if len(content) % 2 == 0:
        for codec, label in _WIDE[:2]:
            text = content[:_SCORED_BYTES].decode(codec, "replace")
            if not any(map(_is_strange, text)):
                one = _Candidate(codec, label, 12, "wide")
                # Scale to the length of the sample, by which the other candidates are compared.
                ranked.append(
                    (12 + _score(text, one, hints) * len(sample) / min(len(content), _SCORED_BYTES), one)
                )
    ranked.sort(key=lambda pair: pair[0])
    high = sum(byte >= 0x80 for byte in sample)
    if not ranked or (ranked[0][0] > _WORST_BITS * max(high, 1) + 6 * len(sample)):
        raise NotText("no encoding")
    for _, one in ranked:
        try:
            return Decoded(text=_compose(content.decode(one.codec), one), guessed=one.label)
        except UnicodeDecodeError:
            continue
    best = ranked[0][1]
    return Decoded(text=_compose(content.decode(best.codec, "replace"), best), guessed=best.label)


def _compose(text: str, one: _Candidate) -> str:
    return unicodedata.normalize("NFC", text) if one.codec == "cp1258" else text


def _score(text: str, one: _Candidate, hints: tuple[str, ...]) -> float:
    text = _compose(text, one)
    return (
        case_cost(text)
        + joint_cost(text)
        + min(
            text_cost(text, language) - (_HINT_BITS if language in hints else 0.0)
            for language in KNOWN_LANGUAGES
            if one.script == "wide" or is_script_of(one.script, language)
        )
    )


def _sample(content: bytes) -> bytes:
    """Return the first lines that have bytes beyond ASCII, at most _SCORED_BYTES."""
    lines: list[bytes] = []
    size = 0
    for line in re.split(rb"(?<=[\r\n])", content[: 64 * _SAMPLE_BYTES]):
        if line and not line.isascii():
            lines.append(line[:_SCORED_BYTES])
            size += len(line)
            if size >= _SCORED_BYTES:
                break
    return b"".join(lines)[:_SCORED_BYTES]
