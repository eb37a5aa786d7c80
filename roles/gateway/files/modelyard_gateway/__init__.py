"""One entry for the instances of a service: takes requests on one port and gives each to the backend with the fewest."""

from __future__ import annotations

NAME = "modelyard-gateway"
