"""The ways to tell somebody something. Each takes a message and raises NotTold, with words that hold no secret."""

from __future__ import annotations

import contextlib
import email.message
import email.policy
import http.client
import json
import os
import signal
import ssl
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from modelyard.accept import junit

#: Answers of a webhook and words of a command are shown up to here.
SHOWN = 300


class NotTold(Exception):
    """It was not told; the text says why. `again`: whether trying again can help."""

    def __init__(self, words: str, again: bool = True) -> None:
        super().__init__(words)
        self.again = again


def tell(way: Mapping[str, Any], message: Mapping[str, Any], limit_s: float) -> None:
    """Tell it once, within about `limit_s`. `way`: an entry of `tell` of the configuration. Raises NotTold."""
    seconds = max(0.1, min(float(way["timeout_s"]), limit_s))
    if way["kind"] == "webhook":
        _post(way, json.dumps(message).encode(), seconds)
    elif way["kind"] == "mail":
        _run(way["command"], mail(way, message), seconds)
    else:
        words = [*way["command"], str(message["record"])]
        _run(words, json.dumps(message, indent=1).encode() + b"\n", seconds)


def mail(way: Mapping[str, Any], message: Mapping[str, Any]) -> bytes:
    """The message as a mail program takes it on its standard input."""
    found = email.message.EmailMessage(policy=email.policy.SMTP.clone(max_line_length=76, linesep="\n"))
    found["Subject"] = " ".join(_plain(message["headline"]).split())[:200]
    found["To"] = ", ".join(way["to"])
    if way["from"]:
        found["From"] = way["from"]
    # Absence assistants and ticket systems shall not answer.
    found["Auto-Submitted"] = "auto-generated"
    found.set_content(_plain(message["text"]) + "\n")
    return found.as_bytes()


def _plain(text: Any) -> str:
    return junit.NOT_XML.sub("?", str(text))


def _secret(way: Mapping[str, Any], key: str) -> str:
    """The first line of a file that holds an address or a token."""
    try:
        return Path(way[key]).expanduser().read_text(encoding="utf-8").strip().split("\n", 1)[0]
    except (OSError, ValueError) as exc:
        raise NotTold(f"{key} {way[key]} cannot be read: {getattr(exc, 'strerror', None) or 'it is no text'}") from exc


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A POST that is redirected would become a GET without its content."""

    def redirect_request(self, *args: Any, **more: Any) -> None:
        return None


def _post(way: Mapping[str, Any], body: bytes, limit_s: float) -> None:
    url = way["url"] or _secret(way, "url_file")
    headers = {"Content-Type": "application/json", "User-Agent": "modelyard"}
    if way["token_file"]:
        headers["Authorization"] = f"Bearer {_secret(way, 'token_file')}"
    # Of the address only the host is shown: the path of many webhooks is their secret.
    place = urllib.parse.urlsplit(url).hostname or "?"
    try:
        context = ssl.create_default_context(cafile=way["ca_file"] or None)
        opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirect())
        with opener.open(urllib.request.Request(url, body, headers, method="POST"), timeout=limit_s):
            pass
    except urllib.error.HTTPError as exc:
        with exc:
            raise _refused(place, exc.code, exc.headers.get("Location") is not None) from None
    except urllib.error.URLError as exc:
        words = str(exc.reason)
        if isinstance(exc.reason, ssl.SSLCertVerificationError):
            words = f"its certificate is not valid here: {exc.reason.verify_message}; ca_file names an own authority"
        raise NotTold(f"{place}: {words}") from None
    except (OSError, http.client.HTTPException, ValueError) as exc:
        words = "no answer in time" if isinstance(exc, TimeoutError) else type(exc).__name__
        raise NotTold(f"{place}: {words}", again=not isinstance(exc, ValueError)) from None


def _refused(place: str, status: int, redirected: bool) -> NotTold:
    if redirected:
        return NotTold(f"{place}: HTTP {status}, it lives at another address now; write that one into url", again=False)
    # A request that is wrong stays wrong; what is too much or broken there may pass.
    return NotTold(f"{place}: HTTP {status}", again=status >= 500 or status in (408, 425, 429))


def _run(words: Sequence[str], given: bytes, limit_s: float) -> None:
    """A program of the configuration with the message on its standard input; what it leaves behind at the limit is ended."""
    try:
        process = subprocess.Popen(
            list(words), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
    except (OSError, ValueError) as exc:
        again = not isinstance(exc, (FileNotFoundError, PermissionError, ValueError))
        raise NotTold(f"{words[0]} cannot be started: {getattr(exc, 'strerror', None) or exc}", again=again) from None
    try:
        said, _ = process.communicate(given, timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise NotTold(f"{words[0]} did not end within {limit_s:.0f} s and was ended") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            for stream in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    if stream:
                        stream.close()
            process.wait()
    if process.returncode:
        shown = " ".join(said.decode("utf-8", "replace").split())[:SHOWN]
        raise NotTold(f"{words[0]} ended with status {process.returncode}{f': {shown}' if shown else ''}")
