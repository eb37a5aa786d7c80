"""Make an environment and a model folder that a preflight takes for whole: `stand_in.py ENVIRONMENT MODEL`. They cannot serve."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

RELEASE = "0.32.0"
MODULES = {
    "torch/__init__.py": "",
    "vllm/__init__.py": f"__version__ = {RELEASE!r}\n",
    "vllm/entrypoints/__init__.py": "",
    "vllm/entrypoints/cli/__init__.py": "",
    "vllm/entrypoints/cli/main.py": "",
    "transformers/__init__.py": "class AutoTokenizer: ...\n",
    f"vllm-{RELEASE}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: vllm\nVersion: {RELEASE}\n",
}


def environment(folder: Path) -> None:
    """A virtual environment whose packages have names and versions and nothing else."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site = next(folder.glob("lib/python3*/site-packages"))
    for name, text in MODULES.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text, encoding="utf-8")


def model(folder: Path) -> None:
    """All files that an offline start wants, small."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 40960}), encoding="utf-8")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_text("{}", encoding="utf-8")
    (folder / "model.safetensors").write_bytes(bytes(1024))


if __name__ == "__main__":
    environment(Path(sys.argv[1]))
    model(Path(sys.argv[2]))
