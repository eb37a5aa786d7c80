"""The gateway of a service in the plan: its ports, its engines, what is done with it, and what is written for it."""

from __future__ import annotations

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import files, gateway_files, manifest, meaning, planner, text
from unit import worlds

GATEWAY = {**worlds.NO_GATEWAY, "kind": "modelyard", "host": "127.0.0.1"}
HOST = files.Host("/opt/modelyard", "/opt/modelyard/runtimes", "/", (), "ops", "/usr/bin/python3", "1.0", 30.0, {})


def behind(**changes):
    return worlds.service(
        topology={"replicas": 2, "tensor_parallel_size": 1},
        cards=["0", "1"],
        listen={"base_port": 8002},
        gateway={**GATEWAY, **changes},
    )


def planned(service, survey=None, **wish):
    return planner.plan(worlds.intent(service, **wish), survey or worlds.survey())


def running(service):
    """The service runs as planned, and its gateway with it."""
    plan = planned(service)
    entry = worlds.running({**plan, "services": plan["gateways"]})
    for instance in entry["tiny-qwen3.gateway"]["instances"]:
        (written,) = plan["gateways"][0]["instances"]
        instance["launch"]["settings"] = written["settings"]
    return worlds.survey(services={**worlds.running(plan), **entry})


def ids(plan):
    return [found["id"] for found in plan["findings"]]


def test_a_service_without_a_gateway_has_none():
    plan = planned(worlds.service())
    assert (plan["gateways"], plan["services"][0]["gateway"]) == ([], {})


def test_the_gateway_has_all_instances_and_starts_with_them():
    plan = planned(behind())
    (entry,) = plan["gateways"]
    assert (entry["name"], entry["of"], entry["action"]) == ("tiny-qwen3.gateway", "tiny-qwen3", "start")
    assert [(b["name"], b["port"]) for b in entry["gateway"]["backends"]] == [("tiny-qwen3/0", 8002), ("tiny-qwen3/1", 8003)]
    assert (entry["gateway"]["port"], entry["gateway"]["admin_port"], entry["gateway"]["admin_host"]) == (8000, 8001, "127.0.0.1")
    assert plan["changes"] == ["tiny-qwen3", "tiny-qwen3.gateway"]
    (instance,) = entry["instances"]
    assert instance["argv"][1:4] == ["-m", "modelyard_gateway", "--config"]
    assert instance["environment"]["MODELYARD_SERVICE"] == "tiny-qwen3.gateway"
    assert "tiny-qwen3  start   entry" in text.plan(plan).replace("  start     ", "  start   ")


def test_a_running_gateway_is_kept():
    plan = planned(behind(), running(behind()))
    assert (plan["gateways"][0]["action"], plan["changes"]) == ("keep", [])


def test_more_instances_need_no_restart_of_the_gateway():
    more = {**behind(), "topology": {**behind()["topology"], "replicas": 3}, "cards": ["0", "1", "2"]}
    plan = planned(more, running(behind()))
    assert plan["gateways"][0]["action"] == "keep"
    assert len(plan["gateways"][0]["gateway"]["backends"]) == 3


@pytest.mark.parametrize(("allowed", "action"), [(False, "refused"), (True, "restart")])
def test_another_setting_is_a_restart_that_needs_permission(allowed, action):
    plan = planned(behind(timeout_s=60), running(behind()), restart=allowed)
    assert plan["gateways"][0]["action"] == action
    assert plan["gateways"][0]["differences"] == ["instance 0 timeout_s: 300 -> 60"]
    assert ("PF-RESTART-NEEDED" in ids(plan)) is not allowed
    assert [i["action"] for i in plan["services"][0]["instances"]] == ["keep", "keep"]


def test_a_newer_program_is_a_restart_as_well():
    plan = planned(behind(), running(behind()), gateway_package="fedcba9876543210")
    assert "instance 0 program: 0123456789ab -> fedcba987654" in plan["gateways"][0]["differences"]


@pytest.mark.parametrize(("only", "action"), [({"tiny-qwen3": [1]}, "leave"), ({"tiny-qwen3": []}, "start")])
def test_a_run_about_one_instance_is_not_about_the_gateway(only, action):
    assert planned(behind(), only=only)["gateways"][0]["action"] == action


def test_a_refused_plan_starts_no_gateway():
    plan = planned(behind(), worlds.survey(home_problem="no right to write"))
    assert plan["gateways"][0]["action"] == "refused"


def test_a_port_that_somebody_has_is_refused_and_one_of_the_own_engines_is_not():
    taken = {"8000": {"service": "", "pid": 4711, "user": "eve", "command": "python -m http.server"}}
    plan = planned(behind(), worlds.survey(ports=taken))
    assert "PF-PORT-BUSY" in ids(plan)
    own = {"8000": {"service": "tiny-qwen3", "pid": 4711, "user": "ops", "command": "vllm"}}
    assert "PF-PORT-BUSY" not in ids(planned(behind(), worlds.survey(ports=own)))


