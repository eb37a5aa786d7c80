"""What a source holds: {revision, entries}. An entry: {name, size (None: not told), sha256, git, url}; `url` may be a path.

huggingface  the hub's own interface, which mirrors of it speak, too (`at`)
modelscope   likewise
mirror       a folder behind a web server that lists it, or that has a SHA256SUMS
folder       a folder on this machine, also one that was staged before (its manifest tells the hashes)
"""

from __future__ import annotations

import base64
import html.parser
import os
import re
import urllib.parse
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan import model_files
from ansible_collections.modelyard.core.plugins.module_utils.process.staging import place, web

HUBS = {"huggingface": "https://huggingface.co", "modelscope": "https://modelscope.cn"}
MAIN = {"huggingface": "main", "modelscope": "master"}
SUMS = "SHA256SUMS"
#: Deeper than this no model has files, but links of a mirror can lead round in circles.
DEPTH = 3
_SUM = re.compile(r"^([0-9a-fA-F]{64})[ \t]+\*?(?:\./)?(.+)$")

Entry = Dict[str, Any]


def offered(source: Mapping[str, Any], token: str) -> Dict[str, Any]:
    """{revision, needed, extra, unsafe, failed}: what of a source is to be fetched, and {name: why} of what it does not give.

    Raises web.Trouble where it does not even say what it has.
    """
    said = listed(source, token)
    chosen = model_files.choose(said["entries"], source["include"], source["exclude"])
    failed: Dict[str, str] = {}
    for entry in [*chosen.needed, *chosen.extra] if source["from"] == "mirror" else ():
        try:
            entry["size"] = size_of(entry, source, token)
        except web.Trouble as exc:
            if exc.passing:
                raise
            failed[entry["name"]] = str(exc)
    return {"revision": said["revision"], "failed": failed, **chosen._asdict()}


def listed(source: Mapping[str, Any], token: str) -> Dict[str, Any]:
    """The files of a source, below its `subfolder` where it has one. Raises web.Trouble."""
    kinds: Dict[str, Callable[[Mapping[str, Any], str], Tuple[str, List[Entry]]]] = {
        "huggingface": _huggingface,
        "modelscope": _modelscope,
        "mirror": _mirror,
        "folder": _folder,
    }
    revision, entries = kinds[source["from"]](source, token)
    below = source["subfolder"].strip("/")
    if below:
        inside = [e for e in entries if str(e["name"]).startswith(below + "/")]
        folders = sorted({str(e["name"]).partition("/")[0] for e in entries if "/" in str(e["name"])})
        if not inside:
            raise web.Trouble(f"there is no {below}/ in it; its folders are {', '.join(folders[:20]) or 'none'}")
        entries = [{**e, "name": e["name"][len(below) + 1 :]} for e in inside]
    return {"revision": revision, "entries": sorted(entries, key=lambda entry: str(entry["name"]))}


def headers(source: Mapping[str, Any], token: str) -> Dict[str, str]:
    """Who asks. The only place where a token goes. Of a mirror it may be `user:password`."""
    if not token:
        return {}
    if source["from"] == "mirror" and ":" in token:
        return {"Authorization": f"Basic {base64.b64encode(token.encode()).decode()}"}
    cookie = {"Cookie": f"m_session_id={token}"} if source["from"] == "modelscope" else {}
    return {"Authorization": f"Bearer {token}", **cookie}


def _entry(name: Any, size: Any, url: str, sha256: Any = "", git: Any = "") -> Entry:
    whole = size if isinstance(size, int) and not isinstance(size, bool) and size >= 0 else None
    hashes = [str(text).lower() if re.fullmatch("[0-9a-fA-F]{40,64}", str(text or "")) else "" for text in (sha256, git)]
    return {"name": name, "size": whole, "sha256": hashes[0], "git": hashes[1], "url": url}


def _at(source: Mapping[str, Any]) -> str:
    return str(source["at"] or HUBS.get(source["from"], "")).rstrip("/")


def _quoted(name: Any) -> str:
    return urllib.parse.quote(str(name), safe="/")


def _huggingface(source: Mapping[str, Any], token: str) -> Tuple[str, List[Entry]]:
    """All files of a revision, which is told as the commit it stands for: so what is fetched later is of the same one."""
    at, repo = _at(source), _quoted(source["repo"])
    asked = urllib.parse.quote(source["revision"] or MAIN["huggingface"], safe="")
    said = web.table(f"{at}/api/models/{repo}/revision/{asked}?blobs=true", headers(source, token))
    commit, files = str(said.get("sha") or asked), said.get("siblings")
    if not isinstance(files, list):
        raise web.Trouble(f"{web.shown(at)}: the answer about {source['repo']} lists no files")
    found = []
    for file in files:
        name, lfs = file.get("rfilename"), file.get("lfs") or {}
        url = f"{at}/{repo}/resolve/{urllib.parse.quote(commit, safe='')}/{_quoted(name)}"
        found.append(_entry(name, file.get("size", lfs.get("size")), url, lfs.get("sha256"), "" if lfs else file.get("blobId")))
    return commit, found


