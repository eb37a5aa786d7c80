"""A runtime whose transformers count words, for tests without the real one; and what is wrong with it, where a test says so."""

from __future__ import annotations

import json
import sys
from pathlib import Path

TRANSFORMERS = """
import os, sys, time
assert os.environ["HF_HUB_OFFLINE"] == "1" and os.environ["CUDA_VISIBLE_DEVICES"] == ""
print("noise of a library")
class logging:
    @staticmethod
    def set_verbosity_error(): pass
class Tokenizer:
    chat_template = "yes"
    def __init__(self, fault): self.fault = fault
    def apply_chat_template(self, messages, tokenize, add_generation_prompt, tools=None, **more):
        assert tokenize is False and add_generation_prompt is True
        if any(m["role"] == "strange" for m in messages): raise ValueError("SECRET in " + messages[0]["content"])
        return " ".join(["<start>", *("<tool>" for _ in tools or ()), *(m["content"] for m in messages)])
    def __call__(self, texts, add_special_tokens, return_attention_mask):
        if self.fault == "dies": sys.stderr.write("out of luck\\n"); os._exit(7)
        if self.fault == "hangs": time.sleep(600)
        for text in texts: text.encode()
        return {"input_ids": [[0] * (len(text.split()) + add_special_tokens) for text in texts]}
class AutoTokenizer:
    @staticmethod
    def from_pretrained(folder, trust_remote_code, local_files_only):
        fault = open(os.path.join(folder, "fault")).read() if os.path.exists(os.path.join(folder, "fault")) else ""
        if fault == "broken": raise OSError("tokenizer.json is not there\\nsecond line")
        made = Tokenizer(fault)
        if fault == "no template": made.chat_template = None
        return made
class Config(dict):
    def to_dict(self): return dict(self)
class AutoConfig:
    @staticmethod
    def from_pretrained(folder, trust_remote_code, local_files_only):
        import json
        found = json.load(open(os.path.join(folder, "config.json")))
        if found.get("model_type") == "unheard of": raise ValueError("unknown")
        return Config(found, defaulted=True)
"""
CONFIG = {"model_type": "qwen3", "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}


def install(folder: Path) -> Path:
    """A runtime in `folder`: bin/python finds the stub alone."""
    packages = folder / "packages"
    (folder / "bin").mkdir(parents=True)
    packages.mkdir()
    (packages / "transformers.py").write_text(TRANSFORMERS, encoding="utf-8")
    python = folder / "bin/python"
    python.write_text(f'#!/bin/bash\nPYTHONPATH={packages} exec {sys.executable} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    return folder


def model(folder: Path, fault: str = "", **config: object) -> Path:
    """A model folder with a config and a tokenizer of the stub."""
    folder.mkdir(parents=True)
    made = {**CONFIG, "max_position_embeddings": 1024, "dtype": "bfloat16", **config}
    (folder / "config.json").write_text(json.dumps(made), encoding="utf-8")
    if fault:
        (folder / "fault").write_text(fault, encoding="utf-8")
    return folder
