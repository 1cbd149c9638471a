"""Runs the fake of the rerank server as a process."""

from tests.kit.fakes.rerank.server import RerankApi
from tests.kit.fakes.scripted_api import run

if __name__ == "__main__":
    run(RerankApi())
