"""Taking secrets out of texts before they are kept: known ones, and what looks like one. Pure functions.

Too much is taken out rather than too little: evidence is handed on. Every pattern begins with fixed letters or is bounded, so
that the time grows with the length of a text and not faster.
"""

from __future__ import annotations

import functools
import re
from typing import Iterable

GONE = "[removed]"
#: A known secret that is shorter would take ordinary words out of the text as well; patterns still find it behind its name.
SHORTEST = 4
_TOKENS = "hf|hub|face|auth|access|api|refresh|id|admin|session"
_NAME = rf"(?:api[_-]?key|access[_-]?key|(?:{_TOKENS})[_-]token|secret|password|passwd|credentials?)"
#: Between a name and its value, in shells, YAML, JSON, and JSON within JSON.
_IS = r"\\*[\"']?\s{0,3}[=:]\s{0,3}\\*[\"']?"
#: What begins with a bracket was removed already, or is no value.
_VALUE = r"(?!\[)[^\s\"'\\,;&)}\]]{3,}"
_RULES = (
    # Headers of every scheme, also in the repr of a dict.
    (rf"(?i)(authorization{_IS}(?:(?:basic|bearer|digest|token)\s+)?)[^\s\"'\\,}}]+", r"\1" + GONE),
    (r"(?i)(\bbearer\s+)[A-Za-z0-9._~+/=-]{4,}", r"\1" + GONE),
    # JSON Web Tokens: parts of base64url, of which the first two begin with `{"`.
    (r"\beyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?", GONE),
    (r"\bhf_[A-Za-z0-9]{8,}", GONE),
    (r"\b[spr]k-[A-Za-z0-9_-]{16,}", GONE),
    (r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[abprs]-|AKIA)[A-Za-z0-9_-]{10,}", GONE),
    (r"(?i)(\b[a-z][a-z0-9+.-]{0,20}://[^\s/:@\"']{0,200}:)[^\s/@\"']{1,500}(?=@)", r"\1" + GONE),
    (rf"(?i)({_NAME}{_IS}|--(?:[a-z]+-)?{_NAME}\s+){_VALUE}", r"\1" + GONE),
    # `token` alone is a word of every tokenizer: only what is long and made like a secret is taken for one.
    (rf"(?i)((?<![a-z])token{_IS}|--token\s+)[A-Za-z0-9._~+/-]{{16,}}=*", r"\1" + GONE),
    (r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[A-Za-z0-9+/=\s\\:,]{0,20000}(?:-----END [A-Z ]{0,30}PRIVATE KEY-----)?", GONE),
)
_PATTERNS = tuple((re.compile(pattern), put) for pattern, put in _RULES)
#: A figure or a word of a language is no secret, although its name ends like one: `access_key: null`.
_FIGURE = re.compile(r"(?i)(?:true|false|none|null|\d+(?:\.\d+)?)\Z")


def redact(text: str, known: Iterable[str] = ()) -> str:
    """The text without secrets. `known`: secrets whose text is known, such as the service's API key."""
    for secret in sorted({one for one in known if len(one) >= SHORTEST}, key=len, reverse=True):
        text = text.replace(secret, GONE)
    for pattern, put in _PATTERNS:
        text = pattern.sub(functools.partial(_put, put), text)
    return text


def _put(put: str, found: re.Match[str]) -> str:
    named = found.re.groups > 0
    if named and _FIGURE.match(found.group(0)[len(found.group(1)) :]):
        return found.group(0)
    return found.expand(put)
