"""A home whose engine is the stub of this process, and walks of the ladder through it."""

from __future__ import annotations

import os

from ansible_collections.modelyard.core.plugins.module_utils.judge import acceptance
from ansible_collections.modelyard.core.plugins.module_utils.plan import tables
from ansible_collections.modelyard.core.plugins.module_utils.process import layout, proc
from ansible_collections.modelyard.core.plugins.module_utils.survey import counters, kernel_watch, probe, walk
from unit import worlds

STEPS = ["health", "models", "memory", "chat", "schema", "logprobs", "serial", "gateway"]
LIMIT = '{"message": "This model\'s maximum context length is 8192 tokens. However, your request has 9921 input tokens."}'


def make_home(tmp_path, engine, monkeypatch):
    """A home in which this very process is the engine."""
    me = {"pid": os.getpid(), "start": proc.read(os.getpid()).start}
    folder = layout.instance_dir(str(tmp_path), "tiny-qwen3", 0)
    (folder / "run").mkdir(parents=True)
    (tmp_path / "engine.log").write_text("INFO ready\n")
    request = {"host": "127.0.0.1", "port": engine.port, "digest": "d", "launch": {"argv": ["vllm", "serve"]}}
    state = {"keeper": me, "leader": me, "log": str(tmp_path / "engine.log"), "started_at": 0, "ended": None, "request": request}
    layout.write_json(folder / "run/state.json", state)
    (tmp_path / "sim/dev").mkdir(parents=True)
    (tmp_path / "sim/dev/kmsg").write_text("")
    layout.write_json(tmp_path / "services/tiny-qwen3/service.json", {"sysroot": str(tmp_path / "sim")})
    tree = {"alive": True, "leader": os.getpid(), "comms": ["vllm"], "helpers": 0, "pids": [os.getpid()]}
    monkeypatch.setattr(probe, "processes", lambda *_: dict(tree))
    monkeypatch.setattr(counters, "STEP_S", 0.1)
    monkeypatch.setattr(kernel_watch, "FRESH_S", 0.0)
    return tmp_path


def plan(engine, **more):
    quick = {"serial_requests": 3, "request_timeout_s": 5, "busy_wait_s": 0}
    service = worlds.service(**worlds.merged({"acceptance": quick, "engine": {"max_model_len": 4096, "max_num_seqs": 4}}, more))
    service["topology"] = {"replicas": 1, "tensor_parallel_size": 1}
    return {
        **service,
        "metrics": tables.vllm("0.32.0")["metrics"],
        "gateway": {},
        "instances": [{"index": 0, "port": engine.port}],
    }


def walked(home, service, steps=STEPS, after=False):
    made = walk.Walk(str(home), service, acceptance.ladder(service, steps), after)
    return made, made.run()
