"""Write the table of inventory variables in README.md from roles/*/meta/argument_specs.yml.

usage: readme_variables.py [--check]      (--check changes nothing; exit 1 when README.md is out of date)
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any, Dict, List, Tuple

import yaml

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
BEGIN, END = "<!-- variables:begin -->", "<!-- variables:end -->"
FIRST = "plan"  # the inventory's language; the other roles follow by name


def specs() -> List[Tuple[str, Dict[str, Any]]]:
    """(role, its options) of every role that has options."""
    found = []
    for path in sorted(ROOT.glob("roles/*/meta/argument_specs.yml")):
        options = yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"]["main"].get("options") or {}
        if options:
            found.append((path.parent.parent.name, options))
    return sorted(found, key=lambda item: (item[0] != FIRST, item[0]))


def default(entry: Dict[str, Any]) -> str:
    """The default as people write it; `required`, or a dash for a group whose keys have defaults of their own."""
    if entry.get("required"):
        return "required"
    if "default" not in entry or ("options" in entry and not entry["default"]):
        return "-"
    value = entry["default"]
    return f"`{value}`" if isinstance(value, str) and value else f"`{json.dumps(value)}`"


def meaning(entry: Dict[str, Any]) -> str:
    """The description on one line, Ansible's C(x) as code, with the choices when there are several."""
    said = entry.get("description", "")
    text = " ".join((" ".join(said) if isinstance(said, list) else said).split())
    text = re.sub(r"C\(([^)]*)\)", r"`\1`", text)
    if len(entry.get("choices", [])) > 1:
        text += " One of " + ", ".join(f"`{choice}`" for choice in entry["choices"]) + "."
    return text.replace("|", "\\|")


def rows(options: Dict[str, Any], prefix: str = "") -> List[str]:
    """One row an option, nested ones by their path."""
    lines = []
    for name, entry in options.items():
        kind = entry.get("type", "str")
        if kind == "list":
            kind = f"list of {entry.get('elements', 'any')}"
        lines.append(f"| `{prefix}{name}` | {kind} | {default(entry)} | {meaning(entry)} |")
        lines += rows(entry.get("options") or {}, f"{prefix}{name}{'[]' if entry.get('type') == 'list' else ''}.")
    return lines


def region() -> str:
    """What stands between the markers."""
    lines = [BEGIN, "<!-- Made by tools/readme_variables.py from roles/*/meta/argument_specs.yml. Do not edit by hand. -->"]
    for role, options in specs():
        lines += ["", f"Role `{role}`", "", "| variable | type | default | meaning |", "|---|---|---|---|", *rows(options)]
    return "\n".join([*lines, "", END])


def main() -> None:
    """Replace the region, or compare it."""
    parser = argparse.ArgumentParser(description="Table of inventory variables in README.md")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when README.md is out of date")
    check = parser.parse_args().check
    now = README.read_text(encoding="utf-8")
    if now.count(BEGIN) != 1 or now.count(END) != 1:
        sys.exit(f"README.md needs the lines {BEGIN} and {END}, each once")
    before, _, rest = now.partition(BEGIN)
    wanted = before + region() + rest.partition(END)[2]
    if wanted == now:
        return
    if check:
        sys.exit("The variables in README.md are out of date. Run: .venv/bin/python tools/readme_variables.py")
    README.write_text(wanted, encoding="utf-8")


if __name__ == "__main__":
    main()
