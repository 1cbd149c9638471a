"""Runs the fake of the picture server as a process."""

from tests.kit.fakes.images.server import ImagesApi
from tests.kit.fakes.scripted_api import run

if __name__ == "__main__":
    run(ImagesApi())
