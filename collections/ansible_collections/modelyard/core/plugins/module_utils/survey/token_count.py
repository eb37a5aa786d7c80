"""Counting prompts on the host: lines are read here, a program in the runtime's Python counts their tokens.

The file is opened and its name removed before anything else, so that it is gone whatever happens. Prompts are kept in memory
for a moment and written nowhere.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import IO, Any, Callable, Dict, List, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan import kv_cache, prompts
from ansible_collections.modelyard.core.plugins.module_utils.plan.token_counts import Counts
from ansible_collections.modelyard.core.plugins.module_utils.process import layout
from ansible_collections.modelyard.core.plugins.module_utils.process.children import PR_SET_PDEATHSIG

#: Loading a tokenizer, and counting one batch, may take so long.
LIMIT_S = 300.0
BATCH_PROMPTS, BATCH_CHARACTERS = 256, 2**20
#: Threads of the tokenizer, and how nice it is: other people work on this host.
THREADS, NICE = 4, 10
PIECE = 65536
LOG_BYTES = 4 * 2**20
WORDS_KEPT = 2000


class Failed(Exception):
    """The tokenizer cannot be used; the words say why, and what next."""


class Tokenizer:
    """The program, running. `loaded`: what it says of itself. A context; the program ends with it, and with this process.

    :raises Failed: it does not start, or cannot load the tokenizer
    """

    def __init__(self, python: str, program: str, folder: str, template: str, trust: bool) -> None:
        words = [python, "-c", program, folder, template, "1" if trust else "0"]
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed by close
        self._folder = tempfile.TemporaryDirectory(prefix="modelyard-")  # code of a model is copied before it is run
        self._rest = b""
        try:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                bufsize=0,
                cwd="/",
                env=_environment(python, self._folder.name),
                start_new_session=True,
                preexec_fn=_before(os.getpid()),  # noqa: PLW1509  there are no threads
            )
        except OSError as exc:
            self._said.close()
            self._folder.cleanup()
            raise Failed(f"{python} could not be started: {exc.strerror}") from exc
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
        try:
            self.loaded: Dict[str, Any] = self._line()
            if self.loaded.get("error"):
                raise Failed(f"the tokenizer in {folder} could not be loaded: {self.loaded['error']}")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Tokenizer:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """End the program."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._said):
            if pipe is not None:
                pipe.close()
        self._folder.cleanup()

    def count(self, wanted: List[List[Any]]) -> List[Any]:
        """A number of tokens, or a reason why there is none, for each of [text or messages, raw, arguments of the template].

        :raises Failed: the program ended, or did not answer in time
        """
        self.send(wanted)
        return self.answer()

    def send(self, wanted: List[List[Any]]) -> None:
        """The first half of `count`: it works while the caller does something else. The answer is taken before more is sent.

        :raises Failed: as `count`
        """
        assert self._process.stdin is not None
        sending, deadline = self._process.stdin.fileno(), time.monotonic() + LIMIT_S
        data = memoryview(json.dumps(wanted).encode() + b"\n")
        while data:
            self._wait([], [sending], deadline)
            try:
                data = data[os.write(sending, data[:PIECE]) :]
            except BrokenPipeError:
                return  # why it has ended is told when its answer is looked for

    def answer(self) -> List[Any]:
        """The second half of `count`.

        :raises Failed: as `count`
        """
        found: List[Any] = self._line()
        return found

    def _line(self) -> Any:
        """Wait for the next line."""
        assert self._process.stdout is not None
        receiving, deadline = self._process.stdout.fileno(), time.monotonic() + LIMIT_S
        while b"\n" not in self._rest:
            self._wait([receiving], [], deadline)
            piece = os.read(receiving, PIECE)
            if not piece:
                raise Failed(self._how_it_ended())
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    def _wait(self, reading: List[int], writing: List[int], deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0 or not any(select.select(reading, writing, [], left)):
            raise Failed(f"the tokenizer did not answer within {LIMIT_S:.0f} s")

    def _how_it_ended(self) -> str:
        code = self._process.wait()
        self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - WORDS_KEPT))
        lines = self._said.read().decode("utf-8", "replace").strip().splitlines()
        return f"the tokenizer's program ended with {code}: {lines[-1] if lines else 'it said nothing'}"


