"""usage: python -m modelyard_lab < ORDER.json

ORDER: {model: folder, settings: {engine settings}, requests: [{at_ms, prompt, output, shared, schema, cancel_after}],
rounds: N, seconds: S}; with `blocks`, `ahead` and `seed` it is one kept case and played once.
Output: lines of JSON. {"progress": words} while it works, at the end {"result": ...} or {"refused": words}.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

# Before vLLM is imported: the backend without cards, nothing from outside, and no word of it among ours.
os.environ.update(
    VLLM_TARGET_DEVICE="cpu",
    VLLM_LOGGING_LEVEL="ERROR",
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_NO_USAGE_STATS="1",
    HF_HUB_OFFLINE="1",
    TRANSFORMERS_OFFLINE="1",
)


def tell(**line: Any) -> None:
    """One line for who has ordered it."""
    print(json.dumps(line), file=ours, flush=True)


def main() -> int:
    """Entry point; 0 also when a fault was found, 2 when the order cannot be carried out."""
    import vllm  # noqa: PLC0415 - the environment must be made first

    from modelyard_lab import pattern, squeeze  # noqa: PLC0415
    from modelyard_lab.round import Setting  # noqa: PLC0415

    order = json.load(sys.stdin)
    try:
        requests = pattern.wishes(order["requests"])
        if not requests:
            raise ValueError("the pattern has no request")
        tell(progress="loading the engine")
        config = _configured(order, requests)
    except Exception as exc:  # whatever vLLM has against it
        tell(refused=f"{type(exc).__name__}: {exc}")
        return 2
    if "blocks" in order:
        result = squeeze.again(config, requests, Setting(order["blocks"], order["ahead"], order["seed"]))
    else:
        ahead = order["settings"].get("async_scheduling")
        modes = [True, False] if ahead is None else [ahead]
        # Without a limit of its own the pattern's longest request is all that is known to fit the model.
        tokens = order["settings"].get("max_model_len") or pattern.longest(requests)
        limits = squeeze.Limits(order["rounds"], order["seconds"], tokens)
        result = squeeze.searched(config, requests, modes, limits, lambda words: tell(progress=words))
    scheduler = config.scheduler_config
    tell(
        result={
            **result,
            "vllm": vllm.__version__,
            "settings": {
                "max_num_seqs": scheduler.max_num_seqs,
                "max_num_batched_tokens": scheduler.max_num_batched_tokens,
                "enable_prefix_caching": config.cache_config.enable_prefix_caching,
            },
        }
    )
    return 0


def _configured(order: dict[str, Any], requests: list[Any]) -> Any:
    from modelyard_lab.engine import configured  # noqa: PLC0415
    from modelyard_lab.pattern import longest  # noqa: PLC0415

    need, limit = longest(requests), order["settings"].get("max_model_len")
    if limit and need > limit:
        raise ValueError(f"the longest request has {need} tokens, max_model_len is {limit}")
    return configured(order["model"], {**order["settings"], "max_model_len": need})


if __name__ == "__main__":
    # The engine prints to standard output what it likes; the lines of the result have a way of their own.
    ours = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.exit(main())
