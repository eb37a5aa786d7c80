"""`vllm bench serve` of the deployed runtime: is it there, how is it called, what did it write. The key is on no command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Mapping, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.judge.load import figures
from ansible_collections.modelyard.core.plugins.module_utils.process import layout
from ansible_collections.modelyard.core.plugins.module_utils.survey import http

NAME = "vllm bench serve"
#: Variable from which it takes the key (vllm/benchmarks/lib/endpoint_request_func.py).
KEY = "OPENAI_API_KEY"


def missing(runtime: str, table: Mapping[str, Any]) -> str:
    """Why it cannot be used; empty when it can."""
    if not table:
        return f"the load tool of this vLLM release is not known, so {NAME} is not used"
    if not (Path(runtime) / "bin" / "vllm").is_file():
        return f"there is no bin/vllm in {runtime}"
    text = _source(runtime, str(table["source"]))
    if not text:
        return f"this vLLM build has no {NAME} ({table['source']})"
    lacking = [option for option in [table["api"], *table["options"]] if f'"{option}"' not in text]
    return f"{NAME} of this build does not have {', '.join(lacking)}" if lacking else ""


def _source(runtime: str, below: str) -> str:
    for path in sorted(Path(runtime).glob(f"lib/python3*/site-packages/{below}")):
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
    return ""


def command(request: Mapping[str, Any], level: Mapping[str, Any], address: Tuple[str, int], folder: Path) -> List[str]:
    """The words of one level; its result goes to `folder`."""
    shape, table = request["shape"], request["bench"]
    text = _source(request["runtime"], table["source"])
    rate = level["kind"] == "rate"
    words = [f"{request['runtime']}/bin/vllm", "bench", "serve"]
    words += [table["api"], "openai-chat", "--endpoint", "/v1/chat/completions"]
    host = http.reachable(address[0])
    words += ["--base-url", f"http://[{host}]:{address[1]}" if ":" in host else f"http://{host}:{address[1]}"]
    words += ["--model", request["model"], "--tokenizer", request["model_path"]]
    words += ["--dataset-name", "random", "--random-input-len", str(shape["input_tokens"])]
    words += ["--random-output-len", str(shape["output_tokens"]), "--seed", str(shape["seed"]), "--ignore-eos"]
    words += ["--num-prompts", str(level["requests"])]
    words += ["--request-rate", f"{level['value']:g}"] if rate else ["--max-concurrency", str(int(level["value"]))]
    words += ["--percentile-metrics", "ttft,itl,e2el", "--metric-percentiles", ",".join(map(str, figures.PERCENTILES))]
    words += ["--save-result", "--result-dir", str(folder), "--result-filename", result_name(level)]
    for option, values in table["where_there"].items():
        if f'"{option}"' in text:
            words += [option, *values]
    return words


def result_name(level: Mapping[str, Any]) -> str:
    """The file of a level's result."""
    return f"bench-{level['kind']}-{level['value']:g}.json"


def environment(given: Mapping[str, str], runtime: str, key: str, backend: str) -> Dict[str, str]:
    """A clean environment: no proxy, nothing from the internet, few threads, the key."""
    values = {
        "HOME": given.get("HOME", "/"),
        "LANG": "C.UTF-8",
        "PATH": f"{runtime}/bin:/usr/local/bin:/usr/bin:/bin",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    if backend == "cpu":
        values["VLLM_TARGET_DEVICE"] = "cpu"  # the command asks for its platform although it computes nothing
    return {**values, KEY: key} if key else values


def result(level: Mapping[str, Any], folder: Path, table: Mapping[str, Any]) -> Dict[str, Any]:
    """Figures of the level; empty where it wrote none."""
    document = layout.read_json(folder / result_name(level))
    return figures.of_bench(level, document, table["figures"]) if document else {}
