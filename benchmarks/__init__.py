"""Figures, printed and never asserted. ``python -m benchmarks [name…]``."""
