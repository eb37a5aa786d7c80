"""Make an environment with the stand-in in it: `python3 install.py ENVIRONMENT --options FILE`, or `install(...)`."""

from __future__ import annotations

import argparse
import compileall
import json
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
RELEASE = "0.32.0"
#: As much of each package as a preflight looks at. Only vllm does anything.
PACKAGES = {
    "torch/__init__.py": "",
    "torch/lib/libtorch_stand_in.so": "mapped by every process, as the real libraries are\n",
    "vllm/__init__.py": f"__version__ = {RELEASE!r}\n",
    "vllm/entrypoints/__init__.py": "",
    "vllm/entrypoints/cli/__init__.py": "",
    "vllm/entrypoints/cli/main.py": "from vllm.stand_in.serve import main\n\n__all__ = ['main']\n",
    "transformers/__init__.py": "class AutoTokenizer: ...\n",
    f"vllm-{RELEASE}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: vllm\nVersion: {RELEASE}\n",
}
COMMAND = """\
#!{folder}/bin/python
import sys

if __name__ == "__main__":
    from vllm.entrypoints.cli.main import main

    sys.exit(main())
"""


def install(folder, options, python=sys.executable, systems_packages=False, **settings) -> Path:
    """An environment in `folder`, which is returned.

    :param options: option names of `vllm serve`, as `options` of plan.tables.vllm.
    :param python: interpreter to make it with.
    :param systems_packages: packages of that interpreter are seen in it: a gateway needs aiohttp and httptools.
    :param settings: what holds for all instances, see settings.py; `sysroot` names the simulated cards.
    """
    folder = Path(folder).absolute()
    more = ["--system-site-packages"] if systems_packages else []
    subprocess.run([python, "-m", "venv", "--without-pip", *more, str(folder)], check=True)
    site = next(folder.glob("lib/python3*/site-packages"))
    for name, text in PACKAGES.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text, encoding="utf-8")
    code = site / "vllm/stand_in"
    code.mkdir(exist_ok=True)
    for file in HERE.glob("*.py"):
        shutil.copy2(file, code)
    (code / "options.json").write_text(json.dumps(options), encoding="utf-8")
    (folder / "stand-in.json").write_text(json.dumps(settings, indent=1), encoding="utf-8")
    command = folder / "bin/vllm"
    command.write_text(COMMAND.format(folder=folder), encoding="utf-8")
    command.chmod(0o755)
    # Who runs it may not be able to write there.
    compileall.compile_dir(str(site), quiet=1)
    return folder


def make_model(folder) -> Path:
    """A model folder with all files that an offline start wants, small; it is returned."""
    folder = Path(folder)
    folder.mkdir(parents=True)
    complete_model(folder, max_position_embeddings=40960)
    return folder


def complete_model(folder, **config) -> None:
    """Make of a folder one that a survey finds nothing wrong with; `config` goes into its config.json."""
    file = Path(folder, "config.json")
    before = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    file.write_text(json.dumps({"architectures": ["Qwen3ForCausalLM"], **before, **config}), encoding="utf-8")
    Path(folder, "tokenizer.json").write_text("{}", encoding="utf-8")
    Path(folder, "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}), encoding="utf-8")
    header = json.dumps({"a": {"dtype": "U8", "shape": [1024], "data_offsets": [0, 1024]}}).encode()
    Path(folder, "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(1024))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Make an environment with a stand-in for vLLM.")
    parser.add_argument("environment")
    parser.add_argument("--options", required=True, help="JSON: option names of vllm serve by kind")
    parser.add_argument("--sysroot", default="", help="folder of the simulated cards; empty: an engine on CPU")
    asked = parser.parse_args()
    install(asked.environment, json.loads(Path(asked.options).read_text(encoding="utf-8")), sysroot=asked.sysroot)


if __name__ == "__main__":
    main()
