"""Signed cookies: who a browser is, and what a sign-in that has begun must come back with."""

from datetime import UTC, datetime, timedelta
from typing import Final

from itsdangerous import BadSignature, URLSafeTimedSerializer
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from chatlane_console.sign_in.visitors import Visitor

_BEGUN_FOR: Final = timedelta(minutes=10)


class Cookies:
    """Reads and writes the cookies of the console.

    A cookie that somebody plants in a browser has no valid signature, and each sign-in writes
    another one, so that nobody can prepare the session of another person.
    """

    def __init__(self, secret: str, *, is_encrypted: bool) -> None:
        """Create it.

        Args:
            secret: Key of the signatures.
            is_encrypted: Whether browsers reach the console over TLS.
        """
        self._is_encrypted = is_encrypted
        # Browsers accept this prefix only from the host itself, over TLS and for all paths.
        prefix = "__Host-" if is_encrypted else ""
        self.name = f"{prefix}chatlane-console"
        self._begun_name = f"{prefix}chatlane-sign-in"
        self._visitors = URLSafeTimedSerializer(secret, salt="chatlane-console-visitor")
        self._begun = URLSafeTimedSerializer(secret, salt="chatlane-console-sign-in")

    def visitor(self, request: Request) -> Visitor | None:
        """Return the visitor who sends a request; None without a sign-in."""
        text = request.cookies.get(self.name)
        if text is None:
            return None
        try:
            visitor = Visitor.model_validate_json(self._visitors.loads(text))
        except (BadSignature, ValidationError, TypeError):
            return None
        return visitor if visitor.expires_at > datetime.now(UTC) else None

    def remember(self, response: Response, visitor: Visitor) -> None:
        """Let a browser be a visitor."""
        lasts = visitor.expires_at - datetime.now(UTC)
        self._set(response, self.name, self._visitors.dumps(visitor.model_dump_json()), lasts)

    def forget(self, response: Response) -> None:
        """Sign a browser out."""
        response.delete_cookie(
            self.name, secure=self._is_encrypted, httponly=True, samesite="strict"
        )

    def remember_begun(self, response: Response, begun: dict[str, str]) -> None:
        """Keep what a sign-in that has begun must come back with."""
        # The provider's page leads back here, so the cookie must come along with that.
        text = self._begun.dumps(begun)
        self._set(response, self._begun_name, text, _BEGUN_FOR, is_strict=False)

    def begun(self, request: Request) -> dict[str, str] | None:
        """Return the values that the sign-in of a browser must bring back; None if none has begun."""
        text = request.cookies.get(self._begun_name)
        try:
            found = self._begun.loads(text or "", max_age=int(_BEGUN_FOR.total_seconds()))
        except BadSignature:
            return None
        return found if isinstance(found, dict) else None

    def forget_begun(self, response: Response) -> None:
        """Forget a sign-in that has begun."""
        response.delete_cookie(
            self._begun_name, secure=self._is_encrypted, httponly=True, samesite="lax"
        )

    def _set(
        self,
        response: Response,
        name: str,
        text: str,
        lasts: timedelta,
        *,
        is_strict: bool = True,
    ) -> None:
        response.set_cookie(
            name,
            text,
            max_age=int(lasts.total_seconds()),
            secure=self._is_encrypted,
            httponly=True,
            samesite="strict" if is_strict else "lax",
        )
