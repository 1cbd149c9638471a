"""OpenID Connect: identifies an operator by tokens that the provider signed for this login."""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp

from shared.adapters.certificates import describe_failure
from shared.core.identity.oidc import (
    Attempt,
    NoEntry,
    ProviderAway,
    ProviderIdentity,
    ProviderRefused,
    is_safe_address,
    name_of,
    role_of,
)
from shared.core.identity.operators import Role, presentable_name

ALGORITHMS: Mapping[str, str] = {"RS256": "RSA", "ES256": "EC"}
"""Accepted signature algorithms, and the type of key for each."""
FETCH_SECONDS = 10.0
"""Maximum seconds of one request to the provider."""
MOST_BYTES = 262_144
"""Maximum bytes of one answer of the provider."""
KEPT_SECONDS = 3600.0
"""Seconds for which the provider's configuration and keys are cached."""
KEYS_AGAIN_SECONDS = 30.0
"""Minimum seconds between downloads of keys for unknown key ids, which anyone can send."""
LEEWAY_SECONDS = 60
"""Seconds by which the provider's clock may differ from ours."""
MOST_AGE_SECONDS = 600
"""Maximum seconds since an identity token was issued."""
MOST_TOKEN_CHARS = 32_768
"""Maximum characters of an identity or access token."""
_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderConfig:
    """Configuration of the identity provider; `groups` are pairs of its group and the role that it gives."""

    issuer: str
    client_id: str
    client_secret: str = field(default="", repr=False)
    groups: tuple[tuple[str, Role], ...]


