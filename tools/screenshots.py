"""Make the pictures of docs/reports.md again, from the example records of the tests. Needs Chromium; pngquant makes them small.

usage: PYTHONPATH=src screenshots.py [--into DIR] [NAME ...]      (--into DIR: all states of the page in all widths, to look at)
"""

import argparse
import base64
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

from modelyard.report import page

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "tests/fixtures/reports"
PICTURES = ROOT / "docs/images"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
#: Bytes; a page of the documentation should open quickly.
LARGEST = 150_000
WIDTHS = (360, 768, 1440)


class Shot(NamedTuple):
    """One picture. The first four: names of records; `height` 0: up to the end of the page; `start`: the first element shown."""

    run: str
    loads: Tuple[str, ...]
    history: str
    previous: str
    width: int
    height: int
    dark: bool
    start: str = ""


SHOTS: Dict[str, Shot] = {
    "report-failed": Shot("failed_schema", (), "history", "previous", 1200, 0, False),
    "report-accepted-dark": Shot("accepted", ("load_users",), "history", "previous_lab", 1200, 0, True),
    "report-load": Shot("failed_schema", ("load_sweep",), "history", "previous", 1200, 0, False, "#loads"),
    "report-phone": Shot("failed_schema", (), "history", "previous", 360, 1250, False),
}
#: States that are worth a look after a change of the page.
STATES: Dict[str, Shot] = {
    name: Shot(name, loads, history, previous, 0, 0, False)
    for name, loads, history, previous in (
        ("failed_schema", ("load_sweep", "load_users"), "history", "previous"),
        ("accepted", ("load_users",), "history", "previous_lab"),
        ("busy", (), "history", "previous_lab"),
        ("unreachable", ("load_sweep",), "", ""),
    )
}


class Browser:
    """Chromium without a window, spoken to over a pipe; it gets no network."""

    def __init__(self, program: str, folder: str) -> None:
        """Start it with a profile of its own in `folder`."""
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()

        words = [program, "--headless", "--remote-debugging-pipe", f"--user-data-dir={folder}", "--no-first-run", "--disable-gpu"]
        words += ["--hide-scrollbars", "--disable-lcd-text", "--force-device-scale-factor=1"]
        words += ["--host-resolver-rules=MAP * ~NOTFOUND"]
        words += ["--no-sandbox"] if os.geteuid() == 0 else []
        # The browser wants the pipes as descriptors 3 and 4.
        renumbered = ["sh", "-c", f'exec "$@" 3<&{to_read} 4>&{to_write}', "sh", *words, "about:blank"]
        self.process = subprocess.Popen(
            renumbered, pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_read)
        os.close(to_write)
        self._number, self._rest = 0, b""
        self._session = ""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.ask("Page.enable")

    def ask(self, method: str, **parameters: Any) -> Dict[str, Any]:
        """One call of the DevTools protocol."""
        self._number += 1
        call = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            call["sessionId"] = self._session
        os.write(self._to, json.dumps(call).encode() + b"\0")
        found: Dict[str, Any] = self._wait(lambda message: message.get("id") == self._number).get("result", {})
        return found

    def _wait(self, is_wanted: Callable[[Dict[str, Any]], bool]) -> Dict[str, Any]:
        while True:
            while b"\0" in self._rest:
                message, _, self._rest = self._rest.partition(b"\0")
                found: Dict[str, Any] = json.loads(message)
                if "error" in found:
                    raise RuntimeError(found["error"]["message"])
                if is_wanted(found):
                    return found
            part = os.read(self._from, 1 << 20)
            if not part:
                raise RuntimeError("the browser has ended")
            self._rest += part

    def picture(self, file: Path, shot: Shot) -> bytes:
        """A PNG of the page in `file`; the whole page when the height is 0."""
        theme = [{"name": "prefers-color-scheme", "value": "dark" if shot.dark else "light"}]
        self.ask("Emulation.setEmulatedMedia", features=theme)
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=shot.width, height=shot.height or 900, deviceScaleFactor=1, mobile=False
        )
        self.ask("Page.navigate", url=file.as_uri())
        self._wait(lambda message: message.get("method") == "Page.loadEventFired")
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        if size["width"] > shot.width:
            print(f"  {file.name} is {size['width']} wide on {shot.width}", file=sys.stderr)
        top = self._top(shot.start) if shot.start else 0
        clip = {"x": 0, "y": top, "width": shot.width, "height": (shot.height or size["height"] - top), "scale": 1}
        made = self.ask("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(made["data"])

    def _top(self, place: str) -> float:
        root = self.ask("DOM.getDocument")["root"]["nodeId"]
        node = self.ask("DOM.querySelector", nodeId=root, selector=place)["nodeId"]
        return float(self.ask("DOM.getBoxModel", nodeId=node)["model"]["border"][1])


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """A browser that is ended at the end."""
    program = next((found for found in map(shutil.which, BROWSERS) if found), None)
    if not program:
        sys.exit(f"No browser found ({', '.join(BROWSERS)}): install Chromium")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        started = Browser(program, folder)
        try:
            yield started
        finally:
            started.process.terminate()
            started.process.wait(20)


def record(name: str) -> Any:
    """One of the example records."""
    return json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))


def html(shot: Shot) -> str:
    """The page of a shot."""
    history: List[Dict[str, Any]] = record(shot.history) if shot.history else []
    loads = [record(name) for name in shot.loads]
    return page(record(shot.run), history, loads, record(shot.previous) if shot.previous else None)


def small(png: bytes) -> bytes:
    """The same with a palette, where pngquant is installed."""
    if not shutil.which("pngquant"):
        return png
    words = ["pngquant", "--speed", "1", "--strip", "96", "-"]
    return subprocess.run(words, input=png, stdout=subprocess.PIPE, check=True).stdout


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join([*SHOTS, *STATES])}")
    parser.add_argument("--into", type=Path, metavar="DIR", help="all states in all widths, light and dark, into this folder")
    args = parser.parse_args()
    known = STATES if args.into else SHOTS
    wanted = {name: known[name] for name in args.names or known}
    into = args.into or PICTURES
    into.mkdir(parents=True, exist_ok=True)
    if args.into:
        wanted = {
            f"{name}-{width}-{'dark' if dark else 'light'}": shot._replace(width=width, dark=dark)
            for name, shot in wanted.items()
            for width in WIDTHS
            for dark in (False, True)
        }
    with browser() as started, tempfile.TemporaryDirectory() as folder:
        for name, shot in wanted.items():
            file = Path(folder) / f"{name}.html"
            file.write_text(html(shot), encoding="utf-8")
            made = small(started.picture(file, shot))
            if not args.into and len(made) > LARGEST:
                sys.exit(f"{name}.png has {len(made)} bytes, more than {LARGEST}; pngquant makes it smaller")
            (into / f"{name}.png").write_bytes(made)
            print(f"{into / name}.png: {len(made)} bytes")


if __name__ == "__main__":
    main()
