"""etcd and kube-apiserver as processes, without kubelet and controller manager.

Flags: Kubernetes 1.36, cmd/kube-apiserver/app/options; etcd 3.7, server/etcdmain.
"""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from signal import SIGKILL

from pytest_hami.cluster.access import ApiAccess
from pytest_hami.cluster.parts import ProcessPart, Stack, answers

# Of these plug-ins nobody does the other half here: no controller makes service accounts or takes taints away again.
# DefaultTolerationSeconds would only add lines to every pod.
UNSERVED_ADMISSION = ("ServiceAccount", "TaintNodesByCondition", "DefaultTolerationSeconds")


class Etcd(ProcessPart):
    """One etcd member. It forgets nothing when killed, only when the machine is."""

    name = "etcd"
    # kube-apiserver holds its connections open, so that a polite end takes seconds.
    ends_by = SIGKILL

    def __init__(self, program: Path, stack: Stack) -> None:
        super().__init__(program, stack, ports=2)

    @property
    def url(self) -> str:
        """The URL for clients."""
        return f"http://{self.ports[0].address}"

    def arguments(self) -> Sequence[str]:
        """Return its command line."""
        peer = f"http://{self.ports[1].address}"
        return (
            "--name=hami", f"--data-dir={self.stack.workspace.directory / 'etcd'}",
            f"--listen-client-urls={self.url}", f"--advertise-client-urls={self.url}", f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=hami={peer}",
            # The data dies with the run, so nothing is gained by waiting for the disk.
            "--unsafe-no-fsync", "--log-level=warn",
        )  # fmt: skip

    def serves(self) -> bool:
        """Return whether it is healthy."""
        return answers(f"{self.url}/health")


class KubeApiserver(ProcessPart):
    """One kube-apiserver that allows everything to the holder of its token."""

    name = "kube-apiserver"
    # One that lost its etcd can hang for minutes on SIGTERM.
    ends_by = SIGKILL

    def __init__(self, program: Path, stack: Stack, etcd: Etcd) -> None:
        super().__init__(program, stack, ports=1)
        self._etcd = etcd
        self._token = secrets.token_hex(16)

    @property
    def access(self) -> ApiAccess:
        """How it is reached."""
        return ApiAccess(f"https://{self.ports[0].address}", self._token, self.stack.authority)

    def arguments(self) -> Sequence[str]:
        """Return its command line."""
        directory = self.stack.workspace.directory
        tokens = self.stack.workspace.write("tokens.csv", f'{self._token},hami,hami,"system:masters"\n')
        return (
            f"--etcd-servers={self._etcd.url}", "--bind-address=127.0.0.1", f"--secure-port={self.ports[0].number}",
            # A loopback address is refused for the Endpoints of the service "kubernetes", which nobody needs here.
            "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
            f"--tls-cert-file={self.stack.certificate}", f"--tls-private-key-file={self.stack.key}",
            f"--cert-dir={directory}", "--kubelet-preferred-address-types=InternalIP",
            f"--kubelet-certificate-authority={self.stack.authority}",
            "--service-cluster-ip-range=10.0.0.0/24", "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.stack.certificate}", f"--service-account-signing-key-file={self.stack.key}",
            f"--token-auth-file={tokens}", "--authorization-mode=AlwaysAllow",
            # Else every privileged pod is refused before HAMi's webhook is asked.
            "--allow-privileged=true", "--event-ttl=1h", "--enable-priority-and-fairness=false",
            f"--disable-admission-plugins={','.join(UNSERVED_ADMISSION)}",
        )  # fmt: skip

    def serves(self) -> bool:
        """Return whether it is ready."""
        return answers(f"{self.access.url}/readyz", self._context, self._token)

    @cached_property
    def _context(self) -> ssl.SSLContext:
        return self.stack.identity.client_context()
