"""The rules for Hygon's DCUs: card, driver, DTK and the vendor's wheels. In the form of rules.py."""

from __future__ import annotations

from typing import Optional, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import REFUSE, WARN
from ansible_collections.modelyard.core.plugins.module_utils.plan.stack import known, versions
from ansible_collections.modelyard.core.plugins.module_utils.plan.stack.known import Tables
from ansible_collections.modelyard.core.plugins.module_utils.plan.stack.rules import (
    INFERRED,
    Reason,
    Rule,
    Stack,
    build_for_backend,
    gpu_needs_driver,
    severity,
)


def dcu_runs_vllm(s: Stack, tables: Tables) -> Optional[Reason]:
    """Some cards give wrong answers with every build of vLLM."""
    if s.card.vllm or not s.vllm:
        return None
    what = f"no build of vLLM is known to give right answers on the {s.card.name} ({s.card.arch})"
    return Reason("dcu-runs-vllm", severity(s.card.confidence), what, "use cards of another kind")


def dtk_needs_driver(s: Stack, tables: Tables) -> Optional[Reason]:
    """Driver and DTK must be of one time. A DTK that no table pairs with a driver yet is only said to be unknown."""
    told = known.toolkits_of_driver(tables, s.driver)
    release = versions.minor(s.dtk)
    if not release or not told.value or release in [versions.minor(dtk) for dtk in told.value]:
        return None
    paired = [dtk for entry in tables["hygon"]["drivers"] if entry["confidence"] != INFERRED for dtk in entry["toolkits"]]
    sure = told.confidence if release in [versions.minor(dtk) for dtk in paired] else INFERRED
    what = f"DTK {s.dtk} was not seen with driver {s.driver}, which goes with DTK {', '.join(told.value)}"
    return Reason("dtk-needs-driver", severity(sure), what, "install a driver and a DTK that the vendor names together")


def wheel_needs_dtk(s: Stack, tables: Tables) -> Optional[Reason]:
    """A vendor's wheel carries the DTK that it was built for in its version."""
    for name, version in (("torch", s.torch), ("vLLM", s.vllm)):
        built = known.dtk_of_wheel(version)
        if built and s.dtk and not known.digits(s.dtk).startswith(built) and not built.startswith(known.digits(s.dtk)):
            what = f"{name} {version} is built for DTK {built}; this host has DTK {s.dtk}"
            return Reason("wheel-needs-dtk", REFUSE, what, "use wheels of the host's DTK, or install theirs")
    return None


def wheel_of_vendor(s: Stack, tables: Tables) -> Optional[Reason]:
    """A plain `pip install vllm` brings CUDA's torch over the vendor's."""
    plain = [
        f"{name} {version}" for name, version in (("torch", s.torch), ("vLLM", s.vllm)) if "+" in version and "das" not in version
    ]
    if not plain or s.variant == "cuda":  # the other rule says it
        return None
    what = f"{' and '.join(plain)} is no build of Hygon's (das)"
    return Reason("wheel-of-vendor", REFUSE, what, "install the vendor's wheels by their exact file names, with --no-deps")


def wheel_python(s: Stack, tables: Tables) -> Optional[Reason]:
    """The vendor builds for few Pythons."""
    dtk = known.dtk_of_wheel(s.vllm or s.torch)
    built = [entry for entry in tables["hygon"]["toolkits"] if dtk and known.digits(entry["dtk"]) == dtk]
    pythons = [python for entry in built for python in entry["python"]]
    if not pythons or not versions.minor(s.python) or versions.minor(s.python) in pythons:
        return None
    what = f"wheels for DTK {built[0]['dtk']} were seen for Python {', '.join(pythons)} alone; this is {s.python}"
    return Reason("wheel-python", severity(str(built[0]["confidence"])), what, "use an interpreter of one of these")


def dcu_glibc(s: Stack, tables: Tables) -> Optional[Reason]:
    """All of the vendor's wheels have one platform tag."""
    least = str(tables["hygon"]["glibc"])
    if not (s.torch or s.vllm) or not versions.older(s.glibc, least):
        return None
    what = f"the vendor's wheels need glibc {least} or newer; this host has {s.glibc}"
    return Reason("wheel-needs-glibc", REFUSE, what, "use a newer system")


def dtk_environment(s: Stack, tables: Tables) -> Optional[Reason]:
    """What env.sh sets is part of every launch; an engine without it does not find the toolkit's libraries."""
    if not s.dtk_problem:
        return None
    what = f"what DTK's env.sh sets is not known, and engines start without it: {s.dtk_problem}"
    return Reason("dtk-environment", WARN, what, "let root own the toolkit and nobody else write there, or correct env.sh")


HYGON: Tuple[Rule, ...] = (
    gpu_needs_driver,
    dcu_runs_vllm,
    dtk_needs_driver,
    wheel_needs_dtk,
    dtk_environment,
    build_for_backend,
    wheel_of_vendor,
    wheel_python,
    dcu_glibc,
)
