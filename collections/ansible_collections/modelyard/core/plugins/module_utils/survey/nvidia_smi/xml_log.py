"""Reader for `nvidia-smi -q -x`."""

from __future__ import annotations

import re
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple
from xml.etree import ElementTree
from xml.sax.saxutils import unescape

from ansible_collections.modelyard.core.plugins.module_utils.survey.nvidia_smi import messages, records, values
from ansible_collections.modelyard.core.plugins.module_utils.survey.nvidia_smi.records import Record

Element = ElementTree.Element

ROOT = "nvidia_smi_log"
CLOSING = f"</{ROOT}>"
#: Fields of processes, not of the GPU.
OF_PROCESSES = frozenset({"process_info", "accounted_processes"})
VITAL = frozenset({"product_name", "uuid", "gpu_util", "pci_bus_id"})
TEMPERATURES = ("gpu_temp", "memory_temp", "gpu_temp_tlimit")
POWER_DRAWS = ("power_draw", "average_power_draw", "instant_power_draw")
#: Deeper than any log; keeps a hostile text from making the search for an opening tag long.
DEPTH_LIMIT = 32

_GPU_TAG = re.compile(r"<gpu(?=[\s/>])[^<>]*>|</gpu\s*>")
_TAG = re.compile(r"<(/?)([A-Za-z_][A-Za-z0-9_.-]*)((?:[\s/][^<>]*)?)>")
_ID = re.compile(r"\bid\s*=\s*[\"']([^\"'<>]*)[\"']")


class Log(NamedTuple):
    """The parts of a log, whole or not."""

    attached: Optional[int]
    driver: Optional[str]
    opened: int
    gpus: List[Tuple[int, Element]]
    is_whole: bool
    around: str


def read(text: str) -> Record:
    """GPUs, MIG devices and processes of a log. Of a log that stops short only the closed `<gpu>` elements count."""
    log = _log(text)
    gpus: List[Record] = []
    mig_devices: List[Record] = []
    processes: List[Record] = []
    errors = messages.read_messages(log.around.split("\n"))
    states: List[str] = [] if log.is_whole and (log.gpus or log.attached == 0) else ["unknown"]
    may_complain = _may_complain(text)
    for position, element in log.gpus:
        top = {child.tag: child for child in element}
        signs = records.Signs()
        gpu = _gpu(element, top, log.driver)
        gpu["index"] = position if log.opened == log.attached else None
        if may_complain:
            _complaints(element, signs)
        _live(top, signs)
        gpu["health"] = signs.health
        errors += signs.errors(gpu)
        gpus.append(gpu)
        mig_devices += _mig_devices(top.get("mig_devices"), gpu)
        rows, state, complaints = _processes(top.get("processes"), gpu)
        processes += rows
        states.append(state)
        errors += complaints
    if not log.is_whole and (f"<{ROOT}" in text or text.lstrip().startswith("<?xml")):
        errors.append(records.error("truncated"))
    records.mark_inforom(gpus, errors)
    return records.reading(errors, gpus, processes, records.worst_list(states), mig_devices)


def _log(text: str) -> Log:
    """Find the log in the text and take it apart.

    Only what stands between the tags of the root is parsed, so that neither a DOCTYPE nor an entity is ever met.
    """
    start = text.find(f"<{ROOT}")
    if start < 0:
        return Log(None, None, 0, [], False, _without_markup(text))
    end = text.find(CLOSING, start)
    if end < 0:
        return _apart(text[start:], False, text[:start])
    end += len(CLOSING)
    body, around = text[start:end], f"{text[:start]}\n{text[end:]}"
    try:
        root = ElementTree.fromstring(body)
    except (ElementTree.ParseError, ValueError):
        return _apart(body, True, around)
    gpus = root.findall("gpu")
    # A message about another card may be printed between the elements.
    around = "\n".join([around, root.text or "", *(child.tail or "" for child in root)])
    return Log(
        attached=values.whole(root.findtext("attached_gpus") or ""),
        driver=_driver(root.findtext("driver_version"), root.findtext("kmd_version")),
        opened=len(gpus),
        gpus=list(enumerate(gpus)),
        is_whole=True,
        around=around,
    )


