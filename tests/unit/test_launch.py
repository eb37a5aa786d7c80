from __future__ import annotations

import argparse
import functools
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
        ("max_model_len", -1, ["--max-model-len=-1"]),
        ("middleware", ["a.b", "-c"], ["--middleware", "a.b", "--middleware=-c"]),
        ("middleware", "a.b", ["--middleware", "a.b"]),
        ("middleware", [], []),
        ("max_model_len", None, []),
        ("enforce_eager", None, []),
        ("cudagraph_capture_sizes", None, []),
    ],
)
def test_an_engine_key_becomes_the_words_that_the_release_wants(key, value, words):
    assert launch.option(key, value, TABLE) == words


# Text that begins with a hyphen would be an option among several words; where one word is wanted it is joined with =.
WORD = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
SEVERAL = st.lists(WORD.filter(lambda t: not t.startswith("-")), min_size=1, max_size=4)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | WORD,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORD, inner, max_size=3),
    max_leaves=6,
)
VALUES = {
    "switch": st.booleans(),
    "flag": st.booleans(),
    "list": SEVERAL,
    "repeat": st.lists(WORD, min_size=1, max_size=3),
    "value": WORD | st.integers() | st.dictionaries(WORD, JSON, max_size=3) | st.lists(JSON, max_size=3),
}


@functools.cache
def kinds(release):
    """Options that may be set under `engine`, with their kinds."""
    table = tables.vllm(release)
    known = [(kind, name) for kind, names in table["options"].items() for name in names]
    return [(kind, name) for kind, name in known if name not in table["owned"] and name not in table["idle"]]


@functools.cache
def parser_of(release):
    """The options as vLLM's own parser of that release declares them (tools/vllm_options.py reads the table from there)."""
    parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
    how = {
        "switch": {"action": argparse.BooleanOptionalAction, "default": None},
        "flag": {"action": "store_true"},
        "list": {"nargs": "+"},
        "repeat": {"action": "append"},
        "value": {},
    }
    for kind, names in tables.vllm(release)["options"].items():
        for name in names:
            parser.add_argument("--" + name.replace("_", "-"), dest=name, **how[kind])
    parser.add_argument("command")
    parser.add_argument("model_tag")
    return parser


@st.composite
def wishes(draw):
    """A release and an `engine` of keys that it has."""
    release = draw(st.sampled_from(tables.releases()))
    chosen = draw(st.lists(st.sampled_from(kinds(release)), unique=True, max_size=6))
    return release, {name: draw(VALUES[kind]) for kind, name in chosen}


def read_back(value, kind, engine_value):
    """What a parser read, in the form of the inventory."""
    if isinstance(engine_value, dict) or (kind == "value" and isinstance(engine_value, list)):
        return json.loads(value)
    return value


@given(wish=wishes())
def test_what_is_rendered_is_what_the_engines_parser_reads(wish):
    release, engine = wish
    table = tables.vllm(release)
    limited = {name for name, known in table["values"].items() if str(engine.get(name)).strip().lower() in known["words"]}
    engine = {name: value for name, value in engine.items() if name not in limited}
    assert launch.engine_findings(engine, table, "x") == []
    words = launch.arguments(worlds.service(engine=engine), 8000, table)
    read = vars(parser_of(release).parse_args(words))
    assert (read["command"], read["model_tag"], read["port"]) == ("serve", "/srv/models/tiny-qwen3", "8000")
    assert (read["host"], read["tensor_parallel_size"], read["served_model_name"]) == ("127.0.0.1", "2", ["tiny-qwen3"])
    for kind, name in kinds(release):
        if name in engine:
            wanted = engine[name] if kind != "value" or isinstance(engine[name], (dict, list)) else str(engine[name])
            assert read_back(read[name], kind, engine[name]) == wanted
        elif name in table["defaults"]:
            assert str(read_back(read[name], kind, table["defaults"][name])) == str(table["defaults"][name])


