"""A stand-in for vLLM 0.32 on simulated cards: its processes, signals, log and answers, but no model. See ../README.md."""
