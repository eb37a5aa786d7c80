"""python -m modelyard_gateway: reads the configuration, listens, and obeys signals.

SIGTERM and SIGINT end it when what runs has ended, a second one ends it at once. SIGHUP reads the configuration again. SIGUSR1:
another gateway takes the connections now, this one ends with its last request.
`python -m modelyard_gateway status --help`: shows the state of a running gateway.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import resource
import signal
import sys
from typing import Any, Dict, List, Optional

from modelyard_gateway import events
from modelyard_gateway.gateway import Gateway, read_key
from modelyard_gateway.keys import Keys, KeysError
from modelyard_gateway.settings import Settings, SettingsError, load


def _arguments(given: Optional[List[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="modelyard_gateway", description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--config", default="", metavar="FILE", help="JSON; arguments beside it go over what stands in it")
    parser.add_argument("--host", help="address to listen on (0.0.0.0)")
    parser.add_argument("--port", type=int, help="port to listen on (8000)")
    parser.add_argument("--backend", action="append", metavar="[NAME=]URL", help="one engine; give it for each engine")
    parser.add_argument("--admin-port", type=int, help="port of the admin listener on 127.0.0.1 (none)")
    parser.add_argument("--log", metavar="FILE", help="result log, one line of JSON for each request (none)")
    parser.add_argument("--check", action="store_true", help="only say whether the configuration can be used")
    return parser.parse_args(given)


def _overrides(arguments: argparse.Namespace) -> Dict[str, Any]:
    found: Dict[str, Any] = {name: getattr(arguments, name) for name in ("host", "port") if getattr(arguments, name) is not None}
    if arguments.backend:
        pairs = [entry.rpartition("=") for entry in arguments.backend]
        found["backends"] = [{"url": url, **({"name": name} if name else {})} for name, _, url in pairs]
    if arguments.admin_port is not None:
        found["admin"] = {"port": arguments.admin_port}
    if arguments.log is not None:
        found["log"] = {"path": arguments.log}
    return found


def _settings(arguments: argparse.Namespace) -> Settings:
    """All that can be wrong before listening, said together. SettingsError."""
    settings = load(arguments.config, _overrides(arguments))
    mistakes: List[str] = []
    for check in (lambda: read_key(settings.backend_key_file), lambda: Keys(settings.keys_file) if settings.keys_file else None):
        try:
            check()
        except SettingsError as error:
            mistakes += error.mistakes
        except KeysError as error:
            mistakes.append(f"keys_file: {error}")
    if mistakes:
        raise SettingsError(mistakes)
    return settings


def _unexpected(_: asyncio.AbstractEventLoop, context: Dict[str, Any]) -> None:
    error = context.get("exception")
    events.say(str(context["message"]))
    if not isinstance(error, OSError):  # like no descriptors left: words are enough
        events.mistake(error)


async def _serve(settings: Settings, arguments: argparse.Namespace) -> int:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_unexpected)
    gateway = Gateway(settings)
    try:
        await gateway.start()
    except (OSError, SettingsError) as error:
        print(f"modelyard_gateway: {getattr(error, 'strerror', None) or error}", file=sys.stderr)
        return 1
    # What is there now stays. Looking through all of it for garbage would hold up every stream for 30 ms, again and again.
    gc.collect()
    gc.freeze()
    over = asyncio.Event()

    def stop() -> None:
        gateway.running.stop()
        over.set()

    def retire() -> None:
        gateway.running.retire()
        over.set()

    def reload() -> None:
        try:
            gateway.reload(_settings(arguments))
        except (SettingsError, KeysError) as error:
            gateway.say("the configuration cannot be used, everything stays as it is: " + "; ".join(str(error).split("\n")))

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, reload)
    loop.add_signal_handler(signal.SIGUSR1, retire)
    gateway.running.say_taking()
    await over.wait()
    await gateway.running.ended()
    return 0


def main(given: Optional[List[str]] = None) -> int:
    """Run it. Returns the exit status: 0 after a signal, 1 when it could not listen, 2 when the configuration is wrong."""
    given = sys.argv[1:] if given is None else given
    if given[:1] == ["status"]:
        from modelyard_gateway import status_command  # noqa: PLC0415 (only needed here)

        return status_command.main(given[1:])
    arguments = _arguments(given)
    try:
        settings = _settings(arguments)
    except SettingsError as error:
        for mistake in error.mistakes:
            print(f"modelyard_gateway: {mistake}", file=sys.stderr)
        return 2
    if arguments.check:
        print("The configuration can be used")
        return 0
    # Each request has two descriptors; there is no other limit on their number.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        import uvloop  # noqa: PLC0415 (faster where it is there, and not needed)

        uvloop.install()
    except ImportError:
        pass
    return asyncio.run(_serve(settings, arguments))


if __name__ == "__main__":
    sys.exit(main())
