"""First name by which a person introduces themselves in a message, in the product's languages."""

from __future__ import annotations

import re
import unicodedata

from shared.core.identity.identity_claims import clean_name

CHARS_READ = 600
"""Characters above which a message is not searched; a longer one often quotes another writer."""
NAME_CHARS = 40
"""Most characters of a returned name."""
_LEADS = (
    # en
    r"my name(?:['’]s| is)(?: called)?", r"(?:you can |please |just )call me",
    # de
    r"ich hei(?:ß|ss)e", r"mein name ist",
    # es, fr, it
    r"(?:yo )?me llamo", r"mi nombre es", r"je m['’]appelle", r"mon (?:nom|prénom) est", r"(?:io )?mi chiamo",
    r"il mio nome è",
    # nl, pl
    r"ik heet", r"mijn naam is", r"mam na imię", r"nazywam się", r"moje imię to",
    # pt-br
    r"(?:eu )?me chamo", r"(?:o )?meu nome é",
    # ru, uk
    r"меня зовут", r"мо[её] имя(?: [-–—])?", r"мене (?:звати|звуть)", r"мо[єе] ім['’ʼ]я(?: [-–—])?",
    # tr
    r"(?:benim )?(?:adım|ismim)",
    # id, vi
    r"nama(?:ku| saya| aku)(?: adalah)?", r"(?:tôi|mình|em|tớ) tên là", r"tên (?:tôi|mình|em|của tôi) là",
)  # fmt: skip
"""Words before a name, in languages with capital letters."""
_CASELESS = (
    # ar, he
    r"(?:أنا )?اسمي(?: هو)? (?P<{0}>{letters})",
    r"(?:קוראים לי|השם שלי(?: הוא)?|שמי(?: הוא)?) (?P<{0}>{letters})",
    # fa
    r"(?:اسم|نام) من (?P<{0}>{letters}) (?:است|هست|ه)", r"(?:اسمم|نامم) (?P<{0}>{letters}) (?:است|هست)",
    # hi
    r"मेरा नाम (?P<{0}>[\u0900-\u0963\u0970-\u097f]{{2,24}}|[A-Z][\w'’-]{{1,20}}) (?:है|हैं)",
    # ja
    r"(?:私|僕|俺|わたし|ぼく)?の?名前は(?P<{0}>{cjk})(?:です|だ|といいます|と言います)",
    r"(?:私は|わたしは|僕は)?(?P<{0}>{cjk})(?:と申します|といいます|と言います)",
    # ko
    r"(?:제|내) 이름은 (?P<{0}>[가-힣]{{2,5}}?|[A-Z][a-z]+)(?:입니다|이에요|예요|이야|야)",
    r"(?:저는|나는) (?P<{0}>[가-힣]{{2,5}}?|[A-Z][a-z]+)(?:이?라고 합니다|이?라고 해요)",
    # zh
    r"我叫(?P<{0}>[{surnames}小阿][\u4e00-\u9fff]{{1,2}}|[A-Z][a-z]+)",
    r"我的名字(?:是|叫)(?P<{0}>[\u4e00-\u9fff]{{1,4}}|[A-Z][a-z]+)",
)  # fmt: skip
"""Patterns of sentences with a name, in languages without capital letters."""
_SURNAMES = (
    "王李张刘陈杨黄赵吴周徐孙马朱胡郭何林高罗郑梁谢宋唐许邓冯韩曹曾彭萧蔡潘田董袁于余叶蒋杜苏魏程吕丁沈任姚卢傅钟姜崔谭廖范汪陆金石戴贾韦夏邱方侯邹熊孟秦"
    "白江阎薛尹段雷黎史龙陶贺顾毛郝龚邵万钱严張劉陳楊黃趙吳孫馬鄭許鄧馮韓蕭葉蔣蘇呂盧鍾譚陸賈韋鄒閻龍賀顧龔萬錢嚴"
)
"""First characters of most Chinese names; other words after "I am called" are rarely a name."""
_NO_NAMES = """
a again an at back christian crazy here if in later lazy maybe monday mr mrs ms my no not now ok on
spam sunday the today tomorrow tuesday wednesday thursday friday saturday when whatever yes
american armenian asian australian austrian belgian black brazilian british bulgarian canadian chinese
colombian croatian cuban czech danish dutch egyptian english estonian ethiopian european finnish french
georgian german greek hungarian icelandic indian indonesian iranian iraqi irish israeli italian japanese
jordanian kenyan korean latvian lebanese lithuanian mexican moroccan nigerian norwegian pakistani
palestinian persian peruvian polish portuguese romanian russian saudi scottish serbian slovak slovenian
spanish swedish swiss syrian taiwanese thai tunisian turkish ukrainian vietnamese welsh
atheist buddhist catholic democrat gay hindu jewish lesbian mormon muslim protestant republican sikh vegan
angry bored busy confused done fine free glad good great happy hungry ill late looking lost nervous ready
sad sick sorry sure tired well worried
ليس هو לא הוא нет не nicht kein
"""
_NO_FIRST_NAMES = frozenset(_NO_NAMES.split())
"""Words after "I am" and the like that are no names."""
_NAME = r"(?P<name>[^\W\d_][\w'’-]*(?: [^\W\d_][\w'’-]*){0,2})"
_BEGIN = (
    r"(?:^|[\n.!?…,;،؛؟।。！？，、]|"
    r"\b(?i:hi|hello|hey|hallo|hola|salut|ciao|and|und|y|et|e|en|и|و)\b)\s{0,3}"
)
_CASED = re.compile(rf"{_BEGIN}(?i:{'|'.join(_LEADS)}):? {_NAME}")
_I_AM = re.compile(
    r"^\s*(?:(?i:hi|hello|hey|good (?:morning|evening|afternoon))\b[^\n.!,]{0,20}[,!.]?\s*)?"
    r"I(?:['’]m| am) "
    r"(?P<name>[^\W\d_][\w'’-]*)(?=\s*(?:[.,!]|$|\n| and | from ))"
)
"""Pattern of "I'm …", which may also describe a person, so only at the start of a message."""
_END = r"(?=\s{0,3}(?:$|[\n.!?,;،؛؟।。！？，、]|\sو|\sו))"
_CASELESS_PATTERNS = tuple(
    re.compile(
        _BEGIN
        + pattern.format(
            "name",
            letters=r"[^\W\d_a-zA-Z]{2,20}|[A-Z][\w'’-]{1,20}",
            cjk=r"[\u3040-\u30ff\u4e00-\u9fff]{1,8}?|[A-Z][a-z]+",
            surnames=_SURNAMES,
        )
        + _END
    )
    for pattern in _CASELESS
)


