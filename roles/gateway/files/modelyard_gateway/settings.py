"""The configuration: JSON or arguments -> Settings. All mistakes are said at once, each with its place."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple
from urllib.parse import urlsplit

_NAME = re.compile(r"[!-~]{1,128}")


class SettingsError(Exception):
    """The configuration cannot be used. `mistakes`: each with its place."""

    def __init__(self, mistakes: List[str]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = mistakes


def _number(default: float, low: float, high: float, unit: str) -> Any:
    return field(default=default, metadata={"low": low, "high": high, "unit": unit})


@dataclass(frozen=True)
class BackendSettings:
    """One engine. `name` is what X-Backend and the log show. `drained`: begins without requests."""

    name: str
    host: str
    port: int
    drained: bool = False


@dataclass(frozen=True)
class AdminSettings:
    """The admin listener; port 0: none. `token_file`: needed when the host is not loopback."""

    host: str = "127.0.0.1"
    port: int = _number(0, 0, 65535, "port")
    token_file: str = ""


@dataclass(frozen=True)
class HealthSettings:
    """How often /health is asked, and how many failures in a row take a backend out."""

    interval_s: float = _number(5.0, 0.05, 3600, "seconds")
    timeout_s: float = _number(2.0, 0.05, 600, "seconds")
    failures: int = _number(3, 1, 1000, "failures")


@dataclass(frozen=True)
class EjectSettings:
    """How many failed requests in a row take a backend out, and for how long."""

    server_errors: int = _number(3, 1, 1000, "errors")
    for_s: float = _number(10.0, 0.05, 3600, "seconds")


@dataclass(frozen=True)
class LogSettings:
    """The result log; without a path there is none. `snippet`: characters of the reply's text, 0 for none."""

    path: str = ""
    limit_mb: float = _number(50.0, 0.001, 100_000, "MiB")
    keep: int = _number(3, 1, 1000, "files")
    snippet: int = _number(200, 0, 100_000, "characters")
    error_bytes: int = _number(8192, 0, 1_000_000, "bytes")


@dataclass(frozen=True)
class Settings:
    """All settings of the gateway, times in seconds. `timeout_s`: longest silence of a backend or a client in a request."""

    host: str = "0.0.0.0"
    port: int = _number(8000, 1, 65535, "port")
    backends: Tuple[BackendSettings, ...] = ()
    admin: AdminSettings = AdminSettings()
    timeout_s: float = _number(300.0, 0.05, 86_400, "seconds")
    connect_timeout_s: float = _number(5.0, 0.05, 600, "seconds")
    header_timeout_s: float = _number(30.0, 0.05, 600, "seconds")
    idle_timeout_s: float = _number(75.0, 0.05, 86_400, "seconds")
    #: We close idle connections to a backend before vLLM does (after 5 s by default): a request on one that is just being
    #: closed would be lost.
    backend_idle_s: float = _number(4.0, 0, 3600, "seconds")
    body_limit_mb: float = _number(64.0, 0.001, 100_000, "MiB")
    per_backend_limit: int = _number(0, 0, 1_000_000, "requests")
    queue_size: int = _number(0, 0, 1_000_000, "requests")
    queue_timeout_s: float = _number(60.0, 0.05, 86_400, "seconds")
    health: HealthSettings = HealthSettings()
    eject: EjectSettings = EjectSettings()
    hung_after_s: float = _number(120.0, 0, 86_400, "seconds")
    keys_file: str = ""
    #: vLLM asks for its key only there; `/invocations` does the same work without one.
    v1_only: bool = False
    backend_key_file: str = ""
    state_file: str = ""
    log: LogSettings = LogSettings()
    drain_s: float = _number(300.0, 0, 86_400, "seconds")


_PARTS = {"admin": AdminSettings, "health": HealthSettings, "eject": EjectSettings, "log": LogSettings}


def load(path: str, overrides: Optional[Mapping[str, Any]] = None) -> Settings:
    """Read the file (none when `path` is empty), put `overrides` over it, and check all. SettingsError when anything is wrong."""
    given: Any = {}
    if path:
        try:
            given = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise SettingsError([f"{path}: cannot be read: {error.strerror}"]) from error
        except json.JSONDecodeError as error:
            line = "".join(error.doc.splitlines()[error.lineno - 1 : error.lineno]).strip()[:100]
            raise SettingsError([f"{path}: no JSON: {error}: {line!r}"]) from error
        except ValueError as error:
            raise SettingsError([f"{path}: no JSON: {error}"]) from error
        if not isinstance(given, dict):
            raise SettingsError([f'{path}: wanted an object, like {{"port": 8000, "backends": [...]}}'])
    merged = dict(given)
    for name, value in (overrides or {}).items():
        before = merged.get(name)
        merged[name] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value
    return read(merged)


