r"""The identifiers that agent traffic is full of, found by patterns.

`RECOGNISERS` is the table: label, pattern, and what a match must also fulfil. Precise rather than
greedy: plain words, ordinals, units and small numbers are nobody's identifiers.

Every repetition in a pattern is bounded or cannot be entered from its own inside (a look-behind
forbids to begin within a run), so the time is linear in the text whatever it holds.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from enrichment.ports import Span
from enrichment.vocabulary import word_set


class Recogniser(NamedTuple):
    """A kind of identifier.

    Attributes:
        label: the subtype its spans carry.
        needs: a text without any of these strings holds none, and is not searched for it.
        pattern: where one may stand; group 1, if there is one, is the identifier itself.
        accepts: what the identifier must also fulfil.
        meaning: for the documentation.
    """

    label: str
    needs: tuple[str, ...]
    pattern: re.Pattern[str]
    accepts: Callable[[str], bool]
    meaning: str


def identifiers(text: str) -> list[Span]:
    """Identifiers in a text in order, without overlap: the leftmost wins, then the longest.

    Of two that are equally long, the one whose row comes first in RECOGNISERS.
    """
    return list(_cached(text) if len(text) <= _CACHED_CHARACTERS else _spans(text))


def _spans(text: str) -> tuple[Span, ...]:
    matches: list[tuple[int, int, int, str]] = []
    has_digit = _DIGIT.search(text) is not None
    for rank, (label, needs, pattern, accepts, _) in enumerate(RECOGNISERS):
        if needs is DIGITS:
            if not has_digit:
                continue
        elif not any(needed in text for needed in needs):
            continue
        for match in pattern.finditer(text):
            start, end = match.span(pattern.groups and 1)
            end = _without_trailing(text, start, end)
            if end > start and accepts(text[start:end]):
                matches.append((start, -end, rank, label))
    matches.sort()
    spans: list[Span] = []
    last = 0
    for start, negative_end, _, label in matches:
        if start >= last:
            last = -negative_end
            spans.append(Span(start, last, label))
    return tuple(spans)


_CACHED_CHARACTERS = 4_000
_cached = lru_cache(maxsize=256)(_spans)  # keywords, mentions and values ask about one text in turn

DIGITS = tuple("0123456789")
_DIGIT = re.compile("[0-9]")
_TRAILING = ".,;:!?'\")]*_"
"""What ends a sentence or a quotation, not an identifier."""


def _without_trailing(text: str, start: int, end: int) -> int:
    while end > start and text[end - 1] in _TRAILING:
        if text[end - 1] == ")" and "(" in text[start:end]:
            break  # a URL may hold a pair of brackets
        end -= 1
    return end


def _always(_: str) -> bool:
    return True


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


_PLAIN_PREFIXES = word_set(
    "mid pre post top step steps under over sub non age aged early late year years level part "
    "day days week month chapter page room about circa covid plus option line point number "
    "minute hour type size team grade class round"
)
_PLAIN_CODES = word_set(
    "sha1 sha256 sha512 md5 utf8 utf16 utf32 base64 int8 int16 int32 int64 uint8 float16 float32 "
    "float64 h264 h265 x264 x265 win32 x86 amd64 arm64 latin1 iso8601 rfc3339 mp3 mp4 covid19 "
    "http2 es2015 y2k"
)
_UNITS = word_set(
    "ms s sec secs m min mins h hr hrs d day days w mo yr yrs k kb mb gb tb kib mib gib b kg g mg "
    "lb lbs oz km cm mm mi ft in px pt em rem x am pm st nd rd th usd eur gbp hz khz mhz ghz w kw "
    "v a ma mah fps rpm mph kmh kbps mbps gbps p c f ml l"
)
_GROUPS = re.compile(r"[A-Za-z]+|[0-9]+")


def _is_prefixed_id(text: str) -> bool:
    """`ORD_123`, `mia_li_3668`, `invoice-2024-001`; not `top-10`, not `mid-2024`."""
    digits = sum(c.isdigit() for c in text)
    if not digits:
        return False
    if "_" in text:
        return True
    first, _, number = text.partition("-")
    if first.lower() in _PLAIN_PREFIXES:
        return False
    if number.isdigit() and (first.isupper() or len(number) >= 3):
        return True
    return digits >= 2 and (first.isupper() or number.count("-") > 0 or len(number) >= 4)


def _is_code(text: str) -> bool:
    """`HAT123`, `4WQ150`, `r2209`; not `20th`, `500MB`, `sha256` or `1990s`."""
    if text.lower() in _PLAIN_CODES:
        return False
    groups = _GROUPS.findall(text)
    letters = "".join(g for g in groups if g.isalpha())
    digits = sum(len(g) for g in groups if g.isdigit())
    if not letters or not digits:
        return False
    if len(groups) == 2 and groups[0].isdigit():
        return letters.isupper() and len(letters) > 1 and letters.lower() not in _UNITS
    if letters.isupper():
        return digits >= 2 or len(groups) > 2 or len(text) >= 6
    if len(groups) == 2:
        return digits >= 3 and letters.islower() and len(letters) <= 12
    # several changes between letters and digits: a token, if it is long enough to be none by chance
    return len(text) >= 8 and digits >= 2


def _is_hex(text: str) -> bool:
    digits = sum(c.isdigit() for c in text)
    return text.startswith("0x") or (digits >= 2 and digits < len(text))


def _is_number(text: str) -> bool:
    return not text.endswith("000")


def _is_key(text: str) -> bool:
    parts = text.split(".")
    return min(map(len, parts)) >= 2 and ("_" in text or len(parts) >= 3)


CURRENCY = r"USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|NZD|SEK|NOK|DKK|PLN|CZK|BRL|MXN|SGD|HKD|KRW|ZAR"
_NUMBER = r"\d{1,12}(?:,\d{3}){0,4}(?:\.\d{1,4})?"
_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?"
    r"|Sep(?:t(?:ember)?)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)"
)
_EXTENSIONS = (
    "py|js|ts|tsx|jsx|java|rs|go|rb|php|cpp|hpp|cs|swift|kt|scala|sh|bash|ps1|sql|html|css|scss"
    "|json|jsonl|ya?ml|toml|ini|cfg|conf|env|lock|xml|csv|tsv|parquet|md|rst|txt|log|pdf|docx?"
    "|xlsx?|pptx?|png|jpe?g|gif|svg|webp|mp3|mp4|wav|mov|zip|tar|gz|tgz|zst|ipynb|exe|dll|so|jar"
    "|whl|db|sqlite|proto|tf|pem|crt"
)
_TOP_LEVEL = "com|org|net|io|dev|ai|app|edu|gov|local|internal|cloud|co|svc|info|test|example"
_NUMBERED = (
    "order|incident|charge|invoice|ticket|issue|case|reservation|booking|account|card|customer|request|claim"
    "|shipment|tracking|transfer|transaction|payment|refund|PR|pull request|flight|build|job|room"
    "|policy|member|certificate"
)


def _row(
    label: str,
    needs: tuple[str, ...],
    pattern: str,
    meaning: str,
    *,
    accepts: Callable[[str], bool] = _always,
) -> Recogniser:
    return Recogniser(
        label=label, needs=needs, pattern=re.compile(pattern), accepts=accepts, meaning=meaning
    )


RECOGNISERS: tuple[Recogniser, ...] = (
    _row(
        "url",
        ("://", "www."),
        r"(?<![A-Za-z0-9@])(?:(?:https?|ftp|wss?|s3|gs|file|redis|bolt|neo4j|postgres(?:ql)?"
        r"|mysql|mongodb|amqp|git|ssh)://|www\.)[^\s<>\"'`{}|\\^\[\]]{3,2000}",
        "`https://example.com/a?b=1`, also `s3://`, `postgres://`, `www.`",
    ),
    _row(
        "email",
        ("@",),
        r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9][A-Za-z0-9._%+-]{0,63}"
        r"@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![A-Za-z0-9])",
        "`mia.li3818@example.com`",
    ),
    _row(
        "uuid",
        DIGITS,
        r"(?<![A-Za-z0-9])[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}(?![A-Za-z0-9])",
        "`019cb8a0-0088-7000-8000-000000000001`",
    ),
    _row(
        "path",
        ("\\",),
        r"(?<![A-Za-z0-9])[A-Za-z]:\\(?:[^\\/:*?\"<>|\s]{1,120}\\){0,30}[^\\/:*?\"<>|\s]{1,120}",
        r"`C:\\logs\\app.log`",
    ),
    _row(
        "path",
        ("/",),
        r"(?<![\w./~:@-])(?:~|\.{1,2})?(?:/[\w.@+%=-]{1,120}){2,40}/?",
        "`/etc/nginx/nginx.conf`, `~/notes/today`: at least two steps",
    ),
    _row(
        "path",
        (".",),
        rf"(?<![\w./~:@+-])(?:[\w.@+-]{{1,120}}/){{0,30}}[\w@+-][\w.@+-]{{0,119}}"
        rf"(?<=[\w@+-])\.(?:{_EXTENSIONS})(?![\w-])",
        "`src/app/main.py`, `report.pdf`: a known extension",
    ),
    _row(
        "ip",
        DIGITS,
        r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\w)|(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}"
        r"[0-9A-Fa-f]{1,4}(?![\w:])",
        "`10.0.0.12`, `fe80::1`",
        accepts=_is_ip,
    ),
    _row(
        "version",
        DIGITS,
        r"(?<![\w.-])(?:[vV]\d{1,5}(?:\.\d{1,6}){1,3}|\d{1,4}(?:\.\d{1,6}){2,3})"
        r"(?:[-+][0-9A-Za-z.-]{1,40})?(?![A-Za-z0-9_])",
        "`v1.2`, `2.10.3-rc1`; two plain numbers with a point are none",
    ),
    _row(
        "amount",
        DIGITS,
        rf"(?<![\w$€£¥])-?[$€£¥]\s?{_NUMBER}(?:\s?(?:k|m|bn|million|billion)\b)?(?!\w)"
        rf"|(?<![\w.,])-?{_NUMBER}\s?(?:{CURRENCY}|€|£|dollars?|euros?|pounds|cents)(?!\w)"
        rf"|(?<!\w)(?:{CURRENCY})\s?{_NUMBER}(?!\w)",
        "`$1,250.00`, `84.00 EUR`: a number with a currency",
    ),
    _row(
        "date",
        DIGITS,
        r"(?<![\w-])\d{4}-(?:0\d|1[0-2])-(?:[0-2]\d|3[01])"
        r"(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?(?![\w-])"
        rf"|(?<!\w){_MONTH}\.? \d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?(?!\w)"
        rf"|(?<!\w)\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {_MONTH}(?:,? \d{{4}})?(?!\w)"
        r"|(?<![\w/])\d{1,2}[/.]\d{1,2}[/.](?:\d{4}|\d{2})(?![\w/])",
        "`2024-05-20`, `May 20th, 2024`, `20 May`, `5/20/2024`",
    ),
    _row(
        "time",
        DIGITS,
        r"(?<![\w:.])(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d)?(?: ?[AaPp][Mm])?(?![\w:])"
        r"|(?<![\w:.])(?:1[0-2]|0?[1-9]) ?[AaPp][Mm](?!\w)",
        "`15:00:00`, `3 pm`",
    ),
    _row(
        "phone",
        DIGITS,
        r"(?<![\w+])\+\d{1,3}[ .-]?(?:\(\d{1,4}\)[ .-]?)?\d{1,4}(?:[ .-]?\d{2,4}){1,4}(?![\w-])"
        r"|(?<![\w(+-])\(\d{3}\) ?\d{3}[ .-]\d{4}(?![\w-])"
        r"|(?<![\w.+-])\d{3}[.-]\d{3}[.-]\d{4}(?![\w-])",
        "`+49 30 901820`, `(555) 010-9999`, `555-010-9999`",
    ),
    _row(
        "handle",
        ("@",),
        r"(?<![\w@./+-])@[A-Za-z_][\w-]{2,38}(?![\w@-])",
        "`@maya_ops`",
    ),
    _row(
        "key",
        (".",),
        r"(?<![\w./@-])[a-z][a-z0-9_]{0,60}(?:\.[a-z][a-z0-9_]{0,60}){1,8}(?![\w@/(]|\.\w)",
        "`payments.gateway.timeout_s`: names of settings and of modules",
        accepts=_is_key,
    ),
    _row(
        "host",
        (".",),
        rf"(?<![\w./@-])(?:[a-z0-9][a-z0-9-]{{0,62}}\.){{1,8}}(?:{_TOP_LEVEL})(?::\d{{2,5}})?"
        r"(?![\w@-]|\.\w)",
        "`api.example.com:8443`",
    ),
    _row(
        "id",
        DIGITS,
        r"(?<![\w.@/-])#?[A-Za-z][A-Za-z0-9]{0,63}(?:[-_][A-Za-z0-9]{1,64}){1,12}(?![\w@])",
        "`mia_li_3668`, `invoice-2024-001`, `ORD_123`, `GPT-4`",
        accepts=_is_prefixed_id,
    ),
    _row(
        "code",
        DIGITS,
        r"(?<![\w.@/-])[A-Za-z0-9]{4,64}(?![\w@]|[-/]\w)",
        "`HAT123`, `4WQ150`, `r2209`: letters and digits in one word",
        accepts=_is_code,
    ),
    _row(
        "code",
        (" ",),
        rf"(?<![\w#&-])(?i:{_NUMBERED}|confirmation)(?i:s? (?:number|no|id|code)s?)[*:_ ]{{1,5}}"
        r"(?:is )?[*_]{0,2}([A-Z]{5,8})(?!\w)",
        "`reservation ID HATHAT`: capitals after what has an id",
    ),
    _row(
        "hex",
        DIGITS,
        r"(?<![\w.@/-])(?:0x[0-9A-Fa-f]{2,64}|[0-9a-f]{7,64})(?![\w@]|[-/]\w)",
        "`9f2c1ab`, `0xdeadbeef`",
        accepts=_is_hex,
    ),
    _row(
        "number",
        DIGITS,
        r"(?<![\w.,+/:$€£-])\d{6,20}(?![\w%]|[.,:/-]\d)",
        "`4421486`: at least six digits, not a round one",
        accepts=_is_number,
    ),
    _row(
        "number",
        DIGITS,
        rf"(?<![\w#&-])(?:(?i:{_NUMBERED})s?(?i: (?:number|no\.?|id))?:? ?#?|#)"
        r"(\d{2,20})(?![\w%]|[.,:/-]\d)",
        "`order 4711`, `#4711`: a number after what is numbered",
    ),
)
