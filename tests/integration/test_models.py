"""Models from a hub to a host by the playbook: with what goes wrong on the way, again, and with a file that was changed since."""

from __future__ import annotations

import json

import pytest
from harness import Site
from hub import Hub

SECRET = "hf_Zq9xW7vK"
TEMPLATE = {"chat_template": "{{ messages }}"}
FILES = {
    "config.json": json.dumps({"architectures": ["Qwen3ForCausalLM"], "max_position_embeddings": 4096}).encode(),
    "tokenizer.json": b"{}",
    "tokenizer_config.json": json.dumps(TEMPLATE).encode(),
    # A whole file without a tensor: header of two bytes, and it.
    "model.safetensors": (2).to_bytes(8, "little") + b"{}",
    "model.bin.notes": b"x" * 100,
    "original/consolidated.00.pth": b"x" * 1000,
    ".DS_Store": b"\0",
}


@pytest.fixture(scope="module")
def hub():
    made = Hub(dict(FILES), token=SECRET)
    made.faults = {name: [403] for name in ("original/consolidated.00.pth", ".DS_Store")}
    made.faults["tokenizer.json"] = [429]
    yield made
    made.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory, hub):
    made = Site(tmp_path_factory.mktemp("models"), [])
    source = {"from": "huggingface", "at": hub.url, "repo": "org/tiny"}
    made.variables = {
        "modelyard_models": [
            {"id": "by-host", "path": f"{made.folder}/by-host", "source": source},
            {"id": "by-control", "path": f"{made.folder}/by-control", "source": {**source, "by": "control"}},
        ],
        "model_tokens": {"huggingface": SECRET},
        "model_copies": f"{made.folder}/copies",
    }
    return made


def there(site: Site, name: str) -> set[str]:
    folder = site.folder / name
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and ".cache" not in path.parts}


def test_check_mode_says_what_would_be_staged_and_touches_nothing(site, hub):
    run = site.play("models", "--check --diff")
    assert run.rc == 0, run.output[-3000:]
    assert run.changed == 1 and "by-host would be staged from huggingface http://127.0.0.1" in run.output
    assert "by-control (to be staged from huggingface: it is not there)" in run.output
    assert not (site.folder / "by-host").exists() and hub.heard == []


def test_models_are_staged_by_the_host_and_from_a_copy_of_the_control_node(site, hub):
    run = site.play("models", "-vvv")
    assert run.rc == 0, run.output[-3000:]
    wanted = {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"}
    assert there(site, "by-host") == there(site, "by-control") == wanted
    assert "by-host: 4 of 4 files" in run.output and "HTTP 429" in run.output
    assert len(hub.fetched("model.safetensors")) == 2, "once by the host, once for the copy"
    assert SECRET not in run.output
    told = json.loads((site.folder / "by-control/.cache/modelyard/manifest.json").read_text())
    assert told["source"]["repo"] == "org/tiny" and SECRET not in json.dumps(told)
    assert list((site.folder / "copies").glob("*/config.json"))


def test_a_full_check_names_the_file_whose_bytes_are_others(site):
    file = site.folder / "by-host/config.json"
    file.write_bytes(FILES["config.json"].replace(b"4096", b"8192"))
    run = site.play("models", model_verify="full")
    assert run.rc != 0
    assert "PF-MODEL-DAMAGED host-a:" in run.output and "config.json: its SHA-256 begins with" in run.output


def test_the_next_run_fetches_just_that_file_and_a_source_that_refuses_is_told(site, hub):
    source = {"from": "huggingface", "at": hub.url}
    site.variables["modelyard_models"].append({"id": "org/gone", "path": f"{site.folder}/gone", "source": source})
    hub.heard.clear()
    run = site.play("models", "-vvv")
    assert run.rc != 0
    assert (site.folder / "by-host/config.json").read_bytes() == FILES["config.json"]
    kept = list((site.folder / "by-host/.cache/modelyard/set-aside").iterdir())
    assert [b"8192" in path.read_bytes() for path in kept] == [True]
    assert "org/gone could not be staged on host-a: http://127.0.0.1" in run.output and "HTTP 404" in run.output
    assert SECRET not in run.output and not (site.folder / "gone/config.json").exists()
    assert [path.partition("?")[0].rpartition("/")[2] for path, _ in hub.heard] == ["main", "config.json", "main"]
