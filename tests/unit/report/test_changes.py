from __future__ import annotations

import copy

import pytest
from report_page import record

from modelyard.report import changes


def lines(before, after):
    return [(one.group, one.key, one.before, one.after, one.where) for one in changes.between(before, after).lines]


@pytest.fixture
def run():
    return record("previous")


def manifest(run):
    return run["hosts"]["dcu1"]["services"][0]["manifest"]


WHERE = ["dcu1 minicpm-v-4.5"]


def test_only_what_differs_is_named_and_only_once():
    assert lines(record("previous"), record("failed_schema")) == [
        ("versions", "vllm", "0.11.0+das.opt1.dtk2604", "0.11.0+das.opt2.dtk2604", WHERE),
        ("parameters", "engine.max_model_len", "(not set)", "16384", WHERE),
        ("parameters", "engine.max_num_seqs", "4", "8", WHERE),
    ]


def test_who_deployed_when_and_what_follows_from_other_parts_is_no_difference(run):
    other = copy.deepcopy(run)
    manifest(other).update(deployed={"at": "2026-12-01T00:00:00Z", "by": "ben"}, files={"start.sh": "x"}, baseline={"a": 4})
    for instance in manifest(other)["instances"]:
        instance["digest"] = "other"
    assert lines(run, other) == []


def test_words_of_a_launch_that_no_parameter_tells(run):
    other = copy.deepcopy(run)
    for instance in manifest(other)["instances"][2:5]:
        instance["argv"] += ["--enforce-eager", "--block-size=16"]
        instance["environment"]["HIP_VISIBLE_DEVICES"] = "7"
        instance["cards"] = [[7]]
    where = ["dcu1 minicpm-v-4.5/2-4"]
    assert [line for line in lines(run, other) if line[1].startswith("--")] == [
        ("instances", "--block-size", "(not set)", "16", where),
        ("instances", "--enforce-eager", "(not set)", "on", where),
    ]
    assert ("instances", "cards", "[[3]]", "[[7]]", ["dcu1 minicpm-v-4.5/3"]) in lines(run, other)
    assert ("instances", "environment.HIP_VISIBLE_DEVICES", "2", "7", ["dcu1 minicpm-v-4.5/2"]) in lines(run, other)


def test_another_runtime_and_model_are_told_once(run):
    other = copy.deepcopy(run)
    manifest(other)["runtime"]["path"] = "/opt/new"
    manifest(other)["model"]["path"] = "/srv/new"
    for instance in manifest(other)["instances"]:
        instance["argv"][0], instance["argv"][2] = "/opt/new/bin/vllm", "/srv/new"
    assert [line[:4] for line in lines(run, other)] == [
        ("versions", "runtime.path", "/opt/vllm-dtk", "/opt/new"),
        ("model", "path", "/srv/models/MiniCPM-V-4_5", "/srv/new"),
    ]


def test_instances_and_services_that_came_and_went(run):
    other = copy.deepcopy(run)
    del manifest(other)["instances"][6:]
    other["hosts"]["dcu1"]["services"].append({"name": "side", "manifest": {}})
    assert lines(run, other) == [
        ("services", "service", "not there", "there", ["dcu1 side"]),
        ("instances", "instance", "there", "not there", ["dcu1 minicpm-v-4.5/6,7"]),
    ]
    assert lines(other, run)[0] == ("services", "service", "there", "not there", ["dcu1 side"])


def test_the_same_change_on_many_hosts_is_one_line(run):
    run["hosts"] = {f"dcu{n}": copy.deepcopy(run["hosts"]["dcu1"]) for n in range(1, 31)}
    other = copy.deepcopy(run)
    for host in other["hosts"].values():
        host["services"][0]["manifest"]["versions"]["driver"] = "7.0"
    (line,) = changes.between(run, other).lines
    assert (line.key, line.before, line.after, len(line.where)) == ("driver", "6.3.18", "7.0", 30)


def test_a_host_that_was_not_reached_and_a_lost_manifest_are_not_compared(run):
    other = copy.deepcopy(run)
    other["hosts"]["dcu1"] = {"answer": "unreachable", "problem": "no route", "services": []}
    assert changes.between(run, other) == changes.Changes([], 0, WHERE)
    lost = copy.deepcopy(run)
    lost["hosts"]["dcu1"]["services"][0]["manifest"] = None
    assert changes.between(run, lost) == changes.between(lost, run) == changes.Changes([], 0, WHERE)


def test_more_lines_than_a_page_shows_are_counted(run):
    other = copy.deepcopy(run)
    manifest(other)["engine"].update({f"key_{n}": n for n in range(1, 251)})
    found = changes.between(run, other)
    assert (len(found.lines), found.more) == (200, 50)
