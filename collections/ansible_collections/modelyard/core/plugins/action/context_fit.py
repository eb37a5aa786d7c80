"""Action: which max_model_len do the prompts of a file on the control node need, and what does it cost on this host?

The file is brought to the host in parts of at most 128 MiB, one after the other. Each is readable for its owner alone, and gone
as soon as it is being counted. So no machine needs room for the whole file, and no part stays when a run is broken off.
"""

from __future__ import annotations

import codecs
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from ansible import constants as C
from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.modelyard.core.plugins.module_utils.plan import (
    attention,
    context_fit,
    context_fit_text,
    kv_cache,
    prompts,
)
from ansible_collections.modelyard.core.plugins.module_utils.plan.token_counts import Counts
from ansible_collections.modelyard.core.plugins.plugin_utils import call, json_entries, report
from ansible_collections.modelyard.core.plugins.plugin_utils.parts import NoRoom, lines, parts
from ansible_collections.modelyard.core.plugins.plugin_utils.plain import plain

display = Display()
MEND = (
    "Nothing was judged. Mend the file, or make it one line for each prompt (jq -c '.[]' FILE); where every line is a text, "
    "whatever it looks like: -e context_fit_plain=true"
)
LIMIT_HOSTS = "name one host with --limit: the prompts are brought to no more hosts than need be"


class ActionModule(ActionBase):  # type: ignore[misc]
    """Arguments: `file`, `plan` (plan_result), `service`, `model`, `runtime`, `reserve`, `plain`, `json`, `program`, `home`."""

    TRANSFERS_FILES = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Count, judge, show, write down."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        args = plain(self._task.args)
        hosts = [str(name) for name in variables.get("ansible_play_hosts_all", [])]
        if len(hosts) > 1:
            raise AnsibleActionFail(f"the run is about {len(hosts)} hosts ({', '.join(hosts[:4])} ...): {LIMIT_HOSTS}")
        path = _file(str(args["file"] or ""))
        if int(args["reserve"]) < 0:
            raise AnsibleActionFail(f"context_fit_reserve is {args['reserve']}: an answer has no fewer than 0 tokens")
        subject = _subject(args)
        engine = subject["engine"]
        asked = {
            "program": args["program"],
            "python": f"{subject['runtime']}/bin/python" if subject["runtime"] else "",
            "model": str(engine.get("tokenizer") or subject["model"]),
            "chat_template": str(engine.get("chat_template") or ""),
            "trust": bool(engine.get("trust_remote_code")),
            "home": args["home"],
            "service": subject["service"],
        }
        display.display(f"  loading the tokenizer in {asked['model']}")
        seen = call.module(self, "prompt_tokens", asked, variables)
        if seen["problem"]:
            display.display(f"  no tokenizer: {seen['problem']}. Only lines that hold numbers of tokens can be counted")
        layout = attention.layout(seen["config"], engine, subject["tp"])
        found = kv_cache.cache(layout, engine, subject["backend"])
        wanted = context_fit.wish(
            subject["name"], engine, subject["backend"], subject["tp"], seen["config"], seen["deployed"]["max_model_len"]
        )
        counts = Counts(int(args["reserve"]), wanted.today)
        unit = self._count(path, counts, {**asked, "plain": args["plain"]}, variables)
        space = context_fit.room(found, wanted, seen["deployed"]["cache"], subject["free"])
        judged = {**context_fit.judge(counts, wanted, found, space), "tokenizer": seen["tokenizer"], "problem": seen["problem"]}
        judged.update(file=path.name, unit=unit, service_runs=seen["deployed"]["running"], template=seen["template"])
        display.display("\n" + context_fit_text.report(judged, hosts[0] if hosts else "", path.name))
        if args["json"]:
            target = Path(str(args["json"])).expanduser()
            report.write(target, {str(variables.get("inventory_hostname", "")): judged})
            display.display(f"  Written: {target}")
        result.update(changed=False, fit=judged)
        if not counts.prompts:
            result.update(
                failed=True, msg=f"{path} holds no prompt that could be counted: {judged['damaged']['reasons'] or 'empty'}"
            )
        return result

    def _count(self, path: Path, counts: Counts, asked: dict[str, Any], variables: dict[str, Any]) -> str:
        """Part after part, each added to `counts`; what the file consists of, `line` or `entry` (of an array)."""
        began, done, whole, unit = time.monotonic(), 0, path.stat().st_size, "line"
        first_part = (0, 0.0)
        try:
            with path.open("rb") as stream:
                if not asked["plain"] and json_entries.is_one(stream.read(json_entries.HEAD_BYTES)):
                    unit = "entry"
                stream.seek(len(codecs.BOM_UTF8) if _has_mark(stream) else 0)
                read = (lines if unit == "line" else json_entries.entries)(stream, prompts.LINE_BYTES)
                for number, (first, held, size) in enumerate(parts(read, C.DEFAULT_LOCAL_TMP), 1):
                    if held is None:
                        counts.lines += 1
                        counts.damage(first, f"it is longer than {prompts.LINE_BYTES // 2**20} MiB")
                    else:
                        place = self._brought(number, held, size)
                        part = {**asked, "part": place, "first_line": first, "reserve": counts.reserve}
                        answer = call.module(self, "prompt_tokens", {**part, "limit": counts.limit or 0}, variables)
                        counts.merge(plain(answer["counts"]))
                    done += size
                    seconds = time.monotonic() - began
                    first_part = (done, seconds) if number == 1 else first_part
                    display.display("  " + _progress(done, whole, counts.prompts, seconds, first_part))
        except OSError as exc:
            raise AnsibleActionFail(f"{path} could not be read: {exc.strerror}") from exc
        except NoRoom as exc:
            raise AnsibleActionFail(f"{path} could not be counted: {exc}. On this control node; ansible.cfg: local_tmp") from exc
        except json_entries.Broken as exc:
            raise AnsibleActionFail(f"{path} looks like JSON as a whole, but {exc}. {MEND}") from exc
        return unit

    def _brought(self, number: int, part: Path, size: int) -> str:
        """Move a part to the host; its place there, in Ansible's own folder, which only this user may enter."""
        place = str(self._connection._shell.join_path(self._connection._shell.tmpdir, f"prompts-{number}"))
        try:
            self._transfer_file(str(part), place)
            self._remote_chmod((place,), "u=rw,g=,o=")
        except AnsibleError as exc:
            raise AnsibleActionFail(
                f"part {number} of the prompts ({size / 2**20:.0f} MiB) could not be brought to the host: "
                f"{' '.join(str(exc).split())[:300]}. "
                "Is its disk full? Parts go to Ansible's remote_tmp (~/.ansible/tmp). Nothing was left there"
            ) from exc
        finally:
            part.unlink()
        return place


