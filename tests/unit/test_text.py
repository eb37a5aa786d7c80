"""What people read, whole and literally."""

from __future__ import annotations

import json
import subprocess

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import findings, planner, shortened, text
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
        "  memory  tiny-qwen3: unknown: 50 MiB weights, 1.0 GiB KV cache",
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


def test_a_refused_plan_says_so_and_leaves_the_findings_to_the_report():
    plan = planner.plan(worlds.intent(worlds.service(engine={"qqq": 1})), worlds.survey(host={"shm_free_mib": 1}))
    assert "  tiny-qwen3  refused" in text.plan(plan)
    assert "PF-SHM" not in text.plan(plan)


def test_each_finding_has_three_lines_and_refusals_stand_first():
    found = [findings.finding(id, "here", "this", "that") for id in ("PF-ZOMBIE", "PF-SHM-STALE", "PF-SHM")]
    assert text.findings(found) == [
        *("  refuse  PF-SHM  here", "      this", "      -> that"),
        *("  warn  PF-SHM-STALE  here", "      this", "      -> that"),
        *("  note  PF-ZOMBIE  here", "      this", "      -> that"),
    ]
    assert text.findings([]) == []


def test_the_cards_of_a_host_are_a_table_with_their_users():
    survey = worlds.nvidia(
        worlds.card(0, processes=[{"pid": 4711, "name": "python", "memory_mib": 9000}], memory_used_mib=9004),
        worlds.card(1, name="", bus_id="", memory_used_mib=None, index=None, health="lost"),
        processes={"4711": worlds.process(4711)},
    )
    plan = planner.plan({**worlds.intent(), "services": []}, survey)
    assert text.plan(plan).splitlines() == [
        "Plan for box",
        "  no services: modelyard_services is empty for this host",
        "  card  name                     bus           memory             health  used by",
        "  0     NVIDIA GeForce RTX 4090  0000:01:00.0  9004 of 49140 MiB  ok      pid 4711 of user eve (python train.py)",
        "  ?     ?                        ?             unknown            lost    -",
    ]


def test_cards_stand_between_runtimes_and_models_of_a_plan():
    plan = planner.plan(worlds.intent(worlds.gpu_service()), worlds.nvidia())
    assert text.plan(plan).splitlines() == [
        "Plan for box",
        "  service        action  instance  cards  port  engine             memory",
        "  qwen3-14b-32k  start   0         0 | 1  8000  vLLM 0.32.0, TP=2  ~8000 MiB",
        "  runtime /opt/vllm (there)",
        "  card  name                     bus           memory          health  used by",
        "  0     NVIDIA GeForce RTX 4090  0000:01:00.0  4 of 49140 MiB  ok      -",
        "  1     NVIDIA GeForce RTX 4090  0000:02:00.0  4 of 49140 MiB  ok      -",
        "  model   /srv/models/tiny-qwen3 (there)",
        "  memory  qwen3-14b-32k: fits: 50 MiB weights, 41 GiB KV cache of 48 GiB a card (estimated)",
        "  advice  qwen3-14b-32k: data parallel would do: the model fits on one card: about 2.0 GiB of the",
        "          42.5 GiB that 0.9 of a card allows (estimated). 2 x 1 instead of 1 x 2 serves more",
        "          requests at once, none pays for an all-reduce, and a dead card costs 1/2 instead of the",
        "          whole service. Tensor parallel gives one request more memory and a shorter answer time",
        "  advice  qwen3-14b-32k: the cards of an instance lie on one NUMA node",
    ]


SEVEN = worlds.dcu_service(cards=["all"], topology={"min_replicas": 7}, listen={"host": "0.0.0.0", "base_port": 8002})


def seven_of_eight():
    dead = worlds.hygon(*(worlds.dcu(index, health="lost" if index == 5 else "ok") for index in range(8)))
    return planner.plan(worlds.intent(SEVEN), dead)


def test_eight_instances_are_readable_on_a_hundred_columns_and_the_missing_one_is_shown():
    lines = text.plan(seven_of_eight()).splitlines()
    assert lines[:10] == [
        "Plan for box",
        "  service        action    instance  cards  port  engine             memory",
        "  minicpm-v-4.5  start     0         0      8002  vLLM 0.32.0, TP=1  ~5000 MiB",
        "  minicpm-v-4.5  start     1         1      8003  vLLM 0.32.0, TP=1  ~5000 MiB",
        "  minicpm-v-4.5  start     2         2      8004  vLLM 0.32.0, TP=1  ~5000 MiB",
        "  minicpm-v-4.5  start     3         3      8005  vLLM 0.32.0, TP=1  ~5000 MiB",
        "  minicpm-v-4.5  start     4         4      8006  vLLM 0.32.0, TP=1  ~5000 MiB",
        "  minicpm-v-4.5  left out  5         -      8007  vLLM 0.32.0, TP=1  -",
        "  minicpm-v-4.5  start     6         6      8008  vLLM 0.32.0, TP=1  ~5000 MiB",
        "  minicpm-v-4.5  start     7         7      8009  vLLM 0.32.0, TP=1  ~5000 MiB",
    ]
    assert max(map(len, lines)) <= 100


