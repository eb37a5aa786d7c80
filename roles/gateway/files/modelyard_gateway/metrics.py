"""The state of the gateway for Prometheus, text format 0.0.4. Written by prometheus_client, which every vLLM environment has.

Counts are since the start of the gateway. Labels: `backend` (its name in the configuration), `state`, `code`, `kind`.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Callable, Iterable, List, Sequence, Tuple

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from modelyard_gateway.backends import DOWN, EJECTED, HALF_OPEN, UNKNOWN, UP, Backend
from modelyard_gateway.histogram import Histogram
from modelyard_gateway.status import GatewayView

PREFIX = "modelyard_gateway"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
STATES = (UNKNOWN, UP, DOWN, EJECTED, HALF_OPEN)

_Values = Iterable[Tuple[Sequence[str], float]]


class GatewayCollector(Collector):
    """Reads the gateway each time that somebody asks."""

    def __init__(self, gateway: GatewayView) -> None:
        self._gateway = gateway

    def collect(self) -> Iterable[Metric]:
        """All figures of gateway, result log and backends, as they are now."""
        yield from self._of_gateway()
        yield from self._of_log()
        yield from self._of_backends(self._gateway.backends.all)

    def _of_gateway(self) -> Iterable[Metric]:
        gateway = self._gateway
        yield _gauge("start_time_seconds", "When the gateway began, Unix time", [], [((), gateway.started_at)])
        yield _gauge("stopping", "1 while it takes no new requests and ends", [], [((), gateway.stopping)])
        yield _gauge("requests_in_flight", "Requests that run now, on all backends", [], [((), gateway.in_flight)])
        yield _gauge("queue_requests", "Requests that wait for a backend now", [], [((), gateway.waiting)])
        yield _gauge("queue_size_requests", "So many may wait", [], [((), gateway.settings.queue_size)])
        yield _gauge("client_connections", "Connections of clients that are open now", [], [((), gateway.connections)])
        totals = sorted(gateway.totals.items())
        yield _counter(
            "events", "What the gateway has counted, by kind", ["kind"], [((kind,), number) for kind, number in totals]
        )

    def _of_log(self) -> Iterable[Metric]:
        log = self._gateway.log
        if log is None:
            return
        state = log.state()
        yield _counter("log_lines_written", "Lines of the result log that were written", [], [((), state["written"])])
        yield _counter("log_lines_dropped", "Lines of the result log that were lost", [], [((), state["dropped"])])
        yield _gauge("log_failing", "1 while the result log cannot be written", [], [((), bool(state["problem"]))])

    def _of_backends(self, backends: Sequence[Backend]) -> Iterable[Metric]:
        def each(value: Callable[[Backend], float]) -> _Values:
            return [((backend.name,), value(backend)) for backend in backends]

        name = ["backend"]
        states = [((b.name, state), b.state == state) for b in backends for state in STATES]
        yield _gauge("backend_up", "1 when the backend is healthy and not shut out", name, each(lambda b: b.state == UP))
        yield _gauge("backend_state", "1 for the state that the backend is in", ["backend", "state"], states)
        yield _gauge("backend_state_since_seconds", "When that state began, Unix time", name, each(lambda b: b.since))
        yield _gauge(
            "backend_draining", "1 while the backend gets no new requests on somebody's word", name, each(lambda b: b.draining)
        )
        yield _gauge("backend_hung", "1 while requests run there and no token comes", name, each(lambda b: b.hung))
        yield _gauge("backend_in_flight", "Requests that run there now", name, each(lambda b: b.in_flight))
        yield _gauge("backend_in_flight_peak", "The most that ever ran there at once", name, each(lambda b: b.peak))
        yield _gauge("backend_in_flight_limit", "So many may run there at once; 0: no limit", name, each(lambda b: b.limit))
        tokens = [((b.name,), b.last_token_at) for b in backends if b.last_token_at is not None]
        yield _gauge("backend_last_token_time_seconds", "When it last sent a part of a reply, Unix time", name, tokens)
        yield _counter("backend_picked", "Requests that were given to the backend", name, each(lambda b: b.picked))
        yield _counter("backend_served", "Complete answers of the backend, whatever their status", name, each(lambda b: b.served))
        codes = [((b.name, str(code)), number) for b in backends for code, number in sorted(b.statuses.items())]
        yield _counter("backend_replies", "Complete answers of the backend by status", ["backend", "code"], codes)
        kinds = [((b.name, kind), number) for b in backends for kind, number in sorted(b.errors.items())]
        yield _counter("backend_errors", "Requests that went wrong there, by kind", ["backend", "kind"], kinds)
        yield _histogram(
            "backend_ttft_seconds", "From the request to the first byte of the reply's body", backends, lambda b: b.ttft
        )
        yield _histogram("backend_duration_seconds", "From the request to the end of its reply", backends, lambda b: b.duration)


def registry(gateway: GatewayView) -> CollectorRegistry:
    """Make what `text` reads: the gateway, and memory, files and CPU time of its process."""
    made = CollectorRegistry(auto_describe=False)
    made.register(GatewayCollector(gateway))
    ProcessCollector(namespace=PREFIX, registry=made)
    return made


def text(of: CollectorRegistry) -> bytes:
    """Write all figures as they are now."""
    return generate_latest(of)


def _gauge(name: str, meaning: str, labels: List[str], values: _Values) -> Metric:
    family = GaugeMetricFamily(f"{PREFIX}_{name}", meaning, labels=labels)
    for label, value in values:
        family.add_metric(label, value)
    return family


def _counter(name: str, meaning: str, labels: List[str], values: _Values) -> Metric:
    family = CounterMetricFamily(f"{PREFIX}_{name}", meaning, labels=labels)  # it puts `_total` behind the name
    for label, value in values:
        family.add_metric(label, value)
    return family


def _histogram(name: str, meaning: str, backends: Sequence[Backend], of: Callable[[Backend], Histogram]) -> Metric:
    family = HistogramMetricFamily(f"{PREFIX}_{name}", meaning, labels=["backend"])
    for backend in backends:
        histogram = of(backend)
        bounds = [*map(floatToGoString, histogram.bounds), "+Inf"]
        family.add_metric([backend.name], list(zip(bounds, accumulate(histogram.counts))), histogram.total)
    return family
