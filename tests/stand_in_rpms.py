"""The same for dnf and rpm: a repository of stand-ins, and a root into which the real dnf installs them. Needs root."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from stand_in_packages import Package

PROGRAMS = ("dnf", "rpm", "rpmbuild", "createrepo_c")
SPEC = """\
Name: {name}
Version: {version}
Release: 1.el9
Summary: stand-in for tests
License: none
Vendor: NVIDIA CORPORATION
BuildArch: x86_64
{fields}
%description
stand-in
%install
{install}
%files
{files}
"""


class DnfRoot:
    """`root` is what a host has, `repository` what is offered to it; `bin` leads the ordinary programs there."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder, self.root = folder, root
        self.repository, self.bin = folder / "repository", folder / "bin"
        for place in (root / "etc/dnf/plugins", root / "etc/yum.repos.d", root / "var/lib/rpm", self.repository, self.bin):
            place.mkdir(parents=True, exist_ok=True)
        repository = f"[stand-in]\nname=stand-in\nbaseurl=file://{self.repository}\ngpgcheck=0\nmetadata_expire=0\n"
        (root / "etc/yum.repos.d/stand-in.repo").write_text(repository, encoding="utf-8")
        locks = root / "etc/dnf/plugins/versionlock.list"
        locks.touch()
        (root / "etc/dnf/plugins/versionlock.conf").write_text(f"[main]\nenabled=1\nlocklist={locks}\n", encoding="utf-8")
        (root / "etc/dnf/dnf.conf").write_text("[main]\n", encoding="utf-8")
        own = f"--installroot={root} --config={root}/etc/dnf/dnf.conf --setopt=reposdir={root}/etc/yum.repos.d"
        more = f"--setopt=pluginconfpath={root}/etc/dnf/plugins --releasever=9 --forcearch=x86_64"
        self.program("dnf", f'exec /usr/bin/dnf {own} {more} "$@"')

    def program(self, name: str, script: str) -> None:
        """A program that stands before the system's own."""
        file = self.bin / name
        file.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        file.chmod(0o755)

    def offer(self, *packages: Package) -> None:
        """Put packages into the repository."""
        for package in packages:
            self._build(package)
        subprocess.run(["createrepo_c", "--quiet", str(self.repository)], check=True)

    def _build(self, package: Package) -> None:
        place = self.folder / "build"
        shutil.rmtree(place, ignore_errors=True)
        install, files = [], []
        for path, content in package.files.items():
            source = place / "sources" / path
            source.parent.mkdir(parents=True, exist_ok=True)
            source.write_bytes(content.encode() if isinstance(content, str) else content)
            install.append(f'install -D {source} "%{{buildroot}}/{path}"')
            files.append(f"/{path}")
        place.mkdir(exist_ok=True)
        fields = "".join(f"{key}: {value}\n" for key, value in package.fields.items())
        spec = SPEC.format(
            name=package.name, version=package.version, fields=fields, install="\n".join(install), files="\n".join(files)
        )
        (place / "package.spec").write_text(spec, encoding="utf-8")
        defines = [f"_rpmdir {self.repository}", f"_topdir {place}/top", "__os_install_post %{nil}"]
        words = [word for text in defines for word in ("--define", text)]
        subprocess.run(
            ["rpmbuild", "-bb", "--quiet", *words, "--target", "x86_64", str(place / "package.spec")],
            check=True,
            capture_output=True,
        )
