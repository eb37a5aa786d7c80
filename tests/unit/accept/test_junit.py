"""JUnit XML: read back as CI servers read it."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st
from unit.accept import runs

from modelyard.accept import junit


def read(run):
    return ET.fromstring(junit.document(run).encode())


def test_a_suite_for_each_service_and_a_case_for_each_step():
    steps = [runs.PASS, runs.SKIPPED, runs.BUSY, runs.FAIL]
    hosts = {
        "server1": runs.host(runs.service(*steps, evidence="/evidence/x")),
        "server2": runs.host(problem="no route\nto host", kind="unreachable"),
    }
    root = read(runs.run(hosts))
    assert [root.get(key) for key in ("tests", "failures", "errors", "skipped")] == ["5", "1", "1", "2"]
    one, two = root.findall("testsuite")
    assert (one.get("name"), one.get("hostname"), one.get("tests")) == ("server1.one", "server1", "4")
    assert [case.get("name") for case in one.findall("testcase")] == ["health/0", "memory/0", "chat/0", "schema/1"]
    failure = one.find("testcase/failure")
    assert failure.text == "{} does not fit\nnext: look at the log\nevidence: /evidence/x"
    assert failure.get("message") == "{} does not fit"
    assert two.find("testcase/error").get("message") == "no route"


def test_a_run_without_a_host_is_an_error_and_never_an_empty_success():
    root = read(runs.run({}, words=["ansible-playbook ended with status 4"]))
    assert (root.get("tests"), root.get("errors")) == ("1", "1")
    assert root.find("testsuite/testcase/error").text == "ansible-playbook ended with status 4"


@given(st.text(), st.text())
def test_any_text_of_a_host_makes_a_document_that_can_be_read(name, detail):
    root = read(runs.run({name: runs.host(runs.service({**runs.FAIL, "detail": detail}))}))
    assert root.get("failures") == "1"
