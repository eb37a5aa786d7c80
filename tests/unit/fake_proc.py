"""A folder that looks like /proc, one process at a time."""

from __future__ import annotations

from pathlib import Path


def stat_line(pid: int, comm: str, state: str = "S", ppid: int = 1, sid: int = 1, start: int = 100) -> str:
    """/proc/PID/stat as Linux 6 writes it: 52 fields, of which pgrp is the session here and threads are 3."""
    return (
        f"{pid} ({comm}) {state} {ppid} {sid} {sid} 0 -1 4194560 100 0 0 0 5 3 0 0 20 0 3 0 {start} "
        "4096000 250 18446744073709551615 1 1 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
    )


def add(
    root: Path,
    pid: int,
    comm: str = "python",
    environ: dict[str, str] | None = None,
    command: tuple[str, ...] = ("python",),
    cwd: str = "/",
    maps: tuple[str, ...] = (),
    files: tuple[str, ...] = (),
    **stat: object,
) -> None:
    """Add one process."""
    folder = root / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "stat").write_text(stat_line(pid, comm, **stat), encoding="utf-8")  # type: ignore[arg-type]
    (folder / "environ").write_text("".join(f"{k}={v}\0" for k, v in (environ or {}).items()), encoding="utf-8")
    (folder / "cmdline").write_text("".join(f"{word}\0" for word in command), encoding="utf-8")
    (folder / "cwd").symlink_to(cwd)
    (folder / "maps").write_text(
        "".join(f"7f00-7f01 r-xp 00000000 08:01 42                     {path}\n" for path in maps), encoding="utf-8"
    )
    for number, target in enumerate(files):
        (folder / "fd" / str(number)).symlink_to(target)
