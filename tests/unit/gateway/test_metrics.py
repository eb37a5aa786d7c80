"""The figures for Prometheus, read by Prometheus's own parser."""

from modelyard_gateway import metrics
from modelyard_gateway.status import ProcessFigures
from prometheus_client.parser import text_string_to_metric_families
from unit.gateway.seen_gateway import BEGAN, Log, SeenGateway

FIGURES = ProcessFigures(4711, 1.5, 50 * 2**20, 20, 1024)


def read(gateway):
    """All samples, `name{labels}` -> value, and the families."""
    families = {family.name: family for family in text_string_to_metric_families(metrics.text(gateway, FIGURES))}
    samples = {}
    for family in families.values():
        for sample in family.samples:
            key = (sample.name, *sorted(sample.labels.items()))
            assert key not in samples, f"{key} comes twice"
            samples[key] = sample.value
    return samples, families


def test_a_backend_with_its_counts():
    gateway = SeenGateway(2, per_backend_limit=4).all_up()
    gateway.run(0)
    gateway.run(0, status=500)
    gateway.begin(0, 3)
    gateway.backends.moved(gateway.backends.all[0], 0.0, BEGAN + 5)
    gateway.backends.failed(gateway.backends.all[1], "refused", "connection refused", 0.0, BEGAN + 9)
    gateway.backends.drain(gateway.backends.all[1])
    samples, _families = read(gateway)
    zero, one = ("backend", "qwen/0"), ("backend", "qwen/1")
    found = {key[0].replace("modelyard_gateway_backend_", ""): value for key, value in samples.items() if key[1:] == (zero,)}
    wanted = {
        "up": 1,
        "in_flight": 3,
        "in_flight_peak": 3,
        "in_flight_limit": 4,
        "picked_total": 5,
        "served_total": 2,
        "draining": 0,
        "hung": 0,
    }
    assert {name: found[name] for name in wanted} == wanted
    assert found["last_token_time_seconds"] == BEGAN + 5
    assert samples["modelyard_gateway_backend_replies_total", zero, ("code", "500")] == 1
    assert samples["modelyard_gateway_backend_errors_total", one, ("kind", "refused")] == 1
    assert samples["modelyard_gateway_backend_up", one] == 0
    assert samples["modelyard_gateway_backend_draining", one] == 1
    assert samples["modelyard_gateway_backend_state", one, ("state", "ejected")] == 1
    assert sum(value for key, value in samples.items() if key[0] == "modelyard_gateway_backend_state") == 2
    assert samples["modelyard_gateway_backend_state_since_seconds", one] == BEGAN + 9
    assert ("modelyard_gateway_backend_last_token_time_seconds", one) not in samples  # no token yet is no time


def test_histograms_grow_with_their_bounds_and_end_in_the_count():
    gateway = SeenGateway(1).all_up()
    for seconds in (0.04, 0.4, 0.4, 4.0, 4000.0):
        gateway.run(0, seconds=seconds)
    samples, families = read(gateway)
    assert families["modelyard_gateway_backend_duration_seconds"].type == "histogram"
    name = "modelyard_gateway_backend_duration_seconds"
    buckets = [(dict(key[1:])["le"], value) for key, value in samples.items() if key[0] == f"{name}_bucket"]
    values = [value for _le, value in buckets]
    assert values == sorted(values)
    assert buckets[-1] == ("+Inf", 5)
    assert dict(buckets)["0.5"] == 3
    assert samples[f"{name}_count", ("backend", "qwen/0")] == 5
    assert abs(samples[f"{name}_sum", ("backend", "qwen/0")] - 4004.84) < 1e-6


def test_gateway_log_and_process():
    gateway = SeenGateway(1, per_backend_limit=1, queue_size=8).all_up()
    gateway.waiting, gateway.connections, gateway.stopping = 2, 33, True
    gateway.totals = {"requests": 7}
    gateway.log = Log(dropped=5, problem="disk full")
    samples, _families = read(gateway)
    found = {key[0].replace("modelyard_gateway_", ""): value for key, value in samples.items() if len(key) == 1}
    assert found["queue_requests"] == 2
    assert found["queue_size_requests"] == 8
    assert found["client_connections"] == 33
    assert found["stopping"] == 1
    assert (found["log_lines_written_total"], found["log_lines_dropped_total"], found["log_failing"]) == (10, 5, 1)
    assert found["process_resident_memory_bytes"] == 50 * 2**20
    assert (found["process_open_fds"], found["process_max_fds"], found["process_cpu_seconds_total"]) == (20, 1024, 1.5)
    assert samples["modelyard_gateway_events_total", ("kind", "requests")] == 7


def test_what_is_not_known_is_left_out_and_no_zero():
    text = metrics.text(SeenGateway(), ProcessFigures(4711))
    assert "# TYPE modelyard_gateway_process_open_fds gauge" in text
    assert "\nmodelyard_gateway_process_" not in text
    assert "log_lines" not in text


def test_names_with_special_characters_come_through():
    name = 'a"b\\c,d}e{'
    samples, _families = read(SeenGateway(names=[name]).all_up())
    assert samples["modelyard_gateway_backend_up", ("backend", name)] == 1


def test_each_family_has_help_and_a_name_of_ours_with_its_unit():
    gateway = SeenGateway(2).all_up()
    gateway.log = Log()
    gateway.run(0)
    _samples, families = read(gateway)
    assert len(families) > 25
    for family in families.values():
        assert family.name.startswith("modelyard_gateway_")
        assert family.documentation
        assert family.type in ("gauge", "counter", "histogram")
    text = metrics.text(gateway, FIGURES)
    assert text.count("# HELP ") == text.count("# TYPE ") == len(families)
    assert text.endswith("\n")
