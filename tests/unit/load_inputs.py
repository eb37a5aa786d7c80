"""The inputs of the role load_test for tests."""

from __future__ import annotations

import yaml
from unit import worlds

SPEC = yaml.safe_load((worlds.ROOT / "roles/load_test/meta/argument_specs.yml").read_text(encoding="utf-8"))
#: Without their prefix, as they are when nobody sets them.
USUAL = {name.removeprefix("load_test_"): o["default"] for name, o in SPEC["argument_specs"]["main"]["options"].items()}
