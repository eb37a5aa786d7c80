"""The laboratory: a service's request pattern against the pinned release's own scheduler, with the answers of its model made up.

Runs with the Python of a runtime for CPUs. Needs no card, no weights and no other part of the project.
"""
