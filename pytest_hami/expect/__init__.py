"""Assertions that carry their evidence."""
