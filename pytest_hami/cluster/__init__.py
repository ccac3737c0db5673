"""Clusters: what the checks talk to, made or adopted by a provider."""
