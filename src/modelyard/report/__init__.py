"""Reports of acceptance runs: one page of HTML, and a few plain lines."""

from modelyard.report.render import page
from modelyard.report.summary import words

__all__ = ["page", "words"]
