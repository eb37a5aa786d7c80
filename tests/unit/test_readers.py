from __future__ import annotations

import subprocess
import sys

import pytest
from ansible_collections.modelyard.core.plugins.module_utils import survey
from harness import ROOT


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("read_nvidia_smi", ("No devices were found\n", {"format": "message"})),
        ("read_hy_smi", ("bash: hy-smi: command not found...\n", "hy-smi")),
        ("read_rocm_smi", ("", "rocm-smi")),
    ],
)
def test_the_readers_can_be_had_from_the_package(name, arguments):
    assert set(getattr(survey, name)(*arguments)) >= {"processes", "errors"}


def test_a_module_that_looks_at_the_host_does_not_load_them():
    code = (
        "import sys; from ansible_collections.modelyard.core.plugins.module_utils.survey import host;"
        "print([m for m in sys.modules if m.endswith(('nvidia_smi', 'rocm_smi'))])"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, env={"PYTHONPATH": "collections"}
    )
    assert shown.stdout.strip() == "[]"
