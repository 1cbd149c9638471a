"""Files that a visitor sends and fetches."""

from __future__ import annotations

import io
from typing import Any
from urllib.parse import quote

from PIL import Image

from tests.kit.web.fixtures import Frame, Server


def picture(form: str = "PNG", size: tuple[int, int] = (64, 32), mode: str = "RGB", **options: Any) -> bytes:
    out = io.BytesIO()
    Image.new(mode, size, "teal").save(out, form, **options)
    return out.getvalue()


async def send(
    server: Server, token: str, content: Any, *, name: str = "a.bin", kind: str = "", **headers: str
) -> tuple[int, Frame]:
    sent = {"Authorization": f"Bearer {token}", "X-File-Name": quote(name)} | headers
    if kind:
        sent["Content-Type"] = kind
    async with server.client.post(f"{server.url}/api/v1/uploads", data=content, headers=sent) as response:
        return response.status, await response.json()


async def fetch(server: Server, token: str, public_id: str) -> tuple[int, bytes, dict[str, str]]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    url = f"{server.url}/api/v1/attachments/{public_id}"
    async with server.client.get(url, headers=headers) as response:
        return response.status, await response.read(), dict(response.headers)


async def visitor(server: Server, **values: Any) -> tuple[Any, Frame, str]:
    screen, welcome = await server.greet(**values)
    return screen, welcome, welcome["token"]