@pytest.mark.parametrize(
    ("changes", "where", "what"),
    [
        ({"port": 8003}, "gateway.port", "port 8003 is wanted by tiny-qwen3 and by the gateway of tiny-qwen3"),
        ({"port": 8001}, "gateway.admin_port", "port 8002 is wanted by tiny-qwen3 and by the gateway of tiny-qwen3"),
        ({"port": 70000}, "gateway.port", "there is no port 70000"),
        ({"timeout_s": 0}, "gateway.timeout_s", "0 is below 1"),
        ({"queue_size": 8}, "gateway.queue_size", "nothing would ever wait, because per_backend_limit is 0 (no limit)"),
        (
            {"kind": "nginx", "keys_file": "/etc/keys"},
            "gateway.keys_file",
            "nginx does not check API keys; it passes them through",
        ),
        ({"keys_file": "keys"}, "gateway.keys_file", "'keys' is not an absolute path, or holds a $"),
    ],
)
def test_what_cannot_work_is_refused(changes, where, what):
    found = meaning.findings([behind(**changes)])
    assert any(f["where"].endswith(where) and f["what"].startswith(what) for f in found), found


def test_a_service_may_not_be_called_like_a_gateway():
    found = meaning.findings([{**behind(), "name": "qwen.gateway"}])
    assert found[0]["what"] == "'qwen.gateway' would be taken for the gateway of qwen"
    twice = meaning.findings([behind(), {**worlds.service(), "name": "tiny-qwen3-gateway", "listen": {"base_port": 9000}}])
    assert "the session tiny-qwen3-gateway is wanted by tiny-qwen3 and by tiny-qwen3-gateway" in [f["what"] for f in twice]


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("modelyard", ["gateway.json"]),
        ("haproxy", ["haproxy.cfg", "proxy.json"]),
        ("nginx", ["nginx.conf", "proxy.json", "backends.conf"]),
    ],
)
def test_the_files_of_a_kind_are_written_and_those_of_others_go(kind, wanted):
    plan = planned(behind(kind=kind), worlds.survey(programs={"haproxy": "/usr/sbin/haproxy", "nginx": "/usr/sbin/nginx"}))
    assert ids(plan) == []
    made = gateway_files.of_gateway(plan["gateways"][0], HOST)
    names = {entry["path"].rpartition("/")[2]: entry for entry in made["texts"]}
    for name in ("gateway.json", "haproxy.cfg", "nginx.conf", "proxy.json", "backends.conf"):
        assert (names[name].get("state") != "absent") is (name in wanted), name
    assert {"start.sh", "stop.sh", "status.sh", "service.json", "instance.json", "launch.sh", "env", "spec.json"} <= set(names)
    assert not {"client.env", "api_key"} & set(names)
    assert (names["modelyard_gateway.zip"]["program"], made["started"][0]["index"]) == ("gateway", 0)
    assert made["service_file"]["stop"]["linger_s"] > plan["gateways"][0]["gateway"]["drain_s"]


def test_clients_and_the_manifest_know_the_gateway():
    plan = planned(behind())
    (service,) = plan["services"]
    known = files.client_env(service, "/opt/modelyard/services/tiny-qwen3")
    assert known["OPENAI_BASE_URL"] == known["MODELYARD_BASE_URLS"] == "http://127.0.0.1:8000/v1"
    assert manifest.manifest(service, plan, worlds.survey(), "1.0")["gateway"]["port"] == 8000
    shown = text.summary(plan, [], "/opt/modelyard")
    assert shown.splitlines()[:3] == [
        "tiny-qwen3 serves tiny-qwen3 on box: http://127.0.0.1:8000",
        "  gateway modelyard; its status, on the host itself: http://127.0.0.1:8001/gateway/status",
        "  behind it: http://127.0.0.1:8002, http://127.0.0.1:8003",
    ]
    assert "curl -s http://127.0.0.1:8000/v1/chat/completions" in shown


@pytest.mark.parametrize(
    ("address", "engines", "key", "keys_file", "kind", "open_ports"),
    [
        ("0.0.0.0", "127.0.0.1", "", "", "modelyard", [8000]),
        ("", "127.0.0.1", "", "", "nginx", [8000]),
        ("10.0.0.7", "0.0.0.0", "", "", "modelyard", [8000, 8002]),
        ("0.0.0.0", "::", "", "/etc/keys", "modelyard", [8002]),  # the engines can be reached past the gateway
        ("0.0.0.0", "0.0.0.0", "hash", "", "haproxy", []),
        ("127.0.0.1", "127.0.0.2", "", "", "modelyard", []),
        ("localhost", "::1", "", "", "modelyard", []),
    ],
)
def test_what_can_be_reached_without_a_key_is_told(address, engines, key, keys_file, kind, open_ports):
    service = behind(host=address, keys_file=keys_file, kind=kind)
    service = worlds.merged(service, {"listen": {"host": engines}, "key_hash": key})
    told = [found for found in planned(service)["findings"] if found["id"] == "PF-OPEN-DOOR"]
    assert sorted(found["where"] for found in told) == [f"box:{port}" for port in open_ports]
    assert all(found["severity"] == "warn" and ("keys_file" in found["do"]) <= (kind == "modelyard") for found in told)


@pytest.mark.parametrize(("key", "keys_file", "v1_only"), [("", "", False), ("hash", "", True), ("hash", "/etc/keys", False)])
def test_where_the_engines_ask_for_the_key_only_what_they_guard_is_served(key, keys_file, v1_only):
    (entry,) = planned(worlds.merged(behind(keys_file=keys_file), {"key_hash": key}))["gateways"]
    assert entry["gateway"]["v1_only"] is v1_only


def test_a_run_about_others_says_nothing_of_an_open_door():
    other = worlds.service(name="other", listen={"host": "127.0.0.1", "base_port": 9000})
    plan = planner.plan(worlds.intent(behind(), other, only={"other": []}), worlds.survey())
    assert "PF-OPEN-DOOR" not in ids(plan)
