from __future__ import annotations

import argparse
import json

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import launch, tables
from hypothesis import given
from hypothesis import strategies as st
from unit import worlds

TABLE = tables.vllm("0.32.0")
BACKEND = tables.backend("cpu")


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("enforce_eager", True, ["--enforce-eager"]),
        ("enforce_eager", False, ["--no-enforce-eager"]),
        ("headless", True, ["--headless"]),
        ("headless", False, []),
        ("max_model_len", 4096, ["--max-model-len", "4096"]),
        ("gpu_memory_utilization", 0.6, ["--gpu-memory-utilization", "0.6"]),
        ("dtype", "bfloat16", ["--dtype", "bfloat16"]),
        ("chat_template", "", ["--chat-template", ""]),
        ("hf_overrides", {"b": 2, "a": [1, True]}, ["--hf-overrides", '{"a": [1, true], "b": 2}']),
        ("allowed_origins", ["*"], ["--allowed-origins", '["*"]']),
        ("cudagraph_capture_sizes", [1, 2, 4], ["--cudagraph-capture-sizes", "1", "2", "4"]),
        ("cudagraph_capture_sizes", 8, ["--cudagraph-capture-sizes", "8"]),
        ("lora_modules", [{"name": "a", "path": "/a"}], ["--lora-modules", '{"name": "a", "path": "/a"}']),
        ("max_model_len", None, []),
        ("enforce_eager", None, []),
        ("cudagraph_capture_sizes", None, []),
    ],
)
def test_an_engine_key_becomes_the_words_that_the_release_wants(key, value, words):
    assert launch.option(key, value, TABLE) == words


KINDS = [(kind, name) for kind, names in TABLE["options"].items() for name in names]
# Text that begins with a hyphen is taken for an option by every argument parser; no value of vLLM 0.32.0 does.
WORD = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12).filter(
    lambda t: not t.startswith("-"),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | WORD,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORD, inner, max_size=3),
    max_leaves=6,
)
VALUES = {
    "switch": st.booleans(),
    "flag": st.booleans(),
    "list": st.lists(WORD, min_size=1, max_size=4),
    "value": WORD | st.integers(0) | st.dictionaries(WORD, JSON, max_size=3) | st.lists(JSON, max_size=3),
}


def parser_of_the_release():
    """The options as vLLM's own parser declares them (tools/vllm_options.py reads the table from there)."""
    parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
    how = {
        "switch": {"action": argparse.BooleanOptionalAction, "default": None},
        "flag": {"action": "store_true"},
        "list": {"nargs": "+"},
        "value": {},
    }
    for kind, name in KINDS:
        parser.add_argument("--" + name.replace("_", "-"), dest=name, **how[kind])
    parser.add_argument("command")
    parser.add_argument("model_tag")
    return parser


PARSER = parser_of_the_release()


@given(data=st.data())
def test_what_is_rendered_is_what_the_engines_parser_reads(data):
    chosen = data.draw(st.lists(st.sampled_from(KINDS), unique=True, max_size=6))
    engine = {name: data.draw(VALUES[kind]) for kind, name in chosen if name not in TABLE["owned"]}
    assert launch.engine_findings(engine, TABLE, "x") == []
    words = launch.arguments(worlds.service(engine=engine), 8000, TABLE)
    read = vars(PARSER.parse_args(words))
    assert (read["command"], read["model_tag"], read["port"]) == ("serve", "/srv/models/tiny-qwen3", "8000")
    assert (read["host"], read["tensor_parallel_size"], read["served_model_name"]) == ("127.0.0.1", "2", ["tiny-qwen3"])
    for kind, name in chosen:
        if name not in engine:
            continue
        wanted = engine[name]
        if isinstance(wanted, dict) or (kind == "value" and isinstance(wanted, list)):
            assert json.loads(read[name]) == wanted
        elif kind in ("switch", "flag"):
            assert read[name] is wanted
        else:
            assert read[name] == (wanted if kind == "list" else str(wanted))


