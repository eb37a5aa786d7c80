"""The tables of vLLM releases and vendor builds: sound in themselves, and right where a release is known to differ."""

from __future__ import annotations

import re

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import launch, tables
from ansible_collections.modelyard.core.plugins.module_utils.plan.vllm_table import GONE, KINDS, order
from unit import worlds

RELEASES = tables.releases()
OPTIONS = tables.read_yaml(tables.DATA / "vllm" / "options.yml")
FACTS = tables.read_yaml(tables.DATA / "vllm" / "facts.yml")
METRICS = tables.read_yaml(tables.DATA / "vllm" / "metrics.yml")
BUILDS = tables.read_yaml(tables.DATA / "vendor_builds.yml")["builds"]
DTK = "0.11.0+das.opt1.rc2.dtk2604.20260128.g0bf89b0c"


def names(table):
    return [name for kind in table["options"].values() for name in kind]


def kind(release, option):
    return next((k for k, options in tables.vllm(release)["options"].items() if option in options), GONE)


def test_releases_stand_in_their_order_each_with_the_hash_of_its_archive():
    assert sorted(RELEASES, key=order) == RELEASES
    asked_for = "0.8.5.post1 0.9.2 0.10.2 0.11.0 0.12.0 0.14.1 0.16.0 0.18.1 0.20.2 0.25.1 0.30.0 0.32.0 0.33.0"
    assert set(asked_for.split()) <= set(RELEASES)
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in OPTIONS["releases"].values())


@pytest.mark.parametrize("name", sorted(OPTIONS["options"]))
def test_the_history_of_an_option_is_in_order_of_known_kinds_and_never_repeats_itself(name):
    history = OPTIONS["options"][name]
    assert list(history) == sorted(history, key=order)
    assert set(history) <= set(RELEASES)
    kinds = list(history.values())
    assert set(kinds) <= {*KINDS, GONE}
    assert kinds[0] != GONE
    assert all(before != after for before, after in zip(kinds, kinds[1:], strict=False))


@pytest.mark.parametrize("release", RELEASES)
def test_a_key_has_one_answer_on_a_release(release):
    table = tables.vllm(release)
    there = names(table)
    assert (table["release"], table["known"]) == (release, True)
    assert set(table["options"]) == set(KINDS)
    assert len(there) == len(set(there))
    assert set(table["removed"]).isdisjoint({*there, *table["later"], *table["owned"]})
    assert set(table["later"]).isdisjoint({*there, *table["owned"]})
    assert set(table["idle"]) <= set(there)
    assert set(table["values"]) <= set(there)
    assert set(table["defaults"]) <= set(there) - set(table["idle"]) - set(table["owned"])
    assert set(table["owned"]) - {"model_tag"} <= set(there), "an option that is set for the user must exist"
    assert {"max_model_len", "max_num_seqs", "max_logprobs", "enforce_eager", "dtype"} <= set(there)
    everything = {*there, *table["removed"], *table["later"]}
    assert set(OPTIONS["options"]) <= everything, "no option that is known of any release is unknown here"


@pytest.mark.parametrize("release", RELEASES)
def test_what_is_advised_instead_of_an_option_is_there(release):
    table = tables.vllm(release)
    there = set(names(table))
    for name in {*table["removed"], *table["idle"]}:
        assert set(FACTS["successors"].get(name, {}).get("instead", [])) <= there, name


@pytest.mark.parametrize("release", RELEASES)
def test_defaults_written_out_are_values_that_the_release_takes(release):
    table = tables.vllm(release)
    assert launch.engine_findings(table["defaults"], table, "x") == []
    for name, value in table["defaults"].items():
        assert launch.option(name, value, table), f"{name} must show in the command line"


def test_facts_speak_of_options_and_releases_that_exist():
    known = set(OPTIONS["options"])
    older = {"worker_use_ray", "engine_use_ray"}  # before the first release of the table
    assert set(FACTS["successors"]) - known == older
    for part in ("predecessors", "values", "defaults"):
        assert set(FACTS[part]) <= known, part
    said = [known.get(key) for known in FACTS["successors"].values() for key in ("idle", "refused")]
    said += [known.get(key) for known in FACTS["defaults"].values() for key in ("from", "to")]
    said += [known.get("ignored") for known in FACTS["request_fields"].values()] + [v["since"] for v in FACTS["values"].values()]
    said += [*FACTS["shutdown_least_s"], *FACTS["visibility_by_id"]]
    assert {release for release in said if release} <= set(RELEASES)
    for name in FACTS["predecessors"]:
        assert next(iter(OPTIONS["options"][name])) != RELEASES[0], f"no release lacks {name}"


