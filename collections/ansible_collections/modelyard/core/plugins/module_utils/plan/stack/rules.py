"""The rules for NVIDIA cards and those for every backend: one function each, a set in, at most one reason out.

A rule that does not know one of its figures says nothing. What rests on an inference (confidence C) warns where it would refuse.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import REFUSE, WARN
from ansible_collections.modelyard.core.plugins.module_utils.plan.stack import known, versions
from ansible_collections.modelyard.core.plugins.module_utils.plan.stack.known import Card, Tables

#: An entry that is only inferred.
INFERRED = "C"
#: Looked for, and not there.
MISSING = "none"


class Stack(NamedTuple):
    """One set that is to work together, for one card. Empty: not known, or not wanted.

    `driver`, `flavour`  the driver, and the kind of its modules (open, proprietary)
    `answers`            the card answers under this very driver, which proves that the two fit
    `torch`, `cuda`      PyTorch's release, and the CUDA it was built with; `archs` is what the installed build says of itself
    `variant`            what PyTorch was built for: cuda, hip, cpu
    `vllm`, `vllm_cuda`  vLLM's version, and the CUDA of its own kernels
    `fabric_manager`     its version; `switches`: how many NVSwitches are on the bus
    `dtk_problem`        why env.sh of the DTK could not be read
    `forward_compat`     where a folder of cuda-compat is set
    `toolkit`            the CUDA toolkit of the host, where services are to compile with it (`system`); `none` when there is none
    `compiler`           CUDA's compiler in the environment, where services are to compile with that (`pip`); `none` as well
    `today`              year and month, for ends of support
    """

    backend: str = "nvidia"
    card: Card = Card()
    answers: bool = False
    driver: str = ""
    flavour: str = ""
    torch: str = ""
    cuda: str = ""
    archs: Tuple[str, ...] = ()
    variant: str = ""
    vllm: str = ""
    vllm_cuda: str = ""
    python: str = ""
    glibc: str = ""
    transformers: str = ""
    nccl: str = ""
    fabric_manager: str = ""
    switches: int = 0
    forward_compat: str = ""
    dtk: str = ""
    dtk_problem: str = ""
    toolkit: str = ""
    compiler: str = ""
    today: str = ""


class Reason(NamedTuple):
    """Why a set does not work or will disturb: the rule, how bad it is, in words, and what to do."""

    rule: str
    severity: str
    what: str
    do: str


Rule = Callable[[Stack, Tables], Optional[Reason]]


def judge(stack: Stack, tables: Tables, rules: Tuple[Rule, ...]) -> List[Reason]:
    """All reasons, in the order of the rules."""
    return [reason for rule in rules for reason in [rule(stack, tables)] if reason]


def refused(reasons: List[Reason]) -> bool:
    """Does one of them refuse?"""
    return any(reason.severity == REFUSE for reason in reasons)


def severity(*confidences: str) -> str:
    """A refusal needs more than an inference."""
    return WARN if INFERRED in confidences else REFUSE


def gpu_needs_driver(s: Stack, tables: Tables) -> Optional[Reason]:
    """A driver that is older than the card does not know it."""
    if s.answers or not versions.older(s.driver, s.card.first_driver):
        return None
    what = f"driver {s.driver} does not know the {s.card.name}: the first one that does is {s.card.first_driver}"
    return Reason("gpu-needs-driver", severity(s.card.confidence), what, "install a newer driver")


def gpu_dropped(s: Stack, tables: Tables) -> Optional[Reason]:
    """Drivers drop old generations."""
    if s.answers or not s.card.last_branch or not versions.branch(s.driver):
        return None
    if not versions.older(s.card.last_branch, versions.branch(s.driver)):
        return None
    what = f"driver {s.driver} no longer drives the {s.card.name} ({s.card.generation}): the last branch is {s.card.last_branch}"
    return Reason("gpu-dropped", severity(s.card.confidence), what, f"stay on branch {s.card.last_branch}")


def module_flavour(s: Stack, tables: Tables) -> Optional[Reason]:
    """Open modules know no card before Turing, proprietary ones none from Blackwell on; newer branches have open ones alone."""
    if s.answers or s.flavour not in ("open", "proprietary"):
        return None
    first = str(tables["drivers"]["open_only_from"])
    if s.flavour == "open" and s.card.open == "unsupported":
        what = f"open kernel modules do not drive the {s.card.name} ({s.card.generation})"
    elif s.flavour == "proprietary" and s.card.proprietary == "unsupported":
        what = f"proprietary kernel modules do not drive the {s.card.name} ({s.card.generation})"
    elif s.flavour == "proprietary" and versions.at_least(versions.branch(s.driver), first):
        what = f"driver {s.driver} has no proprietary kernel modules: from branch {first} on there are open ones alone"
    else:
        return None
    other = "proprietary" if s.flavour == "open" else "open"
    return Reason("module-flavour", severity(s.card.confidence), what, f"use the {other} modules")


def wheel_needs_driver(s: Stack, tables: Tables) -> Optional[Reason]:
    """Below the floor of its CUDA family nothing runs; below the toolkit's own driver no kernel that is there as PTX alone."""
    newest = max((s.cuda, s.vllm_cuda), key=versions.numbers)
    if not versions.numbers(newest) or not s.driver:
        return None
    whose = f"torch {s.torch}" if newest == s.cuda else f"vLLM {s.vllm}"
    hard, safe = known.hard_driver(tables, newest), known.safe_driver(tables, newest)
    built = f"{whose} is built for CUDA {newest}"
    if versions.older(s.driver, hard.value):
        what = f"{built}, which needs driver {hard.value} or newer; this is {s.driver}"
        if s.forward_compat and not s.card.geforce:
            return Reason("wheel-needs-driver-hard", WARN, f"{what}; it rests on cuda-compat alone", "install a newer driver")
        return Reason("wheel-needs-driver-hard", severity(hard.confidence), what, "install a newer driver, or an older vLLM")
    if versions.older(s.driver, safe.value):
        what = (
            f"{built}, which NVIDIA pairs with driver {safe.value}; on {s.driver} compiled kernels run, but one that is there as "
            "PTX alone ends with 'the provided PTX was compiled with an unsupported toolchain'"
        )
        return Reason("wheel-needs-driver-soft", WARN, what, f"plan an update to driver {safe.value} or newer")
    return None


