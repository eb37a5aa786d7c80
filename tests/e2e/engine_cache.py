"""Start the real engine for models of several architectures, one after the other in one process, and say what it made of them.

usage: engine_cache.py CASES.json FOLDER      (with the Python of a runtime)

CASES: {name: {config, options}}; of `config` transformers writes a checkpoint with random weights, `options` are the engine's.
For each case a line `MADE {...}` with the blocks of its cache and the bytes of its weights; its log goes to standard output.
"""

import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.update(
    VLLM_TARGET_DEVICE="cpu",
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    HF_HUB_OFFLINE="1",
    TRANSFORMERS_OFFLINE="1",
    VLLM_NO_USAGE_STATS="1",
)
import torch
import vllm
from transformers import AutoConfig, AutoModelForCausalLM
from vllm.distributed import cleanup_dist_env_and_memory
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

USUAL = {
    "max_model_len": 4096,
    "max_num_seqs": 4,
    "max_num_batched_tokens": 512,
    "enforce_eager": True,
    "skip_tokenizer_init": True,
}


#: Bytes of the weights after each load, before the engine packs them for its kernels.
LOADED: list[int] = []
_load = DefaultModelLoader.load_weights


def counted(loader: Any, model: Any, settings: Any) -> None:
    """As the loader does it, and then count."""
    _load(loader, model, settings)
    held = {tensor.data_ptr(): tensor.numel() * tensor.element_size() for tensor in model.parameters()}
    LOADED.append(sum(held.values()))


DefaultModelLoader.load_weights = counted


def saved(folder: Path, config: dict[str, Any]) -> None:
    """A checkpoint with random weights, as transformers writes it."""
    settings = AutoConfig.for_model(**config)
    model = AutoModelForCausalLM.from_config(settings, dtype=torch.bfloat16)
    model.save_pretrained(folder)


def made(folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    """One engine, and what it holds."""
    engine = vllm.LLM(model=str(folder), **{**USUAL, **options})
    try:
        core = engine.llm_engine.engine_core.engine_core
        cache = core.scheduler.kv_cache_config
        settings = core.vllm_config.cache_config
        return {
            "blocks": cache.num_blocks,
            "groups": [
                {
                    "layers": len(group.layer_names),
                    "spec": type(group.kv_cache_spec).__name__,
                    "block": group.kv_cache_spec.block_size,
                    "page": group.kv_cache_spec.page_size_bytes,
                }
                for group in cache.kv_cache_groups
            ],
            "weights": LOADED[-1],
            "tokens": settings.kv_cache_size_tokens,
            "concurrency": settings.kv_cache_max_concurrency,
            "mode": str(settings.mamba_cache_mode),
        }
    finally:
        del engine
        gc.collect()
        cleanup_dist_env_and_memory()


def main() -> None:
    """Every case; one that fails is told and does not end the others."""
    cases = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for name, case in cases.items():
        folder = Path(sys.argv[2], name)
        print("CASE", name, flush=True)
        try:
            saved(folder, case["config"])
            told = made(folder, case["options"])
        except Exception as exc:  # whatever it is, it is told
            told = {"failed": f"{type(exc).__name__}: {exc}"}
        print("MADE", json.dumps({"name": name, **told}), flush=True)


if __name__ == "__main__":
    main()
