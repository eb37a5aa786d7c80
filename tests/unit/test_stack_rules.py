"""Do card, driver, CUDA, torch and vLLM fit? The vectors of the sources, sets of stories, and what must hold of any input."""

from __future__ import annotations

import copy

import pytest
import yaml
from ansible_collections.modelyard.core.plugins.module_utils.plan import tables
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import NOTE, REFUSE, WARN
from ansible_collections.modelyard.core.plugins.module_utils.plan.stack import known, nearest, rules, verdict, versions
from ansible_collections.modelyard.core.plugins.module_utils.plan.stack.dcu_rules import HYGON
from ansible_collections.modelyard.core.plugins.module_utils.plan.stack.rules import NVIDIA, Stack, judge, refused
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from unit import worlds

TABLES = tables.stack()
VECTORS = yaml.safe_load((worlds.ROOT / "tests/fixtures/stack/nvidia-vectors.yml").read_text(encoding="utf-8"))["test_vectors"]


def card(name="", generation=""):
    return known.nvidia_card(TABLES, name=name, generation=generation)


def of_torch(version, cuda=""):
    return {"torch": version, "cuda": cuda or known.torch(TABLES, version)["cuda"]}


def ids(found):
    return [(reason.severity, reason.rule) for reason in found]


@pytest.mark.parametrize("vector", [v for v in VECTORS if "compare" not in v], ids=lambda v: "-".join(map(str, v.values()))[:70])
def test_the_vectors_of_the_sources(vector):
    kind = card(vector.get("gpu", ""), vector.get("generation", ""))
    assert kind.generation, "the card must be known to the tables"
    if not kind.cc:
        kind = kind._replace(cc="7.0" if kind.generation == "volta" else "")
    layer = of_torch(vector["torch"]) if vector.get("torch") else {}
    more = {key: vector[key] for key in ("flavour", "fabric_manager") if key in vector}
    found = judge(Stack(card=kind, driver=vector["driver"], **more, **layer), TABLES, NVIDIA)
    worst = REFUSE if refused(found) else WARN if found else "ok"
    assert worst == vector["verdict"]
    assert [r.rule for r in found if r.severity == worst][:1] == ([vector["reason"]] if vector["reason"] else [])


@pytest.mark.parametrize("vector", [v for v in VECTORS if "compare" in v], ids=lambda v: " ".join(v["compare"]))
def test_versions_are_compared_by_their_numbers(vector):
    one, other = vector["compare"]
    assert versions.at_least(one, other) is (vector["expect"] == ">")
    assert versions.at_least(other, one) is (vector["expect"] == "<")


def test_the_story_of_driver_470_on_an_rtx_4090_is_refused_with_the_right_branch():
    stack = Stack(card=card("NVIDIA GeForce RTX 4090"), driver="470.199.02", torch="2.3.0", cuda="12.1", today="2026-11")
    found = judge(stack, TABLES, NVIDIA)
    assert ids(found) == [("refuse", "gpu-needs-driver"), ("refuse", "wheel-needs-driver-hard"), ("warn", "branch-ended")]
    assert "driver 470.199.02 does not know the GeForce RTX 4090: the first one that does is 520.56.06" in found[0].what
    (right,) = nearest.nearest(stack, TABLES, NVIDIA)
    assert right.words == "driver 580.178.04 (branch 580, open kernel modules)"
    assert (right.needs_root, right.stack.cuda, right.stack.torch) == (True, "12.1", "2.3.0")
    assert judge(right.stack, TABLES, NVIDIA) == []


