from __future__ import annotations

import copy

import pytest
from report_page import record

from modelyard.report import record as records
from modelyard.report import summary, trouble, words


def test_a_failure_in_words():
    assert words(record("failed_schema")).splitlines() == [
        "Not accepted: inventory/dcu_k100ai, 0 of 1 service on 1 host accepted; 7 of 8 instances passed",
        "Run 20261130T114200Z, 2026-11-30 11:42 UTC by the timer",
        "Before: accepted",
        "minicpm-v-4.5 on dcu1: accepted in the last run, failed at schema on instance 3 now",
        "",
        "dcu1 minicpm-v-4.5/3: failed at schema: the reply is no JSON; it was cut by max_tokens (white space between tokens?): "
        '\'{"answer": "Paris",\\n\\n\\n\\n\'',
        "  next: set engine.structured_outputs_config {backend: xgrammar, disable_any_whitespace: true} and deploy with "
        "-e modelyard_restart=true -e only=minicpm-v-4.5:3",
        "  A restart is of use, once the evidence was read.",
        "  evidence: dcu1:/home/llm/modelyard/evidence/20261130T114214Z-minicpm-v-4.5-failed_schema",
    ]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("accepted", "Accepted: inventory/lab_4090, 1 of 1 service on 1 host accepted"),
        ("busy", "Busy: not judged, and no failure: inventory/lab_4090, 0 of 1 service on 1 host accepted"),
        (
            "unreachable",
            "Not everything was reached: inventory/prod, 2 of 2 services on 3 hosts accepted; nothing known of 1 host",
        ),
    ],
)
def test_the_first_line(name, line):
    assert words(record(name)).splitlines()[0] == line
    assert summary.headline(records.run(record(name))) == line


def test_an_accepted_run_says_since_when_and_nothing_to_do():
    assert words(record("accepted")).splitlines()[1:] == [
        "Run 20261130T114200Z, 2026-11-30 11:42 UTC by the timer",
        "The same answer since run 20261127T114200Z",
    ]


def test_one_command_looks_at_all_hosts_that_were_not_reached():
    run = record("unreachable")
    for number in (10, 9):
        run["hosts"][f"server{number}"] = {"answer": "unreachable", "problem": f"no route to 192.0.2.{number}", "services": []}
    assert words(run).splitlines()[-3:] == [
        "server2, server9, server10: not reached: Failed to connect to the host via ssh: ssh: connect to host 192.0.2.11 "
        "port 22: No route to host",
        "  next: see whether they are up: ansible -i inventory/prod server2,server9,server10 -m ansible.builtin.raw -a true",
        "  Restart nothing: what was not judged may serve.",
    ]


def test_names_are_quoted_for_the_shell_and_each_inventory_gets_its_option():
    run = record("unreachable")
    run["inventory"] = "inventory/a b, inventory/c"
    assert "ansible -i 'inventory/a b' -i inventory/c server2 -m ansible.builtin.raw -a true" in words(run)


def test_busy_asks_for_nothing():
    told = words(record("busy"))
    assert "next: nothing: it works for others" in told and "Restart nothing: it serves." in told


@pytest.mark.parametrize(
    ("restart", "told"), [(True, "is of use"), (False, "is of no use"), (None, "is not known"), ("yes", "is not known")]
)
def test_whether_a_restart_is_of_use_is_never_guessed(restart, told):
    run = record("failed_schema")
    for step in run["hosts"]["dcu1"]["services"][0]["steps"]:
        step["restart"] = restart
    assert told in words(run)


def test_the_first_step_that_failed_is_told_with_all_its_instances():
    run = record("failed_schema")
    for step in run["hosts"]["dcu1"]["services"][0]["steps"]:
        if step["instance"] in (4, 5) and step["id"] == "schema":
            step.update(verdict="fail", passed=False)
        if step["instance"] == 1 and step["id"] == "serial":
            step.update(verdict="fail", passed=False)
    (found,) = trouble.troubles(records.run(run))
    assert (found.where, found.what) == (["dcu1 minicpm-v-4.5/3-5"], "failed at schema")


def test_the_same_trouble_on_many_hosts_is_told_once():
    run = record("failed_schema")
    run["hosts"] = {f"dcu{number}": copy.deepcopy(run["hosts"]["dcu1"]) for number in range(1, 21)}
    assert "dcu1 minicpm-v-4.5/3, dcu2 minicpm-v-4.5/3, dcu3 minicpm-v-4.5/3, dcu4 minicpm-v-4.5/3 and 16 more: failed" in words(
        run
    )
    assert words(run).count("  next:") == 1


def test_many_troubles_are_counted():
    run = record("failed_schema")
    service = run["hosts"]["dcu1"]["services"][0]
    run["hosts"]["dcu1"]["services"] = [copy.deepcopy(service) for _ in range(14)]
    for number, one in enumerate(run["hosts"]["dcu1"]["services"]):
        for step in one["steps"]:
            step["cause"] = f"cause_{number}"
    assert words(run).endswith("\nand 4 further troubles, in the report\n")


def test_a_host_that_failed_beside_its_services_is_told_too():
    run = record("accepted")
    run["answer"] = run["hosts"]["server1"]["answer"] = "error"
    run["hosts"]["server1"]["problem"] = "MODULE FAILURE"
    assert "server1: could not be judged: MODULE FAILURE" in words(run)


@pytest.mark.parametrize(
    ("problem", "said", "do"),
    [
        ("PF-DISK x: full -> make room", "PF-DISK x: full", "make room"),
        ("A a: b -> c; D d: e -> f", "A a: b -> c; D d: e -> f", "do what stands behind each arrow"),
        ("MODULE FAILURE", "MODULE FAILURE", "read what Ansible said there, correct it, and run the acceptance again"),
    ],
)
def test_what_a_finding_says_to_do_is_what_to_do_next(problem, said, do):
    run = record("accepted")
    run["hosts"] = {"server1": {"answer": "error", "problem": problem, "services": []}}
    assert words(run).splitlines()[-3:-1] == [f"server1: could not be judged: {said}", f"  next: {do}"]


def test_what_hosts_say_cannot_steer_a_terminal_or_a_mail():
    run = record("failed_schema")
    for step in run["hosts"]["dcu1"]["services"][0]["steps"]:
        step["detail"] = "\x1b]0;owned\x07\r\nBcc: all@example.org\n\u202egnp"
    told = words(run)
    assert not set(told) & set("\x1b\x07\r\u202e")
    assert not any(line.startswith("Bcc") for line in told.splitlines())
