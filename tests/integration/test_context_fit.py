"""Which context prompts need, as an admin asks it: the playbook over a file, with a model folder and a runtime and no service."""

from __future__ import annotations

import json
import os
import signal
import stat
import time
from pathlib import Path
from typing import Any

import pytest
import tokenizer_stub
from cases import always
from harness import Run, Site, end, until

SECRET = "prompt-of-nobody-else-41c9"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("fit")
    tokenizer_stub.install(folder / "runtime")
    tokenizer_stub.model(folder / "model")
    return Site(folder, [], {"ansible_remote_tmp": str(folder / "remote")})


def ask(site: Site, file: Path, arguments: str = "", **extra: Any) -> Run:
    usual = {"context_fit_model": str(site.folder / "model"), "context_fit_runtime": str(site.folder / "runtime")}
    return site.play("context_fit", arguments, **{"context_fit_file": str(file), **usual, **extra})


def left(site: Site) -> list[Path]:
    """Files of a run that still lie on the host."""
    return [path for path in (site.folder / "remote").rglob("*") if path.is_file()]


def test_prompts_are_counted_judged_written_down_and_kept_nowhere(site: Site) -> None:
    file, target = site.folder / "prompts.jsonl", site.folder / "fit.json"
    requests = [
        {"messages": [{"role": "user", "content": f"{SECRET} " * words}], "max_tokens": 10} for words in range(1, 1200, 60)
    ]
    file.write_text("".join(json.dumps(one) + "\n" for one in requests) + f'{{"{SECRET}\n{SECRET} x\n77\n', encoding="utf-8")
    run = ask(site, file, "-vvv", context_fit_json=str(target), context_fit_reserve=100)
    assert (run.rc, run.changed) == (0, 0), run.output[-4000:]
    assert "22 prompt(s) in 23 line(s) of prompts.jsonl" in run.output
    assert "max_model_len 1024 (as the model was made) today: 2 of 22 refused (9.1 %), 1 more get" in run.output
    assert "longest: line 20 (1152), line 19 (1092)" in run.output
    assert "1 damaged passed over: line 21 (it is no JSON)" in run.output
    assert "3 of 22 need more than the model was made for (1024 tokens, config.json)" in run.output
    assert "KV cache: 512 bytes a token; layers: 2 full" in run.output
    assert "how many fit is not known: without a service" in run.output
    assert SECRET not in run.output
    written = target.read_text(encoding="utf-8")
    assert SECRET not in written
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    found = json.loads(written)["hosts"]["host-a"]
    assert (found["prompts"], found["refused"], found["tokenizer"], found["needed"]) == (22, 2, "Tokenizer", 1152)
    assert left(site) == []


def test_a_large_file_goes_in_parts_and_shows_how_far_it_is(site: Site) -> None:
    file = site.folder / "large.jsonl"
    with file.open("wb") as stream:
        for _ in range(10):
            stream.write(b"123456\n" * 100_000)
    run = ask(site, file)
    assert run.rc == 0, run.output[-3000:]
    assert "4.0 of 6.7 MiB" in run.output
    assert "6.7 of 6.7 MiB, 1000000 prompt(s)" in run.output
    assert "max_model_len 1024 (as the model was made) today: 1000000 of 1000000 refused" in run.output
    assert left(site) == []


def test_a_json_array_is_counted_entry_by_entry_and_one_that_breaks_off_is_refused(site: Site) -> None:
    """Laid out over lines it would look like lines of prompts: brackets, quoted keys."""
    file, target = site.folder / "array.json", site.folder / "array-fit.json"
    requests = [{"messages": [{"role": "user", "content": f"{SECRET} " * words}]} for words in (1, 700, 1400)]
    text = json.dumps([*requests, None, 77], indent=2)
    file.write_text(text, encoding="utf-8-sig")
    run = ask(site, file, context_fit_json=str(target), context_fit_reserve=0)
    assert run.rc == 0, run.output[-3000:]
    assert "4 prompt(s) in 5 entries of array.json" in run.output
    assert "1 damaged passed over: entry 4 (it is neither an object, nor a number, nor text)" in run.output
    found = json.loads(target.read_text(encoding="utf-8"))["hosts"]["host-a"]
    assert ([one["line"] for one in found["longest"]], found["unit"]) == ([3, 2, 5, 1], "entry")
    file.write_text(text[:-40], encoding="utf-8")
    broken = ask(site, file)
    assert broken.rc != 0
    assert "looks like JSON as a whole, but the file ends within entry 3" in " ".join(broken.output.split())
    assert SECRET not in broken.output
    assert left(site) == []


def test_a_run_that_is_broken_off_leaves_no_prompt_behind(site: Site) -> None:
    hanging = tokenizer_stub.model(site.folder / "hanging", "hangs")
    given = {"file": site.folder / "prompts.jsonl", "model": hanging, "runtime": site.folder / "runtime"}
    words = [word for name, value in given.items() for word in ("-e", f"context_fit_{name}={value}")]
    running = site.begin("context_fit", tuple(words))
    try:
        until(lambda: named(hanging) and not transferred(site), 60, "a part is being counted and has no name any more")
    finally:
        end(running)
        for pid in named(hanging):  # a module that a killed control node has left on this host ends by itself, but later
            os.kill(pid, signal.SIGKILL)
    assert [path for path in left(site) if SECRET.encode() in path.read_bytes()] == []


def named(folder: Path) -> list[int]:
    """Processes of the program that counts with the tokenizer in `folder`, once it has read its own text for a while."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if str(folder).encode() in words and time.time() - path.parent.stat().st_ctime > 1:
            found.append(int(path.parent.name))
    return found


def transferred(site: Site) -> list[Path]:
    """Parts that lie on the host under a name."""
    return [path for path in left(site) if path.name.startswith("prompts-")]


@pytest.mark.parametrize(
    ("extra", "words"),
    always(
        2,
        [
            ({"context_fit_file": "/nowhere/prompts"}, "/nowhere/prompts is no file on this control node"),
            ({"context_fit_file": ""}, "which prompts? Give -e context_fit_file=FILE"),
            ({"context_fit_model": "", "context_fit_service": "qwen"}, "qwen is no service of this host; there are: none"),
            ({"context_fit_model": ""}, "which service? Give -e context_fit_service=NAME; there are: none"),
            ({"context_fit_runtime": "/nowhere"}, "/nowhere/bin/python could not be started"),
            ({"context_fit_reserv": 3}, "context_fit_reserve"),
        ],
    ),
)
def test_what_is_missing_is_said(site: Site, extra: dict[str, Any], words: str) -> None:
    run = ask(site, site.folder / "prompts.jsonl", **extra)
    assert run.rc != 0
    assert words in " ".join(run.output.split())


def test_several_hosts_are_refused(site: Site) -> None:
    path = site.inventory
    text = path.read_text(encoding="utf-8").replace("host-a:", "host-a: &a") + "    host-b: *a\n"
    other = site.folder / "two.yml"
    other.write_text(text, encoding="utf-8")
    run = ask(site, site.folder / "prompts.jsonl", f"-i {other}")
    assert run.rc != 0
    assert "the run is about 2 hosts" in run.output