def wheel_has_arch(s: Stack, tables: Tables) -> Optional[Reason]:
    """A build without code for the card ends with `no kernel image is available for execution on the device`."""
    told = known.Told(list(s.archs)) if s.archs else known.archs(tables, s.torch, s.cuda)
    if known.runs(told.value, s.card.cc) is not False:
        return None
    what = (
        f"torch {s.torch} for CUDA {s.cuda} has code for {', '.join(told.value)}, and none for the {s.card.name} (compute "
        f"capability {s.card.cc}): it would end with 'no kernel image is available for execution on the device'"
    )
    return Reason("wheel-has-arch", severity(told.confidence), what, "use a build that has code for the card")


def vllm_torch_same_cuda(s: Stack, tables: Tables) -> Optional[Reason]:
    """vLLM's kernels and torch must be of one CUDA family."""
    one, other = versions.branch(s.cuda), versions.branch(s.vllm_cuda)
    if not one or not other or one == other:
        return None
    what = (
        f"vLLM {s.vllm} is built for CUDA {s.vllm_cuda} and torch {s.torch} for CUDA {s.cuda}: its import would end with "
        f"'libcudart.so.{other}: cannot open shared object file'"
    )
    return Reason("vllm-torch-same-cuda", REFUSE, what, "install both for the same CUDA, from one lock")


