"""Merge an adapter (LoRA) into its base on the CPU, and prove that the result answers like base and adapter together.

usage: merge_adapter.py BASE ADAPTER FOLDER      (with the Python of the runtime peft-*)

Writes FOLDER, in parts of at most 4 GB. The parts are read back and compared with the unmerged pair on a short text, token by
token. The last line of the output is JSON: {error, effect, agree, tokens}. Ends with 1, and words, when they differ; FOLDER then
stays for a look and gets no name of a model.
"""

from __future__ import annotations

import gc
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoConfig, AutoTokenizer
from transformers.models.auto import modeling_auto

TEXT = "Question: Which numbers between 10 and 20 are prime? Answer: 11, 13, 17 and 19. Explain it in one short sentence:"
TOKENS = 64
PART = "4GB"
#: How far the outputs may be from each other, as a part of their own length. Seen with bfloat16: 0.008 and 0.020.
LIMIT = 0.05
#: Taken from the base, where the adapter's folder has none of its own.
WORDS = ("tokenizer*", "*.model", "vocab.json", "merges.txt", "added_tokens.json", "special_tokens_map.json", "chat_template*")
BESIDE = ("generation_config.json", "preprocessor_config.json", "*.py")
BEGAN = time.monotonic()


def say(words: str) -> None:
    """A line for people, at once."""
    print(f"[{time.monotonic() - BEGAN:4.0f} s] {words}", flush=True)


def loaded(folder: Path) -> Any:
    """A model in the type that it was saved in, by its own class: also one that sees."""
    architecture = (AutoConfig.from_pretrained(folder).architectures or [""])[0]
    for names in (modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES):
        if architecture in names.values():
            break
    else:
        sys.exit(f"{folder}: transformers has no class {architecture or '(none is named in config.json)'} to merge with")
    kind = "AutoModelForCausalLM" if names is modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES else "AutoModelForImageTextToText"
    return getattr(modeling_auto, kind).from_pretrained(folder, dtype="auto", low_cpu_mem_usage=True).eval()


def outputs(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    """What it thinks of each next token."""
    with torch.inference_mode():
        return model(input_ids=tokens).logits[0].float()


def far(one: torch.Tensor, other: torch.Tensor) -> float:
    """How far apart, as a part of the length."""
    return float((one - other).norm() / other.norm().clamp_min(1e-9))


def fits(base: Any, config: Any) -> None:
    """Does the adapter's vocabulary fit? A training that added tokens saved a larger one."""
    added = getattr(config, "modules_to_save", None) or []
    if added:
        say(f"the training saved {', '.join(added)} whole; they take the place of the base's")


def copied(base: Path, adapter: Path, folder: Path) -> None:
    """Tokenizer and what belongs to it: the adapter's own where it has one, as a training may have added to it."""
    words = adapter if (adapter / "tokenizer_config.json").exists() else base
    say(f"tokenizer of the {'adapter' if words == adapter else 'base'}")
    for origin, patterns in ((words, WORDS), (base, BESIDE)):
        for file in {path for pattern in patterns for path in origin.glob(pattern)}:
            if not (folder / file.name).exists():
                shutil.copyfile(file, folder / file.name)
    for file in folder.iterdir():
        file.chmod(0o644)  # some are written for their owner only, and the engine's user may be another one


def main() -> None:
    """Merge, write, read back, compare."""
    base, adapter, folder = (Path(word) for word in sys.argv[1:4])
    size = sum(path.stat().st_size for path in base.glob("*.safetensors")) or sum(p.stat().st_size for p in base.glob("*.bin"))
    place = next(path for path in folder.parents if path.exists())
    free = shutil.disk_usage(place).free
    if size * 1.02 > free:
        sys.exit(f"{place}: the merged model needs {size / 2**20:.0f} MiB, {free / 2**20:.0f} MiB are free; nothing was written")
    words = adapter if (adapter / "tokenizer_config.json").exists() else base
    tokens = AutoTokenizer.from_pretrained(words)(TEXT, return_tensors="pt").input_ids[:, :TOKENS]
    say(f"reading {base} ({size / 2**20:.0f} MiB)")
    model = loaded(base)
    plain = outputs(model, tokens) if int(tokens.max()) < model.get_input_embeddings().num_embeddings else None
    say(f"putting {adapter} on it")
    try:
        model = PeftModel.from_pretrained(model, adapter).eval()
    except (RuntimeError, ValueError) as exc:
        sys.exit(f"{adapter} does not go onto {base}: {exc}\nMerge it into the base that it was trained on; nothing was written")
    fits(base, model.peft_config["default"])
    wanted = outputs(model, tokens)
    say("merging")
    merged = model.merge_and_unload(safe_merge=True)
    say(f"writing {folder} in parts of {PART} at most")
    merged.save_pretrained(folder, max_shard_size=PART)
    del model, merged
    gc.collect()
    copied(base, adapter, folder)
    say("reading it back")
    got = outputs(loaded(folder), tokens)
    agree = float((got.argmax(-1) == wanted.argmax(-1)).float().mean())
    error = far(got, wanted)
    effect = far(plain, wanted) if plain is not None and plain.shape == wanted.shape else -1.0
    figures = {"error": round(error, 6), "effect": round(effect, 6), "agree": round(agree, 4), "tokens": int(tokens.shape[1])}
    if effect == 0:
        say("note: the adapter changes nothing in what the base says to this text; is it a trained one?")
    if error > LIMIT or 0 < effect < error:
        sys.exit(f"the merged model does not answer like base and adapter together: {json.dumps(figures)}; {folder} stays")
    say("it answers like base and adapter together")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
