"""Runs the fake push service as a process."""

from tests.kit.fakes.push.server import PushApi
from tests.kit.fakes.scripted_api import run

if __name__ == "__main__":
    run(PushApi())
