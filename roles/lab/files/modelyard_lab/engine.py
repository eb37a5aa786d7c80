"""The engine core of the installed vLLM with its scheduler, KV cache manager and grammars; only the model is made up."""

from __future__ import annotations

import copy
import gc
import random
import time
from collections.abc import Mapping
from concurrent.futures import Future, wait
from typing import Any

import numpy
import torch
from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import SamplingParams, StructuredOutputsParams
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.core import EngineCore
from vllm.v1.executor.abstract import Executor
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, ModelRunnerOutput

from modelyard_lab.pattern import Wish

#: Of the usual engine settings those that reach the scheduler. The others concern the model, cards and the API.
SETTINGS = {
    *("max_model_len", "max_num_seqs", "max_num_batched_tokens", "max_num_partial_prefills", "max_long_partial_prefills"),
    *("long_prefill_token_threshold", "block_size", "enable_prefix_caching", "enable_chunked_prefill", "scheduling_policy"),
    *("scheduler_reserve_full_isl", "structured_outputs_config"),
}
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "list": {"type": "array", "items": {"type": "integer"}}},
    "required": ["name", "list"],
    "additionalProperties": False,
}
#: Of which tokens prompts and answers consist, and how many begin alike.
WORDS = (3, 400)


# Every engine core is made with a collection over all that was ever imported; frozen, that costs nothing.
gc.freeze()
gc.unfreeze = lambda: None


class MadeUp(Executor):
    """In place of workers: takes what the scheduler hands out, and answers with tokens that mean nothing."""

    chance: random.Random
    vocabulary: int
    end: int

    def _init_executor(self) -> None:
        self.chance = random.Random(0)
        self.vocabulary = self.vllm_config.model_config.get_vocab_size()
        self.end = 0
        self.known: dict[str, int] = {}
        self.batch: Any = None

    def collective_rpc(self, method: Any, *args: Any, **kwargs: Any) -> list[Any]:
        """What a worker would be asked besides; there is none."""
        return [None]

    def check_health(self) -> None:
        """Always well."""

    def determine_available_memory(self) -> list[int]:
        """Enough; the number of blocks is given."""
        return [2**40]

    def get_kv_cache_specs(self) -> list[dict[str, Any]]:
        """As if every layer saw the whole context, which decides how many blocks a request takes."""
        model, cache = self.vllm_config.model_config, self.vllm_config.cache_config
        spec = FullAttentionSpec(
            block_size=cache.block_size,
            num_kv_heads=model.get_total_num_kv_heads(),
            head_size=model.get_head_size(),
            dtype=torch.bfloat16,
        )
        return [{"layers": spec}]

    def get_supported_kv_cache_layouts(self) -> list[list[str]]:
        """Of no consequence without memory."""
        return [["LBNHC"]]

    def set_kv_cache_layout(self, layout_name: str) -> None:
        """Of no consequence without memory."""

    def initialize_from_config(self, kv_cache_configs: Any) -> None:
        """No memory is taken."""

    def compile_or_warm_up_model(self) -> None:
        """Nothing to compile."""

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        """Remember the batch; what it gives is asked for next."""
        self._take(scheduler_output)
        if not scheduler_output.total_num_scheduled_tokens:
            return _given(EMPTY_MODEL_RUNNER_OUTPUT, non_block)
        assert self.batch is None, "two batches without an answer between them"
        self.batch = scheduler_output
        return _given(None, non_block)

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
        """One token for each request whose context is whole with this batch."""
        batch, self.batch = self.batch, None
        masks = {}
        if grammar_output is not None:
            masks = dict(zip(grammar_output.structured_output_request_ids, grammar_output.grammar_bitmask, strict=False))
        ids = list(batch.num_scheduled_tokens)
        tokens = []
        for name in ids:
            whole = self.computed[name] + batch.num_scheduled_tokens[name] >= self.known[name]
            tokens.append([self._token(masks.get(name))] if whole else [])
            self.known[name] += whole
        places = {name: place for place, name in enumerate(ids)}
        return _given(ModelRunnerOutput(req_ids=ids, req_id_to_index=places, sampled_token_ids=tokens), non_block)

    def _take(self, batch: Any) -> None:
        """How long each request is, and how much of it is computed, as a worker keeps it."""
        for name in batch.finished_req_ids:
            self.known.pop(name, None)
        new, cached = batch.scheduled_new_reqs, batch.scheduled_cached_reqs
        self.computed = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        for request in new:
            self.computed[request.req_id] = request.num_computed_tokens
            self.known[request.req_id] = len(request.prompt_token_ids)

    def _token(self, mask: Any) -> int:
        if mask is None:
            return self.chance.randrange(*WORDS)
        allowed = numpy.flatnonzero(numpy.unpackbits(mask.view(numpy.uint8), bitorder="little")[: self.vocabulary])
        # An answer that may end does so now and then: JSON has no end of its own.
        if self.end in allowed and (len(allowed) == 1 or self.chance.random() < 0.5):
            return self.end
        return int(self.chance.choice(allowed[allowed != self.end] if len(allowed) > 1 else allowed))


