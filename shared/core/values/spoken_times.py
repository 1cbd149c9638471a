"""Days that a text speaks of, such as "yesterday", "vor zwei Wochen" or "4月27号", in the product's
languages.
"""

from __future__ import annotations

import re
import unicodedata
from calendar import monthrange
from collections.abc import Callable, Iterator, Mapping
from datetime import date, timedelta
from typing import NamedTuple

CHARS_READ = 2_000
"""Characters of a text that are searched; a longer text names too many days."""
SPANS_AT_MOST = 4
"""Most spans of days that a text may name; for more, none is returned."""
_PHRASE_WORDS = 5
"""Words of the longest phrase in the tables."""


class Span(NamedTuple):
    """Range of days from `first` to `last`, both included."""

    first: date
    last: date

    def holds(self, day: date) -> bool:
        """Return whether a day lies in the span."""
        return self.first <= day <= self.last

    def encloses(self, other: Span) -> bool:
        """Return whether another, different span lies within this one."""
        return self != other and self.first <= other.first and other.last <= self.last


def spoken_spans(text: str, today: date) -> tuple[Span, ...]:
    """Return the past days that a text names, as spans that begin today or earlier; empty if there are none.

    Only the first 2,000 characters are read. A span that encloses another is dropped. If more than four
    remain, the result is empty, since such a text names too many days.
    """
    text = unicodedata.normalize("NFKC", text[:CHARS_READ]).casefold().replace("\u0654", "").replace("ʼ", "'")
    spans = dict.fromkeys((*_dates(text, today), *_find_unspaced(text, today), *_find_spaced(text, today)))
    past = [span for span in spans if span.first <= today]
    narrow = tuple(span for span in past if not any(span.encloses(other) for other in past))
    return narrow if len(narrow) <= SPANS_AT_MOST else ()


def _day(back: int) -> Callable[[date], Span]:
    return lambda today: Span(today - timedelta(days=back), today - timedelta(days=back))


def _week(back: int) -> Callable[[date], Span]:
    def span(today: date) -> Span:
        monday = today - timedelta(days=today.weekday() + 7 * back)
        return Span(monday, monday + timedelta(days=6))

    return span


