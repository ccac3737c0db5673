"""A model of HAMi's device plugin on one node: what it registers, advertises, prefers, allocates, and how it lives and dies."""