def vllm_needs_card(s: Stack, tables: Tables) -> Optional[Reason]:
    """The lowest compute capability that a release of vLLM is built for."""
    least = str(known.pins(tables, s.vllm).get("cc", ""))
    if not versions.older(s.card.cc, least):
        return None
    what = f"vLLM {s.vllm} needs compute capability {least} or more; the {s.card.name} has {s.card.cc}"
    return Reason("vllm-needs-card", severity(s.card.confidence), what, "use an older vLLM, or another card")


def fabric_manager_exact(s: Stack, tables: Tables) -> Optional[Reason]:
    """On boards with NVSwitches it must have the driver's version in all three parts."""
    if not (s.switches or s.card.nvswitch) or not s.driver or not s.fabric_manager or s.fabric_manager == s.driver:
        return None
    what = f"the fabric manager is {s.fabric_manager}, the driver {s.driver}: neither it nor CUDA starts (error 802)"
    do = f"install the fabric manager of exactly {s.driver}, in one step with the driver"
    return Reason("fabric-manager-exact", REFUSE, what, do)


def forward_compat_not_for_geforce(s: Stack, tables: Tables) -> Optional[Reason]:
    """cuda-compat works on data center cards; elsewhere CUDA ends with error 804."""
    if not s.forward_compat or not s.card.geforce:
        return None
    what = f"{s.forward_compat}: cuda-compat does not work on the {s.card.name} (CUDA error 804)"
    return Reason("forward-compat-not-for-geforce", REFUSE, what, "take it out, and install a driver that the wheel can run on")


def branch_ended(s: Stack, tables: Tables) -> Optional[Reason]:
    """A branch past its end gets no more security updates."""
    end = str(known.branch(tables, s.driver).get("eol", ""))
    if not end or not s.today or end >= s.today:
        return None
    best = tables["drivers"]["recommended"]["branch"]
    what = f"driver {s.driver}: NVIDIA's support of branch {versions.branch(s.driver)} ended in {end}"
    return Reason("branch-ended", WARN, what, f"plan an update, to branch {best} if nothing speaks against it")


def vllm_needs_python(s: Stack, tables: Tables) -> Optional[Reason]:
    """The Pythons of a release."""
    wanted = str(known.pins(tables, s.vllm).get("python", ""))
    if versions.fits(s.python, wanted) is not False:
        return None
    what = f"vLLM {s.vllm} needs Python {wanted}; this is {s.python}"
    return Reason("vllm-needs-python", REFUSE, what, "use another interpreter for it (modelyard_python)")


def wheel_needs_glibc(s: Stack, tables: Tables) -> Optional[Reason]:
    """The C library that the wheel's platform tag names."""
    wanted = str(known.pins(tables, s.vllm).get("glibc", ""))
    if not versions.older(s.glibc, wanted):
        return None
    what = f"the wheel of vLLM {s.vllm} needs glibc {wanted} or newer; this host has {s.glibc}"
    return Reason("wheel-needs-glibc", REFUSE, what, "use a release that is built for an older glibc, or a newer system")


def vllm_needs_transformers(s: Stack, tables: Tables) -> Optional[Reason]:
    """An install without a lock takes a transformers that the release never saw."""
    pins: Dict[str, Any] = known.pins(tables, s.vllm)
    bounds = [str(pins.get("transformers", "")), f"<{pins['transformers_below']}" if pins.get("transformers_below") else ""]
    wanted = ",".join(bound for bound in bounds if bound)
    if not s.transformers or versions.fits(s.transformers, wanted) is not False:
        return None
    what = f"vLLM {s.vllm} works with transformers {wanted}; {s.transformers} is installed"
    return Reason("vllm-needs-transformers", WARN, what, "make the environment from a lock")


