"""The API server: the process that `vllm serve` is. Starts the engine, opens the port, stops, notices a dead engine."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from multiprocessing import connection, get_context
from pathlib import Path

from . import core
from .arguments import parse
from .faults import Faults
from .log import Log, plain
from .settings import read

RELEASE = "0.32.0"
DEAD = (
    "AsyncLLM output_handler failed.\nvllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. "
    "See stack trace (above) for the root cause."
)


def main() -> int:
    """The command `vllm`: exit status 2 for wrong words, 1 for a failed start, 0 after a stop and after the engine's death."""
    words = sys.argv[1:]
    if words == ["--version"]:
        print(RELEASE)
        return 0
    if words[:1] != ["serve"]:
        print("usage: vllm serve MODEL [options]; this is a stand-in", file=sys.stderr)
        return 2
    args = parse(words[1:], json.loads((Path(__file__).parent / "options.json").read_text(encoding="utf-8")))
    return ApiServer(args, read(args.port)).run()


class ApiServer:
    """One instance. What the HTTP side needs of it: `args`, `settings`, `alive`, `dropping`, `generate`, the counters."""

    def __init__(self, args, settings):
        self.args, self.settings, self.faults = args, settings, Faults(args.port)
        self.log = Log("APIServer")
        self.engine = None
        self.calls = None
        self.alive = True  # the engine
        self.dropping = False  # open requests will never be answered
        self.asked = 0  # signals that counted
        self.lost = 0
        self.running = self.waiting = self.open = 0
        self.generated = self.prompted = self.finished = 0
        self.lock = threading.Lock()
        self.slots = threading.Semaphore(args.max_num_seqs)
        self.engine_lock = threading.Lock()
        self.wakes, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)

    def run(self) -> int:
        """Exit status."""
        try:
            listener = self._start()
        except Exception:
            traceback.print_exc()
            return 1
        from .http_api import make_server  # noqa: PLC0415  the engine's processes import this module too, and have no use for it

        server = make_server(self, listener)
        self._say_open()
        core.take_signals("server", self.settings, self._signal)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
        while not self.asked and self.alive:
            ready = connection.wait([self.engine.sentinel, self.wakes])
            if self.engine.sentinel in ready:
                self.alive = False
            elif self.wakes in ready:
                os.read(self.wakes, 64)
        if self.asked:
            self._stop_engine()
        else:
            self.log.fail("async_llm.py:906", DEAD)
            time.sleep(self.settings.dead_s)
        self._close(server)
        return 0

    # -- start -------------------------------------------------------------------------------------------------------

    def _start(self):
        """The bound socket, when the engine is ready."""
        core.map_library(core.PACKAGES)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signal_while_loading)
        if self.settings.die == "import":
            raise ImportError("libcudart.so.13: cannot open shared object file: No such file or directory")
        args = self.args
        self.log.say("api_utils.py:347", f"version {RELEASE} (a stand-in)  model {args.model}")
        self.log.say("api_utils.py:286", f"non-default args: {args.given}")
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((args.host, args.port))  # nobody is listened to before the engine is ready
        self.log.say("model.py:733", "Resolved architecture: StandInForCausalLM")
        self.log.say("model.py:2152", f"Using max model len {args.max_model_len}")
        self._refuse_too_few_cards()
        context = get_context("spawn")
        self.calls, theirs = context.Pipe()
        self.semaphore = context.Lock()  # for its file in /dev/shm, which goes with the last reference
        words = (self.settings, args, theirs, self.semaphore)
        self.engine = context.Process(target=core.run_engine, name="EngineCore", args=words)
        self.engine.start()
        theirs.close()
        connection.wait([self.calls, self.engine.sentinel])
        if not self.calls.poll():
            self.engine.join()
            raise RuntimeError(_failed(self.engine))
        try:
            self.calls.recv()
        except EOFError:
            self.engine.join()
            raise RuntimeError(_failed(self.engine)) from None
        return listener

    def _refuse_too_few_cards(self) -> None:
        if not self.settings.sysroot or self.args.tensor_parallel_size == 1:
            return
        count = len(core.Cards(self.settings.sysroot).visible())
        if count < self.args.tensor_parallel_size:
            raise ValueError(
                f"World size ({self.args.tensor_parallel_size}) is larger than the number of available GPUs ({count}) in this "
                "node."
            )

    def _say_open(self) -> None:
        args = self.args
        self.log.say("entry.py:140", f"Starting vLLM server on http://{args.host}:{args.port}")
        for text in (
            f"Started server process [{os.getpid()}]",
            "Waiting for application startup.",
            "Application startup complete.",
        ):
            plain(f"INFO:     {text}")

    def _signal_while_loading(self, *_) -> None:
        how = self.settings.load_signal
        if how == "lost":
            return
        if how == "clean" and self.engine:
            self._kill_engine()
        plain("KeyboardInterrupt: terminated")
        os._exit(1)

    # -- serving -----------------------------------------------------------------------------------------------------

    def _signal(self, *_) -> None:
        if self.lost < self.settings.lose_signals:
            self.lost += 1
        else:
            self.asked += 1

    def generate(self, seconds, is_open, guided=False) -> bool:
        """Let the engine work on one request; True: answer it. `is_open` says whether the client still waits.

        False: its engine is dead, or it is dropped by a stop and was held until its client gave up.
        """
        with self.lock:
            self.waiting += 1
        with self.slots:
            with self.lock:
                self.waiting -= 1
                self.running += 1
            try:
                done = self._ask_engine("guided" if guided else "add")
                limit = time.monotonic() + seconds
                while done and self.alive and not self.dropping and is_open() and time.monotonic() < limit:
                    time.sleep(min(0.05, max(0.0, limit - time.monotonic())))
            finally:
                with self.lock:
                    self.running -= 1
                self._tell_engine("done guided" if guided else "done")
        while self.dropping and is_open():
            time.sleep(0.05)
        return done and self.alive and not self.dropping

    def _ask_engine(self, what) -> bool:
        with self.engine_lock:
            self._tell_engine(what)
            while self.alive and not self.dropping:
                try:
                    if self.calls.poll(0.05):
                        self.calls.recv()
                        return True
                except (EOFError, OSError):
                    time.sleep(0.05)  # the main thread is about to see it
            return False

    def _tell_engine(self, what) -> None:
        with contextlib.suppress(OSError):  # it is dead, which the main thread sees
            self.calls.send(what)

    # -- stop --------------------------------------------------------------------------------------------------------

    def _stop_engine(self) -> None:
        limit_s = self.args.shutdown_timeout
        self.log.say("launcher.py:254", "[shutdown] API server: shutdown triggered")
        mode = "drain" if limit_s else "abort"
        self.log.say("launcher.py:270", f"[shutdown] API server: stopping engine client mode={mode} timeout={limit_s}s")
        self.log.say("core_client.py:772", "[shutdown] MPClient: stopping engine manager")
        self.log.say("utils.py:628", "[shutdown] Process manager: send sigterm to process EngineCore")
        self.engine.terminate()
        self.engine.join(limit_s)
        if self.engine.is_alive():
            self.dropping = True
            self.log.caution("utils.py:648", "[shutdown] Process manager: force killing remaining processes count=1")
            self._kill_engine()
        self.log.say("core_client.py:774", "[shutdown] MPClient: engine manager stopped")
        self.log.fail("async_llm.py:906", DEAD)
        self.log.say("launcher.py:279", "[shutdown] API server: engine client stopped")

    def _kill_engine(self) -> None:
        """EngineCore and its workers, all at once."""
        children = [pid for pid, parent in _parents() if parent == self.engine.pid]
        place, text = (
            "utils.py:653",
            f"[shutdown] Process manager: force killing remaining process EngineCore pid {self.engine.pid}",
        )
        self.log.caution(place, text)
        self.engine.kill()
        for pid in children:
            self.log.caution("system_utils.py:225", f"[shutdown] force killing sub process pid {pid}")
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.engine.join()

    def _close(self, server) -> None:
        """Wait for whoever still waits for an answer, without a limit."""
        plain("INFO:     Shutting down")
        if self.open:
            plain("INFO:     Waiting for connections to close. (CTRL+C to force quit)")
        while self.open:
            time.sleep(0.05)
        server.shutdown()
        server.server_close()
        plain("INFO:     Waiting for application shutdown.\nINFO:     Application shutdown complete.")


def _failed(engine) -> str:
    return f"Engine core initialization failed. See root cause above. Failed core proc(s): {{'EngineCore': {engine.exitcode}}}"


def _parents():
    """(pid, pid of its parent) of every process that can be seen."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
                yield int(folder.name), int(stat.rpartition(")")[2].split()[1])
