"""EngineCore and its workers: who holds the cards, how they start, how they end, and whose death they notice."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import traceback
from multiprocessing import connection, get_context, shared_memory
from pathlib import Path

from .cards import Cards
from .log import Log, plain
from .title import map_library, set_title

PACKAGES = Path(__file__).resolve().parents[2]
SEGMENT_BYTES = 25 * 2**20  # sparse: a message queue of the real one is 25 to 250 MiB, of which little is written
WORKER_EXIT_S, WORKER_TERM_S = 5.0, 4.0
RPC_S = 1.0  # the real one waits for 300 s
KV_TOKENS_PER_MIB = 8
DEATH_WISH = "the stand-in was told to die"


def take_signals(role, settings, handler) -> None:
    """TERM and INT go to `handler`, or nowhere in a stubborn process."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN if role in settings.stubborn else handler)


def has_workers(settings, args) -> bool:
    """With one card EngineCore works itself; on CPU never."""
    return args.tensor_parallel_size > 1 or not settings.sysroot


def load(settings, args, rank, log) -> int:
    """Put one rank onto its card, in the order and with the words of the real one. MiB for the KV cache."""
    log.say("parallel_state.py:1906", f"world_size={args.tensor_parallel_size} rank={rank} local_rank={rank} backend=nccl")
    mib = 1024
    cards = card = None
    if settings.sysroot:
        cards = Cards(settings.sysroot)
        card = cards.open(rank)
        cards.refuse_unless_free(card, args.gpu_memory_utilization)
        mib = cards.requested(card, args.gpu_memory_utilization)
    log.say("gpu_model_runner.py:5120", f"Starting to load model {args.model}...")
    if settings.die == "loading":
        raise RuntimeError(DEATH_WISH)
    while settings.hang == "loading":
        time.sleep(3600)
    for percent in (0, 50, 100):
        if rank == 0:
            plain(f"Loading safetensors checkpoint shards: {percent:3d}% Completed | {percent // 50}/2")
        time.sleep(settings.load_s / 4)
    log.say("default_loader.py:501", f"Loading weights took {settings.load_s * 0.75:.2f} seconds")
    if card is not None:
        cards.use(card, mib)
    log.say("gpu_worker.py:456", f"Available KV cache memory: {mib * 0.9 / 1024:.2f} GiB")
    return mib


def run_worker(settings, args, rank, calls, death) -> None:
    """A worker: answers each call, and ends when EngineCore has. `death`: a pipe whose other end only EngineCore has."""
    part = f"_TP{rank}" if args.tensor_parallel_size > 1 else ""
    log = Log(f"Worker{part}")
    map_library(PACKAGES)

    def leave(*_):
        raise SystemExit

    take_signals("worker", settings, leave)
    set_title(f"VLLM::Worker{part}")
    segment = shared_memory.SharedMemory(args.segment)
    try:
        calls.send(load(settings, args, rank, log))
    except Exception:
        log.fail("multiproc_executor.py:921", f"WorkerProc failed to start.\n{traceback.format_exc()}")
        raise SystemExit(1) from None
    waiting = [calls, death]
    while death in waiting:
        for one in connection.wait(waiting):
            try:
                call = one.recv()
            except (EOFError, OSError):
                waiting.remove(one)
                continue
            while settings.die == "request" and rank == args.tensor_parallel_size - 1:
                time.sleep(3600)
            one.send(call)
    while "worker" in settings.stubborn:  # EngineCore is gone, and this one stays
        time.sleep(3600)
    log.say("multiproc_executor.py:843", "Parent process exited, terminating worker queues")
    time.sleep(settings.exit_s)
    segment.close()


def run_engine(settings, args, server, _semaphore) -> None:
    """The engine process. `server`: a connection to the API server, of whose end it takes no notice."""
    set_title("VLLM::EngineCore")
    map_library(PACKAGES)
    engine = Engine(settings, args, server, Log("EngineCore"))
    try:
        engine.start()
    except Exception:
        engine.log.fail("core.py:1510", f"EngineCore failed to start.\n{traceback.format_exc()}")
        engine.end_workers()
        raise
    try:
        engine.serve()
    except Exception:
        engine.log.fail("core.py:1512", f"EngineCore encountered a fatal error.\n{traceback.format_exc()}")
        raise
    finally:
        # As the real one does: a second signal meets no handler and cuts the tear-down short.
        for number in (signal.SIGTERM, signal.SIGINT):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        engine.end_workers()