@given(release=st.sampled_from(tables.releases()), data=st.data())
def test_every_option_of_every_release_can_be_set_alone(release, data):
    kind, name = data.draw(st.sampled_from(kinds(release)))
    value = data.draw(VALUES[kind])
    words = launch.option(name, value, tables.vllm(release))
    read = vars(parser_of(release).parse_args(["serve", "m", *words]))
    changed = {key for key, now in read.items() if now != vars(parser_of(release).parse_args(["serve", "m"]))[key]}
    assert changed <= {name}
    assert changed == {name} or value is False


@given(release=st.sampled_from(tables.releases()), key=st.from_regex("[a-z_-]{1,20}", fullmatch=True), value=JSON)
def test_a_key_that_no_table_holds_is_refused_on_every_release(release, key, value):
    table = tables.vllm(release)
    known = [name for names in table["options"].values() for name in names]
    parts = ("owned", "removed", "later", "request_fields")
    if key not in known and not any(key in table[part] for part in parts):
        (found,) = launch.engine_findings({key: value}, table, "x")
        assert (found["id"], found["severity"], found["where"]) == ("PL-ENGINE-KEY-UNKNOWN", "refuse", f"x.engine.{key}")


PLAIN = st.text("abcdefg0123456789.{}=-", max_size=8).filter(lambda t: not t.startswith("-"))


@given(wish=wishes(), data=st.data())
def test_a_changed_key_is_the_only_difference_that_is_told(wish, data):
    release, engine = wish
    table = tables.vllm(release)
    kind, name = data.draw(st.sampled_from(kinds(release)))
    values = {**VALUES, "value": PLAIN | st.integers(0), "list": st.lists(PLAIN, min_size=1, max_size=3)}
    values["repeat"] = values["list"]
    shape = {"environment": {}, "model": "f"}
    before, after = (
        {**shape, "argv": launch.arguments(worlds.service(engine={**engine, name: value}), 8000, table)}
        for value in (data.draw(values[kind] | st.none()), data.draw(values[kind] | st.none()))
    )
    lines = launch.differences(before, after)
    flag = "--" + name.replace("_", "-")
    assert {line.partition(":")[0] for line in lines} <= {flag, f"--no-{flag[2:]}"}
    assert bool(lines) == (before["argv"] != after["argv"])


def test_the_order_of_the_inventory_does_not_change_the_command_line():
    engine = {"max_num_seqs": 1, "max_model_len": 4096, "enforce_eager": True, "shutdown_timeout": 30}
    words = launch.arguments(worlds.service(engine=engine), 8001, TABLE)
    assert words == [
        *("serve", "/srv/models/tiny-qwen3", "--served-model-name", "tiny-qwen3"),
        *("--host", "127.0.0.1", "--port", "8001", "--tensor-parallel-size", "2"),
        *("--enforce-eager", "--gpu-memory-utilization", "0.9"),
        *("--max-model-len", "4096", "--max-num-seqs", "1", "--shutdown-timeout", "30"),
    ]
    backwards = dict(reversed(engine.items()))
    assert launch.arguments(worlds.service(engine=backwards), 8001, TABLE) == words


# What the engine is told to take for open requests (None: nothing), and what it takes. Sources: data/vllm/facts.yml.
@pytest.mark.parametrize(
    ("release", "engine", "told", "takes"),
    [
        ("0.17.1", {}, None, 5),
        ("0.17.1", {"shutdown_timeout": 60}, None, 5),  # refused as an option that is still to come
        ("0.18.1", {}, "15", 15),
        ("0.18.1", {"shutdown_timeout": 2}, "2", 5),
        ("0.18.1", {"shutdown_timeout": None}, None, 5),
        ("0.32.0", {}, "15", 15),
        ("0.32.0", {"shutdown_timeout": 2}, "2", 2),
        ("0.32.0", {"shutdown_timeout": None}, None, 0),
    ],
)
def test_the_time_for_open_requests_is_what_the_release_gives_them(release, engine, told, takes):
    table = tables.vllm(release)
    service = worlds.service(engine=engine)
    assert launch.shutdown_timeout(service, table) == takes
    if not launch.engine_findings(engine, table, "x"):
        words = launch.arguments(service, 8000, table)
        assert (words[words.index("--shutdown-timeout") + 1] if "--shutdown-timeout" in words else None) == told


