"""Record how a real engine answers: raw bytes of replies for tests/fixtures/replies-RELEASE-cpu.

usage: record_replies.py RUNTIME FOLDER [PORT]     (RUNTIME: the folder of a runtime; takes about four minutes on two cores)

Makes the tiny model, starts vLLM on it twice (without and with a reasoning parser), sends the requests below, and writes for each
one NAME.http, the reply as it came from the socket, and all requests into requests.json. Nothing is changed but the date.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
READY_S, REPLY_S = 300.0, 120.0
#: An engine that was stopped under an open stream keeps the connection and says nothing more, until the client leaves.
SILENCE_S = 15.0
LONGEST_SHOWN = 5000
DATE = re.compile(rb"(?mi)^date: [^\r]+")
ENVIRONMENT = {
    "SPT_NOENV": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_TARGET_DEVICE": "cpu",
    "OMP_NUM_THREADS": "2",
}
OPTIONS = [
    *("--served-model-name", "tiny", "--host", "127.0.0.1", "--max-model-len", "4096", "--max-num-seqs", "4"),
    *("--max-logprobs", "20", "--enforce-eager", "--kv-cache-memory-bytes", "268435456"),
    *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
]
STRUCTURED = {"backend": "xgrammar", "disable_any_whitespace": True}
CHAT, COMPLETION, MODELS = "/v1/chat/completions", "/v1/completions", "/v1/models"
HELLO = [{"role": "user", "content": "Say hello."}]
SCHEMA = {
    "type": "object",
    "properties": {"kind": {"type": "string", "enum": ["place", "person"]}, "count": {"enum": [1, 2]}},
    "required": ["kind", "count"],
    "additionalProperties": False,
}
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"town": {"type": "string", "enum": ["Paris"]}}, "required": ["town"]},
    },
}
THOUGHT = {"structured_outputs": {"regex": "<think>[a-z]{8}</think>[a-z]{8}"}, "max_tokens": 64}
BOTH = {"stream": True, "stream_options": {"include_usage": True}}


def chat(**fields: Any) -> tuple[str, dict[str, Any]]:
    """A chat of a few tokens."""
    return CHAT, {"model": "tiny", "user": "recorder", "max_tokens": 8, "temperature": 0, "messages": HELLO, **fields}


def completion(**fields: Any) -> tuple[str, dict[str, Any]]:
    """A completion of a few tokens."""
    return COMPLETION, {"model": "tiny", "user": "recorder", "max_tokens": 8, "temperature": 0, "prompt": "Say hello.", **fields}


def schema(what: Any) -> dict[str, Any]:
    """The field for a reply that fits a JSON schema."""
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "thing", "schema": what}}, "max_tokens": 64}


#: name -> (path, body); a body of None is a GET.
PLAIN: dict[str, tuple[str, Any]] = {
    "models": (MODELS, None),
    "chat": chat(),
    "chat-stream": chat(stream=True),
    "chat-stream-usage": chat(**BOTH),
    "chat-stop": chat(stop=["\n"]),
    "chat-n2": chat(n=2, temperature=1, seed=1),
    "chat-n2-stream": chat(n=2, temperature=1, seed=1, **BOTH),
    "chat-schema": chat(**schema(SCHEMA)),
    "chat-schema-stream": chat(**schema(SCHEMA), **BOTH),
    "chat-logprobs": chat(logprobs=True, top_logprobs=5),
    "chat-logprobs-stream": chat(logprobs=True, top_logprobs=5, **BOTH),
    "chat-tool": chat(tools=[TOOL], tool_choice={"type": "function", "function": {"name": "weather"}}, max_tokens=64),
    "chat-tool-stream": chat(tools=[TOOL], tool_choice="required", max_tokens=64, **BOTH),
    "chat-think": chat(**THOUGHT),
    "chat-think-stream": chat(**THOUGHT, **BOTH),
    "completion": completion(),
    "completion-stream": completion(stream=True),
    "completion-stream-usage": completion(**BOTH),
    "completion-think": completion(**THOUGHT),
    "completion-logprobs": completion(logprobs=5),
    "error-context": chat(messages=[{"role": "user", "content": "word " * 12000}]),
    "error-context-stream": chat(messages=[{"role": "user", "content": "word " * 12000}], stream=True),
    "error-max-tokens": chat(max_tokens=5000),
    "error-parameter": chat(temperature=-1),
    "error-parameter-type": chat(max_tokens="many"),
    "error-logprobs": chat(logprobs=True, top_logprobs=21),
    "error-stop": chat(stop=[1, 2]),
    "error-schema": chat(**schema({"type": "no such type"})),
    "error-no-messages": (CHAT, {"model": "tiny"}),
    "error-no-json": (CHAT, b'{"model": "tiny", "messages": ['),
    "error-model": chat(model="another"),
    "error-path": ("/v1/nothing", {}),
}
PARSED: dict[str, tuple[str, Any]] = {
    "reasoning": chat(**THOUGHT),
    "reasoning-stream": chat(**THOUGHT, **BOTH),
    "reasoning-unfinished": chat(),
    "reasoning-unfinished-stream": chat(**BOTH),
}


WHOLE = chat(max_tokens=3900, ignore_eos=True)
LONG = chat(max_tokens=3900, ignore_eos=True, **BOTH)


def begun(port: int, asked: tuple[str, Any]) -> socket.socket:
    """A connection on which a stream has begun; what has come is still there to be read."""
    made = wire(port, *asked)
    made.recv(1, socket.MSG_PEEK)
    return made


def core(engine: int) -> int:
    """The EngineCore below that process of ours: a name or a port could be anybody's."""
    parents: dict[int, tuple[int, str]] = {}
    for place in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if place.name.isdigit():
                name, _, rest_of_it = (place / "stat").read_text(encoding="utf-8").partition("(")[2].rpartition(")")
                parents[int(place.name)] = int(rest_of_it.split()[1]), name
    found = [pid for pid, (parent, name) in parents.items() if parent == engine and name.startswith("VLLM::EngineCor")]
    if len(found) != 1:
        raise SystemExit(f"process {engine} has {len(found)} EngineCores")
    return found[0]


