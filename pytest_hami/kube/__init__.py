"""Talking to an API server: dicts in and out, one journal, one wait."""
