from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.survey import limits

COLLECTIONS = Path(__file__).parents[2] / "collections"
NO_LIMIT_V1 = str(2**63 - 4096)


def host(tmp_path, own, files):
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "self/cgroup").write_text(own, encoding="utf-8")
    root = tmp_path / "cgroup"
    root.mkdir()
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="ascii")
    found = limits.look(str(root), str(proc))
    return found["pids_max"], found["pids_current"], found["cgroup_memory_max_mib"]


def test_limits_of_the_process_are_those_of_the_shell_that_started_it():
    script = (
        "import json; from ansible_collections.modelyard.core.plugins.module_utils.survey import limits; "
        "print(json.dumps(limits.look()))"
    )
    shell = f"ulimit -Sn 100; ulimit -Hn 200; ulimit -c 0; ulimit -Sl 64; exec {sys.executable} -c '{script}'"
    done = subprocess.run(["bash", "-c", shell], env={"PYTHONPATH": str(COLLECTIONS)}, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["nofile"] == [100, 200]
    assert found["core"] == [0, 0]
    assert found["memlock"][0] == 64 * 1024


@pytest.mark.parametrize(("pair", "shown"), [((1024, resource.RLIM_INFINITY), [1024, -1]), ((0, 0), [0, 0])])
def test_unlimited_is_minus_one(monkeypatch, pair, shown):
    monkeypatch.setattr(resource, "getrlimit", lambda _: pair)
    found = limits.look()
    assert [found[name] for name in ("nofile", "nproc", "memlock", "core")] == [shown] * 4


SLICE = "0::/user.slice/user-1000.slice/session-3.scope\n"
USER = "user.slice/user-1000.slice"


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        pytest.param("", {}, (None, None, None), id="nothing said"),
        pytest.param("strange\n\n1:2\n", {"pids.max": "5\n"}, (None, None, None), id="no line of a group"),
        pytest.param(
            SLICE,
            {
                f"{USER}/session-3.scope/pids.max": "max\n",
                f"{USER}/session-3.scope/pids.current": "7\n",
                f"{USER}/session-3.scope/memory.max": "max\n",
                f"{USER}/pids.max": "1000\n",
                f"{USER}/pids.current": "40\n",
                f"{USER}/memory.max": f"{8 * 2**30}\n",
                "user.slice/memory.max": f"{64 * 2**30}\n",
            },
            (1000, 40, 8192),
            id="version 2: the limit is further up",
        ),
        pytest.param(
            SLICE,
            {
                f"{USER}/session-3.scope/pids.max": "500\n",
                f"{USER}/session-3.scope/pids.current": "10\n",
                f"{USER}/pids.max": "1000\n",
                f"{USER}/pids.current": "990\n",
            },
            (1000, 990, None),
            id="the larger limit that is nearly used up",
        ),
        pytest.param(
            SLICE,
            {
                f"{USER}/session-3.scope/pids.current": "10\n",
                f"{USER}/session-3.scope/pids.max": "max\n",
                f"{USER}/pids.current": "90\n",
            },
            (None, 10, None),
            id="no limit: use of the own group",
        ),
        pytest.param(SLICE, {f"{USER}/pids.max": "100\n"}, (100, None, None), id="use that may not be read"),
        pytest.param(
            "0::/\n",
            {"pids.max": "512\n", "pids.current": "3\n", "memory.max": f"{2**30}\n"},
            (512, 3, 1024),
            id="group of a container",
        ),
        pytest.param("0::/../../other\n", {"other/pids.max": "9\n"}, (9, None, None), id="group outside of what is shown"),
        pytest.param(
            "8:pids:/docker/abc\n4:memory:/docker/abc\n0::/\n",
            {
                "pids/pids.max": "99\n",
                "pids/pids.current": "5\n",
                "memory/memory.limit_in_bytes": f"{2 * 2**30}\n",
                "unified/pids.max": "1\n",
            },
            (99, 5, 2048),
            id="version 1 in a container, whose own group is shown as the root",
        ),
        pytest.param(
            "4:memory:/a/b\n3:cpu,cpuacct:/a\n",
            {
                "memory/a/b/memory.limit_in_bytes": NO_LIMIT_V1,
                "memory/a/memory.limit_in_bytes": f"{3 * 2**30}\n",
                "memory/memory.limit_in_bytes": NO_LIMIT_V1,
            },
            (None, None, 3072),
            id="version 1 says unlimited with a large number",
        ),
        pytest.param(
            "4:memory:/a\n1:name=systemd:/x\n0::/x/y\n",
            {"unified/x/pids.max": "77\n", "memory/a/memory.limit_in_bytes": f"{2**30}\n", "x/pids.max": "1\n"},
            (77, None, 1024),
            id="both versions",
        ),
        pytest.param(SLICE, {f"{USER}/pids.max": "\n", "user.slice/pids.max": "many\n"}, (None, None, None), id="no numbers"),
    ],
)
def test_limits_of_control_groups(tmp_path, own, files, expected):
    assert host(tmp_path, own, files) == expected
