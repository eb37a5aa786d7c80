"""Scheduled acceptance: run acceptance.yml, keep the history, tell people what has changed."""
