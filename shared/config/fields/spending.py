"""Spending caps, in US dollars."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, Field

from shared.config.fields.declaration import Declaration, FormRow
from shared.config.fields.kinds import Dollars


class SpendingSettings(BaseModel):
    """Spending caps in US dollars; None sets no cap, unless the description names a default."""

    cap_total_per_day_usd: Annotated[
        Dollars,
        Declaration("Spending", form=FormRow("caps", "Per day", "In dollars, for all people together.")),
    ] = Field(default=Decimal("5.00"), description="maximum spending per day")
    cap_person_per_day_usd: Annotated[
        Dollars | None,
        Declaration("Spending", form=FormRow("caps", "Per person and day", "In dollars; no limit if empty.")),
    ] = Field(default=None, description="maximum spending per person and day")
    cap_session_usd: Annotated[
        Dollars | None,
        Declaration(
            "Spending", form=FormRow("caps", "Per conversation and day", "In dollars; no limit if empty.")
        ),
    ] = Field(default=None, description="maximum spending per conversation and day")
    cap_visitor_per_day_usd: Annotated[
        Dollars,
        Declaration(
            "Spending",
            form=FormRow(
                "caps", "Per anonymous visitor and day", "In dollars, for visitors of a public site."
            ),
        ),
    ] = Field(
        default=Decimal("0.25"),
        description="maximum spending per anonymous visitor and day in the public profile",
    )
    cap_network_per_day_usd: Annotated[
        Dollars | None,
        Declaration(
            "Spending", default="3 × a visitor's", form=FormRow("caps", "Per network and day", rare=True)
        ),
    ] = Field(
        default=None,
        description=(
            "maximum spending per day of all anonymous visitors from one IPv4 address or IPv6 /56, in"
            " the public profile"
        ),
    )
    cap_guests_per_day_usd: Annotated[
        Dollars, Declaration("Spending", form=FormRow("caps", "All guest chats together, per day", rare=True))
    ] = Field(
        default=Decimal("1.00"),
        description=(
            "maximum spending per day of all chats together where a bot is a [guest](telegram.md#guest-mode)"
        ),
    )
    cap_secretary_per_day_usd: Annotated[
        Dollars,
        Declaration("Spending", form=FormRow("caps", "All customers of an owner, per day", rare=True)),
    ] = Field(
        default=Decimal("1.00"),
        description=(
            "maximum spending per day of all customers of one owner of a [business "
            "account](telegram.md#secretary-mode)"
        ),
    )
    cap_customer_per_day_usd: Annotated[
        Dollars, Declaration("Spending", form=FormRow("caps", "Per customer and day", rare=True))
    ] = Field(default=Decimal("0.25"), description="maximum spending per day of one such customer")
    cap_tokens_per_day: Annotated[
        int | None,
        Declaration(
            "Spending",
            default="the daily cap at the dearest known price",
            form=FormRow("caps", "Tokens of models without a price, per day", rare=True),
        ),
    ] = Field(
        default=None,
        ge=1,
        description=(
            "maximum tokens per day of models whose price is unknown; an output token counts five times"
        ),
    )
    cap_visitors_per_hour_percent: Annotated[
        int,
        Declaration(
            "Spending", form=FormRow("caps", "Share of all visitors in an hour, in percent", rare=True)
        ),
    ] = Field(
        default=25,
        ge=1,
        le=100,
        description=(
            "percentage of the daily cap that all anonymous visitors together may spend in an hour, "
            "in the public profile"
        ),
    )
