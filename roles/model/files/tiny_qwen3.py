"""Make a tiny Qwen3 with random weights: the same code path as a real one, in kilobytes and seconds.

usage: tiny_qwen3.py FOLDER      (with the Python of a runtime; the same weights every time)
"""

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

END, START, PAD = "<|im_end|>", "<|im_start|>", "<|endoftext|>"
CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %}"
)


def tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer: every text can be written with it, so any reply can be decoded."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=[PAD, START, END], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    bpe.train_from_iterator(['Say hello. {"answer": "Paris", "count": 1, "kind": "place"}'] * 40, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token=END, pad_token=PAD)
    fast.chat_template = CHAT_TEMPLATE
    return fast


def main() -> None:
    """Write config, weights and tokenizer."""
    folder = Path(sys.argv[1])
    words = tokenizer()
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=-(-len(words) // 64) * 64,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            max_position_embeddings=32768,
            tie_word_embeddings=True,
            eos_token_id=words.eos_token_id,
            pad_token_id=words.pad_token_id,
        )
    )
    model.to(torch.bfloat16).save_pretrained(folder)
    words.save_pretrained(folder)


if __name__ == "__main__":
    main()