def _modelscope(source: Mapping[str, Any], token: str) -> Tuple[str, List[Entry]]:
    at, repo = _at(source), _quoted(source["repo"])
    asked = source["revision"] or MAIN["modelscope"]
    revision = urllib.parse.quote(asked, safe="")
    said = web.table(f"{at}/api/v1/models/{repo}/repo/files?Revision={revision}&Recursive=True", headers(source, token))
    files = (said.get("Data") or {}).get("Files") if isinstance(said.get("Data"), dict) else None
    if not said.get("Success", True) or not isinstance(files, list):
        raise web.Trouble(f"{web.shown(at)}: {str(said.get('Message') or 'the answer lists no files')[:200]}")
    found = []
    for file in files:
        if file.get("Type") == "tree":
            continue
        name = file.get("Path") or file.get("Name")
        url = f"{at}/api/v1/models/{repo}/repo?Revision={revision}&FilePath={urllib.parse.quote(str(name), safe='')}"
        found.append(_entry(name, file.get("Size"), url, file.get("Sha256")))
    return asked, found


class _Links(html.parser.HTMLParser):
    """Addresses that a page points to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: List[str] = []

    def handle_starttag(self, tag: str, attrs: List[Tuple[str, Optional[str]]]) -> None:
        """What a link names."""
        self.found += [value for name, value in attrs if tag == "a" and name == "href" and value]


def _mirror(source: Mapping[str, Any], token: str) -> Tuple[str, List[Entry]]:
    """By its list of hashes where it has one, else by the pages on which its server lists the folder."""
    at, own = _at(source) + "/", headers(source, token)
    sums: Dict[str, str] = {}
    try:
        sums = _sums(web.text(at + SUMS, own))
    except web.Trouble as exc:
        if exc.passing:
            raise
    try:
        names = _pages(at, at, own, DEPTH)
    except web.Trouble as exc:
        if exc.passing or not sums:
            do = f"switch its listing on (autoindex), or put a {SUMS} beside the files"
            raise web.Trouble(f"{exc}; {do}", exc.status, exc.passing, exc.pause_s) from exc
        names = []
    return "", [_entry(name, None, at + _quoted(name), sums.get(name)) for name in sorted({*names, *sums})]


def _pages(page: str, root: str, own: Mapping[str, str], depth: int) -> List[str]:
    reader = _Links()
    reader.feed(web.text(page, own))
    found, folders = [], []
    for link in reader.found:
        url = urllib.parse.urljoin(page, link.partition("#")[0].partition("?")[0])
        if not url.startswith(page) or url == page:
            continue
        name = urllib.parse.unquote(url[len(root) :])
        if url.endswith("/"):
            folders.append(url)
        elif name != SUMS:
            found.append(name)
    for folder in dict.fromkeys(folders) if depth else ():
        if not urllib.parse.unquote(folder[len(root) :]).startswith("."):
            try:
                found += _pages(folder, root, own, depth - 1)
            except web.Trouble as exc:
                if exc.passing:
                    raise  # a folder that nobody may look into is left out; what a model lacks then is seen later
    return found


def size_of(entry: Mapping[str, Any], source: Mapping[str, Any], token: str) -> Optional[int]:
    """How long a file of a mirror is, by its server; None where it does not say. Raises web.Trouble."""
    asked = {**headers(source, token), "Accept-Encoding": "identity"}
    try:
        answer = web.ask(entry["url"], asked, "HEAD")
    except web.Trouble as exc:
        if exc.status in (405, 501):  # it gives files and no answer to this question
            return None
        raise
    answer.close()
    said = str(answer.headers.get("Content-Length") or "")
    return int(said) if said.isdigit() else None


def _folder(source: Mapping[str, Any], _: str) -> Tuple[str, List[Entry]]:
    root = Path(source["at"])
    if not root.is_dir():
        raise web.Trouble(f"the folder {root} is not there")
    manifest, found = place.read(root), []
    known, sums = place.files_of(manifest), {}
    if (root / SUMS).is_file():
        sums = _sums((root / SUMS).read_text(encoding="utf-8", errors="replace"))
    for name, size in place.sizes(root).items():
        same = name in known and place.unchanged(root / name, known[name])
        sha256 = sums.get(name) or (known[name]["sha256"] if same else "")
        if name != SUMS:
            found.append(_entry(name, size, os.fspath(root / name), sha256))
    return str(manifest.get("source", {}).get("revision", "")), found


def _sums(text: str) -> Dict[str, str]:
    """A list of hashes as sha256sum writes it: {name: hash}."""
    return {match.group(2): match.group(1) for match in map(_SUM.match, text.splitlines()) if match}