def test_the_order_of_the_inventory_does_not_change_the_command_line():
    engine = {"max_num_seqs": 1, "max_model_len": 4096, "enforce_eager": True, "shutdown_timeout": 30}
    words = launch.arguments(worlds.service(engine=engine), 8001, TABLE)
    assert words == [
        *("serve", "/srv/models/tiny-qwen3", "--served-model-name", "tiny-qwen3"),
        *("--host", "127.0.0.1", "--port", "8001", "--tensor-parallel-size", "2"),
        *("--enforce-eager", "--max-model-len", "4096", "--max-num-seqs", "1", "--shutdown-timeout", "30"),
    ]
    backwards = dict(reversed(engine.items()))
    assert launch.arguments(worlds.service(engine=backwards), 8001, TABLE) == words


def test_a_release_without_a_shutdown_timeout_gets_none():
    older = {**TABLE, "options": {**TABLE["options"], "value": ["max_model_len"]}}
    assert "--shutdown-timeout" not in launch.arguments(worlds.service(), 8000, older)


def test_rendering_does_not_touch_the_wish():
    service = worlds.service()
    launch.arguments(service, 8000, TABLE)
    assert service == worlds.service()


def test_the_environment_of_an_instance_is_this_and_nothing_else():
    assert launch.environment(worlds.service(), [[0, 1], [2, 3]], BACKEND, "/opt/modelyard") == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "DO_NOT_TRACK": "1",
        "HF_HOME": "/opt/modelyard/cache/huggingface",
        "HF_HUB_OFFLINE": "1",
        "MODELYARD_SERVICE": "tiny-qwen3",
        "PYTHONUNBUFFERED": "1",
        "SPT_NOENV": "1",
        "TORCHINDUCTOR_CACHE_DIR": "/opt/modelyard/cache/torchinductor",
        "TRANSFORMERS_OFFLINE": "1",
        "TRITON_CACHE_DIR": "/opt/modelyard/cache/triton",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "0,1|2,3",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_TARGET_DEVICE": "cpu",
        "XDG_CACHE_HOME": "/opt/modelyard/cache",
        "XDG_CONFIG_HOME": "/opt/modelyard/cache/config",
    }


def test_the_inventory_may_set_a_proxy_of_its_own():
    service = worlds.service(environment={"https_proxy": "http://proxy:3128", "OMP_NUM_THREADS": 4})
    environment = launch.environment(service, [[0]], BACKEND, "/opt/modelyard")
    assert environment["https_proxy"] == "http://proxy:3128"
    assert environment["OMP_NUM_THREADS"] == "4"


@pytest.mark.parametrize(
    ("engine", "space"),
    [({}, "1"), ({"kv_cache_memory_bytes": 2 * 2**30}, None), ({"kv_cache_memory_bytes": None}, "1")],
    ids=["nothing said", "set", "undone with null"],
)
def test_the_kv_cache_of_a_cpu_is_small_unless_the_inventory_says_otherwise(engine, space):
    environment = launch.environment(worlds.service(engine=engine), [[0]], BACKEND, "/opt/modelyard")
    assert environment.get("VLLM_CPU_KVCACHE_SPACE") == space


@pytest.mark.parametrize(
    ("key", "id", "what", "do"),
    [
        (
            "max-model-len",
            "PL-ENGINE-KEY-UNKNOWN",
            "vLLM 0.32.0 has no option max-model-len; did you mean max_model_len?",
            "write engine keys as vLLM names its options, with underscores",
        ),
        (
            "disable_log_requests",
            "PL-ENGINE-KEY-REMOVED",
            "vLLM 0.32.0 has no option disable_log_requests",
            "request lines are off by default since 0.10.1; leave it out, or set enable_log_requests for the opposite",
        ),
        ("port", "PL-ENGINE-KEY-OWNED", "port is not set under engine", "set listen.base_port of the service"),
        (
            "api_key",
            "PL-ENGINE-KEY-OWNED",
            "api_key is not set under engine",
            "put the key into modelyard_api_keys; an option would show in every process list",
        ),
    ],
)
def test_a_key_that_the_release_does_not_take_is_refused_with_what_to_write(key, id, what, do):
    assert launch.engine_findings({key: 1}, TABLE, "modelyard_services[a]") == [
        {"id": id, "severity": "refuse", "where": f"modelyard_services[a].engine.{key}", "what": what, "do": do}
    ]