class OidcProvider:
    """Client of an OpenID Connect provider, by authorization code with PKCE.

    Its methods raise ProviderAway if the provider cannot be reached or its answer is unusable. They raise
    ProviderRefused if a check of the login fails, and NoEntry if the operator has no role.
    """

    def __init__(self, config: ProviderConfig, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._clock = clock
        self._about: dict[str, Any] = {}
        self._about_at = 0.0
        self._keys: Mapping[str, Mapping[str, Any]] = {}
        self._keys_at = 0.0
        self._asking = asyncio.Lock()

    async def begin(self, attempt: Attempt, *, redirect_uri: str) -> str:
        """Return the address at the provider to which the browser is redirected for a login.

        May load the provider's configuration; `redirect_uri` is where the provider sends the browser
        afterwards.
        """
        about = await self._load_discovery()
        wish = {
            "response_type": "code",
            "client_id": self._config.client_id,
            "redirect_uri": redirect_uri,
            "scope": " ".join(_scopes(about)),
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": attempt.challenge,
            "code_challenge_method": "S256",
        }
        address = str(about["authorization_endpoint"])
        return f"{address}{'&' if '?' in address else '?'}{urlencode(wish)}"

    async def finish(
        self, attempt: Attempt, answer: Mapping[str, str], *, redirect_uri: str
    ) -> ProviderIdentity:
        """Check the browser's answer and return the operator's identity; call it once per attempt.

        Raises NoEntry if none of the operator's groups has a role.
        """
        about = await self._load_discovery()
        if not hmac.compare_digest(answer.get("state", "").encode(), attempt.state.encode()):
            raise ProviderRefused("state")
        if "iss" in answer and answer["iss"] != self._config.issuer:
            raise ProviderRefused("answer of another issuer")
        if about.get("authorization_response_iss_parameter_supported") is True and "iss" not in answer:
            raise ProviderRefused("answer without its issuer")
        if "error" in answer or not answer.get("code"):
            raise ProviderRefused("the provider said no")
        redeemed = await self._redeem(about, answer["code"], attempt, redirect_uri)
        claims = await self._claims(about, redeemed["id_token"], attempt)
        if "groups" not in claims and is_safe_address(about.get("userinfo_endpoint")):
            claims = await self._load_more_claims(about, claims, redeemed.get("access_token")) | claims
        return self._parse_operator(claims)

    async def _load_more_claims(
        self, about: Mapping[str, Any], claims: Mapping[str, Any], token: object
    ) -> dict[str, Any]:
        """Return groups, names and email from the userinfo endpoint, for a token without groups.

        Raises ProviderRefused for an unusable access token, a refusal, or another person's claims;
        ProviderAway if the provider cannot be reached.
        """
        if (
            not isinstance(token, str)
            or not 0 < len(token) <= MOST_TOKEN_CHARS
            or not _BEARER.fullmatch(token)
        ):
            raise ProviderRefused("no access token")
        headers = {"Authorization": f"Bearer {token}"}
        status, said = await _ask("GET", str(about["userinfo_endpoint"]), headers=headers)
        if status != 200:
            raise ProviderRefused(f"no user info, status {status}")
        if said.get("sub") != claims["sub"]:
            raise ProviderRefused("user info of somebody else")
        return {name: said[name] for name in _ELSEWHERE if name in said}

    def _parse_operator(self, claims: Mapping[str, Any]) -> ProviderIdentity:
        role = role_of(claims, self._config.groups)
        if role is None:
            raise NoEntry
        subject = claims["sub"]
        name = presentable_name(name_of(claims), fallback=subject)
        return ProviderIdentity(issuer=self._config.issuer, subject=subject, name=name, role=role)

    async def _redeem(
        self, about: Mapping[str, Any], code: str, attempt: Attempt, redirect_uri: str
    ) -> dict[str, Any]:
        """Redeem the code and return the provider's answer, with an `id_token`. Raises ProviderRefused."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": attempt.verifier,
        }
        headers, secret = {}, self._config.client_secret
        if not secret:
            form["client_id"] = self._config.client_id
        elif "client_secret_basic" in about.get("token_endpoint_auth_methods_supported", _BASIC):
            headers["Authorization"] = aiohttp.encode_basic_auth(
                quote(self._config.client_id, safe=""), quote(secret, safe="")
            )
        else:
            form |= {"client_id": self._config.client_id, "client_secret": secret}
        status, said = await _ask("POST", str(about["token_endpoint"]), form=form, headers=headers)
        token = said.get("id_token")
        if status != 200 or not isinstance(token, str) or len(token) > MOST_TOKEN_CHARS:
            raise ProviderRefused(f"no token, status {status}")
        return said

    async def _claims(self, about: Mapping[str, Any], token: str, attempt: Attempt) -> dict[str, Any]:
        """Verify an ID token and return its claims. Raises ProviderRefused and ProviderAway.

        PyJWT is imported here, because it loads the package cryptography.
        """
        import jwt

        try:
            header = jwt.get_unverified_header(token)
            key = await self._key(about, header)
            claims: dict[str, Any] = jwt.decode(
                token,
                jwt.PyJWK(dict(key), algorithm=header["alg"]),
                algorithms=[header["alg"]],
                audience=self._config.client_id,
                issuer=self._config.issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["iss", "sub", "aud", "exp", "iat"], "strict_aud": False},
            )
        except (jwt.PyJWTError, ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise ProviderRefused(type(error).__name__) from error
        self._check(claims, attempt)
        return claims

    def _check(self, claims: Mapping[str, Any], attempt: Attempt) -> None:
        nonce, subject, parties = claims.get("nonce"), claims["sub"], claims["aud"]
        if not isinstance(nonce, str) or not hmac.compare_digest(nonce.encode(), attempt.nonce.encode()):
            raise ProviderRefused("nonce")
        if not isinstance(subject, str) or not 1 <= len(subject) <= 255 or "\x00" in subject:
            raise ProviderRefused("subject")
        several = isinstance(parties, list) and len(parties) > 1
        if claims.get("azp", None if several else self._config.client_id) != self._config.client_id:
            raise ProviderRefused("made for another client")
        if (
            not isinstance(claims["iat"], int | float)
            or claims["iat"] < time.time() - MOST_AGE_SECONDS - LEEWAY_SECONDS
        ):
            raise ProviderRefused("too old")

    async def _key(self, about: Mapping[str, Any], header: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the public key that a token's header names, of the type that its algorithm needs.

        Unknown keys are downloaded. Raises ProviderRefused and ProviderAway.
        """
        kind = ALGORITHMS.get(str(header.get("alg")))
        if kind is None:
            raise ProviderRefused("algorithm")
        found = self._find_key(header, kind)
        if found is None:
            async with self._asking:
                await self._ask_for_keys(about)
            found = self._find_key(header, kind)
        if found is None:
            raise ProviderRefused("unknown key")
        return found

    def _find_key(self, header: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
        if self._clock() - self._keys_at > KEPT_SECONDS:
            return None
        named = header.get("kid")
        fitting = [
            key for kid, key in self._keys.items()
            if key.get("kty") == kind and key.get("crv", "P-256") == "P-256"
            and (named is None or kid == named)
        ]  # fmt: skip
        return fitting[0] if len(fitting) == 1 else None

    async def _ask_for_keys(self, about: Mapping[str, Any]) -> None:
        if self._keys and self._clock() - self._keys_at < KEYS_AGAIN_SECONDS:
            return
        status, said = await _ask("GET", str(about["jwks_uri"]))
        keys = said.get("keys")
        if status != 200 or not isinstance(keys, list):
            raise ProviderAway(f"no keys, status {status}")
        signing = [key for key in keys if isinstance(key, dict) and key.get("use", "sig") == "sig"]
        self._keys = {str(key.get("kid", "")): key for key in signing}
        self._keys_at = self._clock()

    async def _load_discovery(self) -> Mapping[str, Any]:
        async with self._asking:
            if not self._about or self._clock() - self._about_at > KEPT_SECONDS:
                self._about = await self._discover()
                self._about_at = self._clock()
            return self._about

    async def _discover(self) -> dict[str, Any]:
        issuer = self._config.issuer
        status, said = await _ask("GET", f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if status != 200:
            raise ProviderAway(f"no description, status {status}")
        if said.get("issuer") != issuer:
            raise ProviderAway("the description is of another issuer")
        if not all(is_safe_address(said.get(name)) for name in _ENDPOINTS):
            raise ProviderAway("an endpoint is missing or not https")
        methods = said.get("code_challenge_methods_supported", ["S256"])
        if not isinstance(methods, list) or "S256" not in methods:
            raise ProviderAway("no PKCE with S256")
        return said


_BASIC = ("client_secret_basic",)
_ELSEWHERE = ("groups", "preferred_username", "email", "name")
_BEARER = re.compile(r"[A-Za-z0-9._~+/=-]+")


def _scopes(about: Mapping[str, Any]) -> list[str]:
    known = about.get("scopes_supported")
    offered = known if isinstance(known, list) else []
    return ["openid", "profile", "email", *(["groups"] if "groups" in offered else [])]


async def _ask(
    method: str,
    address: str,
    *,
    form: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, dict[str, Any]]:
    """Send a request and return status and JSON object of the answer. Raises ProviderAway.

    Redirects are not followed, since the request may hold a secret.
    """
    if not is_safe_address(address):
        raise ProviderAway("not https")
    timeout = aiohttp.ClientTimeout(total=FETCH_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as http,
            http.request(
                method, address, data=form, allow_redirects=False,
                headers={"Accept": "application/json", **(headers or {})},
            ) as answer,
        ):  # fmt: skip
            body = await _read_capped(answer)
            status = answer.status
        said = json.loads(body)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, RecursionError) as error:
        raise ProviderAway(describe_failure(error)) from error
    if not isinstance(said, dict):
        raise ProviderAway("not an object")
    return status, said


async def _read_capped(answer: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for piece in answer.content.iter_chunked(16_384):
        body += piece
        if len(body) > MOST_BYTES:
            raise ValueError("too large")
    return bytes(body)