def test_what_the_inventory_sets_wins_over_a_default_that_is_written_out():
    table = tables.vllm("0.9.2")
    words = launch.arguments(
        worlds.service(engine={"disable_log_requests": False, "seed": 7, "allowed_origins": None}), 8000, table
    )
    assert "--disable-log-requests" not in words
    assert words[words.index("--seed") + 1] == "7"
    assert "--allowed-origins" not in words
    plain = launch.arguments(worlds.service(engine={}), 8000, table)
    assert "--disable-log-requests" in plain
    assert plain[plain.index("--allowed-origins") + 1] == "[]"


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
        "MODELYARD_INSTANCE": "0",
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


# release, key and value, id, what was found, what to do
REFUSED = [
    (
        *("0.32.0", "max-model-len", 1, "PL-ENGINE-KEY-UNKNOWN"),
        "vLLM 0.32.0 has no option max-model-len; did you mean max_model_len?",
        "write engine keys as vLLM names its options, with underscores",
    ),
    (
        *("0.17.0", "disable_log_requests", True, "PL-ENGINE-KEY-REMOVED"),
        "vLLM 0.17.0 has no option disable_log_requests any more: it is gone since 0.17.0",
        "leave it out; request lines are off, enable_log_requests switches them on",
    ),
    (
        *("0.16.0", "disable_log_requests", True, "PL-ENGINE-KEY-IDLE"),
        "vLLM 0.16.0 accepts disable_log_requests and does nothing with it, since 0.10.1; it is not passed on",
        "leave it out; request lines are off, enable_log_requests switches them on",
    ),
    (
        *("0.10.0", "enable_log_requests", True, "PL-ENGINE-KEY-LATER"),
        "vLLM 0.10.0 has no option enable_log_requests yet: it comes with 0.10.1",
        "leave it out, or write disable_log_requests: false, or use vLLM 0.10.1 or newer",
    ),
    (
        *("0.32.0", "watchdog_config", {}, "PL-ENGINE-KEY-LATER"),
        "vLLM 0.32.0 has no option watchdog_config yet: it comes with 0.33.0",
        "leave it out, or use vLLM 0.33.0 or newer",
    ),
    (
        *("0.11.2", "guided_decoding_backend", "xgrammar", "PL-ENGINE-KEY-REMOVED"),
        "vLLM 0.11.2 has no option guided_decoding_backend any more: it is gone since 0.11.0",
        "write structured_outputs_config: {backend: ...}",
    ),
    (
        *("0.33.0", "worker_use_ray", True, "PL-ENGINE-KEY-REMOVED"),
        "vLLM 0.33.0 has no option worker_use_ray any more",
        "write distributed_executor_backend: ray",
    ),
    (
        *("0.33.0", "calculate_kv_scales", True, "PL-ENGINE-KEY-REMOVED"),
        "vLLM 0.33.0 has no option calculate_kv_scales any more: it is gone since 0.28.0",
        "leave it out",
    ),
    (
        *("0.11.0", "guided_json", {}, "PL-ENGINE-KEY-REQUEST"),
        "guided_json is a field of a request, not an option of the engine",
        "remove it here; clients send response_format of type json_schema",
    ),
    (
        *("0.12.0", "guided_json", {}, "PL-ENGINE-KEY-REQUEST"),
        "guided_json is a field of a request, not an option of the engine, and vLLM 0.12.0 ignores it: "
        "the answer is HTTP 200 with text that nothing constrains",
        "remove it here; clients send response_format of type json_schema",
    ),
    (
        *("0.33.0", "response_format", {}, "PL-ENGINE-KEY-REQUEST"),
        "response_format is a field of a request, not an option of the engine",
        "remove it here; clients send it with each request that wants it",
    ),
    (
        *("0.13.0", "max_model_len", "auto", "PL-ENGINE-VALUE"),
        "vLLM 0.13.0 does not take auto for max_model_len: that comes with 0.14.0",
        "write the number of tokens",
    ),
    (
        *("0.10.0", "max_logprobs", -1, "PL-ENGINE-VALUE"),
        "vLLM 0.10.0 does not take -1 for max_logprobs: that comes with 0.10.1",
        "write the largest number of alternatives that clients ask for",
    ),
    (
        *("0.32.0", "port", 1, "PL-ENGINE-KEY-OWNED"),
        "port is not set under engine",
        "set listen.base_port of the service",
    ),
    (
        *("0.32.0", "api_key", "k", "PL-ENGINE-KEY-OWNED"),
        "api_key is not set under engine",
        "put the key into modelyard_api_keys; an option would show in every process list",
    ),
]


