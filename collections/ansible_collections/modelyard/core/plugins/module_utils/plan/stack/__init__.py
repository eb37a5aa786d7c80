"""Do card, driver, CUDA, PyTorch, vLLM and Python fit each other? Pure functions over tables; on the control node only.

versions.py compares, known.py looks things up in the tables (plan/data/nvidia, hygon, vllm/pins.yml), rules.py and dcu_rules.py
have one function for each rule, nearest.py finds the nearest right set, states.py reads a host's driver, seen.py makes sets out
of survey and inventory, verdict.py puts it together, text.py writes it down.
"""
