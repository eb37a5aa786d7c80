"""Our gateway beside HAProxy, nginx, vllm-router, a plain aiohttp proxy and no proxy at all: `make bench-gateway`."""
