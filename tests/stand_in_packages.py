"""Package repositories of stand-ins: names, versions, relations and maintainer scripts as real packages have them, nothing else.

A private root for apt and dpkg, with wrappers in `bin` that lead the ordinary programs there: what is installed is installed by
the real package manager, into that root. Nobody needs to be root for it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

SYSTEM = "/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Package:
    """A stand-in. `fields`: more of a control file, as Depends or Conflicts; `scripts`: maintainer scripts by name."""

    name: str
    version: str
    fields: Mapping[str, str] = field(default_factory=dict)
    scripts: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str | bytes] = field(default_factory=dict)


class AptRoot:
    """A root of its own for apt: `root` is what a host has, `repository` what is offered to it."""

    def __init__(self, folder: Path, root: Path | None = None) -> None:
        self.folder = folder
        self.root = root or folder / "root"
        self.repository = folder / "repository"
        self.bin = folder / "bin"
        for place in ("etc/apt/apt.conf.d", "etc/apt/preferences.d", "etc/apt/trusted.gpg.d", "var/lib/apt/lists/partial", "tmp"):
            (self.root / place).mkdir(parents=True, exist_ok=True)
        for place in ("var/cache/apt/archives/partial", "var/lib/dpkg/info", "var/lib/dpkg/updates", "var/log/apt", "usr"):
            (self.root / place).mkdir(parents=True, exist_ok=True)
        (self.root / "var/lib/dpkg/status").touch()
        self.repository.mkdir(parents=True)
        self.bin.mkdir()
        sources = f"deb [trusted=yes] file:{self.repository} ./\n"
        (self.root / "etc/apt/sources.list").write_text(sources, encoding="utf-8")
        settings = folder / "apt.conf"
        settings.write_text(
            f'Dir "{self.root}/";\n'
            'Dir::Bin::methods "/usr/lib/apt/methods/";\nDir::Bin::dpkg "/usr/bin/dpkg";\n'
            f'DPkg::Options {{ "--root={self.root}"; "--force-not-root"; "--force-script-chrootless"; "--force-bad-path"; }};\n'
            f'DPkg::Path "{self.bin}:{SYSTEM}";\n'
            f'DPkg::Chroot-Directory "/";\nAPT::Sandbox::User "root";\nAPT::Architecture "amd64";\nDebug::NoLocking "false";\n',
            encoding="utf-8",
        )
        for name in ("apt-get", "apt-cache", "apt-mark"):
            self.program(name, f'APT_CONFIG="{settings}" exec /usr/bin/{name} "$@"')
        own = f"--root={self.root} --force-not-root --force-script-chrootless --force-bad-path"
        self.program("dpkg", f'exec /usr/bin/dpkg {own} "$@"')

    def program(self, name: str, script: str) -> None:
        """A program that stands before the system's own."""
        file = self.bin / name
        file.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        file.chmod(0o755)

    def offer(self, *packages: Package) -> None:
        """Put packages into the repository."""
        for package in packages:
            _build_deb(package, self.repository)
        (self.repository / "Packages").write_text(
            "\n".join(_described(file, self.repository) for file in sorted(self.repository.glob("*.deb"))), encoding="utf-8"
        )
        self.run("apt-get", "-qq", "update")

    def withdraw(self, name: str, version: str) -> None:
        """Take a package out, as archives do with old versions."""
        (self.repository / f"{name}_{version.replace(':', '%3a')}_amd64.deb").unlink()
        self.offer()

    def run(self, *words: str, check: bool = True) -> str:
        """What a program of the root says."""
        done = subprocess.run(
            [str(self.bin / words[0]), *words[1:]], capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}
        )
        if check and done.returncode:
            raise AssertionError(f"{words}: {done.stdout}{done.stderr}")
        return done.stdout

    def installed(self) -> dict[str, str]:
        """Version by name of what is installed whole."""
        found = {}
        for stanza in (self.root / "var/lib/dpkg/status").read_text(encoding="utf-8").split("\n\n"):
            said = dict(line.split(": ", 1) for line in stanza.splitlines() if ": " in line and not line.startswith(" "))
            if said.get("Status", "").endswith(" ok installed"):
                found[said["Package"]] = said["Version"]
        return found


def _build_deb(package: Package, into: Path) -> None:
    place = into / f"build-{package.name}"
    (place / "DEBIAN").mkdir(parents=True)
    said = {
        "Package": package.name,
        "Version": package.version,
        "Architecture": "amd64",
        "Maintainer": "Stand-in <root@localhost>",
    }
    said |= {**package.fields, "Description": "stand-in for tests"}
    (place / "DEBIAN/control").write_text("".join(f"{k}: {v}\n" for k, v in said.items()), encoding="utf-8")
    for name, text in package.scripts.items():
        (place / "DEBIAN" / name).write_text(f"#!/bin/sh\nset -e\n{text}\n", encoding="utf-8")
        (place / "DEBIAN" / name).chmod(0o755)
    for path, text in package.files.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(text.encode() if isinstance(text, str) else text)
    file = into / f"{package.name}_{package.version.replace(':', '%3a')}_amd64.deb"
    subprocess.run(
        ["dpkg-deb", "-Znone", "--root-owner-group", "--build", str(place), str(file)], check=True, stdout=subprocess.DEVNULL
    )
    shutil.rmtree(place)


def _described(file: Path, repository: Path) -> str:
    said = subprocess.run(["dpkg-deb", "--field", str(file)], check=True, capture_output=True, text=True).stdout
    content = file.read_bytes()
    return (
        f"{said}Filename: ./{file.relative_to(repository)}\nSize: {len(content)}\nSHA256: {hashlib.sha256(content).hexdigest()}\n"
    )