def vllm_pins_torch(s: Stack, tables: Tables) -> Optional[Reason]:
    """vLLM's kernels are compiled against one torch."""
    wanted = str(known.pins(tables, s.vllm).get("torch", ""))
    if not s.torch or not wanted or versions.minor(s.torch) == versions.minor(wanted):
        return None
    what = f"vLLM {s.vllm} is built against torch {wanted}; {s.torch} is there"
    return Reason(
        "vllm-pins-torch", WARN, what, "make the environment from a lock; a build of one's own may be right all the same"
    )


def torch_needs_nccl(s: Stack, tables: Tables) -> Optional[Reason]:
    """An NCCL that is older than the one that torch was linked with lacks functions that torch asks for."""
    wanted = str(known.torch(tables, s.torch).get("nccl", "")) if s.cuda else ""
    if not versions.older(s.nccl, wanted):
        return None
    what = f"torch {s.torch} comes with NCCL {wanted}; {s.nccl} is installed: its import can end with 'undefined symbol: nccl...'"
    return Reason("torch-needs-nccl", WARN, what, "make the environment from a lock")


def build_for_backend(s: Stack, tables: Tables) -> Optional[Reason]:
    """PyTorch for CPUs or for other cards sees none of these."""
    wanted = {"nvidia": "cuda", "hygon": "hip", "amd": "hip", "cpu": ""}.get(s.backend, "")
    if not wanted or not s.variant or s.variant == wanted:
        return None
    built = {"cuda": f"CUDA {s.cuda}", "hip": "ROCm", "cpu": "CPUs alone"}.get(s.variant, s.variant)
    what = f"torch {s.torch} is built for {built}: it sees none of this host's cards"
    return Reason("build-for-backend", REFUSE, what, f"use an environment that is made for {s.backend}")


def toolkit_same_cuda(s: Stack, tables: Tables) -> Optional[Reason]:
    """Kernels that are compiled at run time need the compiler of torch's own CUDA."""
    if not s.toolkit or not versions.minor(s.cuda) or versions.minor(s.toolkit) == versions.minor(s.cuda):
        return None
    there = "no CUDA toolkit is installed" if s.toolkit == MISSING else f"the CUDA toolkit of the host is {s.toolkit}"
    what = f"{there}, torch {s.torch} is built for CUDA {s.cuda}: kernels that FlashInfer or DeepGEMM compile would not build"
    do = f"install toolkit {versions.minor(s.cuda)}, or take the compiler from pip into the environment (cuda_toolkit: pip)"
    return Reason("toolkit-same-cuda", WARN, what, do)


def compiler_same_cuda(s: Stack, tables: Tables) -> Optional[Reason]:
    """The same of a compiler that pip is to bring into the environment."""
    if not s.compiler or not versions.minor(s.cuda) or versions.minor(s.compiler) == versions.minor(s.cuda):
        return None
    there = "no CUDA compiler is in the environment" if s.compiler == MISSING else f"its CUDA compiler is {s.compiler}"
    what = f"{there}, torch {s.torch} is built for CUDA {s.cuda}: kernels that FlashInfer or DeepGEMM compile would not build"
    do = f"make the environment from a lock that has nvidia-cuda-nvcc {versions.minor(s.cuda)}, as vllm-cuda-0.33.0 has"
    return Reason("toolkit-same-cuda", WARN, what, do)


#: For every backend.
COMMON: Tuple[Rule, ...] = (build_for_backend, vllm_needs_python, wheel_needs_glibc, vllm_needs_transformers)
#: On hosts with upstream's own wheels; forks pin their own torch.
NVIDIA: Tuple[Rule, ...] = (
    gpu_needs_driver,
    gpu_dropped,
    module_flavour,
    wheel_needs_driver,
    wheel_has_arch,
    vllm_torch_same_cuda,
    vllm_needs_card,
    fabric_manager_exact,
    forward_compat_not_for_geforce,
    branch_ended,
    toolkit_same_cuda,
    compiler_same_cuda,
    *COMMON,
    vllm_pins_torch,
    torch_needs_nccl,
)
