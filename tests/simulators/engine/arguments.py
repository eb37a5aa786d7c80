"""The command line of `vllm serve`: options of the release's table, and what vLLM works out from them."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

NUMBERS = ("port", "tensor_parallel_size", "max_num_seqs", "max_logprobs", "shutdown_timeout")
TYPES = {**dict.fromkeys(NUMBERS, int), "gpu_memory_utilization": float, "max_model_len": str}
USUAL = {
    "host": "0.0.0.0",
    "port": 8000,
    "tensor_parallel_size": 1,
    "max_num_seqs": 256,
    "max_logprobs": 20,
    "shutdown_timeout": 0,
    "gpu_memory_utilization": 0.92,
}
UNITS = {"k": 1000, "K": 1024, "m": 10**6, "M": 2**20, "g": 10**9, "G": 2**30}


def parse(words, options):
    """The arguments after `serve`; ends with status 2 and argparse's words for an option that is none.

    `options`: {switch, flag, value, list, repeat: [names with underscores]}, as plan/tables.py has them.
    """
    parser = argparse.ArgumentParser(prog="vllm serve", allow_abbrev=False)
    parser.add_argument("model_tag")
    for kind, names in options.items():
        for name in names:
            flag = "--" + name.replace("_", "-")
            if name == "model_tag":
                continue
            if kind == "switch":
                parser.add_argument(flag, action=argparse.BooleanOptionalAction)
            elif kind == "flag":
                parser.add_argument(flag, action="store_true")
            elif kind == "repeat":
                parser.add_argument(flag, action="append")
            else:
                parser.add_argument(flag, nargs="+" if kind == "list" else None, type=TYPES.get(name, str))
    parsed = parser.parse_args(words)
    given = {name: value for name, value in vars(parsed).items() if value not in (None, False)}
    args = argparse.Namespace(**{**vars(parsed), **USUAL, **given})
    args.given = {**given, "model": given["model_tag"]}
    args.model = args.model_tag
    args.names = getattr(args, "served_model_name", None) or [args.model]
    args.max_model_len = _length(args)
    return args


def _length(args) -> int:
    """ValueError in vLLM's words where the model cannot do so much."""
    config = json.loads((Path(args.model) / "config.json").read_text(encoding="utf-8"))
    most = int(config.get("max_position_embeddings", 2048))
    text = getattr(args, "max_model_len", None)
    if text in (None, "auto", "-1"):
        return most
    wanted = int(float(text[:-1]) * UNITS[text[-1]]) if text[-1] in UNITS else int(text)
    if wanted > most:
        raise ValueError(
            f"User-specified max_model_len ({wanted}) is greater than the derived max_model_len "
            f"(max_position_embeddings={most} or model_max_length=None in model's config.json)."
        )
    return wanted