def find_introduced_name(text: str) -> str:
    """Return the name by which the writer of a message introduces themselves; empty without one.

    Quoted text and messages above `CHARS_READ` characters are ignored, and so are words in lower case where
    the script has capitals.
    """
    if len(text) > CHARS_READ:
        return ""
    text = unicodedata.normalize("NFC", text).replace("\u0640", "")
    for found in (*_CASED.finditer(text), *_I_AM.finditer(text)):
        if not _is_quoted(text, found.start("name")) and (name := _capital_words(found["name"])):
            return name
    for pattern in _CASELESS_PATTERNS:
        found_name = pattern.search(text)
        if found_name and not _is_quoted(text, found_name.start("name")):
            name = found_name["name"]
            if name not in _NO_FIRST_NAMES:
                return clean_name(name, NAME_CHARS)
    return ""


def _capital_words(words: str) -> str:
    """Return the leading words with a capital letter; empty if the first is no name."""
    taken: list[str] = []
    for word in words.split():
        if not word[0].isupper() or len(word) < 2 or (word.isupper() and len(word) > 3):
            break
        taken.append(re.sub(r"['’]s$", "", word).rstrip("'’-"))
    if not taken or taken[0].casefold() in _NO_FIRST_NAMES:
        return ""
    return clean_name(" ".join(taken), NAME_CHARS)


_QUOTES = re.compile(r"[\"“”„«»‘「」『』]|^>", re.MULTILINE)


def _is_quoted(text: str, at: int) -> bool:
    """Return whether a quotation begins earlier on the line of this position."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return _QUOTES.search(line) is not None
