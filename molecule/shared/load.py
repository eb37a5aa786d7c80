"""Steady requests at one entry, as programs of users make them, until standard input ends: `load.py PORT WORKERS FIELDS`.

FIELDS: JSON, put into the body of each request. Every second request is a stream. Prints a JSON list at the end, of each request
{at, seconds, status, backend, whole, refused}. `refused`: nobody listened. `whole`: the answer was complete. Standard library
only.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time

BODY = {"messages": [{"role": "user", "content": "Say hello."}], "user": "load"}
PAUSE_S = 0.05


def one(port: int, fields: dict, stream: bool) -> dict:
    """One request on a connection of its own, and what came of it."""
    began = time.time()
    found = {"at": began, "status": 0, "backend": "", "whole": False, "refused": False}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        body = json.dumps({**BODY, **fields, "stream": stream})
        connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        found.update(status=answer.status, backend=answer.getheader("X-Backend", ""))
        text = answer.read().decode()
        found["whole"] = text.rstrip().endswith("data: [DONE]") if stream else "choices" in json.loads(text)
    except ConnectionRefusedError:
        found["refused"] = True
    except (OSError, http.client.HTTPException, ValueError) as exc:
        found["error"] = repr(exc)
    finally:
        connection.close()
    return {**found, "seconds": round(time.time() - began, 3)}


def main() -> None:
    """Run until standard input ends."""
    port, workers, fields = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
    over, seen = threading.Event(), []

    def work(number: int) -> None:
        while not over.is_set():
            seen.append(one(port, fields, stream=len(seen) % 2 == number % 2))
            over.wait(PAUSE_S)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(workers)]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    over.set()
    for thread in threads:
        thread.join()
    json.dump(seen, sys.stdout)


if __name__ == "__main__":
    main()
