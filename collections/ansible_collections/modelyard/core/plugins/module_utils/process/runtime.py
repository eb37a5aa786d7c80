"""Making a runtime on the host: a virtual environment from a lock, never changed after it is made."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import time
import zipfile
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional

from ansible_collections.modelyard.core.plugins.module_utils.process import layout, proc, vendor_files
from ansible_collections.modelyard.core.plugins.module_utils.survey import wheelhouse
from ansible_collections.modelyard.core.plugins.module_utils.survey.runtimes import COMPLETE, FULL_CHECK, seal
from ansible_collections.modelyard.core.plugins.module_utils.survey.runtimes import environment as import_environment

NEXT_STEP = (
    "When an index cannot be reached from this host: set runtime_index_url and runtime_torch_index_url to mirrors, or "
    "runtime_find_links to a folder with the packages. The next deploy makes the runtime anew."
)
MAKING = "making.json"
LIMIT_S = 3600
MISSING = re.compile(r" requires .*which is not installed| has requirement .*but you have ")
NAME = re.compile(r"[A-Za-z0-9._-]+")
#: What the installed torch says of itself. The list of architectures is asked for without a card: torch's own call needs one.
SAYS = """
import importlib.metadata, json, sys, torch
arch = getattr(torch._C, "_cuda_getArchFlags", lambda: "")() if torch.version.cuda or torch.version.hip else ""
built = {"torch": torch.__version__, "cuda": torch.version.cuda or "", "hip": torch.version.hip or ""}
versions = {name: importlib.metadata.version(name) for name in sys.argv[1:]}
print(json.dumps({**built, "arch": (arch or "").split(), **({"versions": versions} if versions else {})}))
"""


class RuntimeFailed(Exception):
    """The runtime could not be made; the text says why and what to do."""


class Making(NamedTuple):
    """One runtime to be made; the fields are the options of the module runtime_env."""

    path: str
    lock: str
    digest: str
    python: str
    torch_packages: List[str]
    torch_index_url: str
    index_url: str
    find_links: str
    wheelhouse: str
    expect: Dict[str, str]
    check: str
    metadata_shim: Dict[str, str]
    left_out: List[str]
    run: str
    vendor: List[Dict[str, str]]
    environment: Dict[str, str]

    @property
    def folder(self) -> Path:
        """The runtime's folder."""
        return Path(self.path)

    @property
    def log(self) -> Path:
        """Output of all that was run to make it; beside the folder, so that it outlives a failed attempt."""
        return self.folder.with_name(self.folder.name + ".log")

    def complete(self) -> bool:
        """Is it there, whole?"""
        return layout.read_json(self.folder / COMPLETE) is not None

    # -- phases --------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Clear a half-made one and make the empty environment; only after wheels that come as files were proven whole."""
        self._refuse_damaged_wheels()
        sums = self._vendor_sums()
        if self.folder.exists():
            self._refuse_what_is_not_half_made()
            shutil.rmtree(str(self.folder))
        self.folder.mkdir(parents=True)
        self.log.write_text("", encoding="utf-8")
        layout.write_json(self.folder / MAKING, {"run": self.run, **({"vendor": sums} if sums else {})})
        self._run([self.python, "-m", "venv", str(self.folder)])

    def torch(self) -> None:
        """Packages with a local version such as +cpu, from pip's own place if it has them, else from their index.

        Those of a vendor are files, and nobody is asked for them.
        """
        if self.vendor:
            files = [entry["path"] for entry in self.vendor]
            self._run([*self._pip(), "install", "--no-deps", "--no-index", *files], alone=True)
        wanted = [r for r in self.requirements() if _name(r) in self.torch_packages]
        if not wanted or self.wheelhouse:
            return
        probe = [*self._pip(), "install", "--dry-run", "--quiet", "--no-deps", "--no-index", *self._links(), *wanted]
        if self._try(probe):
            self._run([*self._pip(), "install", "--no-deps", "--no-index", *self._links(), *wanted])
        else:
            self._run([*self._pip(), "install", "--no-deps", *self._links(), *wanted], self.torch_index_url)

    def packages(self) -> None:
        """Everything else of the lock, exactly; pip resolves nothing."""
        rest = [r for r in self.requirements() if self.wheelhouse or _name(r) not in self.torch_packages]
        file = self.folder / "requirements.txt"
        file.write_text("\n".join(rest) + "\n", encoding="utf-8")
        self._run([*self._pip(), "install", "--no-deps", *self._links(), "-r", str(file)], self.index_url)

    def finish(self) -> None:
        """Add the metadata-only package, import for real, compare what torch says of itself, and declare the runtime whole."""
        if self.metadata_shim:
            wheel = metadata_wheel(self.folder, self.metadata_shim["name"], self.metadata_shim["version"])
            self._run([*self._pip(), "install", "--no-deps", "--no-index", str(wheel)])
            wheel.unlink()
        self._refuse_if_incomplete()
        self._run([str(self.folder / "bin" / "python"), "-c", self.check or FULL_CHECK], more=self._toolkit())
        says = self._refuse_what_is_not_expected()
        own = layout.read_json(self.folder / MAKING) or {}
        frozen = subprocess.run([*self._pip(), "freeze"], capture_output=True, text=True, check=False).stdout.splitlines()
        made = {"digest": self.digest, "made_at": time.time(), "packages": sorted(frozen), "says": says, "seal": seal(self.path)}
        vendor = {"vendor": own["vendor"]} if own.get("vendor") else {}
        layout.write_json(self.folder / COMPLETE, {**made, **vendor, **self._kind()})
        (self.folder / MAKING).unlink()

    # -- parts ---------------------------------------------------------------------------------------------------

    def requirements(self) -> List[str]:
        """The lock's lines without comments."""
        lines = (line.strip() for line in self.lock.splitlines())
        return [line for line in lines if line and not line.startswith("#")]

    def _refuse_what_is_not_half_made(self) -> None:
        making = layout.read_json(self.folder / MAKING)
        if making is None and any(self.folder.iterdir()):
            raise RuntimeFailed(
                f"{self.folder} exists, but nothing in it says that it is a runtime of this project. Move it away, or set "
                "modelyard_runtimes_dir to another folder."
            )

    def _refuse_if_incomplete(self) -> None:
        """Every requirement of every package is there at a fitting version, but for what the lock leaves out on purpose.

        What a vendor's packages say they need is only written down: it was seen to be wrong in environments that serve.
        """
        checked = subprocess.run([*self._pip(), "check"], capture_output=True, text=True, check=False).stdout.splitlines()
        missing = [line for line in checked if MISSING.search(line) and not any(f" {n}" in line for n in self.left_out)]
        theirs = [line for line in missing if vendor_files.plain(line.split(" ")[0]) in vendor_files.versions(self.vendor)]
        with self.log.open("a", encoding="utf-8") as log:
            log.writelines(f"the vendor's own say, and it is not so: {line}\n" for line in theirs)
        missing = [line for line in missing if line not in theirs]
        if missing:
            raise RuntimeFailed("\n".join([f"the lock of {self.folder.name} is not whole:", *missing]))

    def _refuse_damaged_wheels(self) -> None:
        wrong = wheelhouse.damaged(self.wheelhouse) if self.wheelhouse else []
        if wrong:
            raise RuntimeFailed(
                f"{self.wheelhouse}: {len(wrong)} of its wheels are not what {wheelhouse.MANIFEST} says (by SHA-256): "
                f"{', '.join(wrong[:5])}. Copy the folder again; nothing was changed."
            )

    def _vendor_sums(self) -> Dict[str, str]:
        """SHA-256 of the vendor's files by name; refused, all at once, where one is not there or another one than was named."""
        found, wrong = vendor_files.sums(self.vendor)
        if wrong:
            raise RuntimeFailed("\n".join(["files of the vendor are not as they should be; nothing was changed:", *wrong]))
        return found

    def _toolkit(self) -> Dict[str, str]:
        """With what the vendor's packages are imported; nothing for others."""
        return import_environment(self.path, self.environment) if self.vendor else {}

    def _refuse_what_is_not_expected(self) -> Dict[str, object]:
        """What torch says of itself, which must be what the lock was made for: a CUDA build on a CPU host imports well."""
        program = str(self.folder / "bin" / "python")
        named = vendor_files.versions(self.vendor)
        try:
            done = subprocess.run(
                [program, "-c", SAYS, *named],
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=True,
                cwd="/",
                env={**os.environ, **self._toolkit()},
            )
            said = json.loads(done.stdout.strip().splitlines()[-1])
        except (OSError, subprocess.SubprocessError, ValueError, IndexError) as exc:
            raise RuntimeFailed(f"{program}: torch does not say which build it is: {exc}") from exc
        wrong = "; ".join(vendor_files.differences(said, self.expect, named))
        if wrong:
            raise RuntimeFailed(
                f"{self.folder.name}: another build of torch was installed: {wrong}. An index or a folder of packages gave it: "
                "name the right ones with runtime_torch_index_url, runtime_index_url or modelyard_wheelhouse."
            )
        return dict(said)

    def _kind(self) -> Dict[str, object]:
        """One without vLLM says how it was proven, because others look for vLLM."""
        return {"check": self.check} if self.check else {}

    def _still_mine(self) -> None:
        if (layout.read_json(self.folder / MAKING) or {}).get("run") != self.run:
            raise RuntimeFailed(f"another run began to make {self.folder} anew. Wait for it, then run again.")

    @contextlib.contextmanager
    def _at_work(self) -> Iterator[None]:
        """Held by whoever works on this folder right now, pip included; the kernel lets go of it when they die."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with self.folder.with_name(self.folder.name + ".lock").open("a") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as exc:
                raise RuntimeFailed(
                    f"{self.folder} is being made by another run right now; wait for it, then run again."
                ) from exc
            os.set_inheritable(handle.fileno(), True)
            yield

    def do(self, phase: str) -> None:
        """One phase by its name, unless somebody else works here."""
        with self._at_work():
            if phase != "begin":
                self._still_mine()
            getattr(self, phase)()

    def _pip(self) -> List[str]:
        return [str(self.folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]

    def _links(self) -> List[str]:
        if self.wheelhouse:
            return ["--no-index", "--find-links", self.wheelhouse]
        return ["--find-links", self.find_links] if self.find_links else []

    def _try(self, words: List[str]) -> bool:
        return subprocess.run(words, capture_output=True, timeout=LIMIT_S, check=False).returncode == 0

    def _run(self, words: List[str], index: str = "", alone: bool = False, more: Optional[Mapping[str, str]] = None) -> None:
        # An index's address may hold a password: it goes by environment, not into a process list, and not into the log.
        environment = {**os.environ, **({"PIP_INDEX_URL": index} if index else {}), **(more or {})}
        if self.wheelhouse or alone:  # nothing but its wheels, whatever pip is configured with on this host
            environment = {key: text for key, text in environment.items() if not key.startswith("PIP_")}
            environment["PIP_CONFIG_FILE"] = os.devnull
        with self.log.open("a", encoding="utf-8") as log:
            log.write("$ " + proc.masked(" ".join(words))[:2000] + "\n")
            log.flush()
            try:
                done = subprocess.run(
                    words, stdout=log, stderr=log, timeout=LIMIT_S, check=False, cwd="/", close_fds=False, env=environment
                )
            except (OSError, subprocess.SubprocessError) as exc:
                raise RuntimeFailed(f"{words[0]}: {exc}") from exc
        if done.returncode:
            tail = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-12:]
            raise RuntimeFailed("\n".join([f"making {self.folder.name} failed (whole log: {self.log}):", *tail, NEXT_STEP]))


def _name(requirement: str) -> str:
    match = NAME.match(requirement)
    return match.group(0).lower() if match else ""


def metadata_wheel(folder: Path, name: str, version: str) -> Path:
    """A wheel with metadata and nothing else: for builds that leave out the name their own command asks for."""
    info = f"{name}-{version}.dist-info"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(str(path), "w") as wheel:
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: modelyard\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", f"{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return path
