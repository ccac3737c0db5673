"""Real parts of a local cluster: what the cluster asks of each, and the one process that most of them are."""

from __future__ import annotations

import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import SIGTERM, Signals
from typing import TYPE_CHECKING, Protocol

from pytest_hami.processes import Port, Process

if TYPE_CHECKING:
    from pytest_hami.cluster.workspace import Workspace
    from pytest_hami.simulator.certificates import ServerIdentity

START_LIMIT = 30.0
PROBE_LIMIT = 2.0
# All of them are Go programs that live for a minute and share two cores with a busy test run.
COLLECT_SELDOM = {"GOGC": "150"}


class RealPart(Protocol):
    """A part that runs outside of the simulator; every method raises ClusterUnavailable where it cannot do its work."""

    def start(self) -> None:
        """Start it and wait until it serves."""

    def stop(self) -> None:
        """End it; safe to call twice."""

    def restart(self) -> None:
        """End it and start it again at the same addresses. One that has ended by itself is not revived."""

    def require_alive(self) -> None:
        """Raise with its last lines when it has ended by itself."""


@dataclass(frozen=True)
class Stack:
    """What the real parts of one cluster share: directory, certificate, time limits, and whom to tell of a death."""

    workspace: Workspace
    identity: ServerIdentity
    scale: float
    on_end: Callable[[str], None]

    @property
    def certificate(self) -> Path:
        """The file of the certificate of every server of ours."""
        return self.workspace.directory / "tls.crt"

    @property
    def key(self) -> Path:
        """The file of its key."""
        return self.workspace.directory / "tls.key"

    @property
    def authority(self) -> Path:
        """The file of the authority that signed it."""
        return self.workspace.directory / "ca.crt"

    def write_identity(self) -> None:
        """Write the three files."""
        self.workspace.write(self.certificate.name, self.identity.certificate)
        self.workspace.write(self.key.name, self.identity.key)
        self.workspace.write(self.authority.name, self.identity.authority)


class ProcessPart(ABC):
    """A real part that is one process; it keeps its ports over restarts."""

    name: str
    ends_by: Signals = SIGTERM

    def __init__(self, program: Path, stack: Stack, ports: int) -> None:
        self.program = program
        self.stack = stack
        self.ports = tuple(Port() for _ in range(ports))
        self._process: Process | None = None

    @abstractmethod
    def arguments(self) -> Sequence[str]:
        """Write the files that it reads and return its command line without the program."""

    @abstractmethod
    def serves(self) -> bool:
        """Return whether it serves, found out by asking it."""

    def environment(self) -> Mapping[str, str]:
        """Return its variables beyond ours."""
        return {}

    def launch(self) -> None:
        """Start the process; ``await_ready`` waits for it."""
        argv = [str(self.program), *self.arguments()]
        env = {**COLLECT_SELDOM, **self.environment(), **self.stack.workspace.environment}
        log = self.stack.workspace.log(self.name)
        self._process = Process(self.name, argv, log, env, ends_by=self.ends_by, on_end=self.stack.on_end)

    def await_ready(self) -> None:
        """Wait until it serves."""
        assert self._process is not None
        self._process.await_ready(self.serves, START_LIMIT * self.stack.scale)

    def start(self) -> None:
        """Start it and wait until it serves."""
        self.launch()
        self.await_ready()

    def end(self) -> None:
        """End the process and keep the ports."""
        process, self._process = self._process, None
        if process is not None:
            process.stop()

    def stop(self) -> None:
        """End the process and release the ports."""
        self.end()
        for port in self.ports:
            port.release()

    def restart(self) -> None:
        """End it and start it again."""
        # A crash must not be repaired in silence.
        self.require_alive()
        self.end()
        self.start()

    def require_alive(self) -> None:
        """Raise with its last lines when it has ended by itself."""
        if self._process is not None:
            self._process.require_alive()


def answers(url: str, context: ssl.SSLContext | None = None, token: str = "") -> bool:
    """Return whether a server answers a GET with 200."""
    import urllib3

    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with urllib3.PoolManager(retries=False, timeout=PROBE_LIMIT, ssl_context=context) as pool:
        try:
            return bool(pool.request("GET", url, headers=headers).status == 200)
        except (urllib3.exceptions.HTTPError, OSError):
            return False
