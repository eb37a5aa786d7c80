"""The tool of the control node."""
