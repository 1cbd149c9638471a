"""The errors that the fake Bot API answers with, in Telegram's own words."""

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
    """An error that is answered to a call instead of a result.

    `violation` marks an error that a correct bot never causes.
    """

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
        """Return the JSON body of the error answer: `ok`, `error_code`, `description` and, if any,
        `parameters`.
        """
        found: Json = {"ok": False, "error_code": self.status, "description": self.description}
        if self.parameters:
            found["parameters"] = self.parameters
        return found

    def headers(self) -> dict[str, str]:
        """Return the HTTP headers of the error answer: Retry-After if the error names a pause, else none."""
        after = self.parameters.get("retry_after")
        return {} if after is None else {"Retry-After": str(after)}


def misuse(words: str) -> Refusal:
    """Return a refusal of status 400 with these words, marked as a violation: the call itself is wrong."""
    return Refusal(words, violation=True)


def stricter(words: str) -> Refusal:
    """Return a refusal, marked as a violation, of a call that Telegram would silently repair or ignore."""
    return Refusal(f"[strict] {words}", violation=True)


def too_many(seconds: int) -> Refusal:
    """Return a refusal of status 429 that asks the bot to wait `seconds`."""
    return Refusal(f"retry after {seconds}", status=429, retry_after=seconds)
