"""Only who the provider vouches for in this login gets in; what is forged, old or for others does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import aiohttp
import pytest

from shared.adapters.oidc import KEYS_AGAIN_SECONDS, OidcProvider, ProviderConfig
from shared.core.identity.oidc import (
    Attempt,
    NoEntry,
    ProviderAway,
    ProviderIdentity,
    ProviderRefused,
    is_safe_address,
    parse_groups,
)
from tests.kit.fakes.oidc.harness import RunningProvider
from tests.kit.fakes.oidc.server import ADA, CLIENT_ID, CLIENT_SECRET

REDIRECT = "http://127.0.0.1:8080/dashboard/oidc/back"
GROUPS = parse_groups("ops=operator, admins=admin, all staff=viewer")


@dataclass(slots=True)
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def issuer(oidc_process: RunningProvider) -> RunningProvider:
    await oidc_process.tell(
        lie="", person=ADA, public_client=False, discovery={}, userinfo={}, rotate="RS256"
    )
    return oidc_process


def ours(provider: RunningProvider, *, clock: Clock | None = None, **other: Any) -> OidcProvider:
    known = {
        "issuer": provider.issuer,
        "client_id": CLIENT_ID,
        "client_secret": CLIENT_SECRET,
        "groups": GROUPS,
    }
    return OidcProvider(ProviderConfig(**{**known, **other}), clock=clock or Clock())


async def went_there(client: OidcProvider, attempt: Attempt) -> dict[str, str]:
    """What the browser comes back with."""
    address = await client.begin(attempt, redirect_uri=REDIRECT)
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as http,
        http.get(address, allow_redirects=False) as answer,
    ):
        assert answer.status == 302, await answer.text()
        return dict(parse_qsl(urlsplit(answer.headers["Location"]).query))


async def logged_in(client: OidcProvider, secret: str = "a") -> ProviderIdentity:
    attempt = Attempt(secret=secret)
    return await client.finish(attempt, await went_there(client, attempt), redirect_uri=REDIRECT)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
async def test_who_is_in_a_group_comes_in_with_its_role(issuer: RunningProvider, algorithm: str) -> None:
    await issuer.tell(rotate=algorithm)
    vouched = await logged_in(ours(issuer))
    assert vouched == ProviderIdentity(issuer=issuer.issuer, subject="ada-1", name="Ada", role="operator")


@pytest.mark.parametrize(
    ("groups", "role"),
    [
        (["ops", "admins"], "admin"),
        ("admins", "admin"),
        (["all staff"], "viewer"),
        (["x", 7, None, "ops"], "operator"),
    ],
)
async def test_the_highest_of_the_groups_counts(issuer: RunningProvider, groups: Any, role: str) -> None:
    await issuer.tell(person={**ADA, "groups": groups})
    assert (await logged_in(ours(issuer))).role == role


@pytest.mark.parametrize("groups", [[], ["staff"], ["OPS"], {"ops": True}, None, 7, "", "ops,admins"])
async def test_without_a_group_there_is_no_entry(issuer: RunningProvider, groups: Any) -> None:
    await issuer.tell(person={**ADA, "groups": groups})
    with pytest.raises(NoEntry):
        await logged_in(ours(issuer))


@pytest.mark.control("S09")
@pytest.mark.parametrize(
    "lie",
    [
        "none", "symmetric", "client secret", "forged", "forged with its key inside", "changed", "expired",
        "old", "from the future", "audience", "two audiences", "another party", "issuer", "nonce",
        "number as nonce", "number as subject", "endless subject", "text as time", "without exp",
        "without iat", "without aud", "without iss", "without sub", "without nonce", "no token",
        "words", "huge", "state", "denied", "answer of another",
    ],
)  # fmt: skip
@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
async def test_forged_id_token_is_refused(issuer: RunningProvider, lie: str, algorithm: str) -> None:
    await issuer.tell(lie=lie, rotate=algorithm, person={**ADA, "groups": ["admins"]})
    with pytest.raises(ProviderRefused):
        await logged_in(ours(issuer))


async def keeps_groups_elsewhere(provider: RunningProvider, **userinfo: Any) -> None:
    """Its tokens hold nothing but who it is; `userinfo` is what the endpoint adds."""
    discovery = {"userinfo_endpoint": f"{provider.issuer}/userinfo"}
    await provider.tell(person={"sub": "ada-1"}, discovery=discovery, userinfo=userinfo)


async def test_groups_that_stand_in_no_token_are_asked_for(issuer: RunningProvider) -> None:
    await keeps_groups_elsewhere(issuer, groups=["ops"], preferred_username="Ada", iss="x", aud="y")
    vouched = await logged_in(ours(issuer))
    assert vouched == ProviderIdentity(issuer=issuer.issuer, subject="ada-1", name="Ada", role="operator")


async def test_what_the_token_says_counts_more_than_what_is_said_elsewhere(issuer: RunningProvider) -> None:
    await keeps_groups_elsewhere(issuer, groups=["admins"])
    before = (await issuer.tell(person={"sub": "ada-1", "groups": []}))["userinfo"]
    with pytest.raises(NoEntry):
        await logged_in(ours(issuer))
    assert (await issuer.tell())["userinfo"] == before


async def test_groups_of_another_person_are_refused(issuer: RunningProvider) -> None:
    await keeps_groups_elsewhere(issuer, groups=["admins"], sub="eve-1")
    with pytest.raises(ProviderRefused, match="somebody else"):
        await logged_in(ours(issuer))


@pytest.mark.parametrize("lie", ["no user info", "broken access token"])
async def test_login_without_answer_about_groups_is_refused(issuer: RunningProvider, lie: str) -> None:
    await keeps_groups_elsewhere(issuer, groups=["admins"])
    await issuer.tell(lie=lie)
    with pytest.raises(ProviderRefused):
        await logged_in(ours(issuer))


async def test_an_endpoint_that_is_not_safe_is_not_asked(issuer: RunningProvider) -> None:
    await keeps_groups_elsewhere(issuer, groups=["admins"])
    await issuer.tell(discovery={"userinfo_endpoint": "http://10.0.0.1/userinfo"})
    with pytest.raises(NoEntry):
        await logged_in(ours(issuer))


async def test_an_answer_is_good_once_and_for_its_own_browser_only(issuer: RunningProvider) -> None:
    client, attempt = ours(issuer), Attempt(secret="a")
    answer = await went_there(client, attempt)
    with pytest.raises(ProviderRefused):
        await client.finish(Attempt(secret="b"), answer, redirect_uri=REDIRECT)
    stolen = {**answer, "state": Attempt(secret="b").state}
    with pytest.raises(ProviderRefused):
        await client.finish(Attempt(secret="b"), stolen, redirect_uri=REDIRECT)
    other = await went_there(client, attempt)
    assert (await client.finish(attempt, other, redirect_uri=REDIRECT)).name == "Ada"
    with pytest.raises(ProviderRefused):
        await client.finish(attempt, other, redirect_uri=REDIRECT)


async def test_an_answer_without_its_issuer_is_refused_where_one_was_promised(
    issuer: RunningProvider,
) -> None:
    client, attempt = ours(issuer), Attempt(secret="a")
    answer = await went_there(client, attempt)
    del answer["iss"]
    with pytest.raises(ProviderRefused):
        await client.finish(attempt, answer, redirect_uri=REDIRECT)


async def test_new_keys_are_fetched_when_a_token_names_one(issuer: RunningProvider) -> None:
    clock = Clock()
    client = ours(issuer, clock=clock)
    await logged_in(client)
    await issuer.tell(rotate="ES256")
    clock.now += KEYS_AGAIN_SECONDS + 1
    assert (await logged_in(client)).name == "Ada"


async def test_unknown_keys_do_not_make_us_ask_again_and_again(issuer: RunningProvider) -> None:
    client = ours(issuer)
    await logged_in(client)
    before = await issuer.tell(lie="forged with its key inside")
    for _ in range(5):
        with pytest.raises(ProviderRefused):
            await logged_in(client)
    after = await issuer.tell()
    assert after["keys"] == before["keys"]
    assert after["discovery"] == before["discovery"]


async def test_a_public_client_proves_itself_by_pkce_alone(issuer: RunningProvider) -> None:
    await issuer.tell(public_client=True)
    assert (await logged_in(ours(issuer, client_secret=""))).role == "operator"


async def test_a_wrong_client_secret_is_refused(issuer: RunningProvider) -> None:
    with pytest.raises(ProviderRefused):
        await logged_in(ours(issuer, client_secret="wrong"))


@pytest.mark.parametrize(
    "told",
    [
        {"issuer": "https://evil.example"}, {"token_endpoint": "http://id.example/token"},
        {"jwks_uri": "file:///etc/passwd"}, {"authorization_endpoint": None}, {"jwks_uri": "http://169.254.1.1/"},
        {"code_challenge_methods_supported": ["plain"]},
    ],
)  # fmt: skip
async def test_a_provider_that_describes_itself_wrongly_is_not_asked(
    issuer: RunningProvider, told: dict[str, Any]
) -> None:
    await issuer.tell(discovery=told)
    with pytest.raises(ProviderAway):
        await ours(issuer).begin(Attempt(secret="a"), redirect_uri=REDIRECT)


@pytest.mark.control("S26")
@pytest.mark.parametrize("lie", ["huge discovery", "redirected discovery"])
async def test_what_is_too_large_or_leads_elsewhere_is_not_read(issuer: RunningProvider, lie: str) -> None:
    await issuer.tell(lie=lie)
    with pytest.raises(ProviderAway):
        await ours(issuer).begin(Attempt(secret="a"), redirect_uri=REDIRECT)


async def test_a_provider_that_is_away_is_said_to_be(issuer: RunningProvider) -> None:
    gone = ours(issuer, issuer="http://127.0.0.1:9")
    with pytest.raises(ProviderAway):
        await gone.begin(Attempt(secret="a"), redirect_uri=REDIRECT)


def test_only_https_and_this_machine_are_asked() -> None:
    good = (
        "https://id.example",
        "https://id.example:8443/x",
        "http://127.0.0.1:1",
        "http://[::1]:1",
        "http://localhost",
    )
    bad = (
        "http://id.example",
        "ftp://id.example",
        "https://",
        "",
        "https://a@b.example",
        "http://localhost.evil.example",
        None,
        7,
        "https://x/#y",
    )
    assert all(map(is_safe_address, good))
    assert not any(map(is_safe_address, bad))


@pytest.mark.parametrize("text", ["", "ops", "ops=", "=admin", "ops=root", "ops=admin,,"])
def test_groups_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ops=operator"):
        parse_groups(text)