def wire(port: int, path: str, body: Any) -> socket.socket:
    """A connection on which this request has been sent."""
    made = socket.create_connection(("127.0.0.1", port), timeout=REPLY_S)
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
    lines += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    made.sendall(lines.encode() + data)
    return made


def rest(made: socket.socket, silence_s: float = REPLY_S) -> bytes:
    """All until the other side closes, however it does that, or says nothing for so long."""
    found = b""
    made.settimeout(silence_s)
    with contextlib.suppress(ConnectionError, TimeoutError), made:
        while data := made.recv(65536):
            found += data
    return found


def keep(folder: Path, name: str, data: bytes) -> None:
    """Write a reply; its date says nothing to a test."""
    (folder / f"{name}.http").write_bytes(DATE.sub(b"date: Mon, 01 Jan 2026 00:00:00 GMT", data, count=1))
    print(f"{name}: {len(data)} bytes, {data[:15].decode('latin-1')}")


@contextlib.contextmanager
def engine(runtime: Path, model: Path, port: int, *more: str) -> Any:
    """A running engine; it is ended with all its processes."""
    environment = {**ENVIRONMENT, "HOME": str(model.parent), "LANG": "C.UTF-8", "PATH": f"{runtime}/bin:/usr/bin:/bin"}
    words = [str(runtime / "bin/vllm"), "serve", str(model), "--port", str(port), *OPTIONS, *more]
    with (model.parent / f"engine-{port}.log").open("wb") as log:
        process = subprocess.Popen(words, env=environment, stdout=log, stderr=log, start_new_session=True, cwd=model.parent)
    try:
        limit = time.monotonic() + READY_S
        while True:
            with contextlib.suppress(OSError):
                if rest(wire(port, "/health", None)).startswith(b"HTTP/1.1 200"):
                    break
            if process.poll() is not None or time.monotonic() > limit:
                raise SystemExit((model.parent / f"engine-{port}.log").read_text(encoding="utf-8", errors="replace")[-3000:])
            time.sleep(1)
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def short(body: Any) -> Any:
    """A request as it is written down: of its prompt only the beginning, and how long it is."""
    if not isinstance(body, dict) or len(json.dumps(body)) < LONGEST_SHOWN:
        return body.decode() if isinstance(body, bytes) else body
    text = body["messages"][0]["content"]
    return {**body, "messages": [{"role": "user", "content": f"{text[:50]}... ({len(text)} characters)"}]}


def main(runtime: Path, folder: Path, port: int) -> None:
    """Record everything."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        model = Path(scratch) / "tiny"
        python = str(runtime / "bin/python")
        subprocess.run([python, str(ROOT / "roles/model/files/tiny_qwen3.py"), str(model)], check=True)
        with engine(runtime, model, port, "--structured-outputs-config", json.dumps(STRUCTURED)) as process:
            for name, (path, body) in PLAIN.items():
                keep(folder, name, rest(wire(port, path, body)))
            made = begun(port, LONG)
            keep(folder, "client-gone", made.recv(4096))
            made.close()
            made = begun(port, LONG)
            process.send_signal(signal.SIGTERM)
            keep(folder, "engine-stopped", rest(made, SILENCE_S))
        thinking = json.dumps({**STRUCTURED, "enable_in_reasoning": True})
        with engine(runtime, model, port + 1, "--reasoning-parser", "qwen3", "--structured-outputs-config", thinking) as process:
            for name, (path, body) in PARSED.items():
                keep(folder, name, rest(wire(port + 1, path, body)))
            made, whole = begun(port + 1, LONG), wire(port + 1, *WHOLE)
            time.sleep(0.5)
            os.kill(core(process.pid), signal.SIGKILL)
            keep(folder, "engine-killed-stream", rest(made, SILENCE_S))
            keep(folder, "engine-killed", rest(whole, SILENCE_S))
    ended = {"client-gone": LONG, "engine-stopped": LONG, "engine-killed-stream": LONG, "engine-killed": WHOLE}
    requests = {**PLAIN, **PARSED, **ended}
    shown = {name: {"path": path, "body": short(body)} for name, (path, body) in requests.items()}
    (folder / "requests.json").write_text(json.dumps(shown, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(str(__doc__))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the engine is ended as well
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), int(sys.argv[3]) if len(sys.argv) > 3 else 18700)
