"""A Kubernetes API server on loopback, as far as the checks and kubectl's everyday verbs need one."""

from pytest_hami.simulator.apiserver.server import ApiServer

__all__ = ["ApiServer"]