def read(given: Mapping[str, Any]) -> Settings:
    """Settings from plain data. SettingsError names all mistakes."""
    mistakes: List[str] = []
    values = _values(Settings, given, "", mistakes)
    settings = Settings(**values)
    loopback = settings.admin.host in ("localhost", "::1") or settings.admin.host.startswith("127.")
    if settings.admin.port and not loopback and not settings.admin.token_file:
        mistakes.append(f"admin.token_file: needed, because admin.host {settings.admin.host} can be reached from outside")
    if settings.admin.port and settings.admin.port == settings.port:
        mistakes.append(f"admin.port: {settings.port} is the gateway's own port already")
    if settings.queue_size and not settings.per_backend_limit:
        mistakes.append("queue_size: nothing would ever wait, because per_backend_limit is 0 (no limit)")
    if mistakes:
        raise SettingsError(mistakes)
    return settings


def _values(cls: Any, given: Mapping[str, Any], place: str, mistakes: List[str]) -> Dict[str, Any]:
    known = {f.name: f for f in fields(cls)}
    mistakes += [f"{place}{name}: there is no such setting; there are {', '.join(known)}" for name in given if name not in known]
    values: Dict[str, Any] = {}
    for name, value in given.items():
        if name == "backends" and cls is Settings:
            values[name] = _backends(value, mistakes)
        elif name in _PARTS and cls is Settings:
            if isinstance(value, Mapping):
                values[name] = _PARTS[name](**_values(_PARTS[name], value, f"{name}.", mistakes))
            else:
                mistakes.append(f"{name}: wanted an object, got {value!r}")
        elif name in known:
            mistake = _mistake(known[name].default, known[name].metadata, value)
            if mistake:
                mistakes.append(f"{place}{name}: {mistake}")
            else:
                values[name] = value
    if cls is Settings and "backends" not in given:
        mistakes.append('backends: at least one is needed, like {"name": "qwen/0", "url": "http://127.0.0.1:8002"}')
    return values


def _mistake(default: Any, bounds: Mapping[str, Any], value: Any) -> str:
    if bounds:
        whole = isinstance(default, int)
        if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
            return f"wanted a {'whole ' if whole else ''}number of {bounds['unit']}, got {value!r}"
        if not bounds["low"] <= value <= bounds["high"]:
            return f"wanted {bounds['low']} to {bounds['high']} {bounds['unit']}, got {value!r}"
    elif isinstance(default, bool):
        return "" if isinstance(value, bool) else f"wanted true or false, got {value!r}"
    elif not isinstance(value, str) or "\0" in value:
        return f"wanted text, got {value!r}"
    return ""


def _backends(given: Any, mistakes: List[str]) -> Tuple[BackendSettings, ...]:
    if not isinstance(given, (list, tuple)) or not given:
        mistakes.append(f"backends: wanted a list with at least one backend, got {given!r}")
        return ()
    found: List[BackendSettings] = []
    for number, entry in enumerate(given):
        place = f"backends[{number}]"
        before = len(mistakes)
        backend = _backend(entry, place, mistakes)
        if backend is None or len(mistakes) > before:
            continue
        for other in found:
            if other.name == backend.name:
                mistakes.append(f"{place}.name: {backend.name} is the name of another backend already")
            if (other.host, other.port) == (backend.host, backend.port):
                mistakes.append(f"{place}.url: {backend.host}:{backend.port} is {other.name} already")
        found.append(backend)
    return tuple(found)


def _backend(entry: Any, place: str, mistakes: List[str]) -> Optional[BackendSettings]:
    if not isinstance(entry, Mapping):
        mistakes.append(f"{place}: wanted an object with url and, if you like, name and drained, got {entry!r}")
        return None
    unknown = [name for name in entry if name not in ("name", "url", "drained")]
    mistakes += [f"{place}.{name}: there is no such setting; there are name, url, drained" for name in unknown]
    drained = entry.get("drained", False)
    if not isinstance(drained, bool):
        mistakes.append(f"{place}.drained: wanted true or false, got {drained!r}")
    url = entry.get("url")
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if host is None or port is None or parts.scheme != "http" or parts.path not in ("", "/") or parts.query or parts.username:
        mistakes.append(f"{place}.url: wanted http://HOST:PORT and nothing behind it, got {url!r}")
        return None
    name = entry.get("name", parts.netloc)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        mistakes.append(f"{place}.name: wanted up to 128 visible ASCII characters without spaces, got {name!r}")
        return None
    return BackendSettings(name, host, port, drained is True)
