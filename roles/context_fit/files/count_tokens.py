"""Count the tokens of prompts with a model's own tokenizer, offline.

usage: python count_tokens.py FOLDER CHAT_TEMPLATE TRUST      (TRUST 1: code in the model's folder may be run)

The first line on standard output says what was loaded. Then each line of standard input is a JSON list of prompts
[text or messages, raw, arguments of the template], and is answered with a JSON list: numbers of tokens, or why there is none.
No word of a prompt is ever written anywhere.
"""

import json
import os
import sys
from pathlib import Path

# Libraries write to standard output as they like: it is kept for the answers alone.
answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)


def say(value):
    """One line of JSON."""
    answers.write(json.dumps(value, default=str) + "\n")
    answers.flush()


def load(folder, template, trust):
    """(tokenizer, what to say about it)."""
    from transformers import AutoConfig, AutoTokenizer, logging  # noqa: PLC0415  takes seconds; what fails is to be said in JSON

    logging.set_verbosity_error()
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust, local_files_only=True)
    if template:
        tokenizer.chat_template = Path(template).read_text(encoding="utf-8") if os.path.exists(template) else template
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=trust, local_files_only=True).to_dict()
    except Exception:  # a model that this release does not know: config.json says what it says
        config = None
    has_template = bool(getattr(tokenizer, "chat_template", None))
    return tokenizer, {"config": config, "tokenizer": type(tokenizer).__name__, "template": has_template}


def rendered(tokenizer, has_template, prompt):
    """(text, whether special tokens are added) of one prompt, as the engine makes it."""
    what, raw, extra = prompt
    if raw or (isinstance(what, str) and not has_template):
        return what, True
    messages = [{"role": "user", "content": what}] if isinstance(what, str) else what
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **extra)
    return text, False


def lengths(tokenizer, texts, special):
    """A number, or a reason, for each text. One that is refused (half of a surrogate pair) takes no other along."""
    try:
        found = tokenizer(texts, add_special_tokens=special, return_attention_mask=False)["input_ids"]
        return [len(one) for one in found]
    except Exception as exc:  # tokenizers raise what they like
        if len(texts) == 1:
            return [f"the tokenizer refuses it ({type(exc).__name__})"]
        return [length for text in texts for length in lengths(tokenizer, [text], special)]


def counted(tokenizer, has_template, prompts):
    """A number, or a reason, for each."""
    found, texts = [], {True: [], False: []}
    for prompt in prompts:
        try:
            text, special = rendered(tokenizer, has_template, prompt)
        except Exception as exc:  # templates raise what they like
            found.append(f"the chat template refuses it ({type(exc).__name__})")
            continue
        texts[special].append((len(found), text))
        found.append(0)
    for special, some in texts.items():
        if some:
            for (place, _), length in zip(some, lengths(tokenizer, [text for _, text in some], special)):
                found[place] = length
    return found


def main():
    """Load, then answer line after line."""
    folder, template, trust = sys.argv[1:4]
    try:
        tokenizer, loaded = load(folder, template, trust == "1")
    except Exception as exc:
        say({"error": f"{type(exc).__name__}: {str(exc).splitlines()[0] if str(exc) else ''}"[:400]})
        return
    say(loaded)
    for line in sys.stdin:
        say(counted(tokenizer, loaded["template"], json.loads(line)))


main()
