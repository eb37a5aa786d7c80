"""launch.sh and env as the role renders them, run for real with a program that only says how it was started."""

from __future__ import annotations

import os
import subprocess

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import files, planner
from deployed import host, rendered
from unit import worlds

SECRET = "sk-Zq9x W7'vK$(id)"
# Everything that has once come in from a caller's shell (story A), and what a shell can be told by its environment.
CALLER = {
    "http_proxy": "http://127.0.0.1:9",
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "all_proxy": "socks5://127.0.0.1:9",
    "NO_PROXY": "*",
    "HF_ENDPOINT": "https://mirror.invalid",
    "HF_HUB_OFFLINE": "0",
    "TRANSFORMERS_OFFLINE": "0",
    "CUDA_VISIBLE_DEVICES": "",
    "CUDA_DEVICE_ORDER": "FASTEST_FIRST",
    "PYTHONPATH": "/somewhere",
    "PYTHONSTARTUP": "/somewhere/start.py",
    "LD_PRELOAD": "",
    "LD_LIBRARY_PATH": "/somewhere/lib",
    "VLLM_API_KEY": "sk-from-the-caller",
    "VLLM_PORT": "tcp://192.0.2.10:8000",
    "MODELYARD_SERVICE": "another-one",
    "LC_ALL": "zh_CN.UTF-8",
    "CDPATH": "/tmp",
    "BASH_FUNC_module%%": "() { echo leaked; }",
}
# Says how it was started: its words and its environment, each ended by a zero byte.
ENGINE = '#!/bin/sh\nprintf "%s\\0" "$@" > "$PWD/words"\nexec env -0 > "$PWD/environment"\n'


def of_first(template, planned, home):
    """A file of the first instance of a planned service."""
    made = files.of_service(planned, host(home))
    return rendered(template, made, made["instances"][0])


@pytest.fixture
def deploy(tmp_path):
    """Renders a service below tmp_path as roles/service/tasks/render.yml does; gives the instance's folder."""

    def make(key=None, **changes):
        runtime = tmp_path / "run time"
        (runtime / "bin").mkdir(parents=True)
        (runtime / "bin/vllm").write_text(ENGINE)
        (runtime / "bin/vllm").chmod(0o755)
        service = worlds.service(runtime_path=str(runtime), key_hash="" if key is None else "0f1e", **changes)
        survey = worlds.survey(runtimes={str(runtime): {"exists": True, "complete": False, "error": ""}})
        planned = planner.plan(worlds.intent(service, home=str(tmp_path)), survey)
        assert planned["changes"] == [service["name"]]
        folder = tmp_path / "services" / service["name"] / "instance-0"
        (folder / "run").mkdir(parents=True)
        wanted = planned["services"][0]
        for name, template in (("launch.sh", "launch.sh.j2"), ("env", "env.j2")):
            (folder / name).write_text(of_first(template, wanted, tmp_path), encoding="utf-8")
        if key is not None:
            (folder.parent / "api_key").write_text(key + "\n", encoding="utf-8")
        return folder

    return make


def launched(folder, *words, **caller):
    """(words, environment) of the engine, started from a caller's shell full of variables."""
    subprocess.run(
        ["bash", str(folder / "launch.sh"), *words],
        env={**os.environ, **CALLER, **caller},
        cwd="/",
        check=True,
        timeout=20,
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    said = [(folder / "run" / name).read_bytes().decode().split("\0")[:-1] for name in ("words", "environment")]
    return said[0], dict(item.split("=", 1) for item in said[1])


def test_the_engine_gets_the_words_of_the_plan_and_nothing_else(deploy):
    words, _ = launched(deploy())
    assert words == [
        *("serve", "/srv/models/tiny-qwen3", "--served-model-name", "tiny-qwen3", "--host", "127.0.0.1"),
        *("--port", "8000", "--tensor-parallel-size", "2", "--gpu-memory-utilization", "0.9"),
        *("--max-model-len", "4096", "--shutdown-timeout", "15"),
    ]


def test_nothing_that_the_caller_has_exported_comes_through(deploy, tmp_path):
    folder = deploy()
    environment = launched(folder)[1]
    for name in ("PWD", "OLDPWD", "SHLVL", "_"):  # made by the shell itself
        environment.pop(name, None)
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    assert environment == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "DO_NOT_TRACK": "1",
        "HF_HOME": f"{tmp_path}/cache/huggingface",
        "HF_HUB_OFFLINE": "1",
        "HOME": os.environ["HOME"],
        "LANG": "C.UTF-8",
        "LOGNAME": user,
        "MODELYARD_INSTANCE": "0",
        "MODELYARD_SERVICE": "tiny-qwen3",
        "PATH": f"{tmp_path}/run time/bin:/usr/local/bin:/usr/bin:/bin",
        "PYTHONUNBUFFERED": "1",
        "SPT_NOENV": "1",
        "TORCHINDUCTOR_CACHE_DIR": f"{tmp_path}/cache/torchinductor",
        "TRANSFORMERS_OFFLINE": "1",
        "TRITON_CACHE_DIR": f"{tmp_path}/cache/triton",
        "USER": user,
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "0,1|2,3",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_TARGET_DEVICE": "cpu",
        "XDG_CACHE_HOME": f"{tmp_path}/cache",
        "XDG_CONFIG_HOME": f"{tmp_path}/cache/config",
    }


