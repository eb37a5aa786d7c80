"""Lines in which a tool, or the shell before it, says why there is nothing to read."""

from __future__ import annotations

import re
from typing import Dict, FrozenSet, List, NamedTuple, Optional, Sequence

TOOLS = frozenset(["hy-smi", "rocm-smi", "amd-smi", "rocminfo"])
#: Programs that start others and name what they did not find.
SHELLS = (
    *("sh", "bash", "dash", "ash", "zsh", "ksh", "fish", "csh", "tcsh", "busybox"),
    *("env", "sudo", "su", "timeout", "nohup", "nice", "watch", "xargs", "time", "exec", "chroot"),
)
NOT_FOUND = (
    *("command not found", "not found", "未找到命令", "找不到命令", "commande introuvable", "kommando nicht gefunden"),
    *("befehl nicht gefunden", "orden no encontrada", "no se encontró la orden", "コマンドが見つかりません"),
    *("команда не найдена", "comando non trovato", "comando não encontrado"),
)
NO_SUCH_FILE = ("no such file or directory", "没有那个文件或目录")
DENIED = ("permission denied", "operation not permitted", "权限不够", "不允许的操作")

_QUOTES = "'\"`\u2018\u2019\u201c\u201d"
_PROGRAM = re.compile(r"[A-Za-z0-9_.+/@-]*[A-Za-z][A-Za-z0-9_.+/@-]*\Z")
_QUOTED_MISSING = re.compile(
    r"command not found: (\S+)"
    r"|unknown command:? (\S+)"
    r"|command (\S+) not found"
    r"|exec: (\S+): executable file not found"
    r"|\[errno 2\] no such file or directory: b?(\S+)",
    re.IGNORECASE,
)
_LABEL = re.compile(r"(?:[dh]cu|gpu|card|device)\s?\[([0-9]{1,9})\]|(?<!\S)\[([0-9]{1,9})\]", re.IGNORECASE)
_OPENING = re.compile(r"\bopen(?:ing|ed)?\b|\baccess(?:ing)?\b")
_FAILED = re.compile(r"\bunable\b|\bcannot\b|\bcan't\b|\bcould(?:n't| not)\b|\bfail(?:ed|s|ure)?\b|\berror\b")
_DEVICE_FILE = re.compile(r"/dev/|\bm?kfd\b|\bdri\b|\brender ?node\b|\bdevice\b")
_DRIVER = re.compile(
    r"not found in modules"
    r"|\b(?:driver|module)s?\b[^.;:]{0,40}?\b(?:not|isn't|wasn't) (?:been )?"
    r"(?:loaded|initiali[sz]ed|installed|found|present|running)"
    r"|\b(?:failed|unable) to (?:load|initiali[sz]e) (?:the )?(?:\w{1,20} )?(?:driver|(?:kernel )?module)\b"
    r"|\b(?:no|missing) (?:\w{1,20} ){0,2}(?:driver|kernel module)\b"
    r"|driver_not_loaded"
)
_NO_DEVICES = re.compile(
    r"\bno (?:[\w/-]{1,20} ){0,3}?(?:device|gpu|dcu|hcu|card|accelerator)(?:s|\(s\))?"
    r" (?:were |was |are |is )?(?:available|found|detected|present|specified|visible)"
    r"|\b(?:unable to|could not|cannot|did not|failed to) (?:detect|find) (?:any )?(?:[\w/-]{1,20} ){0,3}?"
    r"(?:device|gpu|dcu|hcu|card|accelerator)"
    r"|\bno supported (?:device|gpu)"
)
_NOT_INITIALISED = re.compile(
    r"(?:\bnot|n't|\bcannot|\bcan not|\bunable to|\bfail(?:ed|s|ure)?(?: to)?|\bnever) (?:be |been |yet )?initiali[sz]"
    r"|\buninitiali[sz]ed"
    r"|\binitiali[sz](?:e|ing|ation)\b[^.;:]{0,40}?\b(?:failed|failure|error)"
    r"|_init(?:\(\))? (?:has |was )?(?:failed|failure|error)"
    r"|not_init(?:iali[sz]ed)?\b"
)
_EXPLAINS = re.compile(r"hsa api call failure|hsa_status_error|amdsmi_status_(?!driver_not_loaded)")
_WORD_OF_COMMAND = re.compile(r"[^\s'\"`;|&()<>$=]+")


