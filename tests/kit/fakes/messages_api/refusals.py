"""The errors of the provider: status, type and body."""

from __future__ import annotations

from tests.kit.fakes.messages_api.shapes import Json

TYPE_OF_STATUS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
USUAL_MESSAGE = {
    400: "Error",
    401: "invalid x-api-key",
    402: "Your organization's payment method was declined.",
    403: "Your API key does not have permission to use the specified resource.",
    404: "Not Found",
    413: "Request exceeds the maximum size",
    429: "This request would exceed your organization's rate limit. Please try again later.",
    500: "Internal server error",
    503: "Service unavailable",
    504: "The request timed out",
    529: "Overloaded",
}
NO_CREDIT = (
    "Your credit balance is too low to access the Anthropic API. "
    "Please go to Plans & Billing to upgrade or purchase credits."
)


class Refusal(Exception):
    """An error that is answered to a request instead of a message."""

    def __init__(self, message: str, *, status: int = 400, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.retry_after = retry_after


def error_body(kind: str, message: str, request_id: str) -> Json:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": request_id}


def too_long(tokens: int, maximum: int) -> str:
    return f"prompt is too long: {tokens} tokens > {maximum} maximum"
