"""A run as JUnit XML, for CI servers and monitors: a suite for each service, a case for each step and instance. Pure."""

from __future__ import annotations

import datetime
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from typing import Any

from modelyard.accept import answer

#: What XML 1.0 cannot hold.
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def document(run: Mapping[str, Any]) -> str:
    """The whole document. A host that could not be asked is a suite with one case in error."""
    whole = ET.Element("testsuites", name=_clean(f"acceptance {run['inventory']}"), time=_seconds(run["ended"] - run["began"]))
    at = datetime.datetime.fromtimestamp(run["began"], datetime.timezone.utc).isoformat(timespec="seconds")
    for host, seen in run["hosts"].items():
        if seen["problem"]:
            suite = _suite(whole, host, host, at)
            _complain(_case(suite, host, "reach and plan", 0.0), "error", seen["answer"], seen["problem"])
        for service in seen["services"]:
            suite = _suite(whole, f"{host}.{service['name']}", host, at)
            for step in service["steps"]:
                _step(suite, f"{host}.{service['name']}", step, service["evidence"])
    if not run["hosts"] or run["answer"] == answer.ERROR:
        suite = _suite(whole, "run", "localhost", at)
        case = _case(suite, "run", "come to an answer", 0.0)
        if run["answer"] == answer.ERROR:
            _complain(case, "error", run["answer"], "\n".join(run["words"]))
    for suite in whole:
        _count(suite)
    _count(whole)
    ET.indent(whole)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(whole, encoding="unicode") + "\n"


def _suite(whole: ET.Element, name: str, host: str, at: str) -> ET.Element:
    return ET.SubElement(whole, "testsuite", name=_clean(name), hostname=_clean(host), timestamp=at)


def _case(suite: ET.Element, classname: str, name: str, seconds: float) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname=_clean(classname), name=_clean(name), time=_seconds(seconds))


def _step(suite: ET.Element, classname: str, step: Mapping[str, Any], evidence: str) -> None:
    case = _case(suite, classname, f"{step['id']}/{step['instance']}", step["seconds"])
    if step["verdict"] == answer.FAIL:
        more = [f"next: {step['next']}"] if step["next"] else []
        more += [f"evidence: {evidence}"] if evidence else []
        _complain(case, "failure", step["cause"] or step["id"], "\n".join([step["detail"], *more]))
    elif step["verdict"] != answer.PASS:
        ET.SubElement(case, "skipped", message=_clean(f"{step['verdict']}: {step['detail']}"))


def _complain(case: ET.Element, tag: str, kind: str, words: str) -> None:
    first = words.split("\n", 1)[0]
    ET.SubElement(case, tag, type=_clean(kind), message=_clean(first)[:500]).text = _clean(words)


def _count(of: ET.Element) -> None:
    cases = list(of.iter("testcase"))
    of.set("tests", str(len(cases)))
    for key, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        of.set(key, str(sum(case.find(tag) is not None for case in cases)))
    if of.tag == "testsuite":
        of.set("time", _seconds(sum(float(case.get("time", "0")) for case in cases)))


def _seconds(value: float) -> str:
    return f"{max(0.0, value):.3f}"


def _clean(text: str) -> str:
    return NOT_XML.sub("\ufffd", str(text))