def _month(back: int) -> Callable[[date], Span]:
    def span(today: date) -> Span:
        months = today.year * 12 + today.month - 1 - back
        return _whole_month(months // 12, months % 12 + 1)

    return span


def _year(back: int) -> Callable[[date], Span]:
    return lambda today: Span(date(today.year - back, 1, 1), date(today.year - back, 12, 31))


def _weekday(number: int) -> Callable[[date], Span]:
    """Return a function that finds the last such weekday before today; Monday is 0."""

    def span(today: date) -> Span:
        day = today - timedelta(days=(today.weekday() - number - 1) % 7 + 1)
        return Span(day, day)

    return span


def _month_named(number: int) -> Callable[[date], Span]:
    return lambda today: _whole_month(today.year - (number > today.month), number)


def _whole_month(year: int, month: int) -> Span:
    return Span(date(year, month, 1), date(year, month, monthrange(year, month)[1]))


def _day_named(day: int, month: int, year: int | None, today: date) -> Iterator[Span]:
    """Yield a day; without a year, in the latest year in which it is not in the future.

    Invalid days yield nothing.
    """
    for candidate in (year,) if year else (today.year, today.year - 1):
        try:
            found = date(candidate, month, day)
        except ValueError:
            continue
        if year or found <= today:
            yield Span(found, found)
            return


def _ago(number: int, unit: str, today: date) -> Span:
    """Return the days around a time ago: a day exactly, weeks ±3 days, months ±10, years ±60."""
    length, apart = {"day": (1, 0), "week": (7, 3), "month": (30, 10), "year": (365, 60)}[unit]
    middle = today - timedelta(days=min(number * length, 36_500))
    return Span(middle - timedelta(days=apart), min(today, middle + timedelta(days=apart)))


_Rule = Callable[[date], Span]
_RULES: Mapping[str, _Rule] = {
    "today": _day(0),
    "yesterday": _day(1),
    "day_before": _day(2),
    "last_week": _week(1),
    "this_week": _week(0),
    "last_month": _month(1),
    "this_month": _month(0),
    "last_year": _year(1),
}
_PHRASES: Mapping[str, str] = {
    "today": "today|tonight|this morning|heute|heute morgen|aujourd hui|hoy|oggi|hoje|vandaag|"
    "dzisiaj|dziś|сегодня|"
    "сьогодні|bugün|hari ini|hôm nay|اليوم|امروز|היום|आज|오늘",
    "yesterday": "yesterday|last night|gestern|gestern abend|hier|hier soir|ayer|anoche|ieri|ieri "
    "sera|ontem|ontem à noite|"
    "gisteren|gisteravond|wczoraj|вчера|вчора|dün|dün gece|kemarin|tadi malam|hôm qua|أمس|امس|"
    "البارحة|دیروز|دیشب|"
    "אתמול|אמש|बीता कल|कल|어제|어젯밤",
    "day_before": "day before yesterday|vorgestern|avant hier|anteayer|antier|l altro ieri|altro "
    "ieri|anteontem|eergisteren|"
    "przedwczoraj|позавчера|позавчора|evvelsi gün|önceki gün|kemarin dulu|hôm kia|أول أمس|اول امس|"
    "پریروز|שלשום|परसों|"
    "그저께|그제",
    "last_week": "last week|letzte woche|vergangene woche|vorige woche|in der letzten woche|la "
    "semaine dernière|"
    "semaine dernière|la semana pasada|semana pasada|la settimana scorsa|settimana scorsa|semana passada|"
    "afgelopen week|w zeszłym tygodniu|zeszłym tygodniu|w ubiegłym tygodniu|на прошлой неделе|"
    "прошлой неделе|"
    "минулого тижня|на минулому тижні|geçen hafta|minggu lalu|tuần trước|tuần rồi|الأسبوع الماضي|"
    "الاسبوع الماضي|"
    "هفته گذشته|هفته پیش|هفته قبل|בשבוע שעבר|שבוע שעבר|पिछले हफ्ते|पिछले सप्ताह|पिछले हफ़्ते|"
    "지난주|지난 주|지난주에",
    "this_week": "this week|diese woche|cette semaine|esta semana|questa settimana|deze week|w tym "
    "tygodniu|"
    "на этой неделе|цього тижня|bu hafta|minggu ini|tuần này|هذا الأسبوع|این هفته|השבוע|इस हफ्ते|"
    "इस सप्ताह|이번 주|이번주",
    "last_month": "last month|letzten monat|letzter monat|vergangenen monat|im letzten monat|"
    "vorigen monat|le mois dernier|"
    "mois dernier|el mes pasado|mes pasado|il mese scorso|mese scorso|mês passado|vorige maand|"
    "afgelopen maand|"
    "w zeszłym miesiącu|zeszłym miesiącu|w ubiegłym miesiącu|в прошлом месяце|прошлом месяце|"
    "минулого місяця|"
    "geçen ay|bulan lalu|tháng trước|الشهر الماضي|ماه گذشته|ماه پیش|ماه قبل|בחודש שעבר|חודש שעבר|"
    "पिछले महीने|"
    "지난달|지난 달|지난달에",
    "this_month": "this month|diesen monat|ce mois ci|este mes|questo mese|este mês|deze maand|w "
    "tym miesiącu|"
    "в этом месяце|цього місяця|bu ay|bulan ini|tháng này|هذا الشهر|این ماه|החודש|इस महीने|이번 달|이번달",
    "last_year": "last year|letztes jahr|vergangenes jahr|im letzten jahr|voriges jahr|l année "
    "dernière|année dernière|"
    "l an dernier|el año pasado|año pasado|l anno scorso|anno scorso|ano passado|vorig jaar|afgelopen jaar|"
    "w zeszłym roku|zeszłym roku|w ubiegłym roku|в прошлом году|прошлом году|минулого року|торік|"
    "geçen yıl|geçen sene|"
    "tahun lalu|năm ngoái|năm trước|العام الماضي|السنة الماضية|سال گذشته|سال پیش|پارسال|בשנה שעברה|"
    "שנה שעברה|אשתקד|"
    "पिछले साल|पिछले वर्ष|작년|지난해|작년에",
}
_UNITS: Mapping[str, str] = {
    "day": "day days tag tage tagen jour jours día días giorno giorni dia dias dag dagen dzień dni "
    "день дня дней днів дні gün hari "
    "ngày يوم أيام ايام يومين روز ימים יום दिन 일",
    "week": "week weeks woche wochen semaine semaines semana semanas settimana settimane weken "
    "tydzień tygodnie tygodni неделю "
    "недели недель тиждень тижні тижнів hafta minggu tuần أسبوع اسبوع أسابيع اسابيع هفته שבוע "
    "שבועות हफ्ते हफ्ता सप्ताह 주",
    "month": "month months monat monate monaten mois mes meses mese mesi mês maand maanden miesiąc "
    "miesiące miesięcy месяц месяца "
    "месяцев місяць місяці місяців ay bulan tháng شهر أشهر اشهر شهور ماه חודש חודשים महीने महीना माह 달 개월",
    "year": "year years jahr jahre jahren an ans année années año años anno anni ano anos jaar rok "
    "lata lat год года лет рік роки "
    "років yıl sene tahun năm سنة عام سنوات أعوام سال שנה שנים साल वर्ष 년",
}
_NUMBERS = (
    (
        "a an one ein einen einem einer eine un une una uno um uma een jeden jedna один одну одна bir "
        "satu một واحد یک אחד אחת एक 한 일"
    ),
    "two couple zwei deux dos due dois duas twee dwa dwie два две дві iki dua hai اثنين دو שני שתי दो 두 이",
    "three drei trois tres tre três drie trzy три üç tiga ba ثلاثة ثلاث سه שלושה שלוש तीन 세 삼",
    (
        "four vier quatre cuatro quattro quatro cztery четыре чотири dört empat bốn أربعة أربع چهار "
        "ארבעה ארבע चार 네 사"
    ),
    "five fünf cinq cinco cinque vijf pięć пять п'ять beş lima năm خمسة خمس پنج חמישה חמש पांच पाँच 다섯 오",
    "six sechs seis sei zes sześć шесть шість altı enam sáu ستة ست شش שישה שש छह 여섯 육",
    (
        "seven sieben sept siete sette sete zeven siedem семь сім yedi tujuh bảy سبعة سبع هفت שבעה שבע "
        "सात 일곱 칠"
    ),
    "eight acht huit ocho otto oito osiem восемь вісім sekiz delapan tám ثمانية ثماني هشت שמונה आठ 여덟 팔",
    (
        "nine neun neuf nueve nove negen dziewięć девять дев'ять dokuz sembilan chín تسعة تسع نه תשעה "
        "תשע नौ 아홉 구"
    ),
    "ten zehn dix diez dieci dez tien dziesięć десять on sepuluh mười عشرة عشر ده עשרה עשר दस 열 십",
)
_BEFORE = frozenset(["vor", "hace", "há", "faz", "منذ", "قبل", "לפני"]) | {"il y a", "il ya"}
"""Words before a number and a unit that mean "ago"."""
_AFTER = frozenset(
    [
        "ago",
        "fa",
        "geleden",
        "temu",
        "назад",
        "тому",
        "önce",
        "lalu",
        "trước",
        "پیش",
        "قبل",
        "पहले",
        "전",
        "전에",
        "atrás",
    ]
) | {"yang lalu"}
"""Words after a number and a unit that mean "ago"."""
_DUALS: Mapping[str, tuple[int, str]] = {
    "يومين": (2, "day"),
    "أسبوعين": (2, "week"),
    "اسبوعين": (2, "week"),
    "شهرين": (2, "month"),
    "سنتين": (2, "year"),
    "יומיים": (2, "day"),
    "שבועיים": (2, "week"),
    "חודשיים": (2, "month"),
    "שנתיים": (2, "year"),
    "неделю": (1, "week"),
    "месяц": (1, "month"),
    "год": (1, "year"),
    "день": (1, "day"),
    "тиждень": (1, "week"),
    "місяць": (1, "month"),
    "рік": (1, "year"),
    "tydzień": (1, "week"),
    "miesiąc": (1, "month"),
    "rok": (1, "year"),
    "أسبوع": (1, "week"),
    "اسبوع": (1, "week"),
    "شهر": (1, "month"),
    "سنة": (1, "year"),
    "يوم": (1, "day"),
    "שבוע": (1, "week"),
    "חודש": (1, "month"),
    "שנה": (1, "year"),
    "יום": (1, "day"),
}
"""Words that contain both number and unit, in languages with a dual form."""
_WEEKDAYS = (
    (
        "monday montag lundi lunes lunedì segunda-feira segunda maandag poniedziałek poniedziałku "
        "понедельник понедельника "
        "понеділок понеділка pazartesi senin الاثنين الإثنين دوشنبه सोमवार 월요일|thứ hai|יום שני|ביום שני"
    ),
    (
        "tuesday dienstag mardi martes martedì terça-feira terça dinsdag wtorek вторник вівторок salı "
        "selasa الثلاثاء سهشنبه मंगलवार "
        "화요일|thứ ba|יום שלישי|ביום שלישי|سه شنبه"
    ),
    (
        "wednesday mittwoch mercredi miércoles mercoledì quarta-feira quarta woensdag środa środę "
        "среда среду середа середу çarşamba "
        "rabu الأربعاء الاربعاء चहारशंबे बुधवार 수요일|thứ tư|יום רביעי|ביום רביעי|چهارشنبه"
    ),
    (
        "thursday donnerstag jeudi jueves giovedì quinta-feira quinta donderdag czwartek четверг "
        "четвер perşembe kamis الخميس पंजशंबे "
        "गुरुवार 목요일|thứ năm|יום חמישי|ביום חמישי|پنجشنبه|پنج شنبه"
    ),
    (
        "friday freitag vendredi viernes venerdì sexta-feira sexta vrijdag piątek пятница пятницу "
        "п'ятниця п'ятницю cuma jumat الجمعة "
        "جمعه शुक्रवार 금요일|thứ sáu|יום שישי|ביום שישי"
    ),
    (
        "saturday samstag sonnabend samedi sábado sabato zaterdag sobota sobotę суббота субботу субота "
        "суботу cumartesi sabtu السبت "
        "शनिवार 토요일|thứ bảy|יום שבת|בשבת|شنبه"
    ),
    (
        "sunday sonntag dimanche domingo domenica zondag niedziela niedzielę воскресенье неділя неділю "
        "pazar minggu الأحد الاحد "
        "یکشنبه रविवार 일요일|chủ nhật|יום ראשון|ביום ראשון"
    ),
)
_MONTHS = (
    (
        "january januar jänner janvier enero gennaio janeiro januari styczeń stycznia styczniu январь "
        "января январе січень січня січні "
        "ocak ocakta يناير ژانویه ינואר בינואר जनवरी|tháng 1|tháng một"
    ),
    (
        "february februar février febrero febbraio fevereiro februari luty lutego lutym февраль "
        "февраля феврале лютий лютого лютому "
        "şubat şubatta فبراير فوریه פברואר בפברואר फरवरी फ़रवरी|tháng 2|tháng hai"
    ),
    (
        "märz mars marzo março maart marzec marca marcu март марта марте березень березня березні mart "
        "martta maret مارس מרץ במרץ "
        "मार्च|tháng 3|tháng ba|in march|last march|of march"
    ),
    (
        "april avril abril aprile kwiecień kwietnia kwietniu апрель апреля апреле квітень квітня "
        "квітні nisan nisanda أبريل ابريل "
        "آوریل אפריל באפריל अप्रैल|tháng 4|tháng tư"
    ),
    (
        "mai mayo maggio maio mei maj maja maju мая травень травня травні mayıs mayısta مايو مه מאי במאי "
        "मई|tháng 5|tháng năm|"
        "in may|last may|of may|в мае"
    ),
    (
        "june juni juin junio giugno junho czerwiec czerwca czerwcu июнь июня июне червень червня "
        "червні haziran haziranda يونيو ژوئن "
        "יוני ביוני जून|tháng 6|tháng sáu"
    ),
    (
        "july juli juillet julio luglio julho lipiec lipca lipcu июль июля июле липень липня липні "
        "temmuz temmuzda يوليو ژوئیه יולי "
        "ביולי जुलाई|tháng 7|tháng bảy"
    ),
    (
        "august août agosto augustus sierpień sierpnia sierpniu август августа августе серпень серпня "
        "серпні ağustos ağustosta "
        "agustus أغسطس اغسطس اوت אוגוסט באוגוסט अगस्त|tháng 8|tháng tám"
    ),
    (
        "september septembre septiembre settembre setembro wrzesień września wrześniu сентябрь "
        "сентября сентябре вересень вересня "
        "вересні eylül eylülde سبتمبر سپتامبر ספטמבר בספטמבר सितंबर सितम्बर|tháng 9|tháng chín"
    ),
    (
        "october oktober octobre octubre ottobre outubro październik października październiku октябрь "
        "октября октябре жовтень жовтня "
        "жовтні ekim ekimde أكتوبر اكتوبر اکتبر אוקטובר באוקטובר अक्टूबर|tháng 10|tháng mười"
    ),
    (
        "november novembre noviembre novembro listopad listopada listopadzie ноябрь ноября ноябре "
        "листопад листопада листопаді kasım "
        "kasımda نوفمبر نوامبر נובמבר בנובמבר नवंबर नवम्बर|tháng 11|tháng mười một"
    ),
    (
        "december dezember décembre diciembre dicembre dezembro grudzień grudnia grudniu декабрь "
        "декабря декабре грудень грудня "
        "грудні aralık aralıkta desember ديسمبر دسامبر דצמבר בדצמבר दिसंबर दिसम्बर|tháng 12|tháng mười "
        "hai"
    ),
)
"""Names of months by language; those that are common words, such as `may`, are listed with a
preceding word.
"""
_UNSPACED_DAYS: Mapping[str, _Rule] = {
    **dict.fromkeys(("今天", "今日", "今早", "今晚", "きょう", "今朝"), _day(0)),
    **dict.fromkeys(("昨天", "昨日", "昨晚", "昨夜", "きのう", "昨夜"), _day(1)),
    **dict.fromkeys(("前天", "一昨日", "おととい"), _day(2)),
    **dict.fromkeys(("上周", "上週", "上星期", "上个星期", "上個星期", "上礼拜", "上禮拜", "先週"), _week(1)),
    **dict.fromkeys(("这周", "這週", "本周", "本週", "这个星期", "這個星期", "今週"), _week(0)),
    **dict.fromkeys(("上个月", "上個月", "上月", "先月"), _month(1)),
    **dict.fromkeys(("这个月", "這個月", "本月", "今月"), _month(0)),
    **dict.fromkeys(("去年", "昨年"), _year(1)),
}
_CHINESE_WEEKDAYS = "一二三四五六日天"
_JAPANESE_WEEKDAYS = "月火水木金土日"
_HAN_NUMBERS = {char: number for number, char in enumerate("一二三四五六七八九十", start=1)} | {
    "两": 2,
    "兩": 2,
}
_HAN_UNITS = (
    ("day", ("天", "日")),
    ("week", ("周", "週", "星期", "礼拜", "禮拜", "週間")),
    ("month", ("月", "ヶ月", "か月", "カ月", "个月", "個月")),
    ("year", ("年",)),
)
_HAN_UNIT_OF = {name: unit for unit, names in _HAN_UNITS for name in names}
_HAN_AGO = re.compile(
    r"(\d{1,3}|[一二两兩三四五六七八九十])\s?(?:个|個)?(天|日|週間|周|週|星期|礼拜|禮拜|[ヶかカ]?月|年)(?:之?前|以前)"
)
_HAN_DATE = re.compile(r"(?:(\d{4})年)?(?<!\d)(\d{1,2})月(?:(\d{1,2})[日号號]?)?")
_HAN_MONTH = re.compile(
    r"(?<![一二三四五六七八九十])([一二三四五六七八九]|十[一二]?)月(?:份|里|裡|的|，|。|$)"
)
_HAN_DAY_OF_WEEK = re.compile(
    r"[上先昨][个個]?(?:周|週|星期|礼拜|禮拜)の?([一二三四五六日天](?!本)|[月火水木金土](?=曜))"
)
"""Weekday of last week, such as 上周二 and 先週の火曜日."""
_HAN_WEEKDAY = re.compile(r"(?:星期|礼拜|禮拜|周|週)([一二三四五六日天])|([月火水木金土日])曜日?")
_KOREAN_DATE = re.compile(r"(?<!\d)(\d{1,2})월\s?(\d{1,2})일")
_KOREAN_MONTH = re.compile(r"(?<!\d)(\d{1,2})월(?!\s?\d{1,2}일)")
_VIETNAMESE_DATE = re.compile(r"(?<!\d)(\d{1,2}) tháng (\d{1,2})(?!\d)")
_ISO = re.compile(r"(?<!\d)(\d{4})-(\d{2})-(\d{2})(?!\d)")
_MARKS = "\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0903\u093a-\u094f\u0962\u0963"
"""Combining vowels and points of letters in Devanagari, Hebrew and Arabic."""
_LETTERS = rf"(?:[^\W\d_]|[{_MARKS}])+"
_WORD = re.compile(rf"\d{{1,4}}|{_LETTERS}(?:['’-]{_LETTERS})*")


def _dates(text: str, today: date) -> Iterator[Span]:
    for year, month, day in _ISO.findall(text):
        yield from _day_named(int(day), int(month), int(year), today)
    for month, day in _KOREAN_DATE.findall(text):
        yield from _day_named(int(day), int(month), None, today)
    for day, month in _VIETNAMESE_DATE.findall(text):
        yield from _day_named(int(day), int(month), None, today)
    for month in _KOREAN_MONTH.findall(text):
        if 1 <= int(month) <= 12:
            yield _month_named(int(month))(today)


def _find_unspaced(text: str, today: date) -> Iterator[Span]:
    for name in _HAN_DAY_OF_WEEK.findall(text):
        monday = _week(1)(today).first
        day = monday + timedelta(days=_han_weekday(name))
        yield Span(day, day)
    text = _HAN_DAY_OF_WEEK.sub(" ", text)
    for name, rule in _UNSPACED_DAYS.items():
        if name in text:
            yield rule(today)
    for number, unit in _HAN_AGO.findall(text):
        name = unit if unit in _HAN_UNIT_OF else unit[-1]
        yield _ago(_HAN_NUMBERS.get(number) or int(number), _HAN_UNIT_OF[name], today)
    for year, month, day in _HAN_DATE.findall(text):
        if day:
            yield from _day_named(int(day), int(month), int(year) if year else None, today)
        elif 1 <= int(month) <= 12:
            yield _whole_month(int(year), int(month)) if year else _month_named(int(month))(today)
    for name in _HAN_MONTH.findall(text):
        yield _month_named(sum(_HAN_NUMBERS[char] for char in name))(today)
    for chinese, japanese in _HAN_WEEKDAY.findall(text):
        yield _weekday(_han_weekday(chinese or japanese))(today)


def _han_weekday(name: str) -> int:
    """Return the number of a weekday by its Chinese or Japanese sign; Monday is 0."""
    return min(6, (_CHINESE_WEEKDAYS if name in _CHINESE_WEEKDAYS else _JAPANESE_WEEKDAYS).index(name))


def _find_spaced(text: str, today: date) -> Iterator[Span]:
    words = [word for token in _WORD.findall(text.replace("\u200c", "")) for word in _parts(token)]
    at = 0
    while at < len(words):
        if words[at] not in _FIRST and not words[at].isdecimal():
            at += 1
            continue
        for length in range(min(_PHRASE_WORDS, len(words) - at), 0, -1):
            found = _read_phrase(words, at, length, today)
            if found:
                yield from found
                at += length
                break
        else:
            at += 1


def _parts(token: str) -> list[str]:
    """Return the parts of a token at apostrophes and hyphens, unless the tables contain it whole."""
    token = token.replace("’", "'")
    return [token] if token in _TABLE or token in _NUMBER_OF else re.split("['-]", token)


def _read_phrase(words: list[str], at: int, length: int, today: date) -> tuple[Span, ...]:
    phrase = " ".join(words[at : at + length])
    if length >= 2 and (ago := _read_ago(words[at : at + length], today)):
        return (ago,)
    if length <= 3 and (named := _read_date(words[at : at + length], today)):
        return named
    rule = _TABLE.get(phrase)
    return (rule(today),) if rule else ()


def _read_ago(words: list[str], today: date) -> Span | None:
    """Return the days of a phrase such as `vor zwei Wochen`, `two weeks ago` or `il y a deux ans`; None if it
    is none.
    """
    for marks in (2, 1):
        if " ".join(words[:-2]) in _BEFORE or " ".join(words[:-1]) in _BEFORE:
            rest = words[-2:] if " ".join(words[:-2]) in _BEFORE else words[-1:]
            return _quantity(rest, today)
        if len(words) > marks and " ".join(words[-marks:]) in _AFTER:
            return _quantity(words[:-marks], today)
    return None


def _quantity(words: list[str], today: date) -> Span | None:
    if len(words) == 1:
        held = _DUALS.get(words[0])
        return _ago(*held, today) if held else None
    if len(words) != 2 or words[1] not in _UNIT_OF:
        return None
    number = int(words[0]) if words[0].isdecimal() else _NUMBER_OF.get(words[0])
    return _ago(number, _UNIT_OF[words[1]], today) if number else None


def _read_date(words: list[str], today: date) -> tuple[Span, ...]:
    """Return the days of a date such as `27 April`, `27 de abril` or `April 2025`; empty if it is none."""
    months = [_MONTH_OF[word] for word in words if word in _MONTH_OF]
    numbers = [int(word) for word in words if word.isdecimal()]
    others = [word for word in words if word not in _MONTH_OF and not word.isdecimal()]
    if len(months) != 1 or not numbers or len(numbers) > 2 or any(word not in _JOINING for word in others):
        return ()
    day = next((number for number in numbers if number <= 31), None)
    year = next((number for number in numbers if 1900 <= number <= 2200), None)
    if day:
        return tuple(_day_named(day, months[0], year, today))
    return (_whole_month(year, months[0]),) if year else ()


_JOINING = frozenset(["de", "of", "the", "st", "nd", "rd", "th", "do"])


def _names(line: str) -> Iterator[str]:
    """Yield the single words before the first bar of a table line, then the phrases between bars."""
    single, *phrases = unicodedata.normalize("NFKC", line).split("|")
    yield from single.split()
    yield from phrases


_UNIT_OF = {word: unit for unit, words in _UNITS.items() for word in words.split()}
_NUMBER_OF = {word: number for number, words in enumerate(_NUMBERS, start=1) for word in words.split()}
_MONTH_OF = {name: number for number, line in enumerate(_MONTHS, start=1) for name in _names(line)} | {
    "may": 5,
    "march": 3,
}
_TABLE: Mapping[str, _Rule] = {
    **{name: _month_named(number) for number, line in enumerate(_MONTHS, start=1) for name in _names(line)},
    **{name: _weekday(number) for number, line in enumerate(_WEEKDAYS) for name in _names(line)},
    **{name: _RULES[rule] for rule, line in _PHRASES.items() for name in line.split("|")},
}
_FIRST = frozenset(
    {phrase.split()[0] for phrase in (*_TABLE, *_BEFORE)}
    | set(_NUMBER_OF)
    | set(_MONTH_OF)
    | set(_UNIT_OF)
    | set(_DUALS)
)
"""Words that begin an entry of the tables, so that other words are skipped quickly."""
