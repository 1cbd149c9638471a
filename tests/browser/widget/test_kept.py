"""A profile that another test used before looks like a new one, or is not given out again."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from tests.browser.kept import Profile, Profiles
from tests.browser.widget.stub import Stub

pytestmark = pytest.mark.browser
STORE = "() => { localStorage.a = sessionStorage.a = 'kept'; document.cookie = 'a=kept;path=/' }"
STORED = "() => [localStorage.a, sessionStorage.a, document.cookie]"


@pytest.fixture
def own_profiles(widget_browser: Browser) -> Profiles:
    return Profiles(widget_browser)


def test_nothing_that_a_page_stored_outlasts_its_test(own_profiles: Profiles, stub: Stub) -> None:
    first = own_profiles.take_over({})
    page = first.page()
    page.goto(f"{stub.host_url}/shop")
    page.evaluate(STORE)
    assert page.evaluate(STORED) == ["kept", "kept", "a=kept"]
    own_profiles.release(first, {}, stub.host_url)
    assert page.is_closed()
    second = own_profiles.take_over({})
    assert second is first
    page = second.page()
    page.goto(f"{stub.host_url}/shop")
    assert page.evaluate(STORED) == [None, None, ""]
    own_profiles.close()


def test_who_asked_for_the_context_is_its_last_user(own_profiles: Profiles) -> None:
    first = own_profiles.take_over({})
    assert first.context.pages == []
    assert _next(own_profiles, first) is not first


def test_installed_clock_is_not_shared_with_next_test(own_profiles: Profiles) -> None:
    first = own_profiles.take_over({})
    first.page().clock.install()
    assert _next(own_profiles, first) is not first


@pytest.mark.parametrize("set_clock", ["set_fixed_time", "set_system_time"])
def test_set_clock_is_not_shared_with_next_test(own_profiles: Profiles, set_clock: str) -> None:
    first = own_profiles.take_over({})
    getattr(first.page().clock, set_clock)(0)
    assert _next(own_profiles, first) is not first


def test_each_way_of_asking_has_a_profile_of_its_own(own_profiles: Profiles) -> None:
    plain = own_profiles.take_over({})
    own_profiles.release(plain, {})
    spanish = own_profiles.take_over({"locale": "es"})
    assert spanish is not plain
    assert spanish.page().evaluate("navigator.language") == "es"
    own_profiles.release(spanish, {"locale": "es"})
    assert own_profiles.take_over({"locale": "es"}) is spanish
    own_profiles.release(spanish, {"locale": "es"})
    own_profiles.close()


def _next(profiles: Profiles, used: Profile) -> Profile:
    profiles.release(used, {})
    after = profiles.take_over({})
    profiles.release(after, {})
    profiles.close()
    return after
