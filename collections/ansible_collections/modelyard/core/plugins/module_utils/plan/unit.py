"""The unit file of one instance for systemd. A pure function."""

from __future__ import annotations

from typing import Any, List, Mapping

from ansible_collections.modelyard.core.plugins.module_utils.gateway import place
from ansible_collections.modelyard.core.plugins.module_utils.process.history import LONGEST_WAIT_S

#: What a stop may take beside the waits that are set: TERM, KILL, looking (process/stop).
STOP_REST_S = 120
START_REST_S = 60


def name(session: str) -> str:
    """`modelyard-qwen3-14b-32k.service`."""
    return f"modelyard-{session}.service"


def quoted(word: str) -> str:
    """A word of an Exec line as systemd reads it: specifiers, variables, quotes and backslashes mean themselves."""
    for character, written in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$")):
        word = word.replace(character, written)
    return f'"{word}"'


def text(request: Mapping[str, Any], stop: Mapping[str, Any], folder: str, python: str, user: str) -> str:
    """The unit of an instance. `request`: its instance.json; `stop`: that of service.json; `user`: whom the home belongs to.

    No secret is in it, and no option of the engine: these stand in launch.sh, which the keeper starts.
    """
    own = request["supervisor"] == "systemd_user"
    unit = name(str(request["session"]))
    words = [python, f"{folder.rpartition('/')[0]}/modelyard.pyz"]

    def command(*more: str) -> str:
        return " ".join(quoted(word) for word in (*words, *more))

    kind = "gateway" if str(request["service"]).endswith(place.SUFFIX) else "engine"
    start_s = int(LONGEST_WAIT_S + float(stop["memory_s"]) + START_REST_S)
    stop_s = int(float(stop["grace_s"]) + float(stop["drain_s"]) + float(stop["memory_s"]) + STOP_REST_S)
    lines: List[str] = [
        "# Written by Modelyard; changes made here are lost at the next deploy.",
        "[Unit]",
        f"Description=Modelyard {kind} {request['name']} on port {request['port']}".replace("%", "%%"),
        f"X-Modelyard={folder}",
    ]
    if not own:
        lines += ["Wants=network-online.target", "After=network-online.target remote-fs.target nvidia-persistenced.service"]
    lines += [
        "# The waits between starts are those of ExecStartPre.",
        "StartLimitIntervalSec=0",
        "",
        "[Service]",
        "Type=simple",
        *([] if own else [f"User={user}"]),
        "# Not the instance's folder: what waits or stops in this unit would look like a part of the engine.",
        "WorkingDirectory=/",
        *(f"Environment={quoted(f'{key}={value}')}".replace("$$", "$") for key, value in sorted(request["marker"].items())),
        "# Waits longer after each failed start, and until the cards have their memory back.",
        f"ExecStartPre={command('free', folder)}",
        f"ExecStart={command('keep', folder, '--under', str(request['supervisor']), '--name', unit)}",
        "# Ends exactly this engine's processes, gently first.",
        f"ExecStop={command('stop', folder, '--for-supervisor')}",
        "# Not on-failure: an API server whose engine has died ends with exit code 0.",
        "Restart=always",
        "RestartSec=2",
        f"TimeoutStartSec={start_s}",
        f"TimeoutStopSec={stop_s}",
        "KillMode=mixed",
        "SendSIGKILL=yes",
        "# Pinned memory for transfers to cards; sockets, libraries and segments of many workers; no dumps of gigabytes.",
        "LimitMEMLOCK=infinity",
        "LimitNOFILE=1048576",
        "LimitCORE=0",
        "TasksMax=infinity",
        "",
        "[Install]",
        f"WantedBy={'default' if own else 'multi-user'}.target",
    ]
    return "\n".join(lines) + "\n"