class Message(NamedTuple):
    """An error kind of the schema, and the index in brackets of the line, or None."""

    kind: str
    device_index: Optional[int]


def tools(command: str) -> FrozenSet[str]:
    """Names of the tools that a command line runs, whatever stands before them: paths, `sudo`, `watch`, `kubectl exec`."""
    names = (part.rsplit("/", 1)[-1].lower() for part in _WORD_OF_COMMAND.findall(command))
    return frozenset(name[:-3].replace("_", "-") if name.endswith(".py") else name for name in names) & TOOLS


def lists_processes(command: str) -> bool:
    """Whether a command is `amd-smi process`: the cards in its output are headings of lists."""
    return "amd-smi" in tools(command) and "process" in _WORD_OF_COMMAND.findall(command.lower())


def split(lines: Sequence[str], command: str) -> Dict[int, Message]:
    """The messages among the lines, by the number of the line. A line of explanation counts only if it is all there is."""
    own = tools(command) or TOOLS
    found: Dict[int, Message] = {}
    explained: Dict[int, Message] = {}
    for number, line in enumerate(lines):
        kind = _kind(line, own)
        if kind:
            (explained if _EXPLAINS.search(line.lower()) else found)[number] = Message(kind, _index(line))
    return found or explained


def _index(line: str) -> Optional[int]:
    found = _LABEL.search(line)
    return int(found.group(1) or found.group(2)) if found else None


def _kind(line: str, own: FrozenSet[str]) -> Optional[str]:
    """The kind of error that a line states, or None. The order matters: the surest signs come first."""
    lowered = line.lower()
    if "unable to open process directory" in lowered:
        return "process_list_unavailable"
    missing = _missing_program(line)
    if missing:
        return "tool_missing" if missing in own else "missing_dependency"
    denied = any(words in lowered for words in DENIED)
    opening = _OPENING.search(lowered) is not None
    if "/dev/" in lowered or (opening and _DEVICE_FILE.search(lowered)):
        if denied:
            return "no_permission"
        if opening and _FAILED.search(lowered):
            return "device_open_failed"
    if _DRIVER.search(lowered):
        return "driver_not_loaded"
    if _NO_DEVICES.search(lowered) or (_NOT_INITIALISED.search(lowered) and "driver" not in lowered and not denied):
        return "no_devices"
    return None


def _missing_program(line: str) -> Optional[str]:
    """Name of the program, without its folder, that a shell says it did not find."""
    quoted = _QUOTED_MISSING.search(line)
    if quoted:
        return _program(next(group for group in quoted.groups() if group))
    parts: List[str] = line.replace("\uff1a", ":").split(":")
    if len(parts) < 2:
        return None
    said = parts[-1].strip().strip(".…").lower()
    by_shell = any(part.strip().rsplit("/", 1)[-1].lstrip("-").lower() in SHELLS for part in parts[:-2])
    # A bare "not found" and a missing file say that only where a shell says it.
    if (said in NOT_FOUND and (by_shell or said != "not found")) or (said in NO_SUCH_FILE and by_shell):
        return _program(parts[-2])
    return None


def _program(printed: str) -> Optional[str]:
    """The last word of `printed` as the name of a program; None if it cannot be one (a device, a number)."""
    words = printed.split()
    path = words[-1].strip(_QUOTES + ",.:;") if words else ""
    if not _PROGRAM.match(path) or path.startswith(("/dev/", "/proc/", "/sys/")):
        return None
    return path.rsplit("/", 1)[-1] or None