# (option, last release before, first release with it); from the archives of both.
@pytest.mark.parametrize(
    ("option", "before", "since"),
    [
        ("enable_log_requests", "0.10.0", "0.10.1"),
        ("shutdown_timeout", "0.17.1", "0.18.0"),
        ("kv_cache_memory_bytes", "0.10.1.1", "0.10.2"),
        ("structured_outputs_config", "0.10.2", "0.11.0"),
        ("async_scheduling", "0.9.2", "0.10.0"),
        ("runner", "0.10.0", "0.10.1"),
        ("watchdog_config", "0.32.0", "0.33.0"),
    ],
)
def test_an_option_comes_with_its_release(option, before, since):
    assert kind(before, option) == GONE
    assert tables.vllm(before)["later"][option]["since"] == since
    assert kind(since, option) != GONE
    assert option not in tables.vllm(since)["later"]


@pytest.mark.parametrize(
    ("option", "last", "since"),
    [
        ("swap_space", "0.17.1", "0.18.0"),
        ("disable_log_requests", "0.16.0", "0.17.0"),
        ("num_scheduler_steps", "0.10.0", "0.10.1"),
        ("guided_decoding_backend", "0.10.2", "0.11.0"),
        ("enable_reasoning", "0.9.2", "0.10.0"),
        ("rope_scaling", "0.11.0", "0.11.1"),
        ("task", "0.12.0", "0.13.0"),
        ("device", "0.9.2", "0.10.0"),
        ("max_seq_len_to_capture", "0.10.2", "0.11.0"),
        ("cuda_graph_sizes", "0.12.0", "0.13.0"),
    ],
)
def test_an_option_goes_with_its_release(option, last, since):
    assert kind(last, option) != GONE
    assert option not in tables.vllm(last)["removed"]
    assert kind(since, option) == GONE
    assert tables.vllm(since)["removed"][option]["since"] == since


@pytest.mark.parametrize(
    ("release", "option", "expected"),
    [
        ("0.8.5.post1", "enforce_eager", "flag"),
        ("0.9.2", "enforce_eager", "switch"),
        ("0.9.2", "enable_auto_tool_choice", "flag"),
        ("0.10.2", "enable_auto_tool_choice", "switch"),
        ("0.10.0", "api_key", "value"),
        ("0.32.0", "api_key", "list"),
        ("0.8.5", "ignore_patterns", "repeat"),
        ("0.32.0", "middleware", "repeat"),
        ("0.32.0", "allowed_origins", "value"),
        ("0.32.0", "log_config_file", "value"),
        ("0.16.0", "disable_access_log_for_endpoints", "value"),
    ],
)
def test_the_kind_of_an_option_is_that_of_the_release(release, option, expected):
    assert kind(release, option) == expected


@pytest.mark.parametrize(
    ("release", "defaults"),
    [
        (
            "0.8.5.post1",
            {
                "gpu_memory_utilization": 0.9,
                "disable_log_requests": True,
                "seed": 0,
                "disable_cascade_attn": True,
                "allowed_origins": [],
            },
        ),
        ("0.11.0", {"gpu_memory_utilization": 0.9, "seed": 0, "disable_cascade_attn": True, "allowed_origins": []}),
        ("0.20.2", {"gpu_memory_utilization": 0.9, "allowed_origins": []}),
        ("0.33.0", {"gpu_memory_utilization": 0.9}),
    ],
)
def test_the_same_inventory_means_the_same_on_every_release(release, defaults):
    assert tables.vllm(release)["defaults"] == defaults


@pytest.mark.parametrize(
    ("release", "by_id", "least_s"),
    [
        ("0.8.5", False, 5),
        ("0.18.1", False, 5),
        ("0.21.0", False, 5),
        ("0.22.0", False, 0),
        ("0.23.0", False, 0),
        ("0.24.0", True, 0),
    ],
)
def test_facts_that_others_plan_with(release, by_id, least_s):
    table = tables.vllm(release)
    assert (table["visibility_by_id"], table["shutdown_least_s"]) == (by_id, least_s)


OLD_USAGE, NEW_USAGE = "vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc"


@pytest.mark.parametrize(
    ("version", "usage"),
    [
        ("0.8.5", OLD_USAGE),
        ("0.9.2", OLD_USAGE),
        ("0.10.2", OLD_USAGE),
        ("0.11.0", NEW_USAGE),
        (DTK, NEW_USAGE),
        ("0.33.0", NEW_USAGE),
    ],
)
def test_the_kv_cache_is_read_under_the_name_that_the_release_exports(version, usage):
    assert tables.vllm(version)["metrics"]["kv_usage"] == usage


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_says_how_loaded_it_is(release):
    metrics = tables.vllm(release)["metrics"]
    assert set(metrics) == {"running", "waiting", "kv_usage", "preemptions", "prompt_tokens", "generation_tokens", "finished"}
    assert all(name.startswith("vllm:") for name in metrics.values())
    assert len(set(metrics.values())) == len(metrics)
    counters = {key for key, name in metrics.items() if name.endswith("_total")}
    assert counters == {"preemptions", "prompt_tokens", "generation_tokens", "finished"}


