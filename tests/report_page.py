"""What tests of the report share: example records, and a reader that insists on a well-formed page."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

RECORDS = Path(__file__).parent / "fixtures/reports"
VOID = {"meta", "link", "br", "wbr"}
#: What begins a cell or a line of its own.
CELLS = {"td", "th", "dt", "dd", "li", "p", "br", "tr", "h1", "h2", "h3", "summary", "figcaption", "text", "tspan"}
#: Elements of a picture may be closed at once; HTML has no such form.
PICTURE = {"path", "circle", "rect"}


def record(name):
    return json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))


class Page(HTMLParser):
    """`text`: all that is shown; `elements`: (tag, attributes) in order; `ids`. Refuses what is not balanced."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.open, self.elements, self.ids, self.parts = [], [], [], []
        self.inside, self.closed = [], []
        self.feed(html)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    @property
    def text(self):
        return " ".join("".join(self.parts).split())

    def texts(self, tag):
        """What stands in each element of this name."""
        return [" ".join("".join(parts).split()) for name, parts in self.closed if name == tag]

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"an attribute twice: {tag} {attrs}"
        self.elements.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]
        if tag in CELLS:
            self.handle_data(" ")
        if tag not in VOID:
            self.open.append(tag)
            self.inside.append([])

    def handle_startendtag(self, tag, attrs):
        assert tag in PICTURE, f"<{tag}/> is no form of HTML"
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()
        self.closed.append((tag, self.inside.pop()))

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.parts.append(data)
            for parts in self.inside:
                parts.append(data)

    def handle_comment(self, data):
        raise AssertionError(f"a comment in the page: {data!r}")
