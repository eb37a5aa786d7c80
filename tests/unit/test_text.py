"""What people read, whole and literally."""

from __future__ import annotations

import json
import subprocess

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import findings, planner, text
from unit import worlds


def test_columns_are_as_wide_as_their_widest_cell_and_lines_end_without_blanks():
    assert text.table([("a", "long heading"), ("wider", 1), ("", "")]) == ["  a      long heading", "  wider  1", ""]


def test_a_plan_is_a_table_with_runtime_and_model(figures):
    service = worlds.service(topology={"replicas": 2, "tensor_parallel_size": 2})
    plan = planner.plan(worlds.intent(service), worlds.survey())
    assert text.plan(plan).splitlines() == [
        "Plan for box",
        "  service     action  instance  cards  port  engine             memory",
        "  tiny-qwen3  start   0         0 | 1  8000  vLLM 0.32.0, TP=2  ~7348 MiB",
        "  tiny-qwen3  start   1         2 | 3  8001  vLLM 0.32.0, TP=2  ~7348 MiB",
        "  runtime /opt/vllm (there)",
        "  model   /srv/models/tiny-qwen3 (there)",
    ]


@pytest.mark.parametrize(
    ("recipe", "words"),
    [("", "missing"), ("tiny_qwen3.py", "to be made")],
    ids=["no recipe", "a recipe"],
)
def test_a_model_that_is_not_there_is_missing_or_to_be_made(recipe, words):
    survey = worlds.survey(models={worlds.MODEL: worlds.listing(exists=False)})
    plan = planner.plan(worlds.intent(worlds.service(model={"recipe": recipe})), survey)
    assert f"  model   /srv/models/tiny-qwen3 ({words})" in text.plan(plan).splitlines()


def test_a_refused_plan_shows_every_finding_in_three_lines():
    plan = planner.plan(worlds.intent(worlds.service(engine={"qqq": 1})), worlds.survey(host={"shm_free_mib": 1}))
    shown = text.plan(plan)
    assert "  tiny-qwen3  refused" in shown
    assert shown.splitlines()[-7:] == [
        "Findings: 2 refuse, 0 warn, 0 note",
        "  refuse  PL-ENGINE-KEY-UNKNOWN  modelyard_services[tiny-qwen3].engine.qqq",
        "      vLLM 0.32.0 has no option qqq",
        "      -> write engine keys as vLLM names its options, with underscores",
        "  refuse  PF-SHM  box:/dev/shm",
        "      1 MiB are free, the engine's processes need at least 128 MiB to talk to each other",
        "      -> remove stale segments that nobody holds, or mount /dev/shm larger",
    ]


def test_differences_stand_under_the_plan():
    before = planner.plan(worlds.intent(), worlds.survey())
    survey = worlds.survey(services=worlds.running(before))
    plan = planner.plan(worlds.intent(worlds.service(engine={"max_model_len": 2048}), restart=True), survey)
    assert "  change  tiny-qwen3: instance 0 --max-model-len: 4096 -> 2048" in text.plan(plan).splitlines()


def test_a_host_without_services_says_so():
    plan = planner.plan({**worlds.intent(), "services": []}, worlds.survey())
    assert text.plan(plan) == "Plan for box\n  no services: modelyard_services is empty for this host"


def test_a_refusal_names_each_id_once_and_what_was_touched():
    found = [findings.finding(id, "w", "x", "y") for id in ("PF-SHM", "PF-PORT-BUSY", "PF-SHM", "PF-SUSPECT")]
    assert text.refusal("The plan for box", found) == (
        "The plan for box was refused: PF-SHM, PF-PORT-BUSY. What was found and what to do stands above; "
        "docs/checks.md explains each id. Nothing was changed."
    )
    assert text.refusal("The plan for box", found, "The runtime was made.").endswith(" The runtime was made.")


def test_the_acceptance_is_a_table():
    steps = [
        {"id": "health", "instance": 0, "passed": True, "seconds": 0.012, "detail": "200"},
        {"id": "schema", "instance": 1, "passed": False, "seconds": 12.3, "detail": "the reply is no JSON"},
    ]
    assert text.acceptance(steps) == [
        "  step    instance  verdict  seconds  what was seen",
        "  health  0         pass     0.01     200",
        "  schema  1         FAIL     12.30    the reply is no JSON",
    ]


def summary(home="/opt/modelyard", results=None, **service):
    plan = planner.plan(worlds.intent(worlds.service(**service), home=home), worlds.survey())
    return text.summary(plan, results or {}, home, "ansible-playbook -i inventory/demo").splitlines()


def test_the_summary_says_where_it_serves_how_to_try_and_stop_it_and_where_the_logs_are():
    steps = [{"id": "health", "instance": 0, "passed": True, "seconds": 0.5, "detail": "200"}]
    topology = {"replicas": 2, "tensor_parallel_size": 1}
    assert summary(topology=topology, listen={"host": "0.0.0.0"}, results={"tiny-qwen3": steps}) == [
        "tiny-qwen3 serves tiny-qwen3 on box: http://127.0.0.1:8000, http://127.0.0.1:8001",
        "Acceptance",
        "  step    instance  verdict  seconds  what was seen",
        "  health  0         pass     0.50     200",
        "Try it",
        "  curl -s http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' "
        '-d \'{"model": "tiny-qwen3", "max_tokens": 16, "messages": [{"role": "user", "content": "hello"}]}\'',
        "Logs, on box",
        "  /opt/modelyard/services/tiny-qwen3/instance-0/logs/current.log",
        "  /opt/modelyard/services/tiny-qwen3/instance-1/logs/current.log",
        "Stop it",
        "  ansible-playbook -i inventory/demo playbooks/teardown.yml -e teardown_service=tiny-qwen3",
    ]


def test_a_service_that_was_accepted_before_says_so():
    words = "Acceptance: passed earlier, by these very processes (playbooks/acceptance.yml runs it again)"
    assert summary()[1] == words


@pytest.mark.parametrize(
    ("home", "model"), [("home", "Qwen/Qwen3-14B"), ("my home", "Qwen/Qwen3-14B"), ("home", 'it\'s a "model"')]
)
def test_the_line_to_try_it_works_as_it_is_printed(tmp_path, home, model):
    base = tmp_path / home / "services/tiny-qwen3"
    base.mkdir(parents=True)
    (base / "api_key").write_text("sk-secret\n")
    lines = summary(home=str(tmp_path / home), key_hash="0f1e", model={"id": model})
    line = lines[lines.index("Try it") + 1]
    assert "sk-secret" not in line
    said = subprocess.run(
        ["bash", "-c", 'curl() { printf "%s\\0" "$@"; }\n' + line], capture_output=True, text=True, check=True
    ).stdout.split("\0")[:-1]
    assert said[:4] == ["-s", "http://127.0.0.1:8000/v1/chat/completions", "-H", "Authorization: Bearer sk-secret"]
    assert json.loads(said[said.index("-d") + 1])["model"] == model


def test_an_address_of_ip_version_6_is_written_as_a_url_wants_it():
    assert summary(listen={"host": "::1"})[0] == "tiny-qwen3 serves tiny-qwen3 on box: http://[::1]:8000"
