"""One plugin process a node, in its lane: what it finds there, what it tells, how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="needs the extra: pip install pytest-hami[real]")
pytest.importorskip("google.protobuf", reason="needs the extra: pip install pytest-hami[real]")

from pytest_hami.contract.register import Device
from pytest_hami.kubelet import lane as lanes
from pytest_hami.kubelet.hami import HamiPlugins
from pytest_hami.kubelet.lane import Lane, Lanes
from pytest_hami.kubelet.plugin import AllocateError, Share
from pytest_hami.kubelet.program import HamiProgram
from pytest_hami.processes import ClusterUnavailable

ROOT = Path(__file__).resolve().parents[2]
FAKE = Path(__file__).with_name("fake_plugin.py")
CARD = Device("GPU-11111111-2222-3333-4444-555555555555", 0, 3, 4096, 100, "NVIDIA A10", 1, "hami-core", True)


class Nodes:
    """Stands for kubelet and the API; an annotation is there as soon as it is asked for."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []
        self.removed: list[str] = []

    async def advertise(self, node: str, shares: Sequence[Share]) -> None:
        self.told.append((node, len(shares)))

    async def annotation(self, node: str, key: str) -> str | None:
        return None

    async def annotate(self, node: str, annotations: Mapping[str, str | None]) -> None:
        self.removed.append(node)

    async def changed(self, node: str, key: str, old: str | None, limit: float) -> str:
        return "there"


@pytest.fixture
def plugins(workspace: Path, scripted: Callable[..., HamiProgram]) -> Callable[..., HamiPlugins]:
    """Make plugins of a script, which sees this Python besides."""

    def make(text: str, scale: float = 1.0) -> HamiPlugins:
        prefixes = {Path(sys.prefix), ROOT, *(Path(p) for p in (sys.base_prefix,) if p not in {"/usr", "/usr/local"})}
        return HamiPlugins(scripted(text, scale), Lanes(workspace / "lanes", tuple(prefixes)), lost.append)

    lost: list[str] = []
    make.lost = lost  # type: ignore[attr-defined]
    return make


@pytest.fixture
def fake() -> str:
    if os.path.realpath(sys.executable).startswith("/usr/local"):
        pytest.skip("a lane has a /usr/local of its own, without this Python")
    return f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} {FAKE} "$@"\n'


@asynccontextmanager
async def started(plugins: HamiPlugins, nodes: Nodes) -> AsyncIterator[None]:
    await plugins.start(nodes)
    try:
        plugins.arrival("n1", [CARD])
        await plugins.run(["n1"])
        yield
    finally:
        await plugins.stop()


def test_a_plugin_finds_what_it_needs_and_tells_its_shares(
    plugins: Callable[..., HamiPlugins], fake: str, workspace: Path
) -> None:
    nodes, made = Nodes(), plugins(fake)

    async def run() -> None:
        async with started(made, nodes):
            seen = json.loads((workspace / "lanes" / "1" / "tmp" / "seen").read_text())
            assert seen["config"] == {
                "name": "n1", "operatingmode": "hami-core", "devicesplitcount": 3, "devicecorescaling": 1.0,
            }  # fmt: skip
            assert seen["arguments"] == ["--config-file=/hami/node/device-config.yaml", "-v=4"]
            assert (seen["node"], seen["library"], seen["numa"]) == ("n1", True, "1\n")
            assert (
                seen["fleet"]
                == f"gpu {CARD.id} bus=0000:01:00.0 mem=4096 used=512 util=20 memutil=10 name=NVIDIA A10\n"
            )
            (cluster,) = seen["kubeconfig"]["clusters"]
            assert cluster["cluster"] == {
                "server": "https://127.0.0.1:1", "certificate-authority-data": "Y2VydGlmaWNhdGU=",
            }  # fmt: skip
            assert (await made.allocate("n1", {}, ["card-0"])).env == {"NVIDIA_VISIBLE_DEVICES": "card"}
            await made.configure("n1", {"devicesplitcount": 5})
            with pytest.raises(ValueError, match="unknown node-config key 'split'"):
                await made.configure("n1", {"split": 5})
            await made.remove(["n1"])

    asyncio.run(run())
    assert nodes.told == [("n1", 3), ("n1", 5)]
    assert nodes.removed == ["n1"]
    assert made._plugins == {}
    assert str(workspace) not in Path("/proc/self/mountinfo").read_text()
    assert plugins.lost == []  # type: ignore[attr-defined]


def test_one_that_is_killed_is_told_of_and_not_revived(plugins: Callable[..., HamiPlugins], fake: str) -> None:
    made = plugins(fake)

    async def run() -> None:
        async with started(made, Nodes()):
            process = made._plugins["n1"].process
            assert process is not None
            os.kill(process.pid, signal.SIGKILL)
            while not plugins.lost:  # type: ignore[attr-defined]
                await asyncio.sleep(0.01)
            with pytest.raises(AllocateError):
                await made.allocate("n1", {}, ["card-0"])
            with pytest.raises(ClusterUnavailable, match="was killed by SIGKILL"):
                await made.restart(["n1"])

    asyncio.run(run())
    assert plugins.lost[0].startswith("device-plugin of node n1: was killed by SIGKILL")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#!/bin/sh\necho no such flag >&2\nexit 2\n", "ended with exit code 2; its last lines: no such flag"),
        (
            "#!/bin/sh\necho thinking\nexec sleep 60\n",
            "no device list for kubelet within 1 s; its last lines: thinking",
        ),
    ],
    ids=["exits", "hangs"],
)
def test_one_that_does_not_serve_is_one_line(plugins: Callable[..., HamiPlugins], text: str, message: str) -> None:
    async def run() -> None:
        async with started(plugins(text, 0.05), Nodes()):
            pass

    with pytest.raises(ClusterUnavailable) as failed:
        asyncio.run(run())
    assert str(failed.value).startswith("device-plugin of node n1: ")
    assert message in str(failed.value)


@pytest.mark.parametrize(
    ("cards", "message"),
    [
        ([Device("card", 0, 3)], "GPU-8-4-4-4-12"),
        ([CARD, Device(CARD.id[:-1] + "6", 1, 4, devcore=100, mode="hami-core")], "one count for all cards, not 3, 4"),
    ],
)
def test_cards_that_a_plugin_cannot_have(
    plugins: Callable[..., HamiPlugins], cards: list[Device], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        plugins("").arrival("n1", cards)


def test_where_namespaces_are_forbidden_it_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, plugins: Callable[..., HamiPlugins]
) -> None:
    refusing = tmp_path / "bin" / "unshare"
    refusing.parent.mkdir()
    refusing.write_text("#!/bin/sh\necho unshare: unshare failed: Operation not permitted >&2\nexit 1\n")
    refusing.chmod(0o755)
    made = plugins("")
    monkeypatch.setenv("PATH", f"{refusing.parent}:{os.environ['PATH']}")
    with pytest.raises(ClusterUnavailable, match="unshare failed: Operation not permitted; run as root, or allow"):
        asyncio.run(made.start(Nodes()))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shutil.which("unshare") is None
    assert lanes.complaint(Lane(tmp_path / "lane")).startswith("no private mount namespace: no program unshare here")
