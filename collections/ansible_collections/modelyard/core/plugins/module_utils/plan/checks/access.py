"""Who may use a service: entries that can be reached from other hosts and ask for no key, and entries that nobody can reach."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding


def findings(
    survey: Mapping[str, Any], services: Sequence[Mapping[str, Any]], gateways: Sequence[Mapping[str, Any]]
) -> List[Dict[str, str]]:
    """Engines and gateways that everybody who reaches the host can use. A gateway passes keys on: the engines' guards it."""
    host = survey["host"]["name"]
    secured = {service["name"]: bool(service["secured"]) for service in services}
    found = []
    for service in services:
        listen, ports = service["listen"], sorted(i["port"] for i in service["instances"] if i["action"] != "stop")
        if service["concerned"] and ports and not service["secured"] and not _only_here(listen["host"]):
            key = "listen.host: 127.0.0.1, where only this host or its gateway is to reach them"
            found.append(_finding(host, service["name"], "the engines", listen["host"], ports, key, "modelyard_api_keys"))
        if service["concerned"] and ports and service["secured"] and not service["gateway"] and _only_here(listen["host"]):
            found.append(_loopback(host, service["name"], "the engines", listen["host"], ports[0], "listen.host"))
    for entry in gateways:
        own = entry["gateway"]
        if entry["concerned"] and not secured.get(entry["of"]) and not own["keys_file"] and not _only_here(own["host"]):
            keys = "modelyard_api_keys" + (" or gateway.keys_file" if own["kind"] == "modelyard" else "")
            key = "gateway.host: 127.0.0.1, where only this host is to reach it"
            found.append(_finding(host, entry["of"], "the gateway", own["host"], [own["port"]], key, keys))
        if entry["concerned"] and (secured.get(entry["of"]) or own["keys_file"]) and _only_here(own["host"]):
            found.append(_loopback(host, entry["of"], "the gateway", own["host"], own["port"], "gateway.host"))
    return found


def _finding(host: str, service: str, who: str, address: str, ports: Sequence[int], closed: str, keys: str) -> Dict[str, str]:
    shown = f"port {ports[0]}" if len(ports) == 1 else f"ports {ports[0]} to {ports[-1]}"
    verb = ("listens", "asks") if who == "the gateway" else ("listen", "ask")
    what = f"{who} of {service} {verb[0]} on {address or 'all addresses'}, {shown}, and {verb[1]} for no API key"
    return finding("PF-OPEN-DOOR", f"{host}:{ports[0]}", what, f"set {keys}, or {closed}")


def _loopback(host: str, service: str, who: str, address: str, port: int, key: str) -> Dict[str, str]:
    """A key is for people on other hosts, and these get `connection refused`."""
    verb = "listens" if who == "the gateway" else "listen"
    what = f"{who} of {service} {verb} on {address} alone: there is an API key, but no other host reaches port {port}"
    do = f"set {key} to the host's own address, or to 0.0.0.0; nothing, where all clients and their tunnels are on this host"
    return finding("PF-LOOPBACK", f"{host}:{port}", what, do)


def _only_here(address: str) -> bool:
    """Is it an address that other hosts cannot reach?"""
    return address in ("localhost", "::1") or address.startswith("127.")
