"""Steps that a service declares, schemas of the inventory, and which steps a service has at all."""

from __future__ import annotations

import json
import zlib

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.judge import acceptance
from ansible_collections.modelyard.core.plugins.module_utils.judge.ladder import image, structured, vectors
from unit import worlds
from unit.replies import GOOD, INSTANCE, answer, judged, one, reply

# -- further steps --------------------------------------------------------------------------------------------------

EMBEDDING = worlds.service(engine={"runner": "pooling"})


@pytest.mark.parametrize(
    ("engine", "has", "lacks"),
    [
        ({}, "chat", "embeddings"),
        ({"runner": "pooling"}, "embeddings", "chat"),
        ({"task": "embed"}, "embeddings", "schema"),
        ({"task": "generate"}, "logprobs", "embeddings"),
        ({"runner": "pooling", "convert": "classify"}, "memory", "serial"),
        ({"runner": "auto", "task": "auto"}, "serial", "image"),
    ],
)
def test_the_ladder_follows_what_the_engine_can_be_asked(engine, has, lacks):
    ids = [step.id for step in acceptance.ladder(worlds.service(engine=engine))]
    assert has in ids
    assert lacks not in ids


def test_steps_that_a_service_declares_come_in_their_place():
    service = worlds.service(acceptance={"also": ["image", "completions"]})
    assert [s.id for s in acceptance.ladder(service)][-5:] == ["logprobs", "completions", "image", "serial", "gateway"]
    assert "image" not in [s.id for s in acceptance.ladder(service, depth="quick")]


def vector_reply(*vectors_):
    return one({"data": [{"embedding": list(v)} for v in vectors_]})


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (vector_reply([0.1, 0.2], [0.3, -0.1]), ""),
        (vector_reply([0.1, 0.2]), "1 vectors came for 2 texts"),
        (vector_reply([0.1, 0.2], [0.3]), "different lengths"),
        (vector_reply([0.1, float("nan")], [0.3, 1]), "not finite"),
        (vector_reply([0.0, 0.0], [0.3, 1]), "nothing but zeros"),
        (vector_reply([0.3, 1], [0.3, 1]), "the same vector"),
        (one({"data": [{"embedding": "AAAA"}] * 2}), "0 vectors"),
    ],
)
def test_vectors_are_one_a_text_finite_and_different(seen, words):
    complaint, shown = judged("embeddings", seen, EMBEDDING)
    assert words in complaint
    assert (complaint == "") is (shown == "2 vectors of 2 numbers")


def test_serial_requests_of_an_engine_that_pools_are_vectors():
    ask = acceptance.ladder(EMBEDDING, ["serial"])[0].ask(EMBEDDING, INSTANCE)
    assert (ask["path"], len(ask["bodies"])) == (vectors.PATH, 20)
    service = worlds.service(engine={"runner": "pooling"}, acceptance={"serial_requests": 1})
    assert judged("serial", vector_reply([1.0, 2.0]), service)[0] == ""
    assert judged("serial", vector_reply([0.0, 0.0]), service)[0] == "request 1: the reply holds nothing"


def counted_prompt(tokens_, text="red and blue"):
    return answer({**reply(text), "usage": {"completion_tokens": 3, "prompt_tokens": tokens_}})


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([counted_prompt(12, ""), counted_prompt(76)], ""),
        ([counted_prompt(12), counted_prompt(12)], "the picture was not read"),
        ([counted_prompt(12), counted_prompt(76, "")], "holds no text"),
        ([counted_prompt(12), answer({"message": "m is not a multimodal model"}, 400)], "does not take such pictures"),
    ],
)
def test_a_picture_makes_the_prompt_longer_and_gets_an_answer(answers, words):
    complaint, _ = judged("image", {"answers": answers}, worlds.service(acceptance={"also": ["image"]}))
    assert words in complaint
    assert bool(complaint) is bool(words)


def test_the_picture_is_a_png_that_any_reader_takes(tmp_path):
    data = image.png(16)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, rest = [], data[8:]
    while rest:
        size = int.from_bytes(rest[:4], "big")
        chunks.append((rest[4:8], rest[8 : 8 + size]))
        assert zlib.crc32(rest[4 : 8 + size]) == int.from_bytes(rest[8 + size : 12 + size], "big")
        rest = rest[12 + size :]
    assert [name for name, _ in chunks] == [b"IHDR", b"IDAT", b"IEND"]
    rows = zlib.decompress(chunks[1][1])
    assert len(rows) == 16 * (1 + 3 * 16)
    assert rows[1:4] == b"\xff\0\0"
    assert rows[-3:] == b"\0\0\xff"


OTHER = {"name": "person v2", "schema": {"type": "object", "required": ["age"]}, "prompt": "Who?", "max_tokens": 64}


def test_schemas_of_the_inventory_are_asked_for_and_judged_after_ours():
    service = worlds.service(acceptance={"schemas": [OTHER]})
    ours, other = acceptance.ladder(service, ["schema"])[0].ask(service, INSTANCE)["bodies"]
    sent = other["response_format"]["json_schema"]
    assert (sent["name"], sent["schema"], other["max_tokens"]) == ("person_v2", OTHER["schema"], 64)
    assert ours["response_format"]["json_schema"]["schema"] == structured.SCHEMA
    good, bad = answer(reply(json.dumps(GOOD))), answer(reply("{}"))
    assert judged("schema", {"answers": [good, answer(reply('{"age": 3}'))]}, service)[1].endswith("; and person v2")
    complaint = "schema person v2: the reply does not fit the schema: $: age is missing"
    assert judged("schema", {"answers": [good, bad]}, service) == (complaint, "")
    assert judged("schema", {"answers": [good]}, service)[0] == "1 of 2 requests were answered"


def test_a_fork_that_knows_another_field_for_schemas_gets_that():
    service = {**worlds.service(), "structured": "guided_json"}
    body = acceptance.ladder(service, ["schema"])[0].ask(service, INSTANCE)["bodies"][0]
    assert body["guided_json"] == structured.SCHEMA
    assert "response_format" not in body


def test_a_model_that_thinks_gets_room_for_it_and_what_is_nothing_but_thoughts_is_told():
    service = worlds.service(engine={"reasoning_parser": "qwen3", "max_model_len": 4096})
    asked = acceptance.ladder(service, ["schema"])[0].ask(service, INSTANCE)["bodies"][0]["max_tokens"]
    assert asked == structured.OURS["max_tokens"] + 1024
    thoughts = {"choices": [{"message": {"content": None, "reasoning": "hm"}, "finish_reason": "length"}]}
    assert judged("schema", one(thoughts), service)[0] == "the reply holds nothing but a thinking part (2 characters)"
