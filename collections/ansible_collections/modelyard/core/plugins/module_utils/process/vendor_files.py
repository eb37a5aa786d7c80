"""Files of a vendor that are installed into a runtime: are they those that were named, and is what they made what they say?"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.survey.wheelhouse import sha256

#: Where anything will do, but not nothing.
ANY = "any"


def plain(name: str) -> str:
    """A package's name, or a version, as they are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def sums(files: Sequence[Mapping[str, str]]) -> Tuple[Dict[str, str], List[str]]:
    """(SHA-256 by name, all that is wrong). `files`: [{path, sha256}], the sum empty where nobody named it."""
    found = {entry["path"]: sha256(Path(entry["path"])) for entry in files}
    wrong = [f"{path}: it cannot be read" for path, own in found.items() if not own]
    wrong += [
        f"{entry['path']}: its SHA-256 is {found[entry['path']]}, wanted {entry['sha256']}"
        for entry in files
        if entry["sha256"] and found[entry["path"]] not in ("", entry["sha256"])
    ]
    return {os.path.basename(path): own for path, own in found.items()}, wrong


def versions(files: Sequence[Mapping[str, str]]) -> Dict[str, str]:
    """Packages with the versions in the files' names."""
    parts = [os.path.basename(entry["path"]).split("-") for entry in files]
    return {plain(part[0]): part[1] for part in parts}


def differences(says: Mapping[str, Any], expect: Mapping[str, str], named: Mapping[str, str]) -> List[str]:
    """Where an installed torch, and the packages of the vendor, are not what was wanted, in words.

    `says`: what torch says of itself, and `versions` of the vendor's packages. `named`: see versions.
    """
    told = [(key, str(says.get(key) or ""), text) for key, text in expect.items()]
    differs = [(key, own, text) for key, own, text in told if not fits(own, text)]
    installed = [(name, str(says["versions"][name]), text) for name, text in named.items()]
    differs += [(name, own, text) for name, own, text in installed if not same(own, text)]
    return [f"{key} is {own or 'none'}, wanted {text or 'none'}" for key, own, text in differs]


def fits(said: str, wanted: str) -> bool:
    """Is it what is expected? A version without a + stands for its builds."""
    if wanted == ANY:
        return bool(said)
    return said == wanted or ("+" not in wanted and said.partition("+")[0] == wanted != "")


def same(installed: str, named: str) -> bool:
    """Is an installed version that of a file's name? A vendor puts a stamp behind it in some of them."""
    return f"{plain(installed)}-".startswith(f"{plain(named)}-")
