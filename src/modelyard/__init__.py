"""The tool of the control node: what runs over the playbooks of this checkout and keeps what they have found."""

import sys
from pathlib import Path

#: What this tool shares with playbooks and hosts stands in the collection, which is used from the checkout and not installed.
sys.path.append(str(Path(__file__).resolve().parents[2] / "collections"))
