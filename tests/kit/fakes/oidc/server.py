"""The OpenID Connect provider: discovery, keys, authorisation, tokens for codes, and controls."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlencode

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, rsa

CLIENT_ID = "evertalk"
CLIENT_SECRET = "a secret: of/evertalk"
CODE_SECONDS = 60
ADA: dict[str, Any] = {"sub": "ada-1", "preferred_username": "Ada", "groups": ["staff", "ops"]}


@dataclass(slots=True)
class Key:
    kid: str
    alg: str
    private: Any

    def public(self) -> dict[str, Any]:
        algorithm = jwt.get_algorithm_by_name(self.alg)
        shown: dict[str, Any] = json.loads(algorithm.to_jwk(self.private.public_key()))
        return {**shown, "kid": self.kid, "use": "sig", "alg": self.alg}


def new_key(alg: str) -> Key:
    private: Any = (
        rsa.generate_private_key(public_exponent=65537, key_size=2048)
        if alg == "RS256"
        else ec.generate_private_key(ec.SECP256R1())
    )
    return Key(kid=secrets.token_hex(4), alg=alg, private=private)


@dataclass(slots=True)
class Provider:
    """The state of the provider.

    `lie` names the forgery of the next token; `person` holds the claims of the person at the browser.
    """

    issuer: str
    key: Key = field(default_factory=lambda: new_key("RS256"))
    person: dict[str, Any] = field(default_factory=lambda: dict(ADA))
    lie: str = ""
    public_client: bool = False
    discovery: dict[str, Any] = field(default_factory=dict)
    userinfo: dict[str, Any] = field(default_factory=dict)
    """Claims that the user info endpoint returns to the holder of the person's access token."""
    codes: dict[str, dict[str, Any]] = field(default_factory=dict)
    access: set[str] = field(default_factory=set)
    asked: dict[str, int] = field(
        default_factory=lambda: {"discovery": 0, "keys": 0, "token": 0, "userinfo": 0}
    )

    def application(self) -> web.Application:
        app = web.Application()
        add = app.router
        add.add_get("/.well-known/openid-configuration", self._discovery)
        add.add_get("/keys", self._keys)
        add.add_get("/authorize", self._authorize)
        add.add_post("/token", self._token)
        add.add_get("/userinfo", self._userinfo)
        add.add_post("/_control", self._control)
        return app

    async def _discovery(self, request: web.Request) -> web.Response:
        self.asked["discovery"] += 1
        if self.lie == "huge discovery":
            return web.Response(text='{"issuer": "' + "x" * 1_000_000 + '"}', content_type="application/json")
        if self.lie == "redirected discovery":
            raise web.HTTPFound("/keys")
        return web.json_response(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
                "scopes_supported": ["openid", "profile", "email", "groups"],
                "token_endpoint_auth_methods_supported": ["client_secret_basic"],
                "authorization_response_iss_parameter_supported": True,
                **self.discovery,
            }
        )

    async def _keys(self, request: web.Request) -> web.Response:
        self.asked["keys"] += 1
        return web.json_response({"keys": [self.key.public()]})

    async def _authorize(self, request: web.Request) -> web.Response:
        """Answer an authorisation request at once with a code, as if the person agreed.

        A request that breaks the standards gets an error page.
        """
        asked = request.query
        if len(set(asked)) != len(asked) or asked.get("client_id") != CLIENT_ID:
            raise web.HTTPBadRequest(text="client_id")
        redirect = asked.get("redirect_uri", "")
        if not redirect.startswith("http://127.0.0.1:") or not redirect.endswith("/dashboard/oidc/back"):
            raise web.HTTPBadRequest(text="redirect_uri")
        wrong = (
            asked.get("response_type") != "code"
            or "openid" not in asked.get("scope", "").split()
            or asked.get("code_challenge_method") != "S256"
            or len(asked.get("code_challenge", "")) != 43
            or min(len(asked.get("state", "")), len(asked.get("nonce", ""))) < 32
        )
        if wrong:
            raise web.HTTPBadRequest(text="incomplete")
        answer = {"state": asked["state"], "iss": self.issuer}
        if self.lie == "denied":
            answer["error"] = "access_denied"
        else:
            answer["code"] = secrets.token_urlsafe(16)
            self.codes[answer["code"]] = {**asked, "until": time.monotonic() + CODE_SECONDS}
        answer |= {"state": "x" * 43} if self.lie == "state" else {}
        answer |= {"iss": "https://evil.example"} if self.lie == "answer of another" else {}
        raise web.HTTPFound(f"{redirect}?{urlencode(answer)}")

    async def _token(self, request: web.Request) -> web.Response:
        self.asked["token"] += 1
        form = await request.post()
        begun = self.codes.pop(str(form.get("code")), None)  # valid once, even if refused
        challenge = hashlib.sha256(str(form.get("code_verifier", "")).encode()).digest()
        right = (
            begun is not None
            and begun["until"] > time.monotonic()
            and form.get("grant_type") == "authorization_code"
            and form.get("redirect_uri") == begun["redirect_uri"]
            and base64.urlsafe_b64encode(challenge).rstrip(b"=").decode() == begun["code_challenge"]
        )
        if not self._is_client(request, form):
            return web.json_response({"error": "invalid_client"}, status=401)
        if not right or begun is None:
            return web.json_response({"error": "invalid_grant"}, status=400)
        token = self._signed(self._claims(begun["nonce"]))
        self.access.add(access := secrets.token_urlsafe(16))
        if self.lie == "broken access token":
            access = "a\r\nb: c"
        return web.json_response({"access_token": access, "token_type": "Bearer", "id_token": token})

    async def _userinfo(self, request: web.Request) -> web.Response:
        self.asked["userinfo"] += 1
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if kind != "Bearer" or token not in self.access or self.lie == "no user info":
            return web.Response(status=401, headers={"WWW-Authenticate": "Bearer"}, text="{}")
        return web.json_response({"sub": self.person.get("sub"), **self.userinfo})

    def _is_client(self, request: web.Request, form: Any) -> bool:
        if self.public_client:
            return "Authorization" not in request.headers and form.get("client_id") == CLIENT_ID
        kind, _, given = request.headers.get("Authorization", "").partition(" ")
        try:
            name, _, secret = base64.b64decode(given).decode().partition(":")
        except ValueError:
            return False
        known = (unquote(name), unquote(secret)) == (CLIENT_ID, CLIENT_SECRET)
        return kind == "Basic" and known and "client_secret" not in form

    def _claims(self, nonce: str) -> dict[str, Any]:
        now = int(time.time())
        claims = {
            "iss": self.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 300, "nonce": nonce, **self.person
        }  # fmt: skip
        lies: dict[str, dict[str, Any]] = {
            "expired": {"iat": now - 500, "exp": now - 120},
            "old": {"iat": now - 3_600},
            "from the future": {"nbf": now + 600},
            "audience": {"aud": "somebody-else"},
            "two audiences": {"aud": [CLIENT_ID, "other"]},
            "another party": {"aud": [CLIENT_ID, "other"], "azp": "other"},
            "issuer": {"iss": "https://evil.example"},
            "nonce": {"nonce": "x" * 43},
            "number as nonce": {"nonce": 7},
            "number as subject": {"sub": 7},
            "endless subject": {"sub": "s" * 300},
            "text as time": {"exp": "later"},
        }
        claims |= lies.get(self.lie, {})
        if self.lie.startswith("without "):
            claims.pop(self.lie.removeprefix("without "))
        return claims

    def _signed(self, claims: dict[str, Any]) -> str:
        header: dict[str, Any] = {"kid": self.key.kid}
        if self.lie == "none":
            return jwt.encode(claims, "", algorithm="none", headers=header)
        if self.lie == "symmetric":
            # The public key, which everybody knows, as the secret of an HMAC.
            public = self.key.public().get("n") or self.key.public()["x"]
            return jwt.encode(claims, public, algorithm="HS256", headers=header)
        if self.lie == "client secret":
            return jwt.encode(claims, CLIENT_SECRET.ljust(32), algorithm="HS256", headers=header)
        if self.lie == "forged":
            return jwt.encode(claims, new_key(self.key.alg).private, algorithm=self.key.alg, headers=header)
        if self.lie == "forged with its key inside":
            forger = new_key(self.key.alg)
            header = {"kid": forger.kid, "jwk": forger.public(), "jku": f"{self.issuer}/keys"}
            return jwt.encode(claims, forger.private, algorithm=forger.alg, headers=header)
        token = jwt.encode(claims, self.key.private, algorithm=self.key.alg, headers=header)
        if self.lie == "changed":
            head, _, tail = token.split(".")
            body = json.dumps(claims | {"groups": ["admins"]}).encode()
            return f"{head}.{base64.urlsafe_b64encode(body).rstrip(b'=').decode()}.{tail}"
        return {"no token": "", "words": "not.a.token", "huge": "x" * 100_000}.get(self.lie, token)

    async def _control(self, request: web.Request) -> web.Response:
        wish = await request.json()
        for name in ("person", "lie", "public_client", "discovery", "userinfo"):
            if name in wish:
                setattr(self, name, wish[name])
        if "rotate" in wish:
            self.key = new_key(wish["rotate"])
        return web.json_response({"asked": self.asked})
