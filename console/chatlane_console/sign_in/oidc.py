"""Sign-in at a provider of OpenID Connect: the code flow with PKCE."""

import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from datetime import timedelta
from hashlib import sha256
from secrets import compare_digest, token_urlsafe
from time import monotonic
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import httpx
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from pydantic import BaseModel, JsonValue, ValidationError

from chatlane_console.settings import ConsoleSettings

CALLBACK_PATH: Final = "/sign-in/callback"

# Without `none`, and without those whose key is the secret of the client.
_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA", "Ed25519")
_PATIENCE: Final = timedelta(seconds=10)
_KEPT_FOR: Final = timedelta(minutes=10)
_LEEWAY_SECONDS: Final = 60
_MAX_ANSWER_BYTES: Final = 512 * 1024


class SignInFailedError(Exception):
    """A sign-in at the provider failed; the text says at which step, without what the provider said."""


class Begun(NamedTuple):
    """A sign-in that has begun.

    Attributes:
        url: Where the browser goes.
        expected: What the browser must come back with.
    """

    url: str
    expected: dict[str, str]


class _Metadata(BaseModel):
    """The published configuration of a provider."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


class OidcProvider:
    """The provider that the settings name."""

    def __init__(self, settings: ConsoleSettings) -> None:
        """Create it; nothing is asked before the first sign-in."""
        self._settings = settings
        self._found: tuple[float, _Metadata] | None = None

    async def begin(self) -> Begun:
        """Begin a sign-in.

        Raises:
            SignInFailedError: The provider does not answer.
        """
        metadata = await self._metadata()
        state, nonce, verifier = (token_urlsafe(32) for _ in range(3))
        digest = sha256(verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self._settings.oidc_client_id,
            "redirect_uri": self._redirect_uri,
            "scope": self._settings.oidc_scope,
            "state": state,
            "nonce": nonce,
            "code_challenge": urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        separator = "&" if "?" in metadata.authorization_endpoint else "?"
        url = f"{metadata.authorization_endpoint}{separator}{urlencode(query)}"
        return Begun(url, {"state": state, "nonce": nonce, "verifier": verifier})

    async def finish(
        self, answer: Mapping[str, str], expected: Mapping[str, str]
    ) -> dict[str, JsonValue]:
        """Return the claims of the person who comes back from the provider.

        Args:
            answer: Query of the address that the browser came back to.
            expected: What it must come back with, from `begin`.

        Raises:
            SignInFailedError: The answer is not one to this sign-in, or the provider refused it.
        """
        metadata = await self._metadata()
        if not compare_digest(answer.get("state", "").encode(), expected["state"].encode()):
            raise SignInFailedError("state")
        if answer.get("iss", metadata.issuer) != metadata.issuer:
            raise SignInFailedError("issuer")
        if "code" not in answer:
            raise SignInFailedError("refused")
        tokens = await self._tokens(metadata, answer["code"], expected["verifier"])
        claims = await self._verified(metadata, tokens.get("id_token"), expected["nonce"])
        return {**await self._user_info(metadata, tokens, claims["sub"]), **claims}

    @property
    def _redirect_uri(self) -> str:
        return f"{self._settings.public_url}{CALLBACK_PATH}"

    async def _metadata(self) -> _Metadata:
        if self._found is not None:
            found_at, metadata = self._found
            if monotonic() - found_at < _KEPT_FOR.total_seconds():
                return metadata
        issuer = self._settings.oidc_issuer or ""
        url = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
        try:
            metadata = _Metadata.model_validate(await _fetched("GET", url))
        except ValidationError:
            raise SignInFailedError("metadata") from None
        # Else another provider could speak for this one.
        if metadata.issuer.rstrip("/") != issuer.rstrip("/"):
            raise SignInFailedError("issuer")
        self._found = monotonic(), metadata
        return metadata

    async def _tokens(self, metadata: _Metadata, code: str, verifier: str) -> dict[str, Any]:
        settings = self._settings
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_uri,
            "client_id": settings.oidc_client_id or "",
            "code_verifier": verifier,
        }
        secret = settings.oidc_client_secret
        auth = None
        if secret is not None:
            if "client_secret_basic" in metadata.token_endpoint_auth_methods_supported:
                auth = httpx.BasicAuth(settings.oidc_client_id or "", secret.get_secret_value())
            else:
                form["client_secret"] = secret.get_secret_value()
        return await _fetched("POST", metadata.token_endpoint, data=form, auth=auth)

    async def _verified(
        self, metadata: _Metadata, id_token: object, nonce: str
    ) -> dict[str, JsonValue]:
        """Return the claims of a token that the provider signed for this sign-in."""
        if not isinstance(id_token, str):
            raise SignInFailedError("token")
        keys: Any = await _fetched("GET", metadata.jwks_uri)
        try:
            token = jwt.decode(id_token, KeySet.import_key_set(keys), algorithms=_ALGORITHMS)
            jwt.JWTClaimsRegistry(
                leeway=_LEEWAY_SECONDS,
                iss={"essential": True, "value": metadata.issuer},
                aud={"essential": True},
                exp={"essential": True},
                iat={"essential": True},
                sub={"essential": True},
                nonce={"essential": True, "value": nonce},
            ).validate(token.claims)
        except (JoseError, ValueError, TypeError, KeyError):
            raise SignInFailedError("token") from None
        claims: dict[str, JsonValue] = token.claims
        client_id, audience = self._settings.oidc_client_id, claims["aud"]
        audiences = audience if isinstance(audience, list) else [audience]
        is_for_us = client_id in audiences
        if not is_for_us or (len(audiences) > 1 and claims.get("azp") != client_id):
            raise SignInFailedError("audience")
        return claims

    async def _user_info(
        self, metadata: _Metadata, tokens: dict[str, Any], subject: JsonValue
    ) -> dict[str, JsonValue]:
        """Return further claims of the user; many providers give names and roles only here."""
        access = tokens.get("access_token")
        if metadata.userinfo_endpoint is None or not isinstance(access, str):
            return {}
        headers = {"Authorization": f"Bearer {access}"}
        fetched_claims: dict[str, JsonValue] = await _fetched(
            "GET", metadata.userinfo_endpoint, headers=headers
        )
        if fetched_claims.get("sub") != subject:
            raise SignInFailedError("subject")
        return fetched_claims


async def _fetched(method: str, url: str, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401 - of httpx
    """Return the JSON object at an address.

    Raises:
        SignInFailedError: There is none.
    """
    try:
        async with (
            httpx.AsyncClient(timeout=_PATIENCE.total_seconds()) as client,
            client.stream(method, url, **arguments) as response,
        ):
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > _MAX_ANSWER_BYTES:
                    raise SignInFailedError("provider")
            is_found = response.is_success
    except (httpx.HTTPError, httpx.InvalidURL):
        raise SignInFailedError("provider") from None
    try:
        found = json.loads(body) if is_found else None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise SignInFailedError("provider")
    return found