def _file(name: str) -> Path:
    path = Path(name).expanduser()
    if not name:
        raise AnsibleActionFail(
            "which prompts? Give -e context_fit_file=FILE, a file on this control node; see docs/context-fit.md"
        )
    if not path.is_file():
        raise AnsibleActionFail(f"{path} is no file on this control node")
    return path


def _has_mark(stream: IO[bytes]) -> bool:
    """Does it begin with the byte order mark of some editors? That belongs to no prompt."""
    stream.seek(0)
    return stream.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8


def _subject(args: Mapping[str, Any]) -> dict[str, Any]:
    """What the question is about: a service of the plan, or a model folder with a runtime.

    {name, service, engine, backend, tp, model, runtime, free}; `free`: bytes for the cache of a rank, as far as they can be told.
    """
    if args["model"]:
        alone = {"name": args["model"], "service": "", "engine": {}, "backend": "", "tp": 1, "free": None}
        return {**alone, "model": args["model"], "runtime": args["runtime"]}
    services = {service["name"]: service for service in args["plan"]["services"]}
    names = ", ".join(services) or "none"
    name = args["service"] or (next(iter(services)) if len(services) == 1 else "")
    if name not in services:
        asked = f"{name} is no service of this host" if name else "which service? Give -e context_fit_service=NAME"
        raise AnsibleActionFail(f"{asked}; there are: {names}. Without a service: context_fit_model and context_fit_runtime")
    service = services[name]
    return {
        "name": name,
        "service": name,
        "engine": service["engine"],
        "backend": service["backend"],
        "tp": int(service["topology"]["tensor_parallel_size"]),
        "model": service["model"]["path"],
        "runtime": args["runtime"] or service["runtime"]["path"],
        "free": _free(service),
    }


def _free(service: Mapping[str, Any]) -> float | None:
    """Bytes for the KV cache of a rank before a start: what an engine takes on CPUs, an estimate on cards."""
    told = service["memory"]
    rooms = [row["cache"] for row in told["rows"] if row["cache"] is not None and (told["weights"]["rank"] or not row["total"])]
    return float(min(rooms)) if rooms else None


def _progress(done: int, whole: int, count: int, seconds: float, first_part: tuple[int, float]) -> str:
    """`first_part`: its bytes and seconds. It is small and mostly waits for the tokenizer to load, so it foretells nothing."""
    since, took = done - first_part[0], seconds - first_part[1]
    left = f", about {took * (whole - done) / since:.0f} s to go" if since > 0 and done < whole else ""
    return f"{done / 2**20:.1f} of {max(done, whole) / 2**20:.1f} MiB, {count} prompt(s), {seconds:.0f} s{left}"