@pytest.mark.parametrize("value", ["true", 1, 0, "no", []])
@pytest.mark.parametrize("key", ["enforce_eager", "headless"])
def test_a_switch_takes_true_or_false_only(key, value):
    found = launch.engine_findings({key: value}, TABLE, "modelyard_services[a]")
    assert [f["id"] for f in found] == ["PL-ENGINE-VALUE"]


@pytest.mark.parametrize("key", ["enforce_eager", "headless", "max_model_len", "cudagraph_capture_sizes"])
def test_null_undoes_an_option_of_any_kind(key):
    # "`None` leaves the option out, so a host can undo what a group set."
    assert launch.engine_findings({key: None}, TABLE, "modelyard_services[a]") == []
    assert launch.option(key, None, TABLE) == []


def test_differences_name_each_option_variable_and_the_model_with_both_values():
    now = {
        "argv": ["/a/bin/vllm", "serve", "/m", "--max-model-len", "4096", "--enforce-eager", "--seed", "1"],
        "environment": {"A": "1", "B": "2"},
        "model": "f1",
    }
    wanted = {
        "argv": ["/b/bin/vllm", "serve", "/m", "--max-model-len", "2048", "--cudagraph-capture-sizes", "1", "2"],
        "environment": {"A": "1", "B": "3", "C": "4"},
        "model": "f2",
    }
    assert launch.differences(now, wanted) == [
        "--cudagraph-capture-sizes: (not set) -> 1 2",
        "--enforce-eager: on -> (not set)",
        "--max-model-len: 4096 -> 2048",
        "--seed: 1 -> (not set)",
        "program: /a/bin/vllm -> /b/bin/vllm",
        "environment B: 2 -> 3",
        "environment C: (not set) -> 4",
        "model files: f1 -> f2",
    ]


def test_equal_launches_do_not_differ():
    launched = {"argv": ["vllm", "serve", "/m", "--port", "1"], "environment": {"A": "1"}, "model": "f"}
    assert launch.differences(launched, dict(launched)) == []


def test_the_digest_is_stable_and_covers_words_environment_model_and_key():
    # The literals are sha256sum's, over the JSON text.
    words, environment = ["vllm", "serve"], {"B": "2", "A": "1"}
    assert launch.digest(words, environment, "f", "") == "71ebee0e3bb184b1"
    assert launch.digest(words, environment, "f", "k") == "faf7863afd3b348f"
    assert launch.digest(words, {"A": "1", "B": "2"}, "f", "") == "71ebee0e3bb184b1"
    others = [
        launch.digest(["vllm", "serve", "x"], environment, "f", ""),
        launch.digest(words, {"A": "1"}, "f", ""),
        launch.digest(words, environment, "g", ""),
    ]
    assert len({*others, "71ebee0e3bb184b1", "faf7863afd3b348f"}) == 5


@pytest.mark.parametrize(
    ("cards", "ranks", "shares"),
    [
        ([0, 1, 2, 3], 2, [[0, 1], [2, 3]]),
        ([0, 1, 2, 3, 4], 2, [[0, 1], [2, 3]]),
        ([4, 2, 9], 3, [[4], [2], [9]]),
        ([7], 1, [[7]]),
    ],
)
def test_cards_are_spread_evenly_and_in_order(cards, ranks, shares):
    assert launch.spread(cards, ranks) == shares
