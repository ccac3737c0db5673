"""A pure model of the HAMi 2.10.0 scheduler: its webhook, extender, accounting and metrics without any I/O."""
