"""The step `image`: a chat with a small picture in it, as multimodal models (MiniCPM-V and others) are asked."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any, Dict, List

from ansible_collections.modelyard.core.plugins.module_utils.judge.ladder.answer import message, tokens, unanswered
from ansible_collections.modelyard.core.plugins.module_utils.judge.ladder.step import (
    CHAT,
    Body,
    Instance,
    Service,
    Step,
    Verdict,
    also,
    chat,
    failed,
    passed,
    post,
)

#: Pixels of a side: several patches of the usual 14 to 28, and still below a kilobyte.
SIDE = 112
PROMPT = "Which colours does this picture have?"


def png(side: int = SIDE) -> bytes:
    """A picture of a red and a blue half, as a PNG of 8-bit RGB."""
    row = b"\0" + b"\xff\0\0" * (side // 2) + b"\0\0\xff" * (side - side // 2)
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in ((b"IHDR", head), (b"IDAT", zlib.compress(row * side)), (b"IEND", b""))
    )


def _bodies(service: Service) -> List[Body]:
    """The prompt without and with the picture."""
    url = "data:image/png;base64," + base64.b64encode(png()).decode()
    parts = [{"type": "text", "text": PROMPT}, {"type": "image_url", "image_url": {"url": url}}]
    return [chat(service, PROMPT, 1), chat(service, parts, 16)]


def image(_: Service, __: Instance, seen: Dict[str, Any]) -> Verdict:
    """A reply with text, to a prompt that has become longer by the picture: what is dropped unread costs no tokens."""
    for answer in seen["answers"]:
        none = unanswered(answer, seen)
        if none:
            return none
    if len(seen["answers"]) != 2:
        return failed("one of two requests was answered", "shape", "run the acceptance again")
    without, with_it = (tokens(answer, "prompt_tokens") for answer in seen["answers"])
    if not message(seen["answers"][1])[1]:
        return failed("the reply to a picture holds no text", "empty", "read the reply in the evidence")
    if with_it <= without:
        do = "see that the model is multimodal and limit_mm_per_prompt allows images"
        return failed(f"the picture was not read: the prompt has {with_it} tokens with it and {without} without", "unread", do)
    return passed(f"{with_it - without} tokens for a picture of {SIDE} x {SIDE}")


STEP = Step("image", post(CHAT, _bodies), image, wanted=also("image"))