def _given(value: Any, non_block: bool) -> Any:
    if not non_block:
        return value
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def configured(model: str, settings: Mapping[str, Any]) -> Any:
    """The engine's whole configuration for a model's folder and a service's settings. Raises what vLLM has against them."""
    wanted = {key: value for key, value in settings.items() if key in SETTINGS}
    return EngineArgs(model=model, enforce_eager=True, load_format="dummy", **wanted).create_engine_config()


class Engine:
    """One engine core with so many blocks, for requests of `longest` tokens at most.

    `ahead`: the next batch is made while the one before is computed (asynchronous scheduling), which is usual on cards and which
    vLLM switches off on CPUs. `seed` decides what its model answers.
    """

    def __init__(self, config: Any, longest: int, blocks: int, ahead: bool, seed: int) -> None:
        own = copy.deepcopy(config)
        # A cache must hold one request of max_model_len. A length that no request reaches would keep the squeeze from biting.
        own.model_config.max_model_len = own.scheduler_config.max_model_len = longest
        own.cache_config.num_gpu_blocks_override = blocks
        own.scheduler_config.async_scheduling = ahead
        self.core = EngineCore(own, MadeUp, log_stats=True)
        self.chance = random.Random(seed)
        self.core.model_executor.chance = random.Random(seed)
        self.core.model_executor.end = self.end = _end(own)
        self.grammars = own.structured_outputs_config.backend

    @property
    def scheduler(self) -> Any:
        """The engine's own."""
        return self.core.scheduler

    def ask(self, name: str, wish: Wish) -> None:
        """Hand a request in, as the engine's front does."""
        common = [WORDS[0] + place % 97 for place in range(wish.shared)]
        own = [self.chance.randrange(*WORDS) for _ in range(wish.prompt - wish.shared)]
        parameters = SamplingParams(max_tokens=wish.output, ignore_eos=not wish.schema, temperature=0.0)
        if wish.schema:
            parameters.structured_outputs = StructuredOutputsParams(json=SCHEMA)
            parameters.structured_outputs._backend = "xgrammar" if self.grammars == "auto" else self.grammars
            parameters._eos_token_id = self.end
        request = EngineCoreRequest(
            request_id=name,
            prompt_token_ids=common + own,
            mm_features=None,
            sampling_params=parameters,
            pooling_params=None,
            arrival_time=time.time(),
            lora_request=None,
            cache_salt=None,
            data_parallel_rank=None,
        )
        taken, wave = self.core.preprocess_add_request(request)
        # A grammar is compiled beside the engine's loop. When it is ready must not be chance, or no case would come again.
        compiled = getattr(taken.structured_output_request, "_grammar", None)
        if isinstance(compiled, Future):
            wait([compiled])
        self.core.add_request(taken, wave)

    def leave(self, name: str, within: bool) -> None:
        """The client of a request goes away: between two steps, or while a batch is computed."""
        if within:
            self.core.aborts_queue.put([name])
        else:
            self.core.abort_requests([name])

    def step(self) -> tuple[dict[str, int], int]:
        """One step: how many tokens each request got in it, and how often those were preempted since their last token."""
        outputs, executed = self.core.step_fn()
        self.core.post_step(executed)
        given: dict[str, int] = {}
        preempted = 0
        for of_client in (outputs or {}).values():
            for output in of_client.outputs:
                given[output.request_id] = given.get(output.request_id, 0) + len(output.new_token_ids)
                preempted += sum(event.type.name == "PREEMPTED" for event in output.events or ())
        return given, preempted

    @property
    def idle(self) -> bool:
        """Nothing is left to do."""
        return not self.scheduler.has_requests() and not self.core.batch_queue

    def close(self) -> None:
        """Let go of it."""
        self.core.shutdown()


def _end(config: Any) -> int:
    end = config.model_config.hf_text_config.eos_token_id
    return int(end[0] if isinstance(end, list) else end)
