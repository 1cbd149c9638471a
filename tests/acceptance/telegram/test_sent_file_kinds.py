"""Files of each kind that people send on Telegram, as the model's server receives them."""

from __future__ import annotations

import pytest

from tests.kit.file_kinds import FILES, FileOfKind, check_request
from tests.kit.telegram.deployment import Deployment


@pytest.mark.parametrize("file", FILES, ids=lambda one: one.name)
async def test_request_holds_sent_file_of_each_kind(here: Deployment, file: FileOfKind) -> None:
    ada = await here.person()
    await ada.send_file(file.name, file.content, caption=f"Here is {file.name}")
    await here.answered(ada.id, 1)
    request = (await here.prompts(holding=f"Here is {file.name}"))[0]
    check_request(request["messages"][-1]["content"], (file,))