@pytest.mark.parametrize(("release", "key", "value", "id", "what", "do"), REFUSED)
def test_a_key_that_the_release_does_not_take_is_told_with_what_to_write(release, key, value, id, what, do):
    severity = "warn" if id == "PL-ENGINE-KEY-IDLE" else "refuse"
    assert launch.engine_findings({key: value}, tables.vllm(release), "modelyard_services[a]") == [
        {"id": id, "severity": severity, "where": f"modelyard_services[a].engine.{key}", "what": what, "do": do}
    ]


@pytest.mark.parametrize(
    ("release", "engine"),
    [
        ("0.10.0", {"num_scheduler_steps": 8, "swap_space": 4}),
        ("0.10.0", {"disable_log_requests": True}),
        ("0.10.1", {"enable_log_requests": True, "max_logprobs": -1}),
        ("0.9.2", {"enable_reasoning": True, "reasoning_parser": "deepseek_r1", "task": "generate", "device": "auto"}),
        ("0.14.0", {"max_model_len": "auto"}),
        ("0.14.0", {"max_model_len": -1}),
        ("0.11.0", {"rope_scaling": {"rope_type": "yarn"}}),
        ("0.18.0", {"shutdown_timeout": 30}),
    ],
)
def test_a_key_is_taken_by_the_releases_that_have_it(release, engine):
    assert launch.engine_findings(engine, tables.vllm(release), "x") == []


def test_an_option_without_effect_is_not_passed_on():
    words = launch.arguments(worlds.service(engine={"disable_log_requests": True, "swap_space": 4}), 8000, tables.vllm("0.12.0"))
    assert "--disable-log-requests" not in words
    assert "--swap-space" not in words


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


def test_a_difference_shows_every_word_of_an_option():
    now = {"argv": ["vllm", "--middleware", "a", "--middleware", "b", "--max-model-len=-1"], "environment": {}, "model": ""}
    wanted = {"argv": ["vllm", "--middleware", "a", "--max-model-len", "4096"], "environment": {}, "model": ""}
    assert launch.differences(now, wanted) == ["--max-model-len: -1 -> 4096", "--middleware: a b -> a"]


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


def test_what_a_toolkit_sets_comes_before_what_we_and_the_inventory_set():
    survey = {
        "stack": {"dtk": {"environment": {"ROCM_PATH": "/opt/dtk", "PATH": "/opt/dtk/bin", "HF_HUB_OFFLINE": "0", "A": "1"}}}
    }
    found = launch.of_toolkit("hygon", survey, "/opt/vllm")
    assert found["PATH"] == "/opt/vllm/bin:/opt/dtk/bin:/usr/local/bin:/usr/bin:/bin"
    assert launch.of_toolkit("cpu", survey, "/opt/vllm") == {}
    assert launch.of_toolkit("hygon", {"stack": {}}, "/opt/vllm") == {}
    backend = tables.backend("hygon")
    wanted = worlds.dcu_service(environment={"A": "2"})
    values = launch.environment(wanted, [[0]], backend, "/home", toolkit=found)
    assert (values["ROCM_PATH"], values["A"], values["HF_HUB_OFFLINE"]) == ("/opt/dtk", "2", "1")
