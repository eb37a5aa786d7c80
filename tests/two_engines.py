"""The service of two instances with the real engine behind our gateway, as its end-to-end tests look at it."""

from __future__ import annotations

import base64
import contextlib
import time
import urllib.request
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from e2e_site import answers, figure
from harness import Site, json_lines, until

NAME = "tiny-2xtp1"


def entry(site: Site) -> int:
    """The port of the gateway."""
    return int(site.services[0]["gateway"]["port"])


def served_by(site: Site, requests: int = 4) -> list[str]:
    """Which instances answer one request after the other through the gateway, as its log has it."""
    log = site.home / "services" / f"{NAME}.gateway" / "instance-0/logs/results.jsonl"
    time.sleep(0.2)  # others have asked before
    began = datetime.now(timezone.utc).isoformat(timespec="milliseconds")[:23]
    for _ in range(requests):
        assert answers(entry(site))

    def fresh() -> list[dict[str, Any]]:
        return [line for line in json_lines(log) if line["path"] == "/v1/chat/completions" and line["time"] >= began]

    until(lambda: len(fresh()) >= requests, 10, "the log has all requests")
    assert {(line["status"], line["model"], line["completion_tokens"]) for line in fresh()} == {(200, "tiny", 2)}
    return [line["backend"] for line in fresh()]


def answered(port: int) -> list[float]:
    """[requests, tokens] that an engine has answered since its start, at its own /metrics."""
    return [figure(port, f"vllm:{name}_total") for name in ("request_success", "generation_tokens")]


def counted(site: Site) -> list[float]:
    """The same of both engines."""
    base = int(site.services[0]["listen"]["base_port"])
    return [sum(both) for both in zip(answered(base), answered(base + 1), strict=True)]


def told(site: Site, what: str) -> None:
    """Tell the gateway by hand what to do with instance 1, as docs/gateway.md has it."""
    token = (site.home / "services" / f"{NAME}.gateway" / "instance-0/run/admin_token").read_text(encoding="utf-8").strip()
    admin = entry(site) + 1
    request = urllib.request.Request(f"http://127.0.0.1:{admin}/gateway/{what}?backend={NAME}/1", method="POST")
    request.add_header("Authorization", "Basic " + base64.b64encode(f"x:{token}".encode()).decode())
    with urllib.request.urlopen(request, timeout=30) as reply:
        assert reply.status == 200


def gives_way(site: Site, index: int) -> None:
    """Let others have the processors before this instance, as they would have cores of their own beside cards.

    On two cores, and Linux 6.18, the idle loops of a busy engine (sched_yield) leave a playbook in another session 0.04 s
    in 5 s. `nice` counts within a session only; this is the session's own.
    """
    state = site.state(NAME, index)
    assert state is not None
    with contextlib.suppress(OSError):  # a kernel without such groups
        Path(f"/proc/{state['leader']['pid']}/autogroup").write_text("19", encoding="ascii")


@contextlib.contextmanager
def inventory(site: Site, part: str, **changes: Any) -> Iterator[None]:
    """Other values in a part of the service, for as long as the context lasts."""
    before = dict(site.services[0][part])
    site.services[0][part].update(changes)
    try:
        yield
    finally:
        site.services[0][part] = before
