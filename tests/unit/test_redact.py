"""Secrets are taken out of texts, and what is none stays."""

from __future__ import annotations

import json
import time

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.judge.redact import GONE, redact
from hypothesis import given
from hypothesis import strategies as st

SECRET = "Zx9-qLm2_pT7vW4"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.s5Rk-0aBcDeFgHiJk"


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer {}",
        "{{'Authorization': 'Bearer {}', 'Accept': '*/*'}}",
        'curl -H "authorization: Basic {}"',
        "proxy-authorization={}",
        "VLLM_API_KEY={}",
        "export HF_TOKEN='{}'",
        "HUGGING_FACE_HUB_TOKEN: {}",
        "--api-key {} --port 8000",
        "--api-key={}",
        '{{"api_key": "{}"}}',
        '{{\\"api_key\\": \\"{}\\"}}',
        "password={}&user=ann",
        "client_secret: {}",
        "http://ann:{}@proxy.example:3128/path",
        "socks5h://:{}@127.0.0.1:7897",
        "postgresql+asyncpg://llm:{}@db/x",
        "sent bearer {}",
        "MY_TOKEN={}0123456789",
    ],
)
def test_a_secret_goes_wherever_it_stands(text):
    cleaned = redact(text.format(SECRET))
    assert SECRET not in cleaned
    assert GONE in cleaned


@pytest.mark.parametrize(
    "secret",
    [
        "hf_abcdefghijKLMNOPQR",
        "sk-proj-abcdefghijklmnop1234",
        "ghp_abcdefghijklmnopqrst",
        "glpat-abcdefghij12345",
        JWT,
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabcd\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl and then the log was cut",
    ],
)
def test_what_is_a_secret_by_its_form_goes_without_a_name(secret):
    assert secret not in redact(f"before {secret} after")
    assert redact(f"before {secret}").startswith("before ")


@pytest.mark.parametrize(
    "text",
    [
        '{"prompt_tokens": 12, "completion_tokens": 3, "max_tokens": 16}',
        '{"token": " Paris", "logprob": -0.1, "bytes": [32, 80]}',
        "eos_token_id: 2, pad_token: <|endoftext|>",
        "api_key: null",
        "RPC call to sample_tokens timed out.",
        "http://127.0.0.1:8000/v1/chat/completions",
        "INFO 11-29 17:00:00 [core.py:10] KV cache size: 2,097,152 tokens",
        "the API key was not accepted",
        "secured: true",
        "sha256:0123456789abcdef",
    ],
)
def test_what_is_no_secret_stays_as_it_is(text):
    assert redact(text, ["another"]) == text


@given(
    st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=4, max_size=40),
    st.text(max_size=60),
    st.text(max_size=60),
)
def test_a_known_secret_is_never_left(secret, before, after):
    cleaned = redact(before + secret + after, [secret])
    assert secret not in cleaned.replace(GONE, "\n") or secret in GONE


@given(
    st.recursive(st.none() | st.integers() | st.text(max_size=8), lambda x: st.dictionaries(st.text(max_size=5), x, max_size=3))
)
def test_json_without_secrets_stays_json(value):
    text = json.dumps({"value": value})
    assert json.loads(redact(text)) == {"value": value}


@pytest.mark.parametrize(
    "letters", ["a", "a-", "token", "Bearer ", "eyJa", "http://", "password", "--", "-----BEGIN PRIVATE KEY-----", "a=b "]
)
def test_the_time_grows_with_the_length_only(letters):
    text = letters * (500_000 // len(letters))
    began = time.process_time()
    redact(text, [SECRET])
    assert time.process_time() - began < 5, "half a megabyte of this takes a moment and not minutes"
