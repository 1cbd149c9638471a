"""What holds for every test in a browser."""

from __future__ import annotations

from playwright.async_api import expect
from playwright.sync_api import expect as expect_at_once

from tests.browser.patience import WAIT_MS

expect.set_options(timeout=WAIT_MS)
expect_at_once.set_options(timeout=WAIT_MS)
