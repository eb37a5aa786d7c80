"""Make adapters of a tiny model as a training leaves them, without the library that will read them.

usage: adapter.py BASE OUT      OUT/checkpoint-100 has next to no effect, OUT/checkpoint-200 one that shows
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

base, out = Path(sys.argv[1]), Path(sys.argv[2])
config = json.loads((base / "config.json").read_text())
hidden, inner, rank = config["hidden_size"], config["intermediate_size"], 8
heads, key_heads = (config[key] * config["head_dim"] for key in ("num_attention_heads", "num_key_value_heads"))
SHAPES = {
    "self_attn.q_proj": (hidden, heads),
    "self_attn.v_proj": (hidden, key_heads),
    "self_attn.o_proj": (heads, hidden),
    "mlp.up_proj": (hidden, inner),
}
for number, strength in ((100, 1e-6), (200, 0.3)):
    torch.manual_seed(number)
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        for module, (width, height) in SHAPES.items():
            name = f"base_model.model.model.layers.{layer}.{module}"
            tensors[f"{name}.lora_A.weight"] = torch.randn(rank, width) / width**0.5
            tensors[f"{name}.lora_B.weight"] = torch.randn(height, rank) * strength
    folder = out / f"checkpoint-{number}"
    folder.mkdir(parents=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    told = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": 16, "base_model_name_or_path": str(base)}
    told.update(target_modules=[module.rpartition(".")[2] for module in SHAPES], bias="none", inference_mode=True)
    (folder / "adapter_config.json").write_text(json.dumps(told))
    (folder / "optimizer.pt").write_bytes(b"state of the training")
