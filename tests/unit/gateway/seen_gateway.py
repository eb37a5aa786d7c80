"""A gateway as the admin listener sees it, with the real state of backends and a clock that tests move."""

from modelyard_gateway import settings
from modelyard_gateway.backends import Backends
from modelyard_gateway.recent import Recent
from modelyard_gateway.status import ProcessFigures, report

BEGAN = 1_700_000_000.0  # 2023-11-14T22:13:20Z


class Log:
    def __init__(self, **more):
        self.all = {"path": "/srv/gateway/results.jsonl", "written": 10, "dropped": 0, "problem": "", **more}

    def state(self):
        return self.all


class SeenGateway:
    def __init__(self, count=2, names=(), **more):
        names = names or [f"qwen/{number}" for number in range(count)]
        entries = [{"name": name, "url": f"http://127.0.0.1:{8002 + number}"} for number, name in enumerate(names)]
        self.settings = settings.read({"backends": entries, **more})
        self.now = 0.0
        self.backends = Backends(self.settings, self.now, self.unix)
        self.recent = Recent()
        self.recent.note(self.now, self.backends.all)
        self.started_at = BEGAN
        self.waiting = self.connections = 0
        self.log = None
        self.totals = {"requests": 0}
        self.stopping = False
        self.waited = []

    @property
    def unix(self):
        return BEGAN + self.now

    @property
    def in_flight(self):
        return sum(backend.in_flight for backend in self.backends.all)

    def all_up(self):
        for backend in self.backends.all:
            self.backends.looked(backend, "", self.now, self.unix)
        return self

    def later(self, seconds):
        self.now += seconds
        self.recent.note(self.now, self.backends.all)
        return self

    def run(self, number, seconds=1.0, status=200):
        """Let one request run there and be answered."""
        backend = self.backends.all[number]
        backend.picked += 1
        backend.ttft.observe(seconds / 10)
        backend.duration.observe(seconds)
        self.backends.answered(backend, status, self.now, self.unix)

    def begin(self, number, requests=1):
        """Let requests begin there and not end."""
        backend = self.backends.all[number]
        backend.picked += requests
        backend.in_flight += requests
        backend.peak = max(backend.peak, backend.in_flight)

    def status(self, process=None):
        return report(self, self.recent, process or ProcessFigures(4711, 1.5, 50 * 2**20, 20, 1024), self.now, self.unix)

    async def drain(self, name, wait_s):
        self.waited.append(wait_s)
        backend = self.backends.named(name)
        self.backends.drain(backend)
        return backend.in_flight

    def undrain(self, name):
        self.backends.undrain(self.backends.named(name))