@pytest.mark.parametrize(
    ("version", "option"),
    [("0.8.5.post1", "--endpoint-type"), ("0.10.2", "--endpoint-type"), ("0.11.0", "--backend"), (DTK, "--backend")],
)
def test_the_load_tool_of_a_release_is_told_the_api_by_the_option_that_it_heeds(version, option):
    assert tables.bench(version)["api"] == option


def test_a_version_that_nobody_described_has_no_known_load_tool():
    assert tables.bench("0.40.0") == {}


def test_metrics_speak_of_releases_that_exist_in_order():
    for name, history in METRICS.items():
        assert list(history) == sorted(history, key=order), name
        assert set(history) <= set(RELEASES), name


@pytest.mark.parametrize(
    ("version", "release", "backend", "vendor"),
    [
        ("0.32.0", "0.32.0", "", ""),
        ("0.32.0+cpu", "0.32.0", "cpu", ""),
        ("0.11.0+cu129", "0.11.0", "nvidia", ""),
        ("0.18.0+rocm721", "0.18.0", "amd", ""),
        ("0.33.0+precompiled", "0.33.0", "nvidia", ""),
        (DTK, "0.11.0", "hygon", "Hygon DTK"),
        ("0.9.2+das.opt1.dtk25042", "0.9.2", "hygon", "Hygon DTK"),
        ("0.15.1+das.opt1.alpha.dtk2604.torch290.2605061705.gca9ce1", "0.15.1", "hygon", "Hygon DTK"),
    ],
)
def test_a_version_tells_what_it_is_a_build_of(version, release, backend, vendor):
    build = tables.build(version)
    assert (build.release, build.backend, build.vendor) == (release, backend, vendor)
    assert tables.vllm(version)["release"] == (version if vendor else release)
    assert names(tables.vllm(version)) == names(tables.vllm(release))


@pytest.mark.parametrize(
    "version",
    ["", "0.6.2", "0.6.2+das.opt3.dtk2504", "0.15.2", "0.11.1rc2.dev5", "0.11.0+gabc", "0.11.0+das", "0.32.0+cpux", "1.0"],
)
def test_what_nobody_described_is_not_guessed(version):
    assert tables.build(version) is None
    table = tables.vllm(version)
    assert (table["known"], names(table), table["defaults"], table["visibility_by_id"]) == (False, [], {}, False)
    assert table["metrics"] == {}
    service = worlds.service(engine={"max_model_len": 4096, "nonsense": 1})
    assert launch.engine_findings(service["engine"], table, "x") == []
    assert "--max-model-len" not in launch.arguments(service, 8000, table)
    assert launch.shutdown_timeout(service, table) == 0.0


@pytest.mark.parametrize(
    ("release", "near"),
    [("0.15.2", ["0.15.1", "0.16.0"]), ("0.6.2", ["0.8.5"]), ("0.40.0", ["0.33.0"]), ("0.9.0.2", ["0.9.0.1", "0.9.1"])],
)
def test_the_nearest_releases_are_those_around_it(release, near):
    assert tables.near_releases(release) == near


def test_versions_that_were_seen_are_known_as_builds_of_their_vendor():
    for build in BUILDS:
        for version in re.findall(r"[0-9][0-9.]*\+[a-z0-9.]+", " ".join(build.get("seen", []))):
            assert re.fullmatch(build["local"], version.partition("+")[2]), version


def test_a_fork_may_add_change_and_take_away(monkeypatch):
    facts = {"visibility_by_id": True, "defaults": {"gpu_memory_utilization": None, "max_num_seqs": 4}}
    own = {"hcu_mode": "value", "enforce_eager": "flag", "uds": "gone"}
    fork = {"local": "fork", "backend": "hygon", "vendor": "F", "options": own, "facts": facts}
    real = tables.read_yaml
    monkeypatch.setattr(tables, "read_yaml", lambda path: {"builds": [fork]} if path.name == "vendor_builds.yml" else real(path))
    table = tables.vllm("0.11.0+fork")
    assert "hcu_mode" in table["options"]["value"]
    assert "enforce_eager" in table["options"]["flag"]
    assert "enforce_eager" not in table["options"]["switch"]
    assert table["removed"]["uds"] == {"since": "", "do": "leave it out"}
    assert table["visibility_by_id"] is True
    assert table["defaults"]["max_num_seqs"] == 4
    assert "gpu_memory_utilization" not in table["defaults"]
    assert "seed" in table["defaults"]


@pytest.mark.parametrize("name", tables.backends())
def test_a_backends_release_is_known(name):
    assert tables.backend(name)["vllm_release"] in RELEASES
