"""The steps of the acceptance by kind: each a file of pure functions, what it asks and how the answer is judged."""
