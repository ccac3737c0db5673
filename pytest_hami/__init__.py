"""A pytest plugin and conformance suite for HAMi.

Importing the package imports nothing else: an installed and unused plugin must cost nothing.
"""

__version__ = "0.1.0"
