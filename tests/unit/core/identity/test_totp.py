"""Codes of an authenticator app, against the vectors of the standards."""

from __future__ import annotations

import base64
import re
from urllib.parse import parse_qs, urlsplit

import pytest

from shared.core.identity.totp import (
    app_address,
    code_at,
    format_key,
    format_recovery_codes,
    matching_step,
    recovery_digest,
    step_of,
)

KEY = b"12345678901234567890"


@pytest.mark.control("S09")
@pytest.mark.parametrize(
    ("seconds", "code"),
    [
        (59, "94287082"), (1111111109, "07081804"), (1111111111, "14050471"), (1234567890, "89005924"),
        (2000000000, "69279037"), (20000000000, "65353130"),
    ],
)  # fmt: skip
def test_codes_are_those_of_rfc_6238(seconds: int, code: str) -> None:
    assert code_at(KEY, step_of(seconds), digits=8) == code
    assert code_at(KEY, step_of(seconds)) == code[2:]


def test_codes_are_those_of_rfc_4226() -> None:
    codes = "755224 287082 359152 969429 338314 254676 287922 162583 399871 520489"
    assert " ".join(code_at(KEY, step) for step in range(10)) == codes


@pytest.mark.control("S09")
def test_a_clock_may_be_half_a_minute_off_and_no_more() -> None:
    now = 1_700_000_010.0
    step = step_of(now)
    for off, found in ((-2, None), (-1, step - 1), (0, step), (1, step + 1), (2, None)):
        assert matching_step(KEY, code_at(KEY, step + off), seconds=now, after=0) == found


@pytest.mark.control("S09")
def test_a_code_is_never_right_twice_nor_one_before_it() -> None:
    now = 1_700_000_010.0
    step = step_of(now)
    for earlier in (step - 1, step):
        assert matching_step(KEY, code_at(KEY, earlier), seconds=now, after=step) is None
    assert matching_step(KEY, code_at(KEY, step + 1), seconds=now, after=step) == step + 1


def test_a_code_may_be_typed_with_spaces_and_is_digits_only() -> None:
    now = 59.0
    code = code_at(KEY, step_of(now))
    assert matching_step(KEY, f" {code[:3]} {code[3:]}", seconds=now, after=0) == 1
    arabic = code.translate({ord(str(n)): chr(0x0660 + n) for n in range(10)})
    for wrong in ("", code[:5], code + "0", "abcdef", arabic, "-1", "0" * 4000):
        assert matching_step(KEY, wrong, seconds=now, after=0) is None


def test_authenticator_address_holds_the_key_shown_on_the_page() -> None:
    address = urlsplit(app_address(KEY, name="Ada & Co@home", issuer="Evertalk"))
    asked = parse_qs(address.query)
    assert (address.scheme, address.netloc) == ("otpauth", "totp")
    assert address.path == "/Evertalk:Ada%20%26%20Co%40home"
    assert asked["issuer"] == ["Evertalk"]
    for shown in (asked["secret"][0], format_key(KEY).replace(" ", "")):
        assert base64.b32decode(shown) == KEY


def test_a_recovery_code_is_the_same_however_it_is_typed() -> None:
    (shown,) = format_recovery_codes([bytes(range(10))])
    assert re.fullmatch(r"([a-z2-7]{4} ){3}[a-z2-7]{4}", shown)
    for typed in (shown, shown.upper(), shown.replace(" ", "-"), shown.replace(" ", "")):
        assert recovery_digest(typed) == recovery_digest(shown)
    assert recovery_digest(shown[:-1] + "a") != recovery_digest(shown)
    assert recovery_digest("") != recovery_digest(shown)
