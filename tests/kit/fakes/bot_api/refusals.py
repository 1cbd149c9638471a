"""The errors of the Bot API in Telegram's own words."""

from __future__ import annotations

from tests.kit.fakes.bot_api.shapes import Json

TITLES = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    409: "Conflict",
    413: "Request Entity Too Large",
    429: "Too Many Requests",
    500: "Internal Server Error",
    502: "Bad Gateway",
}
NOT_MODIFIED = (
    "message is not modified: specified new message content and reply markup are exactly the same "
    "as a current content and reply markup of the message"
)
QUERY_TOO_OLD = "query is too old and response timeout expired or query ID is invalid"
OTHER_POLLER = "terminated by other getUpdates request; make sure that only one bot instance is running"
WEBHOOK_ACTIVE = (
    "can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"
)
WEBHOOK_SET = "terminated by setWebhook request"


class Refusal(Exception):
    """The call is answered by an error; a violation is one that no careful bot would ever earn."""

    def __init__(
        self,
        words: str,
        *,
        status: int = 400,
        violation: bool = False,
        retry_after: int | None = None,
        migrate_to: int | None = None,
    ) -> None:
        title = TITLES.get(status, "Error")
        self.description = f"{title}: {words}" if words else title
        super().__init__(self.description)
        self.status = status
        self.violation = violation
        self.parameters: Json = {}
        if retry_after is not None:
            self.parameters["retry_after"] = retry_after
        if migrate_to is not None:
            self.parameters["migrate_to_chat_id"] = migrate_to

    def body(self) -> Json:
        found: Json = {"ok": False, "error_code": self.status, "description": self.description}
        if self.parameters:
            found["parameters"] = self.parameters
        return found

    def headers(self) -> dict[str, str]:
        after = self.parameters.get("retry_after")
        return {} if after is None else {"Retry-After": str(after)}


def misuse(words: str) -> Refusal:
    """A mistake in the call itself, in Telegram's words."""
    return Refusal(words, violation=True)


def stricter(words: str) -> Refusal:
    """Telegram would repair or ignore this silently; a test should hear of it."""
    return Refusal(f"[strict] {words}", violation=True)


def too_many(seconds: int) -> Refusal:
    return Refusal(f"retry after {seconds}", status=429, retry_after=seconds)
