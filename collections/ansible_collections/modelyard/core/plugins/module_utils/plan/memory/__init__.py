"""The memory plan: does a model fit on its cards, with how many requests, and what to change? Pure.

weights.py    bytes of the weights on one rank
estimates.py  what cannot be known before a start: activations, graphs, the driver's part
budget.py     one card: what is asked, what others hold, what is left for the KV cache
plan.py       a service: every card, verdict, what to change
text.py       the table; findings.py: what is refused and what is warned of
"""