def _apart(body: str, is_whole: bool, around: str) -> Log:
    """The parts of a log that is no well-formed XML: each closed `<gpu>` element by itself."""
    gpus: List[Tuple[int, Element]] = []
    opened = 0
    start: Optional[int] = None
    first = len(body)
    last = 0
    for tag in _GPU_TAG.finditer(body):
        is_closing = tag.group().startswith("</")
        if not is_closing:
            first = min(first, tag.start())
            if start is None:
                around += "\n" + _without_markup(body[last : tag.start()])
            start = tag.start()
            opened += 1
        if start is not None and (is_closing or tag.group().endswith("/>")):
            gpus.append((opened - 1, _element(body[start : tag.end()])))
            start, last = None, tag.end()
    if start is None:
        around += "\n" + _without_markup(body[last:])
    head = body[:first]
    return Log(
        attached=values.whole(_between(head, "attached_gpus") or ""),
        driver=_driver(_between(head, "driver_version"), _between(head, "kmd_version")),
        opened=opened,
        gpus=gpus,
        is_whole=is_whole,
        around=around,
    )


def _driver(classic: Optional[str], kmd: Optional[str]) -> Optional[str]:
    """The driver's version. Where it is called KMD version, the old element may hold a sentence."""
    return values.version(classic or "") or values.version(kmd or "")


def _between(text: str, tag: str) -> Optional[str]:
    """The text of the first element of that name, without a parser."""
    _, opening, rest = text.partition(f"<{tag}>")
    content, closing, _ = rest.partition(f"</{tag}>")
    return content if opening and closing else None


def _without_markup(text: str) -> str:
    """The lines of a text that are no XML."""
    return "\n".join(line for line in text.split("\n") if not line.lstrip().startswith("<"))


def _element(text: str) -> Element:
    """One element, also when it is not well-formed (a bare `&` or a control character in the name of a process)."""
    try:
        return ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError):
        return _repaired(text)


def _repaired(text: str) -> Element:
    """The tree that was meant: tags that do not fit are taken as text."""
    root = Element("gpu")
    stack = [root]
    position = 0
    for tag in _TAG.finditer(text):
        if tag.start() < position:
            continue  # inside the name of a process
        is_end, name, rest = tag.group(1), tag.group(2), tag.group(3)
        _add_text(stack[-1], text[position : tag.start()])
        position = tag.end()
        if is_end:
            depth = next((i for i in range(len(stack) - 1, 0, -1) if stack[i].tag == name), 0)
            if depth:
                del stack[depth:]
        elif name == "gpu":
            found = _ID.search(rest)
            if found:
                root.set("id", unescape(found.group(1)))
        elif len(stack) < DEPTH_LIMIT:
            child = ElementTree.SubElement(stack[-1], name)
            if rest.endswith("/"):
                continue
            stack.append(child)
            if name == "process_name":
                # Whatever it contains, it reaches to its own end tag.
                end = text.find("</process_name>", position)
                if end >= 0:
                    child.text = _unescaped(text[position:end])
                    position = end
    return root


def _add_text(element: Element, text: str) -> None:
    # Only text before the first child is ever asked for.
    if len(element) == 0 and text:
        element.text = (element.text or "") + _unescaped(text)


def _unescaped(text: str) -> str:
    return unescape(text, {"&quot;": '"', "&apos;": "'"})


def _may_complain(text: str) -> bool:
    """Whether any complaint stands in the text: nearly always not, and then no field need be looked at."""
    lower = text.lower()
    return any(phrase in lower for phrase in values.COMPLAINTS)


def _text(element: Optional[Element], path: str = "") -> str:
    if element is None:
        return ""
    return ((element.findtext(path) if path else element.text) or "").strip()