@pytest.mark.parametrize(
    ("driver", "gpu", "wanted", "words"),
    [
        ("550.163.01", "GeForce RTX 4090", "0.33.0", "vLLM 0.19.1 with torch 2.10.0 for CUDA 12.8"),
        ("575.64.05", "GeForce RTX 4090", "0.33.0", "vLLM 0.25.1+cu129 with torch 2.11.0 for CUDA 12.9 (torch+cu129)"),
        ("535.261.03", "A10", "0.20.0", "vLLM 0.19.1 with torch 2.10.0 for CUDA 12.8"),
        ("580.178.04", "GeForce RTX 5090", "0.9.2", "vLLM 0.33.0 with torch 2.14.0 for CUDA 13.0"),
    ],
)
def test_a_user_without_root_gets_the_newest_vllm_that_the_driver_runs(driver, gpu, wanted, words):
    pins = known.pins(TABLES, wanted)
    stack = Stack(
        card=card(gpu),
        driver=driver,
        vllm=wanted,
        vllm_cuda=pins["cuda"],
        python="3.12.3",
        glibc="2.39",
        **of_torch(pins["torch"]),
    )
    assert refused(judge(stack, TABLES, NVIDIA))
    without_root = [right for right in nearest.nearest(stack, TABLES, NVIDIA) if not right.needs_root]
    assert without_root[0].words.startswith(words)
    assert without_root[0].stack.driver == driver


def test_a_card_that_answers_disproves_an_entry_of_the_table():
    l4 = card("L4")
    assert ids(judge(Stack(card=l4, driver="525.147.05"), TABLES, NVIDIA)) == [("refuse", "gpu-needs-driver")]
    assert judge(Stack(card=l4, driver="525.147.05", answers=True), TABLES, NVIDIA) == []


def test_what_is_only_inferred_warns_where_it_would_refuse():
    old = Stack(card=card("GeForce RTX 5090"), driver="580.95.05", torch="2.5.1", cuda="12.4")
    assert ids(judge(old, TABLES, NVIDIA)) == [("warn", "wheel-has-arch")]
    assert ids(judge(old._replace(archs=("8.0", "9.0")), TABLES, NVIDIA)) == [("refuse", "wheel-has-arch")]


@pytest.mark.parametrize(
    ("archs", "cc", "runs"),
    [
        (["8.0", "8.6"], "8.9", True),
        (["8.9"], "8.6", False),
        (["9.0a"], "9.0", True),
        (["10.0a"], "10.3", False),
        (["10.0f"], "10.3", True),
        (["9.0+PTX"], "12.0", True),
        (["12.0+PTX"], "10.0", False),
        ([], "8.0", None),
        (["8.0"], "", None),
    ],
)
def test_which_code_runs_on_which_card(archs, cc, runs):
    assert known.runs(archs, cc) is runs


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"cuda": "12.9", "torch": "2.11.0", "vllm": "0.20.0", "vllm_cuda": "13.0"}, ("refuse", "vllm-torch-same-cuda")),
        ({"vllm": "0.20.0", "card": card("GeForce RTX 3090")._replace(cc="7.0")}, ("refuse", "vllm-needs-card")),
        ({"vllm": "0.32.0", "python": "3.10.12"}, ("refuse", "vllm-needs-python")),
        ({"vllm": "0.20.0", "glibc": "2.34"}, ("refuse", "wheel-needs-glibc")),
        ({"vllm": "0.9.2", "transformers": "5.24.0"}, ("warn", "vllm-needs-transformers")),
        ({"vllm": "0.11.0", "transformers": "5.1.0"}, ("warn", "vllm-needs-transformers")),
        ({"vllm": "0.32.0", "torch": "2.12.1", "cuda": "13.0"}, ("warn", "vllm-pins-torch")),
        ({"torch": "2.9.1", "cuda": "12.8", "nccl": "2.26.2"}, ("warn", "torch-needs-nccl")),
        ({"torch": "2.13.0+cpu", "variant": "cpu"}, ("refuse", "build-for-backend")),
        ({"forward_compat": "LD_LIBRARY_PATH"}, ("refuse", "forward-compat-not-for-geforce")),
        ({"switches": 4, "fabric_manager": "580.95.04"}, ("refuse", "fabric-manager-exact")),
        ({"driver": "535.261.03"}, ("warn", "branch-ended")),
    ],
)
def test_each_rule_says_its_own_reason_and_no_other(changes, expected):
    base = Stack(card=card("GeForce RTX 4090"), driver="580.95.05", flavour="open", today="2026-11")
    assert judge(base, TABLES, NVIDIA) == []
    assert ids(judge(base._replace(**changes), TABLES, NVIDIA)) == [expected]


