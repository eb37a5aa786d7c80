"""One case and more for each finding about what fits what: joined to CASES of test_findings.py.

id, what finds it, and the whole finding: what was found, where, and what the admin can do.
"""

from __future__ import annotations

from typing import Any, Callable

from ansible_collections.modelyard.core.plugins.module_utils.plan import planner
from unit import worlds
from unit.check_cases import about
from unit.stack_worlds import KERNEL, NO_DRIVER, SILENT, contents, gpus, host, package, with_environment

Findings = list[dict[str, str]]
OLD = {**dict.fromkeys(("loaded", "on_disk", "library"), "550.163.01"), "flavour": "open"}
NEWER = {"release": "6.8.0-90-generic", "running": False, "next": True, "headers": True, "module": ""}
NIGHTLY = {"service": "unattended-upgrades", "blacklist": []}


def said(id: str, survey: dict[str, Any], *services: dict[str, Any], **wish: Any) -> Callable[[], Findings]:
    """What a plan says about this id; `wish`: modelyard_stack."""
    intent = {**worlds.intent(*services, stack=wish), "services": list(services)}
    return lambda: about(id, planner.plan(intent, survey)["findings"])


def served(id: str, survey: dict[str, Any], **wish: Any) -> Callable[[], Findings]:
    """The same for the service over two NVIDIA cards."""
    return said(id, survey, worlds.gpu_service(), **wish)


def installed(id: str, **changes: Any) -> Callable[[], Findings]:
    """The same where that service's environment holds something else."""
    return served(id, with_environment(gpus(), **changes))


def new_runtime(id: str, release: str = "0.20.0", **changes: Any) -> Callable[[], Findings]:
    """The same for a service whose environment is not there yet."""
    service = worlds.gpu_service(runtime_path="/opt/new", vllm_release=release)
    return said(id, worlds.merged(gpus(), changes), service)


def cannot_be_imported(**changes: Any) -> dict[str, Any]:
    """The host with an environment of which only the files tell something."""
    survey = with_environment(gpus(), **changes)
    survey["runtimes"][worlds.RUNTIME]["vllm"] = ""
    return survey


def other_card(device: str, name: str, **driver: Any) -> dict[str, Any]:
    """A host with one card of another kind, which does not answer."""
    survey = gpus(driver={**NO_DRIVER, **driver}, seen=SILENT)
    card = worlds.card(0, name=name, health="unknown")
    function = {**survey["accelerators"]["nvidia"]["on_bus"][0], "device": device}
    survey["cards"]["nvidia"], survey["accelerators"]["nvidia"]["on_bus"] = [card], [function]
    return survey


def dcus(dtk: str, **more: Any) -> dict[str, Any]:
    """Eight K100_AI with this DTK, and an environment for DTK 25.04.1."""
    survey = worlds.hygon()
    survey["stack"] = host(dtk={"path": "/opt/dtk", "version": dtk, **more})
    held = contents(python="3.10.12", archs=[], cuda="", variant="hip", hip="6.3")
    held["packages"] = {"torch": "2.5.1+das.opt1.dtk25041", "vllm": "0.9.2+das.opt1.beta.dtk25041"}
    survey["runtimes"] = {worlds.RUNTIME: {"exists": True, "complete": False, "error": "", "vllm": held["packages"]["vllm"]}}
    survey["runtimes"][worlds.RUNTIME]["contents"] = held
    return survey


