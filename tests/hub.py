"""A hub and a mirror for tests: Hugging Face's shape, ModelScope's, and a listed folder; with faults by file.

`faults`: {file name: [fault, ...]}, each used once, in order; the last one stays when it is in LASTING:
  403, 404, 429, 500   that status             cut    ends in the middle          wrong   other bytes of the same length
  slow                 drips                   redirect  sends to another server  whole   ignores Range
"""

from __future__ import annotations

import hashlib
import http.server
import json
import threading
import time
import urllib.parse
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LASTING = (403, 404, "wrong", "whole", "slow", "redirect", 503)


def git_hash(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Hub:
    """`files`: {name: bytes} of the repository `org/tiny`. `heard`: (path, headers) of every request."""

    def __init__(self, files: dict[str, bytes], token: str = "", store: Hub | None = None) -> None:
        self.files, self.token, self.store = files, token, store
        self.faults: dict[str, list[Any]] = {}
        self.heard: list[tuple[str, dict[str, str]]] = []
        self.sums = False
        self.listing = True
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.heard.append((self.path, dict(self.headers)))
                outer.answer(self)

            do_HEAD = do_GET

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def fetched(self, name: str) -> list[str]:
        """The Range of each GET of a file's content, '' for all of it."""
        end = urllib.parse.quote(name)
        return [h.get("Range", "") for path, h in self.heard if "/files?" not in path and path.endswith((f"/{end}", f"={end}"))]

    def answer(self, request: Any) -> None:
        parts = urllib.parse.urlsplit(request.path)
        path, query = urllib.parse.unquote(parts.path), urllib.parse.parse_qs(parts.query)
        bearer = request.headers.get("Authorization") == f"Bearer {self.token}"
        if self.token and not bearer:
            self.send(request, 401, b"", {"X-Error-Message": "Access to model org/tiny is restricted"})
        elif path.startswith("/api/models/org/tiny/revision/"):
            self.send(request, 200, json.dumps(self._huggingface()).encode())
        elif path == "/api/v1/models/org/tiny/repo/files":
            self.send(request, 200, json.dumps(self._modelscope()).encode())
        elif path == "/api/v1/models/org/tiny/repo":
            self.file(request, query["FilePath"][0])
        elif path.startswith(f"/org/tiny/resolve/{COMMIT}/"):
            self.file(request, path.split("/", 5)[5])
        elif path.startswith(("/mirror/", "/store/")):
            self._mirror(request, path.split("/", 2)[2])
        else:
            self.send(request, 404, b"")

    def _huggingface(self) -> dict[str, Any]:
        siblings = []
        for name, content in self.files.items():
            large = name.endswith((".safetensors", ".pth"))
            lfs = {"lfs": {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}}
            siblings.append({"rfilename": name, "size": len(content), "blobId": git_hash(content), **(lfs if large else {})})
        return {"id": "org/tiny", "sha": COMMIT, "siblings": siblings}

    def _modelscope(self) -> dict[str, Any]:
        files: list[dict[str, Any]] = [{"Path": "sub", "Name": "sub", "Size": 0, "Type": "tree"}]
        for name, content in self.files.items():
            told = {"Path": name, "Name": name.rpartition("/")[2], "Size": len(content), "Type": "blob"}
            files.append({**told, "Sha256": hashlib.sha256(content).hexdigest()})
        return {"Code": 200, "Success": True, "Data": {"Files": files}}

    def _mirror(self, request: Any, name: str) -> None:
        if name == "SHA256SUMS" and self.sums:
            lines = [f"{hashlib.sha256(content).hexdigest()}  {file}" for file, content in self.files.items()]
            self.send(request, 200, "\n".join(lines).encode())
        elif name in self.files:
            self.file(request, name)
        elif self.listing and (not name or name.endswith("/")):
            below = [file[len(name) :] for file in self.files if file.startswith(name)]
            links = sorted({file.partition("/")[0] + ("/" if "/" in file else "") for file in below})
            text = "".join(f'<a href="{urllib.parse.quote(link)}">{link}</a>\n' for link in ["../", "?C=N;O=D", *links])
            self.send(request, 200, f"<html>{text}</html>".encode(), {"Content-Type": "text/html"})
        else:
            self.send(request, 403 if not name else 404, b"")

    def file(self, request: Any, name: str) -> None:
        waiting = self.faults.get(name, [])
        fault = waiting[0] if waiting else None
        if waiting and not (len(waiting) == 1 and fault in LASTING):
            waiting.pop(0)
        content = self.files.get(name)
        if content is None or (isinstance(fault, int) and fault >= 400):
            self.send(request, fault or 404, b"", {"Retry-After": "0"})
            return
        if fault == "redirect":
            assert self.store
            self.send(request, 302, b"", {"Location": f"{self.store.url}/store/{urllib.parse.quote(name)}?sig=s3cret"})
            return
        begin, status, headers = 0, 200, {"ETag": f'"{hashlib.sha256(content).hexdigest()[:8]}"'}
        asked = request.headers.get("Range", "")
        same = request.headers.get("If-Range", headers["ETag"]) == headers["ETag"]
        if asked and same and fault != "whole":
            begin, status = int(asked.removeprefix("bytes=").rstrip("-")), 206
            headers["Content-Range"] = f"bytes {begin}-{len(content) - 1}/{len(content)}"
        if begin >= len(content) > 0:
            self.send(request, 416, b"")
            return
        body = content[begin:]
        if fault == "wrong":
            body = bytes(255 - byte for byte in body)
        self.send(request, status, body, headers, fault)

    @staticmethod
    def send(request: Any, status: int, body: bytes, headers: dict[str, str] | None = None, fault: Any = None) -> None:
        request.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            request.send_header(name, value)
        request.end_headers()
        if request.command == "HEAD":
            return
        if fault == "cut":
            body = body[: len(body) // 2]
        step = 2048 if fault == "slow" else len(body) or 1
        try:
            for place in range(0, len(body), step):
                request.wfile.write(body[place : place + step])
                time.sleep(0.02 if fault == "slow" else 0)
        except OSError:
            pass