def test_cuda_compat_on_a_data_center_card_is_a_warning():
    stack = Stack(card=card("H100 PCIe"), driver="535.261.03", torch="2.14.0", cuda="13.0", forward_compat="LD_LIBRARY_PATH")
    assert ids(judge(stack, TABLES, NVIDIA)) == [("warn", "wheel-needs-driver-hard")]


def test_cuda_compat_does_not_save_a_geforce():
    stack = Stack(
        card=card("GeForce RTX 4090"), driver="535.261.03", torch="2.14.0", cuda="13.0", forward_compat="LD_LIBRARY_PATH"
    )
    said = ids(judge(stack, TABLES, NVIDIA))
    assert said == [("refuse", "wheel-needs-driver-hard"), ("refuse", "forward-compat-not-for-geforce")]


@pytest.mark.parametrize(("today", "said"), [("2026-06", []), ("2026-07", [("warn", "branch-ended")]), ("", [])])
def test_a_branch_is_supported_to_the_end_of_its_last_month(today, said):
    assert ids(judge(Stack(card=card("A10"), driver="535.261.03", today=today), TABLES, NVIDIA)) == said


def test_the_release_that_is_wanted_is_nearer_than_a_newer_one():
    mixed = Stack(
        card=card("GeForce RTX 4090"), driver="580.178.04", vllm="0.30.0", vllm_cuda="13.0", torch="2.13.0", cuda="12.6"
    )
    assert nearest.nearest(mixed, TABLES, NVIDIA)[0].words == "vLLM 0.30.0 with torch 2.13.0 for CUDA 13.0"


K100_AI = known.dcu(TABLES, "6210")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        # Which driver DTK 26.04 asks for stands in no table: said, not refused.
        ({"dtk": "26.04"}, [("warn", "dtk-needs-driver"), ("refuse", "wheel-needs-dtk")]),
        ({"dtk": "23.04"}, [("refuse", "dtk-needs-driver"), ("refuse", "wheel-needs-dtk")]),
        (
            {
                "driver": "6.3.16-V1.1.0a",
                "dtk": "26.04",
                "torch": "2.9.0+das.opt1.dtk2604.1",
                "vllm": "0.11.0+das.opt1.rc4.dtk2604",
            },
            [],
        ),
        ({"torch": "2.9.1+cu128", "variant": "cuda", "cuda": "12.8", "vllm": "0.14.1"}, [("refuse", "build-for-backend")]),
        ({"torch": "2.9.1+rocm6.4", "variant": "hip"}, [("refuse", "wheel-of-vendor")]),
        ({"python": "3.12.1"}, [("refuse", "wheel-python")]),
        ({"glibc": "2.17"}, [("refuse", "wheel-needs-glibc")]),
        ({"card": known.dcu(TABLES, "55b7")}, [("refuse", "dcu-runs-vllm")]),
        ({"card": known.dcu(TABLES, name="BW1000")}, [("refuse", "gpu-needs-driver")]),
    ],
)
def test_the_rules_for_dcus(changes, expected):
    base = Stack(
        backend="hygon",
        card=K100_AI,
        driver="6.2.26-V1.5.0",
        dtk="25.04.1",
        torch="2.5.1+das.opt1.dtk25041",
        vllm="0.9.2+das.opt1.beta.dtk25041",
        python="3.10.12",
        glibc="2.28",
    )
    assert ids(judge(base._replace(**changes), TABLES, HYGON)) == expected


