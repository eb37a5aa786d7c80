"""A change of the NVIDIA driver, or of a set of packages like it: what a dry run would do, what of it was asked for, the steps.

Pure functions, used on the host too: no tables here, but for chosen.py. transaction.py reads what package managers say,
allowed.py compares it with what was asked for, before.py has what forbids a change now, steps.py the steps; chosen.py chooses the
driver, confirmed.py judges who may reboot.
"""
