"""Staging a model: fetching its files into their folder, one after the other, each of them whole and proven or not there.

web.py      asking a server, with what it answers as data
sources.py  what a hub, a mirror or a folder holds
place.py    the model's folder: what is there, the manifest, half-fetched files, who is at work
fetch.py    fetching for a while; the caller asks again until all is there, and says how far it is
verify.py   hashes against the manifest

Runs on a host and, for a copy that several hosts are fed from, on the control node. Standard library only.
"""