def test_a_dcu_is_known_by_its_id_or_by_the_longest_word_of_its_name():
    assert (K100_AI.name, K100_AI.arch) == ("K100_AI", "gfx928")
    assert known.dcu(TABLES, name="KONGMING K100_AI").arch == "gfx928"
    assert known.dcu(TABLES, name="K100").arch == "gfx926"
    assert known.dcu(TABLES, name="something").arch == ""


def test_what_two_releases_of_vllm_agree_on_holds_between_them_and_the_rest_is_unknown():
    assert known.pins(TABLES, "0.15.1")["torch"] == "2.9.1"
    assert "torch" not in known.pins(TABLES, "0.26.0")
    assert known.pins(TABLES, "0.26.0")["cuda"] == "13.0"
    assert known.pins(TABLES, "99.0") == {}
    assert known.pins(TABLES, "0.32.0+cpu") == known.pins(TABLES, "0.32.0")
    assert known.pins(TABLES, "dev") == {}


@pytest.mark.parametrize(
    ("pci_id", "generation", "cc", "name"),
    [
        ("2786", "ada", "8.9", "card 10de:2786"),  # a GeForce RTX 4070
        ("2504", "ampere", "8.6", "card 10de:2504"),  # a GeForce RTX 3060
        ("1df6", "volta", "7.0", "Tesla V100S-PCIE-32GB"),
        ("2684", "ada", "8.9", "GeForce RTX 4090"),
        ("ffff", "", "", ""),
        ("", "", "", ""),
    ],
)
def test_a_card_without_an_entry_is_judged_by_its_chip(pci_id, generation, cc, name):
    found = known.nvidia_card(TABLES, pci_id=pci_id)
    assert (found.generation, found.cc, found.name) == (generation, cc, name)


def test_the_tables_are_sound():
    branches = [entry["branch"] for entry in TABLES["drivers"]["branches"]]
    assert branches == sorted(branches, key=int)
    assert {TABLES["drivers"]["recommended"][key] for key in ("branch", "newest_long_term")} <= set(branches)
    assert all(versions.branch(e["last_seen"]) == e["branch"] for e in TABLES["drivers"]["branches"] if "last_seen" in e)
    ids_of_cards = [entry["pci_id"] for entry in TABLES["cards"]["cards"]]
    assert len(set(ids_of_cards)) == len(ids_of_cards)
    kinds = {generation["name"]: generation for generation in TABLES["cards"]["generations"]}
    assert all(entry["cc"] in kinds[entry["generation"]]["cc"] for entry in TABLES["cards"]["cards"])
    for entry in TABLES["cards"]["cards"]:
        chips = [c for c in TABLES["cards"]["chips"] if c["from"] <= entry["pci_id"] <= c["to"]]
        # Kepler's chips have no range of their own, GB10 and GB200's hosts are single numbers.
        assert all(c["generation"] == entry["generation"] and c.get("cc", entry["cc"]) == entry["cc"] for c in chips), entry[
            "name"
        ]
        assert len(chips) <= 1
    toolkits = {entry["version"] for entry in TABLES["cuda"]["toolkits"]}
    assert all({entry["cuda"], *entry["builds"]} <= toolkits for entry in TABLES["torch"]["releases"])
    for release, entry in TABLES["pins"]["releases"].items():
        assert known.torch(TABLES, entry["torch"])["version"] == entry["torch"], release
        assert entry["cuda"] in toolkits
        assert versions.fits("3.12.1", entry["python"]) is True


# What a safe driver is follows from the toolkits; the sources say the same of each release of torch.
@pytest.mark.parametrize(
    ("release", "hard", "safe"),
    [
        ("2.3.0", "525.60.13", "530.30.02"),
        ("2.6.0", "525.60.13", "550.54.15"),
        ("2.7.1", "525.60.13", "560.35.05"),
        ("2.10.0", "525.60.13", "570.124.06"),
        ("2.14.0", "580.65.06", "580.95.05"),
    ],
)
def test_the_drivers_of_a_torch_release(release, hard, safe):
    cuda = known.torch(TABLES, release)["cuda"]
    assert (known.hard_driver(TABLES, cuda).value, known.safe_driver(TABLES, cuda).value) == (hard, safe)