CASES: list[tuple[str, Callable[[], Findings], str, str, str]] = [
    (
        "PF-STACK-GPU-DRIVER",
        said("PF-STACK-GPU-DRIVER", gpus(driver=NO_DRIVER, seen=SILENT), driver="515.105.01"),
        "box:nvidia",
        "driver 515.105.01 does not know the GeForce RTX 4090: the first one that does is 520.56.06",
        "install a newer driver. Nearest right set: an admin: driver 580.178.04 (branch 580, open kernel modules)",
    ),
    (
        "PF-STACK-GPU-DROPPED",
        said("PF-STACK-GPU-DROPPED", other_card("1db6", "Tesla V100-PCIE-32GB"), driver="595"),
        "box:nvidia",
        "driver 595.91.07 no longer drives the Tesla V100-PCIE-32GB (volta): the last branch is 580",
        "stay on branch 580. Nearest right set: an admin: driver 580.178.04 (branch 580, proprietary kernel modules)",
    ),
    (
        "PF-STACK-FLAVOUR",
        said("PF-STACK-FLAVOUR", gpus(), driver="615.71.09", flavour="proprietary"),
        "box:nvidia",
        "driver 615.71.09 has no proprietary kernel modules: from branch 615 on there are open ones alone",
        ("use the open modules. Nearest right set: without root: driver 580.95.05 (branch 580), which is loaded already"),
    ),
    (
        "PF-STACK-CUDA-DRIVER",
        served("PF-STACK-CUDA-DRIVER", with_environment(gpus(driver=OLD))),
        "box:/opt/vllm",
        "torch 2.13.0+cu130 is built for CUDA 13.0, which needs driver 580.65.06 or newer; this is 550.163.01",
        (
            "install a newer driver, or an older vLLM. Nearest right set: an admin: driver 580.178.04 (branch 580, "
            "open kernel modules); without root: vLLM 0.19.1 with torch 2.10.0 for CUDA 12.8"
        ),
    ),
    (
        "PF-STACK-CUDA-PTX",
        served("PF-STACK-CUDA-PTX", with_environment(gpus(driver={**OLD, "loaded": "580.65.06"}))),
        "box:/opt/vllm",
        (
            "torch 2.13.0+cu130 is built for CUDA 13.0, which NVIDIA pairs with driver 580.95.05; on 580.65.06 "
            "compiled kernels run, but one that is there as PTX alone ends with 'the provided PTX was compiled with "
            "an unsupported toolchain'"
        ),
        "plan an update to driver 580.95.05 or newer",
    ),
    (
        "PF-STACK-CUDA-MIX",
        installed("PF-STACK-CUDA-MIX", cuda="12.9", packages={"torch": "2.13.0+cu129"}),
        "box:/opt/vllm",
        (
            "vLLM 0.32.0 is built for CUDA 13.0 and torch 2.13.0+cu129 for CUDA 12.9: its import would end with "
            "'libcudart.so.13: cannot open shared object file'"
        ),
        (
            "install both for the same CUDA, from one lock. Nearest right set: without root: vLLM 0.32.0 with torch "
            "2.13.0 for CUDA 13.0"
        ),
    ),
    (
        "PF-STACK-NO-KERNELS",
        installed("PF-STACK-NO-KERNELS", archs=["9.0", "10.0"]),
        "box:/opt/vllm",
        (
            "torch 2.13.0+cu130 for CUDA 13.0 has code for 9.0, 10.0, and none for the GeForce RTX 4090 (compute "
            "capability 8.9): it would end with 'no kernel image is available for execution on the device'"
        ),
        ("use a build that has code for the card. Nearest right set: without root: vLLM 0.32.0 with torch 2.13.0 for CUDA 13.0"),
    ),
    (
        "PF-STACK-CARD-FLOOR",
        said(
            "PF-STACK-CARD-FLOOR",
            other_card("1db6", "Tesla V100-PCIE-32GB", loaded="580.95.05", flavour="proprietary"),
            vllm="0.32.0",
        ),
        "box:nvidia",
        "vLLM 0.32.0 needs compute capability 7.5 or more; the Tesla V100-PCIE-32GB has 7.0",
        ("use an older vLLM, or another card. Nearest right set: without root: vLLM 0.19.1 with torch 2.10.0 for CUDA 12.8"),
    ),
    (
        "PF-STACK-CARD-UNKNOWN",
        said("PF-STACK-CARD-UNKNOWN", other_card("ffff", "NVIDIA Test Card", loaded="580.95.05")),
        "box:nvidia",
        ("the NVIDIA Test Card stands in no table of this version: whether driver and wheels have code for it was not judged"),
        "let the tensor test compute on it (preflight.yml --tags card_test)",
    ),
    (
        "PF-STACK-BUILD",
        installed("PF-STACK-BUILD", cuda="", variant="cpu", packages={"torch": "2.13.0+cpu"}),
        "box:/opt/vllm",
        "torch 2.13.0+cpu is built for CPUs alone: it sees none of this host's cards",
        (
            "use an environment that is made for nvidia. Nearest right set: without root: vLLM 0.32.0 with torch "
            "2.13.0 for CUDA 13.0"
        ),
    ),
    (
        "PF-STACK-PYTHON",
        served("PF-STACK-PYTHON", cannot_be_imported(python="3.10.12")),
        "box:/opt/vllm",
        "vLLM 0.32.0 needs Python >=3.11,<3.15; this is 3.10.12",
        "use another interpreter for it (modelyard_python)",
    ),
    (
        "PF-STACK-GLIBC",
        new_runtime("PF-STACK-GLIBC", stack={"glibc": "2.34"}),
        "box:qwen3-14b-32k",
        "the wheel of vLLM 0.20.0 needs glibc 2.35 or newer; this host has 2.34",
        (
            "use a release that is built for an older glibc, or a newer system. Nearest right set: without root: "
            "vLLM 0.33.0 with torch 2.14.0 for CUDA 13.0"
        ),
    ),
    (
        "PF-STACK-PINS",
        installed("PF-STACK-PINS", packages={"transformers": "4.57.6"}),
        "box:/opt/vllm",
        "vLLM 0.32.0 works with transformers >=5.16.1,<5.20.0; 4.57.6 is installed",
        "make the environment from a lock",
    ),
    (
        "PF-STACK-TOOLKIT",
        served("PF-STACK-TOOLKIT", with_environment(gpus(cuda_toolkit="12.4.1")), cuda_toolkit="system"),
        "box:/opt/vllm",
        (
            "the CUDA toolkit of the host is 12.4.1, torch 2.13.0+cu130 is built for CUDA 13.0: kernels that "
            "FlashInfer or DeepGEMM compile would not build"
        ),
        "install toolkit 13.0, or take the compiler from pip into the environment (cuda_toolkit: pip)",
    ),
    (
        "PF-STACK-TOOLKIT",
        served("PF-STACK-TOOLKIT", with_environment(gpus(), packages={"nvidia_cuda_nvcc": "13.5.37"}), cuda_toolkit="pip"),
        "box:/opt/vllm",
        (
            "its CUDA compiler is 13.5.37, torch 2.13.0+cu130 is built for CUDA 13.0: kernels that FlashInfer or DeepGEMM "
            "compile would not build"
        ),
        "make the environment from a lock that has nvidia-cuda-nvcc 13.0, as vllm-cuda-0.33.0 has",
    ),
    (
        "PF-STACK-TOOLKIT",
        served("PF-STACK-TOOLKIT", with_environment(gpus()), cuda_toolkit="pip"),
        "box:/opt/vllm",
        (
            "no CUDA compiler is in the environment, torch 2.13.0+cu130 is built for CUDA 13.0: kernels that FlashInfer or "
            "DeepGEMM compile would not build"
        ),
        "make the environment from a lock that has nvidia-cuda-nvcc 13.0, as vllm-cuda-0.33.0 has",
    ),
    (
        "PF-STACK-COMPAT",
        said(
            "PF-STACK-COMPAT",
            with_environment(gpus()),
            worlds.gpu_service(environment={"LD_LIBRARY_PATH": "/usr/local/cuda/compat"}),
        ),
        "box:/opt/vllm",
        (
            "LD_LIBRARY_PATH of qwen3-14b-32k names /usr/local/cuda/compat: cuda-compat does not work on the GeForce "
            "RTX 4090 (CUDA error 804)"
        ),
        "take it out, and install a driver that the wheel can run on",
    ),
    (
        "PF-STACK-FABRIC",
        said("PF-STACK-FABRIC", gpus(switches=4, fabric_manager="580.95.04", fabric_manager_runs=True)),
        "box:nvidia",
        "the fabric manager is 580.95.04, the driver 580.95.05: neither it nor CUDA starts (error 802)",
        "install the fabric manager of exactly 580.95.05, in one step with the driver",
    ),
    (
        "PF-STACK-DTK",
        said("PF-STACK-DTK", dcus("25.04.2"), worlds.dcu_service()),
        "box:/opt/vllm",
        "torch 2.5.1+das.opt1.dtk25041 is built for DTK 25041; this host has DTK 25.04.2",
        (
            "use wheels of the host's DTK, or install theirs. Nearest right set: without root: "
            "vllm-0.11.0+das.opt1.alpha.dtk25042-cp310-cp310-manylinux_2_28_x86_64.whl and "
            "torch-2.5.1+das.opt1.dtk25042-cp310-cp310-manylinux_2_28_x86_64.whl"
        ),
    ),
    (
        "PF-STACK-DTK-ENV",
        said("PF-STACK-DTK-ENV", dcus("25.04.1", problem="there is no /opt/dtk/env.sh"), worlds.dcu_service()),
        "box:/opt/vllm",
        "what DTK's env.sh sets is not known, and engines start without it: there is no /opt/dtk/env.sh",
        "let root own the toolkit and nobody else write there, or correct env.sh",
    ),
    (
        "PF-STACK-ENDED",
        said("PF-STACK-ENDED", gpus(driver={**OLD, "loaded": "570.172.08"})),
        "box:nvidia",
        "driver 570.172.08: NVIDIA's support of branch 570 ended in 2026-02",
        "plan an update, to branch 580 if nothing speaks against it",
    ),
    (
        "PF-STACK-DRIFT",
        said("PF-STACK-DRIFT", gpus(), driver="595"),
        "box:nvidia",
        "driver 580.95.05 is loaded, the inventory wants 595; what is there works, so it stays",
        "correct modelyard_stack.driver, or plan the change to 595",
    ),
    (
        "PF-STACK-NOUVEAU",
        said("PF-STACK-NOUVEAU", gpus(driver=NO_DRIVER, seen=SILENT, nouveau={"loaded": True, "blacklisted": False})),
        "box:nvidia driver",
        "the module nouveau has taken the cards; it is not blacklisted",
        "an admin blacklists it (blacklist nouveau, options nouveau modeset=0), rebuilds the initramfs and reboots",
    ),
    (
        "PF-STACK-VFIO",
        said(
            "PF-STACK-VFIO",
            gpus(seen={"on_bus": [{**worlds.nvidia()["accelerators"]["nvidia"]["on_bus"][0], "driver": "vfio-pci"}]}),
        ),
        "box:nvidia driver",
        "0000:01:00.0 is bound to vfio-pci: it is handed to a virtual machine",
        "take it out of the inventory, or ask who gave it away",
    ),
    (
        "PF-STACK-SECURE-BOOT",
        said("PF-STACK-SECURE-BOOT", gpus(driver={**NO_DRIVER, "library": "580.95.05"}, seen=SILENT, secure_boot=True)),
        "box:nvidia driver",
        ("Secure Boot is on: the kernel loads signed modules alone, and nobody has signed one that is built here (DKMS)"),
        ("take modules that the distribution signs; or an admin enrols the key of DKMS at the console (mokutil --import)"),
    ),
    (
        "PF-STACK-HEADERS",
        said("PF-STACK-HEADERS", gpus(package("nvidia-dkms-580-open"), package("dkms"), kernels=[{**KERNEL, "headers": False}])),
        "box:nvidia driver",
        "the driver is built on this host (DKMS), and headers of the running kernel 6.8.0-88-generic are missing",
        "an admin installs linux-headers or kernel-devel of exactly this kernel; not a newer kernel instead",
    ),
    (
        "PF-STACK-FOREIGN",
        said("PF-STACK-FOREIGN", gpus(installer="/usr/bin/nvidia-uninstall")),
        "box:nvidia driver",
        (
            "the driver came with NVIDIA's .run installer (/usr/bin/nvidia-uninstall): no update and no hold of "
            "packages reaches it"
        ),
        "this project will not change it; to have packages instead, an admin runs /usr/bin/nvidia-uninstall first",
    ),
    (
        "PF-STACK-MIXED",
        said("PF-STACK-MIXED", gpus(package("libnvidia-compute-570", "570.172.08-0ubuntu1"), package("nvidia-utils-580-server"))),
        "box:nvidia driver",
        ("packages of the driver are of 2 versions (570.172.08: libnvidia-compute-570; 580.95.05: nvidia-utils-580-server)"),
        ("an admin makes one set of them, by the names that are listed; never by *nvidia*, which takes the container tools too"),
    ),
    (
        "PF-STACK-NEXT-KERNEL",
        said("PF-STACK-NEXT-KERNEL", gpus(kernels=[{**KERNEL, "next": False}, NEWER])),
        "box:nvidia driver",
        ("the newest installed kernel 6.8.0-90-generic has no module of the driver: after the next reboot no card works"),
        "before a reboot, an admin installs the module package of that kernel, or its headers and lets DKMS build it",
    ),
    (
        "PF-STACK-UPDATES",
        said("PF-STACK-UPDATES", gpus(package("nvidia-utils-580-server", held=False), updates=NIGHTLY)),
        "box:nvidia driver",
        (
            "unattended-upgrades is active, and nothing holds nvidia-utils-580-server: after an update under a "
            "loaded module every new process ends with 'Driver/library version mismatch'"
        ),
        ("an admin holds all packages of the driver (apt-mark hold, dnf versionlock), and lists them in the updater's blacklist"),
    ),
    (
        "PF-STACK-PERSISTENCE",
        said("PF-STACK-PERSISTENCE", gpus(persistenced=False)),
        "box:nvidia driver",
        "the persistence daemon does not run: each first use wakes the cards up, which takes seconds",
        "an admin enables nvidia-persistenced",
    ),
    (
        "PF-LOOPBACK",
        said("PF-LOOPBACK", worlds.survey(), worlds.service(key_hash="0123456789abcdef")),
        "box:8000",
        "the engines of tiny-qwen3 listen on 127.0.0.1 alone: there is an API key, but no other host reaches port 8000",
        "set listen.host to the host's own address, or to 0.0.0.0; nothing, where all clients and their tunnels are on this host",
    ),
    (
        "PF-LOOPBACK",
        said(
            "PF-LOOPBACK",
            worlds.survey(),
            worlds.service(
                key_hash="0123456789abcdef",
                listen={"base_port": 8002},
                gateway={**worlds.NO_GATEWAY, "kind": "modelyard", "host": "127.0.0.1"},
            ),
        ),
        "box:8000",
        "the gateway of tiny-qwen3 listens on 127.0.0.1 alone: there is an API key, but no other host reaches port 8000",
        (
            "set gateway.host to the host's own address, or to 0.0.0.0; nothing, where all clients and their tunnels are on "
            "this host"
        ),
    ),
]