def _gpu(element: Element, top: Dict[str, Element], driver: Optional[str]) -> Record:
    gpu = records.new_gpu()
    memory = top.get("fb_memory_usage")
    gpu["uuid"] = values.word(_text(top.get("uuid")))
    gpu["name"] = values.word(_text(top.get("product_name")))
    gpu["bus_id"] = values.bus_id(element.get("id", "")) or values.bus_id(_text(top.get("pci"), "pci_bus_id"))
    gpu["minor_number"] = values.whole(_text(top.get("minor_number")))
    gpu["memory_total_mib"] = values.mib(_text(memory, "total"))
    gpu["memory_used_mib"] = values.mib(_text(memory, "used"))
    gpu["utilization_gpu_pct"] = values.percent(_text(top.get("utilization"), "gpu_util"))
    gpu["compute_mode"] = values.word(_text(top.get("compute_mode")))
    gpu["mig_mode"] = values.mig_mode(_text(top.get("mig_mode"), "current_mig"))
    gpu["driver_version"] = driver
    gpu["compute_cap"] = values.compute_capability(_text(top.get("compute_cap")))
    return gpu


def _complaints(element: Element, signs: records.Signs) -> None:
    """Look at every field of the GPU, also at those that feed no key."""
    signs.field("id", element.get("id", ""), vital=True)
    for child in element:
        for leaf in _leaves(child):
            signs.field(leaf.tag, leaf.text or "", vital=leaf.tag in VITAL and child.tag != "mig_devices")


def _leaves(element: Element) -> Iterator[Element]:
    """Elements without children, in order, without those that tell of processes."""
    waiting = [element]
    while waiting:
        current = waiting.pop()
        if current.tag in OF_PROCESSES:
            continue
        if len(current):
            waiting.extend(reversed(current))
        else:
            yield current


def _live(top: Dict[str, Element], signs: records.Signs) -> None:
    """Readings that prove life. Reset and recovery state say at the same time whether the GPU must be reset."""
    signs.live(any(values.is_number(text) for text in _live_texts(top)))
    for name in records.RESET_FLAGS:
        signs.reset_flag(name, _text(top.get("gpu_reset_status"), name))
    signs.recovery_action(records.RECOVERY_ACTION, _text(top.get(records.RECOVERY_ACTION)))


def _live_texts(top: Dict[str, Element]) -> Iterator[str]:
    """Texts of the readings of which one number proves life."""
    for name in ("used", "free"):
        yield _text(top.get("fb_memory_usage"), name)
    for child in top.get("utilization", ()):
        yield child.text or ""
    for name in TEMPERATURES:
        yield _text(top.get("temperature"), name)
    for tag, element in top.items():
        if tag.endswith("power_readings"):
            for name in POWER_DRAWS:
                yield _text(element, name)


def _mig_devices(element: Optional[Element], gpu: Record) -> List[Record]:
    found: List[Record] = []
    for child in element if element is not None else ():
        if child.tag != "mig_device":
            continue
        device = records.new_mig_device(gpu)
        for key in ("index", "gpu_instance_id", "compute_instance_id"):
            device[key] = values.whole(_text(child, key))
        device["uuid"] = values.word(_text(child, "uuid"))
        device["memory_total_mib"] = values.mib(_text(child, "fb_memory_usage/total"))
        device["memory_used_mib"] = values.mib(_text(child, "fb_memory_usage/used"))
        found.append(device)
    return found


def _processes(element: Optional[Element], gpu: Record) -> Tuple[List[Record], str, List[Record]]:
    """Processes of one GPU, the state of their list, and errors of pids that cannot be read."""
    if element is None:
        return [], "unknown", []
    infos = element.findall("process_info")
    if not infos:
        # `None` says that there are none; any other text (`N/A`) says that nobody knows.
        return [], "none" if _text(element).lower() in ("", "none") else "unknown", []
    rows: List[Record] = []
    errors: List[Record] = []
    state = "listed"
    for info in infos:
        pid_text = _text(info, "pid")
        pid = values.whole(pid_text)
        if pid is None:
            state = "partial"
            kind = values.complaint(pid_text)
            if kind:
                errors.append(records.error(kind, gpu["bus_id"], gpu["index"], gpu["uuid"], "pid"))
            continue
        name, memory = _text(info, "process_name"), _text(info, "used_memory")
        rows.append(records.process(pid, gpu["index"], gpu["uuid"], _text(info, "type"), name, memory))
    return rows, state, errors
