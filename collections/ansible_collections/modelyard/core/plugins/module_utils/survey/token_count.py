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
            self.loaded: Dict[str, Any] = self._exchange(b"")
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
        found: List[Any] = self._exchange(json.dumps(wanted).encode() + b"\n")
        return found

    def _exchange(self, data: bytes) -> Any:
        """Send a line and wait for one."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        sending, receiving = self._process.stdin.fileno(), self._process.stdout.fileno()
        deadline = time.monotonic() + LIMIT_S
        while b"\n" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Failed(f"the tokenizer did not answer within {LIMIT_S:.0f} s")
            ready, room, _ = select.select([receiving], [sending] if data else [], [], left)
            if room:
                try:
                    data = data[os.write(sending, data[:PIECE]) :]
                except BrokenPipeError:
                    data = b""
            if ready:
                piece = os.read(receiving, PIECE)
                if not piece:
                    raise Failed(self._how_it_ended())
                self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

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
    waiting: List[Tuple[int, prompts.Prompt]] = []
    size = 0
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
                continue
            waiting.append((number, prompt))
            size += len(line)
        if len(waiting) >= BATCH_PROMPTS or size >= BATCH_CHARACTERS:
            _count(waiting, counts, tokenizer)
            waiting, size = [], 0
    _count(waiting, counts, tokenizer)


def _count(waiting: List[Tuple[int, prompts.Prompt]], counts: Counts, tokenizer: Callable[[], Tokenizer]) -> None:
    if not waiting:
        return
    wanted = [[prompt.text if prompt.messages is None else prompt.messages, prompt.raw, prompt.extra] for _, prompt in waiting]
    for (number, prompt), tokens in zip(waiting, tokenizer().count(wanted)):
        if isinstance(tokens, int):
            counts.add(number, tokens, prompt.answer, prompt.pictures)
        else:
            counts.damage(number, str(tokens))


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
