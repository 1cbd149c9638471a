"""What operators do in a handover."""

from __future__ import annotations

from typing import Any

from tests.kit.app_driver import Visit


async def operator(guest: Visit, name: str = "anna") -> int:
    number: int = await guest.one(
        """INSERT INTO operators (name, role, display_name)
           VALUES ($1, 'operator', initcap($1) || ' from Acme') RETURNING id""",
        name,
    )
    return number


async def taken(guest: Visit, name: str = "anna") -> int:
    number = await operator(guest, name)
    await guest.app.handover_service.take_over(guest.session_id, operator_id=number, name=name)
    return number


async def replies(guest: Visit, who: int, text: str, cid: str = "r1") -> Any:
    return await guest.app.handover_service.reply(guest.session_id, operator_id=who, cid=cid, text=text)