def test_the_summary_of_many_instances_is_a_table():
    plan = seven_of_eight()
    here = [0, 1, 2, 3, 4, 6, 7]
    steps = [
        {"id": step, "instance": i, "passed": True, "seconds": i / 10, "detail": f"pid {i}" if step == "process" else "200"}
        for step in ("process", "health")
        for i in here
    ]
    steps.append({"id": "models", "instance": 3, "passed": False, "seconds": 1.0, "detail": "timed out"})
    lines = text.summary(plan, [{"service": "minicpm-v-4.5", "steps": steps}], "/opt/modelyard").splitlines()
    assert lines == [
        "minicpm-v-4.5 serves tiny-qwen3 on box with 7 instances",
        "  instance  address                cards  name",
        *(f"  {i}         http://127.0.0.1:{8002 + i}  {i}      minicpm-v-4.5-{i}" for i in here),
        "  left out: instance 5",
        "Acceptance",
        "  step     instance  verdict  seconds  what was seen",
        "  process  0-4,6,7   pass     0.70     pid 7 (instance 7)",
        "  health   0-4,6,7   pass     0.70     200",
        "  models   3         FAIL     1.00     timed out",
        "Try it",
        lines[-5],
        "Logs, on box",
        "  /opt/modelyard/services/minicpm-v-4.5/instance-{0,1,2,3,4,6,7}/logs/current.log",
        "Stop it",
        "  ansible-playbook playbooks/teardown.yml -e teardown_service=minicpm-v-4.5",
    ]
    assert lines[-5].startswith("  curl -s http://127.0.0.1:8002/v1/chat/completions ")


def test_the_places_of_many_logs_are_what_a_shell_understands():
    many = worlds.dcu_service()
    lines = text.summary(planner.plan(worlds.intent(many), worlds.hygon()), [], "/opt/m").splitlines()
    (line,) = [line.strip() for line in lines if "current.log" in line]
    said = subprocess.run(["bash", "-c", f"printf '%s\\n' {line}"], capture_output=True, text=True, check=True).stdout.split()
    assert said == [f"/opt/m/services/minicpm-v-4.5/instance-{i}/logs/current.log" for i in range(8)]


def test_a_service_that_this_run_leaves_alone_is_not_part_of_the_summary():
    plan = planner.plan(worlds.intent(worlds.service(), SEVEN, only={"minicpm-v-4.5": []}), worlds.hygon())
    assert "tiny-qwen3 serves" not in text.summary(plan, [], "/opt/m")


@pytest.mark.parametrize(
    ("found", "shown"),
    [([], ""), ([3], "3"), ([0, 1], "0,1"), ([0, 1, 2], "0-2"), ([0, 1, 2, 4, 6, 7, 8, 9], "0-2,4,6-9"), ([3, 1], "3,1")],
)
def test_numbers_that_follow_each_other_are_shortened(found, shown):
    assert shortened.numbers(found) == shown


def test_the_graphics_unit_of_a_processor_is_no_row_of_the_table_of_cards():
    shown = text.plan(planner.plan({**worlds.intent(), "services": []}, worlds.with_graphics(worlds.survey())))
    assert shown.splitlines() == ["Plan for box", "  no services: modelyard_services is empty for this host"]


@pytest.mark.parametrize(
    ("names", "summary"),
    [
        ([], ""),
        (["K100_AI"] * 8, "8 x K100_AI"),
        (["RTX 4090", "Tesla T4", "RTX 4090"], "2 x RTX 4090, 1 x Tesla T4"),
        (["", "K100_AI"], "1 x unknown, 1 x K100_AI"),
    ],
)
def test_cards_are_counted_by_name(names, summary):
    assert text.card_summary([{"name": name} for name in names]) == summary


# -- the report on all hosts ------------------------------------------------------------------------------------------


def host(*found, cards="", services=(), switched_off=()):
    return {"cards": cards, "services": list(services), "findings": list(found), "switched_off": list(switched_off)}


def test_the_report_has_a_row_for_each_host_and_every_finding_once():
    hosts = {
        "server1": host(
            findings.finding("PF-SHM", "server1:/dev/shm", "1 MiB are free", "mount it larger"),
            findings.finding("PF-ZOMBIE", "server1:processes", "ended: 9 sh", "nothing"),
            cards="2 x RTX 4090",
            services=["a (refused)", "b (keep)"],
        ),
        "server22": host(
            findings.finding("PF-SHM-STALE", "server22:/dev/shm", "2 segments", "remove them"),
            findings.finding("IN-VALUE", "modelyard_services[a].listen.base_port", "there is no port 0", "choose another"),
        ),
        "server3": host(services=["c (start)"]),
    }
    assert text.report(hosts).splitlines() == [
        "Findings of 3 host(s): 2 refuse, 1 warn, 1 note",
        "  host      cards         services               refuse  warn  note  verdict",
        "  server1   2 x RTX 4090  a (refused), b (keep)  1       -     1     refused",
        "  server22  -             -                      1       1     -     refused",
        "  server3   -             c (start)              -       -     -     ready",
        "  refuse  PF-SHM  server1:/dev/shm",
        "      1 MiB are free",
        "      -> mount it larger",
        "  refuse  IN-VALUE  server22 modelyard_services[a].listen.base_port",
        "      there is no port 0",
        "      -> choose another",
        "  warn  PF-SHM-STALE  server22:/dev/shm",
        "      2 segments",
        "      -> remove them",
        "  note  PF-ZOMBIE  server1:processes",
        "      ended: 9 sh",
        "      -> nothing",
    ]