ODD = st.one_of(
    st.sampled_from(["", "580.95.05", "470.199.02", "12.1", "13.0", "0.32.0", "2.9.1", "open", "..", "+", "580"]),
    st.text(max_size=12),
)
CARDS = st.sampled_from(
    [known.nvidia_card(TABLES, pci_id=e["pci_id"]) for e in TABLES["cards"]["cards"]] + [known.Card(), K100_AI]
)
GENERATIONS = st.sampled_from([known.nvidia_card(TABLES, generation=g["name"]) for g in TABLES["cards"]["generations"]])
TEXTS = [name for name, kind in Stack.__annotations__.items() if kind == "str" and name != "backend"]
STACKS = st.builds(
    Stack,
    backend=st.sampled_from(["nvidia", "hygon", "cpu", "amd"]),
    card=st.one_of(CARDS, GENERATIONS),
    answers=st.booleans(),
    archs=st.lists(ODD, max_size=3).map(tuple),
    switches=st.integers(0, 8),
    **dict.fromkeys(TEXTS, ODD),
)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STACKS)
@example(Stack(driver="99999999999999999999.1", cuda="13.0", torch="2.14.0"))
def test_no_input_however_strange_ends_in_an_exception_and_a_nearest_set_is_itself_accepted(stack):
    for kind in verdict.RULES.values():
        for reason in judge(stack, TABLES, kind):
            assert reason.severity in (REFUSE, WARN, NOTE)
            assert reason.what
            assert reason.do
    for right in nearest.nearest(stack, TABLES, NVIDIA):
        assert not refused(judge(right.stack, TABLES, NVIDIA))
        assert right.words


LATER = copy.deepcopy(TABLES)
LATER["drivers"]["branches"].append({"branch": "640", "type": "NFB", "cuda_max": "13.9", "flavours": ["open"], "confidence": "A"})
LATER["cards"]["cards"].append(
    {"name": "New", "pci_id": "ffff", "generation": "blackwell", "cc": "12.1", "first_driver": "900", "confidence": "A"}
)
LATER["torch"]["releases"].append({"version": "9.0.0", "cuda": "13.2", "nccl": "9", "builds": ["13.2"]})
LATER["pins"]["releases"]["9.9.9"] = {"torch": "9.0.0", "cuda": "13.2", "python": ">=3.14", "cc": "9.0", "glibc": "2.40"}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STACKS)
def test_one_more_entry_changes_the_answer_about_nothing_else(stack):
    # Between the last entry and a new one both are asked: only what the table already knew must stay.
    asked = stack.vllm.partition("+")[0] in TABLES["pins"]["releases"] or not versions.numbers(stack.vllm)
    if versions.branch(stack.driver) != "640" and asked:
        assert judge(stack, LATER, NVIDIA) == judge(stack, TABLES, NVIDIA)
        assert judge(stack, LATER, HYGON) == judge(stack, TABLES, HYGON)


def test_a_new_release_of_vllm_is_one_entry():
    more = copy.deepcopy(TABLES)
    more["pins"]["releases"]["0.34.0"] = {
        "torch": "2.14.0",
        "cuda": "13.0",
        "python": ">=3.12,<3.15",
        "cc": "7.5",
        "glibc": "2.28",
    }
    stack = Stack(
        card=card("GeForce RTX 4090"), driver="580.178.04", vllm="0.34.0", vllm_cuda="13.0", python="3.11.7", **of_torch("2.14.0")
    )
    assert judge(stack, TABLES, NVIDIA) == []
    assert ids(judge(stack, more, NVIDIA)) == [("refuse", "vllm-needs-python")]


def test_every_rule_stands_in_a_set_of_rules():
    named = {rule for kind in verdict.RULES.values() for rule in kind}
    assert {rules.gpu_needs_driver, rules.build_for_backend} <= named
    assert len({rule.__name__ for rule in named}) == len(named)
