"""What can go wrong when a running gateway is told something."""


class GatewayError(Exception):
    """The gateway does not answer, or refuses; the words say what was seen."""
