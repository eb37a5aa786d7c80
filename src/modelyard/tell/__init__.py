"""Telling people: webhooks, mail and other commands, with retries, and an outbox for what could not be told."""
