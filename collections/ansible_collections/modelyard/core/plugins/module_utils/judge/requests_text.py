"""What people read about requests: the story of each, or groups of failures and what they have in common. Pure functions."""

from __future__ import annotations

from typing import Any, List, Mapping, Optional, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.judge import requests
from ansible_collections.modelyard.core.plugins.module_utils.plan import text

ERROR_CHARACTERS = 600
MAY_HELP = "; a restart of the instance may help after that"


def story(line: Mapping[str, Any]) -> List[str]:
    """One request from its beginning to its end; what the log does not know is left out."""
    why = requests.cause(line)
    head = [str(line.get("time") or "at an unknown time"), f"request {line.get('id') or 'without an id'}"]
    head += [f"of {name} {line[name]}" for name in ("user", "key") if line.get(name)]
    asked = [f"{name} {line[name]}" for name in ("model", "path") if line.get(name)]
    asked += ["as a stream"] if line.get("stream") else []
    tried = f" after {line['tries']} tries" if isinstance(line.get("tries"), int) and line["tries"] > 1 else ""
    waited = _seconds("waited", line.get("queue_s"))
    went = [f"went to {line.get('backend') or 'no backend'}{tried}", *waited]
    went += [*_seconds("first byte after", line.get("ttft_s")), *_seconds("ended after", line.get("duration_s"))]
    got = [f"{line[key]} {key.replace('_', ' ')}" for key in ("prompt_tokens", "completion_tokens") if line.get(key) is not None]
    got += [f"finish reason {line['finish_reason']}"] if line.get("finish_reason") else []
    got += ["with a thinking part"] if line.get("thinking") else []
    lines = [f"  {', '.join(head)}", f"      asked: {', '.join(asked) or 'unknown'}", f"      {', '.join(went)}"]
    lines.append(f"      answer: HTTP {requests.status(line) or 'none'}{''.join(', ' + one for one in got)}")
    if line.get("snippet"):
        lines.append(f"      it begins: {line['snippet']}")
    if why is not None:
        lines += [f"      failed: {why.what}", f"      -> {why.do}"]
        if line.get("error"):
            lines.append(f"      the body: {' '.join(str(line['error']).split())[:ERROR_CHARACTERS]}")
    return lines


def _seconds(words: str, value: Any) -> List[str]:
    return [f"{words} {value:.3f} s"] if isinstance(value, (int, float)) and value > 0 else []


def report(hosts: Mapping[str, Mapping[str, Any]], stories: bool) -> str:
    """`hosts`: {name: {logs, problem}}, each of `logs` what the module request_log says of one service.

    `stories`: one user or request was asked for, so each of its requests is told.
    """
    lines = [_summary(hosts)]
    for host, seen in hosts.items():
        if seen["problem"]:
            lines += [f"  {host}", f"      {seen['problem']}"]
        for log in seen["logs"]:
            lines += _service(f"{host}:{log['service']}", log, stories)
    return "\n".join(lines)


def _summary(hosts: Mapping[str, Mapping[str, Any]]) -> str:
    logs = [log for seen in hosts.values() for log in seen["logs"]]
    total, failed = (sum(log[key] for log in logs) for key in ("lines", "failed"))
    silent = [name for name, seen in hosts.items() if seen["problem"]]
    more = f"; not looked at: {', '.join(silent)}" if silent else ""
    where = f"in the logs of {len(logs)} service(s) on {len(hosts)} host(s)"
    return f"Requests: {total} {where}, {failed} failed{_share(failed, total)}{more}"


def _share(part: int, of: int) -> str:
    return f" ({100 * part / of:.1f} %)" if of else ""


def _service(where: str, log: Mapping[str, Any], stories: bool) -> List[str]:
    span = f", from {log['first']} to {log['last']}" if log["lines"] else ""
    lines = [f"{where}: {log['lines']} request(s), {log['failed']} failed{_share(log['failed'], log['lines'])}{span}"]
    if log["damaged"]:
        lines.append(f"  {log['damaged']} damaged line(s) were passed over")
    lines += [f"  the log itself: {note}" for note in log["lost"]]
    lines += [f"  {problem}" for problem in log["problems"]]
    if log["groups"]:
        lines += _groups(log["groups"], log["failed"])
        lines += [f"  {one}" for one in log["compared"]]
    if stories:
        untold = log["lines"] - len(log["found"])
        lines += [f"  the newest {len(log['found'])} of {log['lines']}"] if untold > 0 else []
        lines += [shown for line in log["found"] for shown in story(line)]
    return lines


def _groups(groups: Sequence[Mapping[str, Any]], failed: int) -> List[str]:
    rows: List[Sequence[Any]] = [("status", "cause", "count", "share", "first", "last", "backends")]
    for group in groups:
        backends = ", ".join(f"{name} {count}" for name, count in group["backends"].items())
        share = f"{100 * group['count'] / failed:.0f} %"
        rows.append((_status(group), group["cause"], group["count"], share, group["first"], group["last"], backends))
    lines = text.table(rows)
    for group in groups:
        lines.append(f"  {_status(group)} {group['cause']}: {group['examples'][0]['what']}")
        shown = [f"{one['id'] or '-'}{_of(one['user'])}" for one in group["examples"]]
        lines += [f"      for example {', '.join(shown)}", f"      -> {group['do']}{MAY_HELP if group.get('restart') else ''}"]
    return lines


def _status(group: Mapping[str, Any]) -> str:
    return str(group["status"] or "none")


def _of(user: Optional[str]) -> str:
    return f" of {user}" if user else ""
