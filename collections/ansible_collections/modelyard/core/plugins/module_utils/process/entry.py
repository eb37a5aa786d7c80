"""The port of a gateway, held open by its keeper: whoever works behind it may change while clients come in.

The keeper listens and takes no connection. The gateway gets the socket as descriptor 3 and takes connections from it; one that
follows gets the same socket, so what a client sends while they change waits in the kernel and is not refused.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import Optional

#: As programs that systemd listens for get it.
FD = 3
#: Connections that may wait until somebody takes them; the kernel has a limit of its own (net.core.somaxconn).
BACKLOG = 4096


def listen(host: str, port: int) -> socket.socket:
    """Listen there. OSError with a message for people when that is not possible."""
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        made = socket.socket(family, kind, protocol)
        try:
            # Connections of an earlier run that are still being closed are no reason not to listen.
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made.bind(address)
            made.listen(BACKLOG)
            made.setblocking(False)
        except OSError:
            made.close()
            raise
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        why = "the port is taken by another program" if taken else error.strerror or str(error)
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {why}") from error
    return made


def hand_down(entry: Optional[socket.socket]) -> None:
    """In a child that is about to become the gateway: the socket is descriptor 3 there."""
    if entry is not None:
        os.dup2(entry.fileno(), FD)
        os.set_inheritable(FD, True)
