"""Can Jinja read the chat templates of a survey? On the control node, where Jinja is; a host needs only Python."""

from __future__ import annotations

from typing import Any

from jinja2 import TemplateSyntaxError
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import CallBlock, Node
from jinja2.sandbox import ImmutableSandboxedEnvironment


class _Generation(Extension):
    """`{% generation %}`, which transformers adds to Jinja; it marks what an assistant wrote and changes no text."""

    tags = {"generation"}

    def parse(self, parser: Any) -> Node:
        """What stands inside is kept as it is."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return CallBlock(self.call_method("_kept"), [], [], body).set_lineno(line)

    def _kept(self, caller: Any) -> Any:
        return caller()


def problem(template: str) -> str:
    """Why Jinja, set up as transformers does it, cannot read a template; empty when it can. Nothing of it is run."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    try:
        environment.parse(template)
    except TemplateSyntaxError as exc:
        return f"line {exc.lineno}: {exc.message}"
    except RecursionError:
        return "it is nested too deeply"
    return ""


def judge(survey: dict[str, Any]) -> None:
    """Write `template_problem` beside each template of a survey."""
    for listing in survey["models"].values():
        listing["template_problem"] = problem(listing["template"])
