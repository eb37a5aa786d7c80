"""Causes in the model's files, the environment, the hub and the packages."""

from __future__ import annotations

from typing import Tuple

from ansible_collections.modelyard.core.plugins.module_utils.triage.vocabulary import Cause

CAUSES: Tuple[Cause, ...] = (
    Cause(
        "weight_key_missing",
        "model_artifact",
        "the checkpoint has tensors that the model code does not expect, or the other way round",
        True,
        "unknown",
        (
            "Compare the keys of the index file with the base model: tied embeddings saved as lm_head, a merged LoRA, "
            "another release of "
            "transformers when it was saved, quantised tensors",
            "Export or map it anew, or use an engine release that knows this layout",
            "Nothing to do on the cards",
        ),
    ),
    Cause(
        "checkpoint_corrupt",
        "model_artifact",
        "a file of the weights is cut short or damaged",
        True,
        "no",
        (
            "Compare sizes and sha256 with the manifest; look for git-lfs pointers in place of files and for full disks",
            "Bring that file anew and verify it before the start",
        ),
    ),
    Cause(
        "lora_target_modules_mismatch",
        "model_artifact",
        "the adapter's modules are not those that the engine expects for this base model",
        True,
        "unknown",
        (
            "Compare target_modules and the tensors' prefixes of the adapter with the list in the message",
            "See that base model and adapter belong together and that the adapter has no modules of the vision tower",
            "Export the adapter anew or merge it; serve the base model without it meanwhile",
        ),
    ),
    Cause(
        "tokenizer_files_missing",
        "model_artifact",
        "files of the tokenizer are not in the model's folder or cannot be read",
        True,
        "no",
        (
            "Compare the folder with the manifest: tokenizer.json or vocabulary, merges or sentencepiece files, "
            "tokenizer_config.json",
            "Bring only the small files that are missing; keep the weights",
            "See that the service's user may read them and that the path is not taken for an id of the hub",
        ),
    ),
    Cause(
        "max_model_len_exceeds_model",
        "model_artifact",
        "max-model-len is above what the model's config allows",
        True,
        "no",
        (
            "Set max-model-len to the model's limit, or configure the documented rope scaling on purpose",
            "Do not set the variable that overrides the limit in production: results can turn to garbage without a word",
        ),
    ),
    Cause(
        "visible_gpus_fewer_than_world_size",
        "environment",
        "fewer cards are visible than the parallel sizes need; zero is often an empty mask",
        True,
        "no",
        (
            "Print the masks (CUDA_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES) in the environment of the launch: empty is not unset",
            "Count the cards in the same environment and as the same user; if it is zero with a right mask, look at the driver",
            "Correct the launch; no process has to be stopped, and neither ray nor nnodes is wanted unless it was meant",
        ),
    ),
    Cause(
        "env_var_collision",
        "environment",
        "a variable that was put into the environment has the name of a setting of the engine",
        True,
        "no",
        (
            "Print the VLLM_ variables in the environment of the launch",
            "Launch from a clean environment file; in an orchestrator turn service links off or rename the service",
        ),
    ),
    Cause(
        "nvcc_missing_jit",
        "environment",
        "a kernel is to be compiled and nvcc is not there or not found",
        True,
        "yes",
        (
            "See CUDA_HOME and PATH as the service's user, not as root",
            "Install the precompiled kernels in the exactly matching version, or the toolkit of the pinned CUDA level, or "
            "turn off what "
            "needs the compiler",
            "Fill the cache of compiled kernels once per host before opening traffic",
        ),
    ),
    Cause(
        "hub_proxy_unreachable",
        "network_hub",
        "a proxy in the environment refuses connections",
        True,
        "no",
        (
            "Print the proxy variables in the environment of the launch, in small and capital letters",
            "If the model is on the host, start with the offline switches, a local path and no proxy; otherwise repair the proxy",
            "Preflight looks at proxies: let it run before the next start",
        ),
    ),
    Cause(
        "hub_offline_cache_miss",
        "network_hub",
        "the hub is switched off or cannot be reached, and a file is not in the local cache",
        True,
        "no",
        (
            "Give the local folder in place of an id of the hub",
            "See place and revision of the cache and HF_HOME of the service's user; compare with the manifest",
            "Bring what is missing from a host with a connection; do not simply switch the hub on",
        ),
    ),
    Cause(
        "hub_access_denied",
        "network_hub",
        "the hub refuses the file",
        True,
        "no",
        (
            "See that the token is of an account that has accepted the terms; never print it",
            "For a 403 on one irrelevant file, download by a list of wanted patterns and not the whole repository",
        ),
    ),
    Cause(
        "model_arch_inspect_failed",
        "dependency",
        "the architecture is supported, but importing its class failed; the message misleads",
        False,
        "no",
        (
            "Look for the architecture in the printed list: if it is there, an import has failed",
            "Do the import by hand in the same environment and read the real error (torch, flash-attn, transformers)",
            "Make the environment anew from the lock; do not edit the model's config",
        ),
        "The import by hand shows it: python -c 'import vllm.model_executor.models.NAME'",
    ),
    Cause(
        "model_arch_unsupported",
        "dependency",
        "this release of the engine does not have the model's architecture",
        True,
        "no",
        (
            "See which release of the engine first has the architecture, and which transformers it pins",
            "Move to a tested runtime that has it; do not edit the model's config",
        ),
    ),
    Cause(
        "rope_config_key_missing",
        "dependency",
        "the rope settings of config.json and the installed transformers do not agree",
        True,
        "no",
        (
            "Compare the release of transformers that wrote the config with the installed one",
            "Install the pinned pair; do not patch config.json without a note: a wrong rope base makes output worse without "
            "a word",
        ),
    ),
    Cause(
        "transformers_api_incompatible",
        "dependency",
        "transformers and the code that calls it do not agree on a name or an argument",
        True,
        "no",
        (
            "Compare what is installed with the lock (pip freeze of the same environment)",
            "Install the pinned pair; stop tools that resolve it anew at each run",
            "Nothing to do on the cards",
        ),
    ),
    Cause(
        "transformers_too_old_for_model",
        "dependency",
        "the checkpoint's model type is newer than the installed transformers",
        True,
        "no",
        (
            "Read the lowest releases of engine and transformers on the model's card",
            "Move to a tested release of the engine that pins a new enough transformers; not transformers alone in production",
        ),
    ),
    Cause(
        "glibc_too_old",
        "dependency",
        "the wheel needs a newer C library than the system has",
        True,
        "no",
        (
            "Compare ldd --version with the wheel's manylinux tag; the tag can be wrong, so try the import",
            "Use a wheel or container for this system, or upgrade the system; never replace libc by hand",
        ),
    ),
    Cause(
        "torch_abi_mismatch",
        "dependency",
        "a compiled extension was built against another torch",
        True,
        "no",
        (
            "Compare release and build of torch with what the wheel was built for; look for a second torch earlier on the path",
            "Install the matching pair from the lock, or build from source against this torch",
        ),
    ),
    Cause(
        "no_kernel_image_for_arch",
        "dependency",
        "the build has no code for this card",
        True,
        "yes",
        (
            "Compare the card's compute capability with the build's list",
            "Install a build that has it; do not pretend another architecture in production",
        ),
    ),
    Cause(
        "hip_no_binary_for_arch",
        "dependency",
        "HIP finds no code for this card",
        True,
        "yes",
        (
            "Read the gfx name with rocminfo or DTK's tool and compare it with the build's targets",
            "Take an integrated card that is not supported out of the visible set",
            "Use the vendor's build for this card; another gfx version by a variable is for tests only",
        ),
    ),
    Cause(
        "dtk_version_undetected",
        "dependency",
        "a helper library for DCU cannot find the version of DTK and fails at import",
        True,
        "no",
        (
            "See that DTK is there and that its env.sh is read for the service's user (ROCM_PATH, the version file)",
            "See that the DTK of the container and the host's driver are a supported pair",
        ),
    ),
)