@pytest.mark.parametrize(
    ("count", "where"),
    [
        (1, "s1:/dev/shm"),
        (3, "s1:/dev/shm, s2:/dev/shm, s3:/dev/shm"),
        (5, "s1:/dev/shm, s2:/dev/shm, s3:/dev/shm and 2 more"),
        (100, "s1:/dev/shm, s2:/dev/shm, s3:/dev/shm and 97 more"),
    ],
)
def test_the_same_finding_of_many_hosts_is_shown_once_with_three_places(count, where):
    hosts = {
        f"s{number}": host(findings.finding("PF-SHM", f"s{number}:/dev/shm", "it is full", "mount it larger"))
        for number in range(1, count + 1)
    }
    lines = text.report(hosts).splitlines()
    assert lines[0] == f"Findings of {count} host(s): {count} refuse, 0 warn, 0 note"
    assert lines[2 + count :] == [f"  refuse  PF-SHM  {where}", "      it is full", "      -> mount it larger"]


def test_findings_that_say_something_else_or_weigh_otherwise_stay_apart():
    one = findings.finding("PF-SHM", "a:/dev/shm", "it is full", "mount it larger")
    hosts = {"a": host(one), "b": host({**one, "where": "b:/dev/shm", "severity": "note"}), "c": host({**one, "what": "other"})}
    assert [line for line in text.report(hosts).splitlines() if "PF-SHM" in line] == [
        "  refuse  PF-SHM  a:/dev/shm",
        "  refuse  PF-SHM  c a:/dev/shm",
        "  note  PF-SHM  b:/dev/shm",
    ]


@pytest.mark.parametrize("name", ["m", "model", "modelyard_services"])
def test_a_place_in_the_inventory_has_the_name_of_its_host_whatever_that_is(name):
    shown = text.report({name: host(findings.finding("IN-VALUE", "modelyard_services[a].cards", "what", "do"))})
    assert f"  refuse  IN-VALUE  {name} modelyard_services[a].cards" in shown.splitlines()


def test_a_finding_about_the_host_itself_has_its_name_once():
    shown = text.report({"a": host(findings.finding("PF-UNREACHABLE", "a", "no answer", "look"))})
    assert "  refuse  PF-UNREACHABLE  a" in shown.splitlines()


def test_what_was_found_but_is_switched_off_stands_at_the_end_each_id_once():
    hosts = {"a": host(switched_off=["PF-ZOMBIE", "PF-HOLDER"]), "b": host(switched_off=["PF-HOLDER"])}
    assert text.report(hosts).splitlines()[-1] == ("  Found as well, but switched off by modelyard_checks: PF-HOLDER, PF-ZOMBIE")
    assert "switched off" not in text.report({"a": host()})


def test_a_report_on_no_host_is_a_heading():
    assert text.report({}).splitlines()[0] == "Findings of 0 host(s): 0 refuse, 0 warn, 0 note"


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


def summary(home="/opt/modelyard", results=None, accepted=(), **service):
    plan = planner.plan(worlds.intent(worlds.service(**service), home=home), worlds.survey())
    for instance in plan["services"][0]["instances"]:
        instance["accepted"] = instance["index"] in accepted
    return text.summary(plan, results or [], home, "ansible-playbook -i inventory/demo").splitlines()


def test_the_summary_says_where_it_serves_how_to_try_and_stop_it_and_where_the_logs_are():
    steps = [{"id": "health", "instance": 0, "passed": True, "seconds": 0.5, "detail": "200"}]
    topology = {"replicas": 2, "tensor_parallel_size": 1}
    assert summary(topology=topology, listen={"host": "0.0.0.0"}, results=[{"service": "tiny-qwen3", "steps": steps}]) == [
        "tiny-qwen3 serves tiny-qwen3 on box: http://127.0.0.1:8000, http://127.0.0.1:8001",
        "Acceptance",
        "  step    instance  verdict  seconds  what was seen",
        "  health  0         pass     0.50     200",
        "Acceptance: instance 1 not proven, and not asked in this run (playbooks/acceptance.yml asks)",
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
    words = "passed earlier, by these very processes (playbooks/acceptance.yml runs it again)"
    assert summary(accepted=(0,))[1] == f"Acceptance: {words}"
    two = summary(accepted=(1,), topology={"replicas": 2, "tensor_parallel_size": 1})
    never = "not proven, and not asked in this run (playbooks/acceptance.yml asks)"
    assert two[1:3] == [f"Acceptance: instance 1 {words}", f"Acceptance: instance 0 {never}"]


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
