"""A server for tests that hears what it is sent: it answers, refuses, breaks, hangs, or drips, and speaks TLS where wanted."""

from __future__ import annotations

import http.server
import json
import ssl
import subprocess
import threading
import time
from pathlib import Path
from typing import Any


class Web:
    """`heard`: [(headers, body)]. `answers`: statuses in order, the last one for good; 0 hangs, -1 drips its answer."""

    def __init__(self, *answers: int, certificate: Path | None = None) -> None:
        self.heard: list[tuple[dict[str, str], Any]] = []
        self.answers = list(answers or (200,))
        self.closed = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.heard.append((dict(self.headers), json.loads(body)))
                status = outer.answers.pop(0) if len(outer.answers) > 1 else outer.answers[0]
                if status == 0:
                    outer.closed.wait(60)
                    return
                if status == -1:
                    while not outer.closed.wait(0.2):
                        self.wfile.write(b"H")
                    return
                self.send_response(status)
                if status in (301, 302):
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"{'https' if certificate else 'http'}://127.0.0.1:{self.server.server_address[1]}/hook/s3cret"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self) -> Web:
        return self

    def __exit__(self, *_: Any) -> None:
        self.closed.set()
        self.server.shutdown()
        self.server.server_close()


def certificate(folder: Path, name: str = "127.0.0.1") -> Path:
    """A key with a certificate that it has signed itself, in one file."""
    path, key = folder / "certificate.pem", folder / "key.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test"]
    words += ["-addext", f"subjectAltName=IP:{name}", "-keyout", str(key), "-out", str(path)]
    subprocess.run(words, check=True, capture_output=True)
    path.write_text(path.read_text(encoding="utf-8") + key.read_text(encoding="utf-8"), encoding="utf-8")
    return path


def wait_for(condition: Any, limit_s: float = 5.0) -> bool:
    """Does it become true within a limit?"""
    until = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True