class Engine:
    """One EngineCore."""

    def __init__(self, settings, args, server, log):
        self.settings, self.args, self.log = settings, args, log
        self.inputs = [server]
        self.workers = []  # (process, connection, the end of the pipe that tells it of our death)
        self.running = self.guided = 0
        self.is_asked_to_end = False
        self.wakes, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        take_signals("engine", settings, self._asked)
        self.segment = shared_memory.SharedMemory(create=True, size=SEGMENT_BYTES)
        args.segment = self.segment.name

    def _asked(self, number, _frame):
        self.log.say("core.py:1454", f"[shutdown] EngineCore: trigger received signal={signal.Signals(number).name}")
        self.is_asked_to_end = True

    def start(self) -> None:
        """Load all ranks and say that it is ready."""
        args, began = self.args, time.monotonic()
        self.log.say("core.py:133", f"Initializing a V1 LLM engine (v0.32.0) with config: model={args.model!r}, max_seq_len="
                      f"{args.max_model_len}, tensor_parallel_size={args.tensor_parallel_size}")  # fmt: skip
        if self.settings.die == "engine":
            raise RuntimeError(DEATH_WISH)
        mib = self._load_workers() if has_workers(self.settings, args) else load(self.settings, args, 0, self.log)
        count = mib * KV_TOKENS_PER_MIB
        self.log.say("kv_cache_utils.py:2327", f"{'GPU' if self.settings.sysroot else 'CPU'} KV cache size: {count:,} tokens, "
                      f"Maximum concurrency for {args.max_model_len:,} tokens per request: "
                      f"{count / args.max_model_len:.2f}x")  # fmt: skip
        if not getattr(args, "enforce_eager", False) and self.settings.sysroot:
            plain("Capturing CUDA graphs (decode, FULL): 100%")
        time.sleep(self.settings.load_s / 4)
        self.log.say("core.py:402", "init engine (profile, create kv cache, warmup model) took "
                      f"{time.monotonic() - began:.2f} s")  # fmt: skip
        self._tell("ready")

    def _load_workers(self) -> int:
        context = get_context("spawn")
        for rank in range(self.args.tensor_parallel_size):
            ours, theirs = context.Pipe()
            death, life = context.Pipe(duplex=False)
            words = (self.settings, self.args, rank, theirs, death)
            process = context.Process(target=run_worker, name=f"VllmWorker-{rank}", args=words)
            process.start()
            theirs.close()
            death.close()
            self.workers.append((process, ours, life))
        try:
            return min(calls.recv() for _, calls, _ in self.workers)
        except EOFError:
            raise RuntimeError(
                "WorkerProc initialization failed due to an exception in a background process. See stack trace for root cause."
            ) from None

    def _tell(self, what) -> None:
        with contextlib.suppress(OSError):  # the API server may be gone
            self.inputs[0].send(what)

    def serve(self) -> None:
        """Take requests until asked to end, or until a worker dies."""
        sentinels = {process.sentinel: process for process, _, _ in self.workers}
        while not self.is_asked_to_end:
            for one in connection.wait([*self.inputs, self.wakes, *sentinels]):
                if one in sentinels:
                    self._lost(sentinels[one])
                elif one == self.wakes:
                    os.read(self.wakes, 64)
                else:
                    self._take(one)
        drain_s = self.args.shutdown_timeout
        self.log.say("core.py:1635", f"[shutdown] EngineCore: start mode={'drain' if drain_s else 'abort'} timeout={drain_s}s")
        limit = time.monotonic() + drain_s
        while self.running and self.inputs and time.monotonic() < limit:
            if connection.wait(self.inputs, 0.1):
                self._take(self.inputs[0])
        self.log.say("core.py:1666", "[shutdown] EngineCore: request processing complete; starting resource teardown")

    def _lost(self, process):
        process.join()
        text = f"Worker proc {process.name} died unexpectedly (exit code: {process.exitcode}), shutting down executor."
        self.log.fail("multiproc_executor.py:315", text)
        raise RuntimeError("Executor failed.")

    def _take(self, server) -> None:
        try:
            what = server.recv()
        except (EOFError, OSError):
            self.inputs.remove(server)
            return
        if what.startswith("done"):
            self.running -= 1
            self.guided -= what == "done guided"
            return
        self.running += 1
        self.guided += what == "guided"
        while self.settings.hang == "answers" or (self.settings.together == "hang" and self.guided > 1):
            time.sleep(3600)
        if self.settings.together == "die" and self.guided > 1:
            time.sleep(RPC_S)
            self.log.say("shm_broadcast.py:681", "No available shared memory broadcast block found in 60 seconds.")
            raise TimeoutError("RPC call to sample_tokens timed out.")
        for process, calls, _ in self.workers:
            calls.send(what)
            limit = time.monotonic() + RPC_S
            while not calls.poll(0.05):
                if not process.is_alive():
                    self._lost(process)
                if self.settings.die == "request" and time.monotonic() > limit:
                    self.log.say("shm_broadcast.py:681", "No available shared memory broadcast block found in 60 seconds.")
                    raise TimeoutError("RPC call to sample_tokens timed out.")
            calls.recv()
        if self.settings.die == "request" and not self.workers:
            raise TimeoutError("RPC call to sample_tokens timed out.")
        self._tell(what)

    def end_workers(self) -> None:
        """Let them see our end, wait, then TERM, then KILL; give the shared memory back."""
        alive = [process for process, _, _ in self.workers if process.is_alive()]
        self.log.say("multiproc_executor.py:479", f"[shutdown] Executor: waiting for worker exit count={len(alive)}")
        for _, _, life in self.workers:
            life.close()
        time.sleep(self.settings.exit_s)
        for wait_s, end in ((WORKER_EXIT_S, "terminate"), (WORKER_TERM_S, "kill"), (WORKER_TERM_S, "close")):
            limit = time.monotonic() + wait_s
            for process in alive:
                process.join(max(0.0, limit - time.monotonic()))
            alive = [process for process in alive if process.is_alive()]
            for process in alive:
                getattr(process, end)()
        self.log.say("multiproc_executor.py:486", "[shutdown] Executor: all workers exited gracefully")
        self.segment.close()
        self.segment.unlink()
