"""Settings of secrets, operators' logins, logs and processes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field, SecretStr

from shared.config.fields.declaration import Declaration
from shared.config.fields.kinds import AbsolutePath, Issuer, LogLevel, LongSecret, RolesByGroup


class OperationSettings(BaseModel):
    """Settings of secrets, operators' logins, logs, traces and process files."""

    secret_key: Annotated[
        LongSecret | None,
        Declaration(
            "Storage and processes", default="made once", processes=("web",), per_host=True, container="file"
        ),
    ] = Field(default=None, description="key that encrypts stored secrets; required with `DATABASE_URL`")
    metrics_token: Annotated[
        SecretStr | None, Declaration("Logs, metrics and traces", processes=("web",))
    ] = Field(
        default=None,
        description=(
            "bearer token for `/metrics`; without a token only this machine may read it, and nobody "
            "if there is a public URL"
        ),
    )
    otlp_endpoint: Annotated[str | None, Declaration("Logs, metrics and traces", per_host=True)] = Field(
        default=None,
        description=(
            "collector that receives [traces](metrics.md#traces) and [metrics of model "
            "calls](metrics.md#metrics-of-model-calls); with a path, for example "
            "`http://127.0.0.1:4318/v1/traces`"
        ),
    )

    # Operators who log in by an identity provider.
    oidc_issuer: Annotated[Issuer | None, Declaration("Operators and alerts")] = Field(
        default=None,
        description=(
            "issuer URL of the operators' identity provider, as in its discovery document; https, "
            "except on this machine"
        ),
    )
    oidc_client_id: Annotated[str, Declaration("Operators and alerts")] = Field(
        default="",
        description=(
            "client id of Evertalk at that provider; register the redirect address "
            "`/dashboard/oidc/back` of the public URL"
        ),
    )
    oidc_client_secret: Annotated[
        SecretStr | None, Declaration("Operators and alerts", processes=("web",))
    ] = Field(default=None, description="client secret; without one Evertalk is a public client")
    oidc_groups: Annotated[RolesByGroup, Declaration("Operators and alerts")] = Field(
        default=(),
        description=(
            "roles by group of the claim `groups`, for example `ops=operator,admins=admin`; people in"
            " none of these groups cannot log in"
        ),
    )

    log_level: Annotated[LogLevel, Declaration("Logs, metrics and traces", per_host=True)] = Field(
        default="info", description="`debug`, `info`, `warning`, `error`"
    )
    log_format: Annotated[
        Literal["auto", "text", "json"],
        Declaration("Logs, metrics and traces", per_host=True, container="fixed"),
    ] = Field(default="auto", description="`auto`, `text`, `json`")

    process_file: Annotated[
        AbsolutePath | None, Declaration("Storage and processes", per_host=True, container="fixed")
    ] = Field(
        default=None,
        description=(
            "only if your own supervisor restarts a process: file by which the process recognises the"
            " one it replaces, so that it takes over its work at once instead of after 4 seconds; "
            "`python -m shared.supervision.liveness` also reads it to report whether the process is "
            "healthy; `./evertalk up` sets it for each process"
        ),
    )
    # For the fault suite alone: the process ends at this named point.
    crash_point: Annotated[
        str | None, Declaration("Logs, metrics and traces", per_host=True, container="absent")
    ] = Field(default=None, description="for the fault suite only: ends the process at a named point")
