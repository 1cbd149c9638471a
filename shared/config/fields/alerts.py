"""Settings of whom Evertalk notifies: hooks of summaries, alerts and push services."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from shared.config.fields.declaration import Declaration, FormRow
from shared.config.fields.kinds import (
    ChatIds,
    LongSecret,
    MailAddress,
    MailAddresses,
    MailServer,
    PushOrigins,
    WebhookAddress,
)


class AlertSettings(BaseModel):
    """Settings of hooks of summaries, of alerts to operators, and of push services."""

    compaction_hook_url: Annotated[
        WebhookAddress | None,
        Declaration(
            "Operators and alerts",
            processes=("worker",),
            form=FormRow("context", "Hook of summaries: address", rare=True),
        ),
    ] = Field(
        default=None,
        description=(
            "address of a server that receives a message before and after each summary, see "
            "[hooks](context.md#hooks-before-and-after-a-summary): https on the public internet, or "
            "this machine"
        ),
    )
    compaction_hook_secret: Annotated[
        LongSecret | None,
        Declaration(
            "Operators and alerts",
            processes=("worker",),
            form=FormRow("context", "Hook of summaries: secret", rare=True),
        ),
    ] = Field(
        default=None,
        description=(
            "secret that signs messages of the hook; required with the address, at least 32 characters"
        ),
    )
    compaction_hook_summary: Annotated[
        bool,
        Declaration(
            "Operators and alerts", form=FormRow("context", "Hook of summaries: send their text", rare=True)
        ),
    ] = Field(
        default=False,
        description=(
            "send the text of each summary to the hook, too; without it messages have numbers and ids only"
        ),
    )

    # Whom alerts go to.
    alert_telegram_chats: Annotated[
        ChatIds,
        Declaration(
            "Operators and alerts",
            form=FormRow(
                "alerts", "Telegram chats", "Chat IDs, separated by commas; the first bot writes there."
            ),
        ),
    ] = Field(
        default=(), description="ids of Telegram chats that receive alerts from the first configured bot"
    )
    # The process that opens an alert stores its targets; the worker opens none.
    alert_webhook_url: Annotated[
        WebhookAddress | None,
        Declaration(
            "Operators and alerts",
            processes=("web", "bot"),
            form=FormRow("alerts", "Webhook: address", "An https address that alerts are posted to."),
        ),
    ] = Field(
        default=None,
        description="address that alerts are posted to: https on the public internet, or this machine",
    )
    alert_webhook_secret: Annotated[
        LongSecret | None,
        Declaration(
            "Operators and alerts",
            processes=("web", "bot"),
            form=FormRow("alerts", "Webhook: secret", "Signs alerts; at least 32 characters."),
        ),
    ] = Field(
        default=None,
        description="secret that signs webhook alerts; required with the address, at least 32 characters",
    )
    alert_smtp_url: Annotated[
        MailServer | None,
        Declaration(
            "Operators and alerts",
            processes=("web", "bot"),
            form=FormRow("alerts", "Mail server", "Such as smtp://NAME:PASSWORD@HOST:587."),
        ),
    ] = Field(
        default=None,
        description=("mail server for alerts, `smtp://NAME:PASSWORD@HOST:587` (STARTTLS) or `smtps://…:465`"),
    )
    alert_email_from: Annotated[
        MailAddress,
        Declaration("Operators and alerts", form=FormRow("alerts", "Sender", "Needed with a mail server.")),
    ] = Field(default="", description="sender address of alert mails; required with the mail server")
    alert_email_to: Annotated[
        MailAddresses,
        Declaration(
            "Operators and alerts",
            form=FormRow("alerts", "Recipients", "Needed with a mail server, separated by commas."),
        ),
    ] = Field(default=(), description="recipients of alert mails; required with the mail server")
    alert_outage_seconds: Annotated[int, Declaration("Operators and alerts")] = Field(
        default=60,
        ge=5,
        le=3_600,
        description=(
            "seconds without a written heartbeat, 5 to 3,600, after which a process alerts operators "
            "without the database, see [runbook](runbook.md#a-database-that-takes-no-writes)"
        ),
    )

    # Push services of one's own, where notifications of browsers may go although they are not public.
    push_services: Annotated[PushOrigins, Declaration("Operators and alerts")] = Field(
        default=(),
        description=(
            "push services of your own, such as `https://push.example.lan:8443`, to which "
            "[notifications](dashboard.md#notifications) may go although they are not public"
        ),
    )
