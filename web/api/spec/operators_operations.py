"""The operations on operators, their logins and the audit log."""

from __future__ import annotations

from web.api.spec.operation import BEFORE, LIMIT, Operation, Parameter, done, in_path, seen, some_words
from web.api.spec.shapes import ID

_OPERATOR = in_path("operator", "the id of an operator", ID)
_LOGIN = in_path("login", "the id of an open login", ID)
_FILTERS = (
    some_words("operator", "who did it"),
    some_words("action", "a whole one, or a family such as `read`"),
    some_words("about", "what it was done to"),
    Parameter(name="from", told="since", schema={"type": "string", "format": "date"}),
    Parameter(name="to", told="before", schema={"type": "string", "format": "date"}),
)


_ENDS = (404,)

FOR_OPERATORS: tuple[Operation, ...] = (
    seen("/me/logins", "listOwnLogins", "One's own open logins.", "Logins"),
    done(
        "DELETE", "/me/logins", "endOtherLogins", "End all of one's logins but this.", "Ended", role="viewer",
        refusals=_ENDS,
    ),
    done(
        "DELETE", "/me/logins/{login}", "endOwnLogin", "End another of one's logins.", "Ended", _LOGIN,
        role="viewer", refusals=_ENDS,
    ),
    done(
        "POST", "/me/display-name", "setDisplayName", "What people see of oneself; empty takes it back.",
        "Success", role="viewer", body="DisplayName",
    ),
    seen("/me/second-factor", "seeSecondFactor", "Whether one's own login needs a code.", "SecondFactor"),
    done(
        "POST", "/me/second-factor", "beginSecondFactor", "A key for an authenticator app, shown this once.",
        "SecondFactorKey", role="viewer", refusals=(409, 503),
    ),
    done(
        "POST", "/me/second-factor/confirm", "confirmSecondFactor",
        "The app's first code: from now on a login needs one; other logins end.", "RecoveryCodes",
        role="viewer", body="FactorCode", refusals=(409, 429, 503),
    ),
    done(
        "POST", "/me/second-factor/remove", "removeSecondFactor", "By a code, of the app or for recovery.",
        "Success", role="viewer", body="FactorCode", refusals=(409, 429, 503),
    ),
    seen("/operators", "listOperators", "Everybody with their open logins.", "Operators", role="admin"),
    done(
        "POST", "/operators", "inviteOperator", "Let somebody in, by a link that logs in once.", "Invited",
        role="admin", body="Invitation", status=201,
    ),
    done(
        "PATCH", "/operators/{operator}", "changeOperator", "Change the role, lock or unlock.",
        "ChangedOperator", _OPERATOR, role="admin", body="OperatorChange",
    ),
    done(
        "POST", "/operators/{operator}/link", "makeLoginLink", "Another link, for who forgot the password.",
        "Invited", _OPERATOR, role="admin", status=201,
    ),
    done(
        "DELETE", "/operators/{operator}/logins", "endLogins", "End every login of somebody.", "Ended",
        _OPERATOR, role="admin", refusals=_ENDS,
    ),
    done(
        "DELETE", "/operators/{operator}/logins/{login}", "endLogin", "End one login of somebody.", "Ended",
        _OPERATOR, _LOGIN, role="admin", refusals=_ENDS,
    ),
    seen(
        "/audit", "listAudit", "Who read and changed what, the newest first.", "AuditEntries", *_FILTERS,
        BEFORE, LIMIT, role="admin",
    ),
    seen("/audit/chain", "checkAudit", "Whether the log is whole.", "AuditChain", role="admin"),
    seen(
        "/audit/csv", "exportAudit", "The filtered log as a file.", "", *_FILTERS, role="admin",
        media="text/csv",
    ),
)  # fmt: skip
