"""An engine's HTTP side in this process, whose answers are spoilt one at a time, and a proxy that holds tokens back."""

from __future__ import annotations

import http.client
import http.server
import json
import threading
import time
from typing import Any

from simulators.engine import answers

METRICS = """\
vllm:num_requests_running{{engine="0"}} {running}
vllm:num_requests_waiting{{engine="0"}} {waiting}
vllm:generation_tokens_total{{engine="0"}} {generated}
vllm:prompt_tokens_total{{engine="0"}} {generated}
"""


class Server(http.server.ThreadingHTTPServer):
    """Listens on a port of the kernel's choice until `close`."""

    daemon_threads = True

    def __init__(self, handler: type[http.server.BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class Engine(Server):
    """`spoilt` changes what it does; all that was asked of it is in `asked`.

    model, length: what /v1/models shows.  said: by a chat with a schema.  logprobs: of its one token.  status, body: of every
    chat.  hang_s: seconds before a chat is answered.  log: a function that is called before that.  running, waiting, moves: what
    /metrics shows; `moves` tokens more at each look.  gap_s: between tokens of a stream; done: has it an end.  key: that requests
    must have.
    """

    def __init__(self, **spoilt: Any) -> None:
        self.spoilt: dict[str, Any] = spoilt
        self.asked: list[tuple[str, Any]] = []
        self.generated = 1000
        super().__init__(Handler)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Engine

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def value(self, name: str, usual: Any = None) -> Any:
        return self.server.spoilt.get(name, usual)

    def send(self, status: int, body: Any) -> None:
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        self.server.asked.append((self.path, None))
        if self.path == "/metrics":
            self.server.generated += self.value("moves", 0)
            figures = {"running": self.value("running", 0), "waiting": self.value("waiting", 0)}
            self.send(200, METRICS.format(generated=self.server.generated, **figures))
        elif self.path == "/v1/models":
            model = {"id": self.value("model", "tiny-qwen3"), "max_model_len": self.value("length", 4096)}
            self.send(self.value("models_status", 200), {"data": [model]})
        else:
            self.send(self.value("health", 200), "")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, body))
        key = self.value("key")
        if key and self.headers.get("Authorization") != f"Bearer {key}":
            self.send(401, {"error": "Unauthorized"})
            return
        self.value("log", lambda: None)()
        time.sleep(self.value("hang_s", 0))
        if self.value("status"):
            self.send(self.value("status"), self.value("body", "").replace("{key}", key or ""))
        elif body.get("stream"):
            self.stream(body)
        else:
            self.chat(body)

    def chat(self, body: Any) -> None:
        said, reason = answers.tokens(body)
        usage = {"prompt_tokens": answers.prompt_tokens(body["messages"]), "completion_tokens": len(said)}
        if body.get("response_format") and "said" in self.server.spoilt:
            said = [self.value("said")]
        choice = {"message": {"content": "".join(said)}, "finish_reason": reason}
        if body.get("logprobs"):
            rows = self.value("logprobs", [-0.1 - n for n in range(body["top_logprobs"])])
            choice["logprobs"] = {"content": [{"top_logprobs": [{"logprob": value} for value in rows]}]}
        self.send(200, {"choices": [choice], "usage": usage})

    def stream(self, body: Any) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("X-Backend", self.value("backend", "tiny-qwen3/0"))
        self.end_headers()
        for number in range(body["max_tokens"]):
            time.sleep(self.value("gap_s", 0.01))
            self.event({"choices": [{"delta": {"content": f"t{number} "}}]})
        if self.value("done", True):
            self.event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def event(self, data: Any) -> None:
        line = f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))


class Proxy(Server):
    """Passes streams on; with `bundle` it hands out so many events at once, as a proxy that buffers does."""

    def __init__(self, engine: Engine, bundle: int = 1, wait_s: float = 0) -> None:
        self.engine, self.bundle, self.wait_s = engine, bundle, wait_s
        super().__init__(ProxyHandler)


class ProxyHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(self.server.wait_s)
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.engine.port)
        upstream.request("POST", self.path, body, {"Authorization": self.headers.get("Authorization", "")})
        reply = upstream.getresponse()
        self.send_response(reply.status)
        self.send_header("X-Backend", reply.getheader("X-Backend", ""))
        self.send_header("Connection", "close")
        self.end_headers()
        held: list[bytes] = []
        for line in reply:
            held.append(line)
            if len(held) >= 2 * self.server.bundle:
                self.wfile.write(b"".join(held))
                held.clear()
        self.wfile.write(b"".join(held))
        self.close_connection = True
        upstream.close()
