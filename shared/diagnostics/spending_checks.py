"""What `evertalk doctor` says about money: how much of today's cap is used, and which scopes were stopped."""

from __future__ import annotations

from shared.adapters.postgres.dashboard.spending import spent_today
from shared.config.settings import Settings
from shared.diagnostics.findings import Finding

_NEARLY_PERCENT = 80


async def check_spending(settings: Settings, database_url: str) -> Finding:
    used, warned = await spent_today(database_url, timezone=settings.timezone)
    return build_spending_finding(settings, used_micro=used, warned=warned)


def build_spending_finding(settings: Settings, *, used_micro: int, warned: int) -> Finding:
    """`warned`: people and conversations that were near a cap of theirs today."""
    cap = settings.cap_total_per_day_usd
    whose = "1 person or conversation" if warned == 1 else f"{warned} people or conversations"
    near = f"; {whose} came near a cap" if warned else ""
    cap_micro = int(cap * 1_000_000)
    percent = 100 * used_micro // cap_micro if cap_micro else 100
    what = f"${used_micro / 1e6:.2f} of today's ${cap:.2f} are used ({percent} %){near}"
    if percent < _NEARLY_PERCENT:
        return Finding(level="ok", what=what)
    advice = "At 100 % nobody is answered until midnight. EVERTALK_CAP_TOTAL_PER_DAY_USD raises the cap."
    return Finding(level="warn", what=what, advice=advice)
