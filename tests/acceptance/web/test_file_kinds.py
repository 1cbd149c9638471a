"""Files of each kind that visitors upload, as the model's server receives them."""

from __future__ import annotations

import pytest

from tests.acceptance.web.conftest import Visitor, promises_hold
from tests.kit.fakes.messages_api.harness import RunningFake
from tests.kit.file_kinds import FILES, FileOfKind, check_request

GROUPS = tuple(FILES[at : at + 5] for at in range(0, len(FILES), 5))


@pytest.mark.parametrize("files", GROUPS, ids=lambda files: files[0].name)
async def test_request_holds_uploaded_files_of_each_kind(
    web_guest: Visitor, fake: RunningFake, files: tuple[FileOfKind, ...]
) -> None:
    sent = [await web_guest.upload(one.name, one.content) for one in files]
    await web_guest.ask("What is this?", *sent, cid="c1")
    request = (await fake.requests())[0]
    check_request(request["body"]["messages"][-1]["content"], files)
    await promises_hold(web_guest.app)
