"""What an instance says over HTTP, in vLLM's forms."""

from __future__ import annotations

import json
import os
import select
import socket
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from . import answers, faults
from .log import plain

METRICS = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{{labels}}} {running}.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{{labels}}} {waiting}.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{{{labels}}} {used}
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{{{labels}}} {prompted}.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{{{labels}}} {generated}.0
# TYPE vllm:request_success_total counter
vllm:request_success_total{{{labels},finished_reason="stop"}} {finished}.0
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{{{labels}}} 0.0
"""
GUARDED = ("/v1", "/v2", "/inference")


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status, kind, message, param=None):
        self.status = status
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": status}}


def make_server(instance, listener):
    """A server on a socket that is bound and does not listen yet; it listens afterwards."""
    server = Server(listener.getsockname()[:2], Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    server.daemon_threads = True
    server.instance = instance
    server.server_activate()
    threading.Thread(target=instance.faults.follow, args=(listener,), daemon=True).start()
    return server


class Server(ThreadingHTTPServer):
    """One whose port may be closed meanwhile."""

    def get_request(self):
        """A connection; the one who asks takes an error for none."""
        try:
            return super().get_request()
        except OSError:
            time.sleep(faults.PORT_EVERY_S)
            raise


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Health, models, metrics and the small ones."""
        mine, args = self.server.instance, self.server.instance.args
        if not self._may():
            return
        fault = mine.faults.strike(faults.GETS.get(self.path, ""))
        if "status" in fault:
            self._send(fault["status"], fault.get("body", "").encode())
        elif self.path in ("/health", "/ping"):
            self._send(200 if mine.alive else 503, b"")
        elif self.path == "/version":
            self._json(200, {"version": "0.32.0"})
        elif self.path == "/load":
            self._json(200, {"server_load": mine.open if getattr(args, "enable_server_load_tracking", False) else 0})
        elif self.path == "/metrics":
            self._send(200, self._metrics(fault).encode(), "text/plain; version=0.0.4; charset=utf-8")
        elif self.path == "/v1/models":
            models = [
                {"id": name, "object": "model", "created": int(time.time()), "owned_by": "vllm", "root": args.model,
                 "parent": None, "max_model_len": args.max_model_len, "permission": [], **fault.get("fields", {})}
                for name in args.names
            ]  # fmt: skip
            self._json(200, {"object": "list", "data": models})
        else:
            self._json(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        """Chat completions, completions and embeddings."""
        mine = self.server.instance
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not self._may():
            return
        if self.path not in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings"):
            self._json(404, {"detail": "Not Found"})
            return
        with mine.lock:
            mine.open += 1
        try:
            self._post(body)
        except Refused as refused:
            self._json(refused.status, refused.body)
        except OSError:
            self.close_connection = True  # the client has gone
        finally:
            with mine.lock:
                mine.open -= 1

    def _post(self, raw) -> None:
        mine, vectors = self.server.instance, self.path == "/v1/embeddings"
        body = json.loads(raw) if vectors else self._request(raw)
        what = faults.kind(self.path, body)
        fault = mine.faults.strike(what)
        if fault.get("hang"):
            faults.hold(mine, what, fault["hang"], self._is_open)
            self.close_connection = True
        elif "status" in fault:
            self._send(fault["status"], fault.get("body", "").encode())
        elif vectors:
            self._vectors(body, fault)
        else:
            self._chat(body, fault)

    def _may(self) -> bool:
        key = os.environ.get("VLLM_API_KEY")
        if key and self.path.startswith(GUARDED) and self.headers.get("Authorization") != f"Bearer {key}":
            self._json(401, {"error": "Unauthorized"})
            return False
        return True

    def _request(self, raw):
        args = self.server.instance.args
        try:
            body = json.loads(raw)
            if self.path == "/v1/completions":
                body["messages"] = [{"content": body["prompt"]}]
            messages = body["messages"]
            count = answers.prompt_tokens(messages)
        except (ValueError, KeyError, TypeError, AttributeError) as exc:
            raise Refused(400, "BadRequestError", f"the request cannot be read: {exc!r}") from None
        if body.get("model", args.names[0]) not in args.names:
            raise Refused(404, "NotFoundError", f"The model `{body['model']}` does not exist.", "model")
        limit, wanted = args.max_model_len, body.get("max_completion_tokens") or body.get("max_tokens") or 1
        if count >= limit:
            text = f"This model's maximum context length is {limit} tokens. However, your prompt contains {count} input tokens, "
            text += "which exceeds this limit even without any output tokens. Please reduce the length of the input prompt."
            raise Refused(400, "BadRequestError", f"{text} (parameter=input_tokens, value={count})", "input_tokens")
        if wanted > limit:
            text = f"max_tokens={wanted} cannot be greater than max_model_len={limit}. (parameter=max_tokens, value={wanted})"
            raise Refused(400, "BadRequestError", text, "max_tokens")
        alternatives = body.get("top_logprobs") or 0
        if alternatives and not body.get("logprobs"):
            raise Refused(400, "BadRequestError", "when using `top_logprobs`, `logprobs` must be set to true.", "top_logprobs")
        if alternatives > args.max_logprobs >= 0:
            text = f"Requested sample logprobs of {alternatives}, which is greater than max allowed: {args.max_logprobs}"
            raise Refused(400, "BadRequestError", f"{text} (parameter=logprobs, value={alternatives})", "logprobs")
        return {**body, "prompt_tokens": count}

    def _chat(self, body, fault) -> None:
        mine = self.server.instance
        said, reason = answers.tokens(body, mine.settings.guided)
        said = [fault["said"]] if "said" in fault else said
        guided = bool(body.get("response_format"))
        if not mine.generate(len(said) * mine.settings.token_s, self._is_open, guided):
            if mine.dropping or not self._is_open():
                self.close_connection = True
                return
            raise Refused(500, "InternalServerError", "EngineCore encountered an issue.")
        with mine.lock:
            mine.prompted += body["prompt_tokens"]
            mine.generated += len(said)
            mine.finished += 1
        usage = {"prompt_tokens": fault.get("prompt_tokens", body["prompt_tokens"]), "completion_tokens": len(said)}
        usage["total_tokens"] = sum(usage.values())
        head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": mine.args.names[0]}
        if body.get("stream"):
            self._stream({**head, "object": "chat.completion.chunk"}, said, reason, usage, body, fault)
            return
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": "".join(said)},
            "logprobs": answers.logprobs(said, body.get("top_logprobs") or 0, fault.get("logprobs"))
            if body.get("logprobs")
            else None,
            "finish_reason": reason,
        }
        if self.path == "/v1/completions":
            choice["text"] = choice.pop("message")["content"]
        self._json(200, {**head, "object": "chat.completion", "choices": [choice], "usage": usage})

    def _vectors(self, body, fault) -> None:
        mine, texts = self.server.instance, body["input"]
        if getattr(mine.args, "runner", None) != "pooling":
            raise Refused(400, "BadRequestError", "The model does not support Embeddings API")
        found = [{"index": n, "embedding": fault.get("vector") or answers.vector(text)} for n, text in enumerate(texts)]
        self._json(200, {"object": "list", "data": found, "model": mine.args.names[0]})

    def _stream(self, head, said, reason, usage, body, fault) -> None:
        self._log(200)
        self.send_response_only(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        deltas = [({"role": "assistant", "content": ""}, None), *(({"content": token}, None) for token in said), ({}, reason)]
        events = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": end}]} for delta, end in deltas]
        if (body.get("stream_options") or {}).get("include_usage"):
            events.append({**head, "choices": [], "usage": usage})
        for text in [*(json.dumps(event) for event in events), "[DONE]"]:
            time.sleep(fault.get("gap_s", 0))
            data = f"data: {text}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.write(b"0\r\n\r\n")

    def _metrics(self, fault) -> str:
        mine = self.server.instance
        mine.generated += fault.get("moves", 0)
        labels = f'engine="0",model_name="{mine.args.names[0]}"'
        used = round(mine.running / mine.args.max_num_seqs, 4)
        names = ("running", "waiting", "prompted", "generated", "finished")
        return METRICS.format(labels=labels, used=used, **{name: fault.get(name, getattr(mine, name)) for name in names})

    def _is_open(self) -> bool:
        """Whether the client still waits."""
        try:
            ready, _, _ = select.select([self.connection], [], [], 0)
            return not ready or bool(self.connection.recv(1, socket.MSG_PEEK))
        except OSError:
            return False

    def _json(self, status, body) -> None:
        self._send(status, json.dumps(body).encode(), "application/json")

    def _send(self, status, data, kind="") -> None:
        self._log(status)
        self.send_response_only(status)
        if kind:
            self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _log(self, status) -> None:
        host, port = self.client_address[:2]
        plain(f'INFO:     {host}:{port} - "{self.command} {self.path} HTTP/1.1" {status} {self.responses[status][0]}')
