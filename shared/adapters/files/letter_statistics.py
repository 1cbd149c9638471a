"""Likelihood of a text in a language, by pairs of letters in Unicode's names of places and days."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from functools import cache
from itertools import pairwise

_SCRIPTS = {
    "latin": "en de fr es pt it nl ca gl eu sv da nb fi is ga cy sq id af"
    " pl cs sk hu ro hr sl lt lv et tr az mt eo vi",
    "cyrillic": "ru uk be bg sr mk kk",
    "greek": "el",
    "hebrew": "he",
    "arabic": "ar fa ur",
    "thai": "th",
    "chinese": "zh zh_Hant",
    "japanese": "ja",
    "korean": "ko",
}  # fmt: skip
KNOWN_LANGUAGES = tuple(one for languages in _SCRIPTS.values() for one in languages.split())
"""Codes of the languages with statistics."""
_SCRIPT_OF = {one: script for script, languages in _SCRIPTS.items() for one in languages.split()}
_PAIR, _SINGLE, _ENGLISH = 0.72, 0.2, 0.06
_TYPOGRAPHIC = frozenset("“”„‘’«»‹›–—…€£§°№•·©®™½¼¾²³ºª¿¡ \xad¥×±µ、。，：；！？「」『』（）・ー《》％～")
_BOXES = frozenset(map(chr, range(0x2500, 0x25A0)))
_OUTSIDE_WORDS = frozenset("¤¦¨´¸¼½¾") | _BOXES - frozenset("│║─═")
"""Signs that do not adjoin letters; ISO-8859-15 has letters at the codes of eight of them."""
_JOINT_BITS = 6.0
_HARD_BLANK_BITS = 4.0
_MIXED_WORD_BITS = 6.0
_CASE_BREAK_BITS = 7.0
_CAPITAL_BITS = 1.0
_LONE_CAPITAL_BITS = 4.0
_LAST_LATIN = "\u036f"
_SAME = str.maketrans("șț", "şţ")
"""Romanian letters with a comma below, mapped to those with a cedilla, as old encodings have them."""
_COMMON_CHINESE = frozenset(
    "的一是不了在人有我他这中大来上国个到说们为子和你地出道也时年得就那要下以生会自着去之过家学对可她里后小么心多天而能好都然没日于起还发成事只作当想看文无开手十用主"
    "行方又如前所本见经头面公同三已老从动两长知民样现分将外但身些与高意进把法此实回二理美点月明其种声全工己话儿者向情部正名定女问力机给等几很业最间新什打便位因重被"
    "走电四第门相次东政海口使教西再平真听世气信北少关并内加化由却代军产入先山五太水万市眼体别处总才场师书比住员九笑性通目华报立马命张活难神数件安表原车白应路期"
    "這個來國時會說們對學後過還發當經頭動長樣現將點與實進種聲話兒問機給幾業間電門東車應開關並無員報張"
    "价格商品数量名称日期金额客户订单地址合计价單價數量稱額戶訂計"
)
_COMMON_JAPANESE = frozenset(
    "日一国人年大十二本中長出三時行見月分後前生五間上東四今金九入学高円子外八六下来気小七山話女北午百書先名川千水半男西電校語土木聞食車何南万毎白天母火右読友左休父雨"
    "会事自社者地業方新場員立開手力問代明動京目通言理体田主題意不作用度強公持野以思家世多正安院心界教文元重近考画海売知道集別物使品計死特私始朝運終台広住真有口少町料"
    "工建空急止送切転研足究楽起着店病質待試族銀早映親験英医仕去味写字答夜音注帰古歌買悪図週室歩風紙黒花春赤青館屋色走秋夏習駅洋旅服夕借曜飲肉貸堂鳥飯勉冬昼茶弟牛魚兄犬妹姉漢"
    "商品価格数量単価合計顧客住所"
)
_BLANK, _DIGIT = re.compile(r"\s"), re.compile(r"\d")
_INF_BITS = 26.0


def is_script_of(script: str, language: str) -> bool:
    """Return whether a language is written in this script. Raises KeyError for an unknown language."""
    return _SCRIPT_OF[language] == script


def text_cost(text: str, language: str) -> float:
    """Return the cost of a text in bits by the language's letter statistics; fewer bits are likelier.

    Raises KeyError for a language that is not in `KNOWN_LANGUAGES`.
    """
    script = _SCRIPT_OF[language]
    low = _plain(text)
    if script in ("chinese", "japanese", "korean"):
        return _east_asian_cost(low, language)
    return sum(
        count * _pair_bits(language, a, b)
        for (a, b), count in Counter(zip(" " + low, low, strict=False)).items()
    )


def least_text_cost(text: str) -> float:
    """Return the cost of a text in bits in its likeliest language."""
    return min(text_cost(text, language) for language in KNOWN_LANGUAGES)


def case_cost(text: str) -> float:
    """Return a penalty in bits for capitals in unusual places, which a wrong encoding produces."""
    bits = 0.0
    for before, sign, after in zip(" " + text, text, text[1:], strict=False):
        if after.isupper() and sign.isalpha():
            bits += _CAPITAL_BITS if sign.isupper() else _CASE_BREAK_BITS
        elif sign.isupper() and not (sign.isascii() or before.isalpha() or after.isalpha()):
            bits += _LONE_CAPITAL_BITS
        elif sign.isupper() and after.islower() and before.isupper():
            bits += _CASE_BREAK_BITS
    return bits


def joint_cost(text: str) -> float:
    """Return a penalty in bits for signs next to letters, which a wrong encoding produces."""
    bits = 0.0
    for before, sign, after in zip(" " + text, text, text[1:] + " ", strict=False):
        if sign in _OUTSIDE_WORDS:
            bits += _JOINT_BITS * (before.isalpha() + after.isalpha())
        elif sign == "\xa0" and before.isalpha() and after.isalpha():
            bits += _HARD_BLANK_BITS
    return bits


def _plain(text: str) -> str:
    return _BLANK.sub(" ", _DIGIT.sub("0", text)).lower().translate(_SAME)


@cache
def _pair_bits(language: str, a: str, b: str) -> float:
    pairs, singles, total = _statistics(language)
    share = _sign_share(b, language)
    if b == " " or b.isalpha() or b in singles:
        known = singles.get(a, 0)
        share += _PAIR * pairs.get(a + b, 0) / known if known else 0.0
        share += _SINGLE * singles.get(b, 0) / total
    if b.isascii() and (b.isalpha() or b == " ") and language != "en":
        share += (_ENGLISH if _SCRIPT_OF[language] == "latin" else 0.6) * 2 ** -_pair_bits(
            "en", a if a.isascii() else " ", b
        )
    last = _LAST_LATIN if _SCRIPT_OF[language] == "latin" else "\x7f"
    if a.isalpha() and b.isalpha() and (a <= last) != (b <= last):
        share *= 2**-_MIXED_WORD_BITS
    if b in _BOXES and (a in _BOXES or a.isspace()):
        share += 2**-6
    return -math.log2(min(share, 1.0))


def _sign_share(sign: str, language: str) -> float:
    """Return the base probability of a sign, which needs no statistics of a language."""
    if sign.isascii():
        return (
            2**-11
            if sign.isalpha()
            else 2**-6
            if sign.isalnum() or sign == " "
            else 2**-8
            if sign.isprintable()
            else 2**-16
        )
    if sign == "€":
        return 2**-8
    if sign in _TYPOGRAPHIC:
        return 2**-11
    if sign in _BOXES:
        return 2**-15
    if sign.isalpha():
        return 2**-16
    return 2**-17 if sign.isprintable() else 2**-_INF_BITS


@cache
def _statistics(language: str) -> tuple[Counter[str], Counter[str], int]:
    from babel import Locale

    locale = Locale.parse(language)
    words = _plain(" ".join((
        *locale.languages.values(), *locale.territories.values(), *locale.currencies.values(),
        *locale.months["format"]["wide"].values(), *locale.days["format"]["wide"].values(),
    )))  # fmt: skip
    words = "".join(sign if sign in "'’-" or unicodedata.category(sign)[0] in "LM" else " " for sign in words)
    words = f" {' '.join(words.split())} "
    singles = Counter(words)
    return Counter(a + b for a, b in pairwise(words)), singles, len(words)


def _east_asian_cost(text: str, language: str) -> float:
    bits = 0.0
    for (a, b), count in Counter(zip(" " + text, text, strict=False)).items():
        if a.isalpha() and b.isalpha() and a.isascii() != b.isascii():
            bits += count * _MIXED_WORD_BITS
        if b.isascii():
            bits += count * (_pair_bits("en", a if a.isascii() else " ", b) + 0.7)
        else:
            bits += count * _ideograph_bits(b, language)
    return bits


@cache
def _ideograph_bits(sign: str, language: str) -> float:
    script = _SCRIPT_OF[language]
    point = ord(sign)
    if sign in _TYPOGRAPHIC and sign != "ー":
        return 7.0
    if 0x3041 <= point <= 0x3096 or 0x30A1 <= point <= 0x30FC:
        return 6.5 if script == "japanese" else 15.0
    if 0xFF61 <= point <= 0xFF9F:
        return 13.0
    if 0xAC00 <= point <= 0xD7A3:
        if script != "korean":
            return 20.0
        if sign in _statistics("ko")[1]:
            return 8.5
        return 12.5 if _fits(sign, "euc_kr") else 17.0
    if 0x4E00 <= point <= 0x9FFF:
        return _han_bits(sign, language)
    if 0xFF01 <= point <= 0xFF5E or 0x3000 <= point <= 0x303F:
        return 9.0
    return 19.0 if sign.isprintable() else _INF_BITS


def _han_bits(sign: str, language: str) -> float:
    if language == "ja":
        if sign in _COMMON_JAPANESE:
            return 9.5
        return 12.5 if _lead(sign, "euc_jp") <= 0xCF else 18.0
    if language == "ko":
        return 15.0 if _fits(sign, "euc_kr") else 20.0
    if sign in _COMMON_CHINESE:
        return 9.5
    if language == "zh":
        return 12.5 if 0xB0 <= _lead(sign, "gb2312") <= 0xD7 else 18.0
    return 12.5 if 0xA4 <= _lead(sign, "big5") <= 0xC6 else 18.0


def _lead(sign: str, codec: str) -> int:
    try:
        return sign.encode(codec)[0]
    except UnicodeEncodeError:
        return 0xFF


def _fits(sign: str, codec: str) -> bool:
    return _lead(sign, codec) != 0xFF
