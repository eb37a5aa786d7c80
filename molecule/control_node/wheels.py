"""Get what a control node needs from the package index, for another Python than this one: `wheels.py LOCK FOLDER VERSION`.

pip reads markers as the Python that runs it does, so the lines of the lock that are meant for VERSION are chosen here. Nothing is
asked of the index when everything is there.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

from packaging.requirements import Requirement

#: Builds that run on Debian 12 (glibc 2.36).
GLIBC = (36, 34, 28, 17)


def wanted(lock: str, version: str) -> list[str]:
    """`NAME==VERSION` of each line of a lock that is meant for a Python of that version (`3.11.2`)."""
    here = {"python_full_version": version, "python_version": version.rpartition(".")[0]}
    lines = [Requirement(line) for line in lock.splitlines() if line.strip() and not line.startswith("#")]
    return [f"{one.name}{one.specifier}" for one in lines if one.marker is None or one.marker.evaluate(here)]


def main() -> None:
    """The file `complete` in the folder holds the names that lie there."""
    lock, folder, version = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    names = wanted(lock.read_text(encoding="utf-8"), version)
    done = folder / "complete"
    if done.exists() and done.read_text(encoding="utf-8").split() == names:
        return
    platforms = [f"--platform=manylinux_2_{minor}_{platform.machine()}" for minor in GLIBC]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "download", "--no-deps"]
    command += ["--only-binary=:all:", f"--python-version={version}", *platforms, f"--dest={folder}", *names]
    subprocess.run(command, check=True)
    done.write_text("\n".join(names), encoding="utf-8")
    print("changed")


if __name__ == "__main__":
    main()
