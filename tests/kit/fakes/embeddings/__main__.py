"""Runs the fake of the embeddings server as a process."""

from tests.kit.fakes.embeddings.server import EmbeddingsApi
from tests.kit.fakes.scripted_api import run

if __name__ == "__main__":
    run(EmbeddingsApi())
