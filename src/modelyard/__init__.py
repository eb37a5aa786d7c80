"""The tool of the control node: what runs over the playbooks of this checkout and keeps what they have found."""
