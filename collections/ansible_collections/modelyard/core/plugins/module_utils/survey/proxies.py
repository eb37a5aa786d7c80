"""Proxies by the value of a variable: shown without their password, and asked whether they answer."""

from __future__ import annotations

import errno
import re
import socket
import threading
import time
from typing import Any, Dict, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.process import proc
from ansible_collections.modelyard.core.plugins.module_utils.survey.shell_text import Value

VALUE_CHARACTERS = 300
VALUE_LIMIT = 2000  # what is longer is no address of a proxy
MOST_ASKED = 8
PORTS = {"http": 80, "https": 443, "socks": 1080, "socks4": 1080, "socks4a": 1080, "socks5": 1080, "socks5h": 1080}
ADDRESS = re.compile(
    r"\s*(?:(?P<scheme>[A-Za-z][\w+.-]*)://)?(?:.*@)?"
    r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[\w.-]+))(?::(?P<port>[0-9]{1,5}))?(?:[/?#][^@]*)?\s*",
    re.DOTALL,
)
LOGIN = re.compile(r"\A(\s*(?:[A-Za-z][\w+.-]*://)?)([^/@:]*)(:?).*@", re.DOTALL)
#: What a shell leaves of user:password@host when the password was not quoted: a port that is none.
HALF_LOGIN = re.compile(
    r"\A(\s*(?:[A-Za-z][\w+.-]*://)?(?:[^/:\s\[\]{}]|\$\{\w+\})+:)(?!(?:[0-9]*|\$\S*)(?:[/?#].*)?\s*$).*", re.DOTALL
)


def masked(value: str) -> str:
    """The value of a proxy variable without its password; a login without a password is one (a token) as well."""
    if len(value) > VALUE_LIMIT:
        return "***"
    hidden, logins = LOGIN.subn(lambda m: f"{m.group(1)}{m.group(2) + ':' if m.group(3) else ''}***@", value, count=1)
    return proc.masked(hidden if logins else HALF_LOGIN.sub(r"\1***", value, count=1))[:VALUE_CHARACTERS]


def address(value: str) -> Tuple[str, int]:
    """Host and port that a proxy's value names; port 0 when it names none."""
    found = ADDRESS.fullmatch(value) if len(value) <= VALUE_LIMIT else None
    if found is None:
        return "", 0
    port = int(found.group("port") or PORTS.get((found.group("scheme") or "").lower(), 0))
    return found.group("six") or found.group("host"), port if port < 65536 else 0


def described(variable: str, value: Value, source: str) -> Dict[str, Any]:
    """One proxy as the survey shows it: {variable, value, source, host, port, answers, why}; nobody has been asked yet."""
    host, port = address(value.text) if value.known else ("", 0)
    why = "" if port else "not asked: the value names no host and port"
    if not value.known:
        why = "not asked: only a running shell knows the whole value"
    found = {"variable": variable, "value": masked(value.text), "source": source, "host": host, "port": port}
    return {**found, "answers": None, "why": why}


def ask(proxies: Sequence[Dict[str, Any]], limit_s: float) -> None:
    """Fill in `answers` and `why`. All are asked at once, so one that is silent costs `limit_s` and not more."""
    places = list(dict.fromkeys((p["host"], p["port"]) for p in proxies if not p["why"]))
    whys: Dict[Tuple[str, int], str] = {}
    asked = places[:MOST_ASKED]
    threads = {place: threading.Thread(target=_connect, args=(place, limit_s, whys), daemon=True) for place in asked}
    until = time.monotonic() + limit_s + 0.1
    for place, thread in threads.items():
        try:
            thread.start()
        except RuntimeError:  # no further thread allowed
            _connect(place, limit_s, whys)
    for place, thread in threads.items():
        if place not in whys and thread.ident is not None:
            thread.join(max(0.0, until - time.monotonic()))
    for proxy in proxies:
        place = (proxy["host"], proxy["port"])
        if place in threads and not proxy["why"]:
            proxy["why"] = whys.get(place, "timed out")  # the name server, too, may be silent
            proxy["answers"] = not proxy["why"]
        elif not proxy["why"]:
            proxy["why"] = f"not asked: there are more than {MOST_ASKED} proxies"


def _connect(place: Tuple[str, int], limit_s: float, whys: Dict[Tuple[str, int], str]) -> None:
    try:
        socket.create_connection(place, timeout=limit_s).close()
        why = ""
    except (socket.timeout, TimeoutError):
        why = "timed out"
    except ConnectionRefusedError:
        why = "connection refused"
    except socket.gaierror as exc:
        why = "no answer from the name server" if exc.errno == socket.EAI_AGAIN else "name not known"
    except UnicodeError:
        why = "name not known"
    except OSError as exc:
        why = (exc.strerror or errno.errorcode.get(exc.errno or 0, "failed")).lower()
    whys[place] = why
