"""Make an environment with a stand-in for vLLM, and a model folder for it: `stand_in.py ENVIRONMENT MODEL OPTIONS SYSROOT`.

The simulators lie beside this file. OPTIONS: JSON file with the option names of `vllm serve`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from simulators.engine.install import install, make_model  # found by the line above

if __name__ == "__main__":
    environment, model, options, sysroot = sys.argv[1:]
    install(environment, json.loads(Path(options).read_text(encoding="utf-8")), systems_packages=True, sysroot=sysroot)
    make_model(model)