def _before(parent: int) -> Any:
    libc = ctypes.CDLL(None)

    def before_exec() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.nice(NICE)
        if os.getppid() != parent:
            os._exit(127)

    return before_exec


def _environment(python: str, folder: str) -> Dict[str, str]:
    """No network, no card: a tokenizer needs neither."""
    return {
        "HOME": folder,
        "LANG": "C.UTF-8",
        "PATH": f"{Path(python).parent}:/usr/local/bin:/usr/bin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        **dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "VLLM_NO_USAGE_STATS"), "1"),
        "HF_HOME": folder,
        **dict.fromkeys(("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"), ""),
        "RAYON_NUM_THREADS": str(THREADS),
        "OMP_NUM_THREADS": "1",
        "USE_TORCH": "0",
    }


def taken(path: str) -> IO[bytes]:
    """The file, open, and without a name any more."""
    stream = Path(path).open("rb")  # noqa: SIM115  the caller closes it
    Path(path).unlink()
    return stream


def count(stream: IO[bytes], counts: Counts, first_line: int, plain: bool, tokenizer: Callable[[], Tokenizer]) -> None:
    """Count all lines of a part. `tokenizer`: gives the Tokenizer at the first prompt whose number is not known.

    :raises Failed: a prompt needs a tokenizer and there is none
    """
    batches = Batches(counts, tokenizer)
    for number, line in enumerate(stream, first_line):
        counts.lines += 1
        try:
            found = prompts.read(line, plain)
        except prompts.Damaged as exc:
            counts.damage(number, str(exc))
            continue
        counts.skipped += not found
        for prompt in found:
            if prompt.tokens is not None:
                counts.add(number, prompt.tokens, prompt.answer, prompt.pictures)
            else:
                batches.add(number, prompt, len(line))
    batches.finish()


class Batches:
    """Prompts on their way through the tokenizer: one batch is counted there while the next one is read here."""

    def __init__(self, counts: Counts, tokenizer: Callable[[], Tokenizer]) -> None:
        self._counts, self._tokenizer = counts, tokenizer
        self._waiting: List[Tuple[int, prompts.Prompt]] = []
        self._size = 0
        self._sent: List[Tuple[int, prompts.Prompt]] = []

    def add(self, number: int, prompt: prompts.Prompt, size: int) -> None:
        """A prompt of line `number`, which has `size` bytes."""
        self._waiting.append((number, prompt))
        self._size += size
        if len(self._waiting) >= BATCH_PROMPTS or self._size >= BATCH_CHARACTERS:
            self._send()

    def finish(self) -> None:
        """Count what is left."""
        self._send()
        self._take()

    def _send(self) -> None:
        self._take()
        if self._waiting:
            texts = ((one.text if one.messages is None else one.messages, one.raw, one.extra) for _, one in self._waiting)
            self._tokenizer().send([list(text) for text in texts])
        self._sent, self._waiting, self._size = self._waiting, [], 0

    def _take(self) -> None:
        """Count the batch that was sent."""
        for (number, prompt), tokens in zip(self._sent, self._tokenizer().answer() if self._sent else ()):
            if isinstance(tokens, int):
                self._counts.add(number, tokens, prompt.answer, prompt.pictures)
            else:
                self._counts.damage(number, str(tokens))
        self._sent = []


def deployed(home: str, service: str) -> Dict[str, Any]:
    """What runs or ran: `max_model_len` of its command line, `cache` as its log tells it; the smallest of the instances."""
    found: Dict[str, Any] = {"max_model_len": None, "running": False, "cache": None}
    for _, folder in layout.instances(home, service) if service else ():
        state = layout.state(folder)
        if state is None:
            continue
        found["running"] = found["running"] or layout.leader_alive(state)
        argv = [str(word) for word in state["request"]["launch"].get("argv", [])]
        if "--max-model-len" in argv[:-1]:
            found["max_model_len"] = argv[argv.index("--max-model-len") + 1]
        said = kv_cache.logged(_beginning(state["log"]))
        if said and (found["cache"] is None or said.tokens < found["cache"]["tokens"]):
            found["cache"] = said._asdict()
    return found


def _beginning(path: str) -> str:
    """Of a log, where an engine tells what it has laid out."""
    try:
        with Path(path).open("rb") as stream:
            return stream.read(LOG_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