def test_the_engine_works_in_its_run_folder_whatever_the_caller_stands_in(deploy):
    folder = deploy()
    assert launched(folder)[1]["PWD"] == str(folder / "run")


def test_the_api_key_reaches_the_engine_by_its_environment_and_by_nothing_else(deploy):
    folder = deploy(key=SECRET)
    words, environment = launched(folder)
    assert environment["VLLM_API_KEY"] == SECRET
    assert SECRET not in words
    assert "--api-key" not in words
    for name in ("launch.sh", "env"):
        assert SECRET not in (folder / name).read_text()


def test_a_service_without_a_key_takes_none_from_the_caller(deploy):
    assert "VLLM_API_KEY" not in launched(deploy())[1]


def test_a_secured_service_does_not_start_open_when_its_key_file_is_gone(deploy):
    folder = deploy(key=SECRET)
    (folder.parent / "api_key").unlink()
    with pytest.raises(subprocess.CalledProcessError):
        launched(folder)
    assert not (folder / "run/words").exists()


def test_a_variable_of_the_inventory_beats_the_callers(deploy):
    environment = launched(deploy(environment={"https_proxy": "http://proxy:3128", "HF_HUB_OFFLINE": "0"}))[1]
    assert environment["https_proxy"] == "http://proxy:3128"
    assert environment["HF_HUB_OFFLINE"] == "0"
    assert "http_proxy" not in environment


AWKWARD = "a b'c\"d $(touch broken) `touch broken` \\ ; touch broken & # ! * ~\n second line"


def test_awkward_values_reach_the_engine_as_they_are(deploy):
    folder = deploy(
        environment={"AWKWARD": AWKWARD, "EMPTY": ""},
        engine={"chat_template": AWKWARD, "hf_overrides": {"key": AWKWARD}, "dtype": ""},
        model={"id": AWKWARD},
    )
    words, environment = launched(folder)
    assert environment["AWKWARD"] == AWKWARD
    assert environment["EMPTY"] == ""
    assert words[words.index("--chat-template") + 1] == AWKWARD
    assert words[words.index("--served-model-name") + 1] == AWKWARD
    assert words[words.index("--dtype") + 1] == ""
    assert not list(folder.rglob("broken"))


@pytest.mark.parametrize("key", [None, SECRET], ids=["open", "secured"])
@pytest.mark.parametrize("changes", [{}, {"engine": {"chat_template": AWKWARD}}], ids=["usual", "awkward"])
def test_the_rendered_scripts_are_whole_bash(deploy, key, changes):
    folder = deploy(key=key, **changes)
    for name in ("launch.sh", "env"):
        checked = subprocess.run(["bash", "-n", str(folder / name)], capture_output=True, text=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, "")


def test_the_scripts_say_who_wrote_them_and_how_to_change_them(deploy):
    folder = deploy()
    script = (folder / "launch.sh").read_text()
    assert script.startswith("#!/usr/bin/env bash\n#\n# Written by Modelyard.\n# Changes are lost.\n#\n")
    assert "# Engine tiny-qwen3/0: port 8000, tensor parallel over 2 rank(s).\n" in script
    assert "Apply a change with ansible-playbook playbooks/deploy.yml" in script
    assert (folder / "env").read_text().startswith("#\n# Written by Modelyard.\n")


def test_rendering_twice_gives_the_same_files(deploy, tmp_path):
    planned = planner.plan(worlds.intent(worlds.service()), worlds.survey())["services"][0]
    for template in ("launch.sh.j2", "env.j2"):
        assert of_first(template, planned, tmp_path) == of_first(template, planned, tmp_path)


def test_words_given_to_the_script_go_to_the_engine_behind_its_own(deploy):
    words, environment = launched(deploy(), "--port", "8100", "a b")
    assert words[-3:] == ["--port", "8100", "a b"]
    assert "http_proxy" not in environment


def test_the_script_is_the_process_that_becomes_the_engine(deploy):
    # exec all the way: the pid that the keeper writes down is the API server's.
    folder = deploy()
    (folder.parent.parent.parent / "run time/bin/vllm").write_text('#!/bin/sh\necho $$ > "$PWD/pid"\n')
    started = subprocess.Popen(
        ["bash", str(folder / "launch.sh")],
        env={**os.environ, **CALLER},
        stdin=subprocess.DEVNULL,
    )
    assert started.wait(timeout=20) == 0
    assert (folder / "run/pid").read_text().strip() == str(started.pid)
