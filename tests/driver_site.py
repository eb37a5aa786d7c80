"""An Ubuntu server with two RTX 4090 below a folder: files of a kernel, a real apt and dpkg, stand-ins for packages."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path
from typing import Any

from ansible_collections.modelyard.core.plugins.module_utils.plan import tables
from ansible_collections.modelyard.core.plugins.module_utils.plan.driver.allowed import Wanted
from ansible_collections.modelyard.core.plugins.module_utils.process import driver
from simulators.install import install
from stand_in_packages import AptRoot, Package

KERNEL = os.uname().release
OLD, NEW = "580.95.05", "580.178.04"
MODULES = f"linux-modules-nvidia-580-server-open-{KERNEL}"
HEADLESS, UTILS = "nvidia-headless-no-dkms-580-server-open", "nvidia-utils-580-server"
COMMON, LIBRARY, DAEMON = "nvidia-kernel-common-580-server", "libnvidia-compute-580-server", "nvidia-compute-utils-580-server"
SET = {MODULES, HEADLESS, UTILS, COMMON, LIBRARY, DAEMON}
NAMES = ((MODULES,), (HEADLESS,), (UTILS,))
UNIT = "[Unit]\nDescription=stand-in\n[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"
#: As the packages of the archive do with depmod and ldconfig.
DEPMOD = f'echo "updates/nvidia.ko.gz:" > "$DPKG_ROOT/lib/modules/{KERNEL}/modules.dep"'
LINK = 'ln -sf libnvidia-ml.so.{version} "$DPKG_ROOT/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"'
LOAD = """\
mkdir -p {root}/sys/module/nvidia {root}/proc/driver/nvidia
version=$(gunzip -c {root}/lib/modules/{kernel}/updates/nvidia.ko.gz | tr '\\0' '\\n' | sed -n 's/^version=//p')
echo "$version" > {root}/sys/module/nvidia/version
echo "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  $version  Release Build" > {root}/proc/driver/nvidia/version
"""
ENABLE = """\
for word in "$@"; do case "$word" in *.service)
  mkdir -p {root}/etc/systemd/system/multi-user.target.wants
  ln -sf /usr/lib/systemd/system/$word {root}/etc/systemd/system/multi-user.target.wants/$word;;
esac; done
echo "$@" >> {root}/systemctl.log
"""


def packages(version: str, scripts: dict[str, dict[str, str]] | None = None, branch: str = "580") -> list[Package]:
    """The set of Canonical's archive at one version. `scripts`: more of them, by package."""
    full, more = f"{version}-0ubuntu0.24.04.1", scripts or {}

    def one(
        name: str, *needs: str, post: str = "", files: dict[str, str | bytes] | None = None, number: str = full, **fields: str
    ) -> Package:
        own = {**({"postinst": post} if post else {}), **more.get(name, {})}
        relations = {**({"Depends": ", ".join(needs)} if needs else {}), **fields}
        return Package(name.replace("580", branch), number, relations, own, files or {})

    def needs(*names: str) -> list[str]:
        return [f"{name} (= {full})".replace("580-", f"{branch}-") for name in names]

    module = gzip.compress(f"\x7fELF\0license=Dual MIT/GPL\0version={version}\0".encode(), mtime=0)
    blacklist = "blacklist nouveau\n"
    library = {f"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{version}": ""}
    return [
        one(
            COMMON,
            files={"usr/lib/modprobe.d/nvidia-graphics-drivers.conf": blacklist},
            Conflicts="nvidia-kernel-common",
            Provides="nvidia-kernel-common",
        ),
        one(
            LIBRARY, files=library, post=LINK.format(version=version), Conflicts="libnvidia-compute", Provides="libnvidia-compute"
        ),
        one(DAEMON, files={"usr/lib/systemd/system/nvidia-persistenced.service": UNIT}),
        one(
            MODULES,
            *needs(COMMON),
            files={f"lib/modules/{KERNEL}/updates/nvidia.ko.gz": module},
            post=DEPMOD,
            number=f"6.8.0-88.89+{version}",
        ),
        # Without versions, as the archive has some: exact ones are the role's own work.
        one(HEADLESS, COMMON.replace("580", branch), DAEMON.replace("580", branch)),
        one(UTILS, LIBRARY.replace("580", branch), Conflicts="nvidia-utils", Provides="nvidia-utils"),
    ]


class Site:
    """The server. Nothing is installed at first; `offered` versions are in its repository."""

    def __init__(self, folder: Path, *offered: str) -> None:
        self.root = folder / "root"
        install(self.root, "2x4090")
        for path in ("sys/module/nvidia", "proc/driver/nvidia", "usr/bin/nvidia-smi", "usr/lib/x86_64-linux-gnu", "lib/modules"):
            shutil.rmtree(self.root / path, ignore_errors=True)
            (self.root / path).unlink(missing_ok=True)
        self.apt = AptRoot(folder, self.root)
        self.write("etc/os-release", 'ID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04.3 LTS"\n')
        self.write(f"boot/vmlinuz-{KERNEL}", "")
        self.write(f"boot/initrd.img-{KERNEL}", "")
        (self.root / "lib/modules" / KERNEL).mkdir(parents=True)
        self.apt.program("modprobe", LOAD.format(root=self.root, kernel=KERNEL))
        self.apt.program("systemctl", ENABLE.format(root=self.root))
        self.apt.program("update-initramfs", f"touch {self.root}/boot/initrd.img-*; echo done >> {self.root}/initramfs.log")
        for version in offered:
            self.apt.offer(*packages(version))

    def write(self, path: str, text: str) -> None:
        """A file of the server."""
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text, encoding="utf-8")

    def text(self, path: str) -> str:
        """A file of the server; empty for none."""
        return (self.root / path).read_text(encoding="utf-8") if (self.root / path).exists() else ""

    def change(self, version: str = NEW, names: Any = NAMES, check: bool = False, **changes: Any) -> driver.Outcome:
        """What the module does."""
        backends = {kind: {**entry, "tool_places": []} for kind, entry in tables.accelerators().items()}
        survey = {"home": str(self.root / "home"), "runtimes_dir": "", "backends": backends, "sysroot": str(self.root)}
        request = driver.Request(
            survey=survey,
            name="server1",
            tool_path=[str(self.apt.bin)],
            wanted=Wanted("driver", version, tuple(tuple(one) for one in names)),
            flavour="open",
            signed=True,
            boot_mib=1,
            usr_mib=1,
            wait_s=1,
            limit_s=60,
            pending_reboot_allowed=False,
        )
        return driver.change(request._replace(**changes), check)
