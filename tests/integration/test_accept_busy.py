"""`modelyard accept` on a service whose every slot is taken by users who wait for more: nothing failed, nobody disturbed."""

from __future__ import annotations

import time
import xml.etree.ElementTree as ET

from accepting import NAME, Accept, users
from harness import until
from web import Web


def posts(accept: Accept, index: int) -> int:
    """Requests for tokens that an instance has answered, by its own log."""
    log = accept.site.home / "services" / NAME / f"instance-{index}" / "logs" / "current.log"
    return log.read_text(encoding="utf-8").count("POST /v1/chat/completions")


def test_a_full_service_is_busy_its_users_are_left_alone_and_people_are_told_when_it_lasts(accept: Accept) -> None:
    with Web(200) as web:
        accept.configure(tell=[{"kind": "webhook", "url": web.url}], busy_told_after_s=3)
        before = [posts(accept, index) for index in (0, 1)]
        with users(accept.site, 0) as first, users(accept.site, 1) as second:
            until(lambda: min(len(first), len(second)) > 1, 20, "all slots are taken")
            began = time.monotonic()
            done = accept.run()
            took_s = time.monotonic() - began
            assert done.returncode == 4, done.stdout + done.stderr
            assert web.heard == [], "that it is busy is no news"
            time.sleep(max(0.0, 3 - took_s))
            again = accept.run()
            assert again.returncode == 4, again.stdout + again.stderr
        assert set(first + second) == {200}
        assert [posts(accept, index) - past for index, past in enumerate(before)] == [len(first), len(second)], "none was ours"
        (service,) = accept.latest["hosts"]["host-a"]["services"]
        assert service["answer"] == "busy"
        last = [step for step in service["steps"] if step["verdict"] not in ("pass", "skipped")]
        assert {(step["id"], step["verdict"], step["cause"], step["restart"]) for step in last} == {
            ("chat", "busy", "loaded", False)
        }
        assert "2 running, " in last[0]["detail"]
        assert service["evidence"] == "", "nothing has failed"
        root = ET.parse(accept.state / "latest.xml").getroot()
        # Two instances: busy at `chat`, and no cards whose memory could be looked at.
        assert (root.get("failures"), root.get("errors"), root.get("skipped")) == ("0", "0", "4")
        ((_, message),) = web.heard
        assert [(item["where"], item["answer"]) for item in message["news"]] == [(f"host-a/{NAME}", "busy"), ("*", "busy")]
        assert message["news"][0]["words"].startswith("busy for ")
        assert f"Modelyard acceptance: host-a/{NAME} busy (was accepted)" == message["headline"]
        assert accept.run().returncode == 0
        assert [item["answer"] for item in web.heard[1][1]["news"]] == ["accepted", "accepted"]
