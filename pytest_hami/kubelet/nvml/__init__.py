"""Our stand-in for NVML: compiled on first use, and told by a file which cards there are."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from pytest_hami import resources
from pytest_hami.contract.register import Device
from pytest_hami.text import one_line

LIBRARY = "libnvidia-ml.so.1"
FLEET = "NVML_STUB_FLEET"
FLAGS = ("-O1", "-shared", "-fPIC", f"-Wl,-soname,{LIBRARY}", "-pthread")
COMPILE_LIMIT = 60.0


class NvmlUnavailable(Exception):
    """The stand-in cannot be compiled; the text is one line with the remedy."""


def library(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the compiled stand-in, from the user's cache or made now. Raises NvmlUnavailable."""
    source = files(__package__).joinpath("nvml.c").read_bytes()
    digest = hashlib.sha256(source + " ".join(FLAGS).encode()).hexdigest()[:12]
    path = resources.cache_directory(environ) / "nvml" / digest / LIBRARY
    if not path.is_file():
        _compile(source, path, environ)
    return path


def _compile(source: bytes, path: Path, environ: Mapping[str, str]) -> None:
    compiler = shutil.which("cc", path=environ.get("PATH"))
    if compiler is None:
        raise NvmlUnavailable(
            "no C compiler (cc) for our NVML stand-in: install one, such as Debian's gcc, or name a library with --hami-nvml"
        )
    # Another run may compile it too; whoever is last puts the same file there, whole.
    partial = path.with_name(f".{LIBRARY}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [compiler, *FLAGS, "-x", "c", "-o", str(partial), "-"],
            input=source, capture_output=True, timeout=COMPILE_LIMIT, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise NvmlUnavailable(f"{compiler} cannot compile our NVML stand-in: {one_line(done.stderr.decode())}")
        partial.replace(path)
    except subprocess.TimeoutExpired:
        raise NvmlUnavailable(f"{compiler}: our NVML stand-in is not compiled within {COMPILE_LIMIT:.0f} s") from None
    except OSError as error:
        raise NvmlUnavailable(f"{path}: cannot be made: {error.strerror}") from None
    finally:
        partial.unlink(missing_ok=True)


def bus_id(index: int) -> str:
    """Return the PCI address of a card, as it is spelled below /sys/bus/pci/devices.

    >>> bus_id(1)
    '0000:02:00.0'
    """
    return f"0000:{index + 1:02x}:00.0"


def staged_use(index: int) -> tuple[int, int, int]:
    """Return what the stand-in tells of a card: used MiB, percent of its time and of its memory controller's."""
    return 512 * (index + 1), 20 + index, 10 + index


def fleet_text(cards: Sequence[Device]) -> str:
    """Return the fleet file of these cards, by index: UUID, MiB and name are what NVML tells.

    >>> fleet_text([Device(id="GPU-a", devmem=40960, type="NVIDIA A10")])
    'gpu GPU-a bus=0000:01:00.0 mem=40960 used=512 util=20 memutil=10 name=NVIDIA A10\\n'
    """
    lines = []
    for card in sorted(cards, key=lambda card: card.index):
        used, util, memutil = staged_use(card.index)
        told = f"mem={card.devmem} used={used} util={util} memutil={memutil}"
        lines.append(f"gpu {card.id} bus={bus_id(card.index)} {told} name={card.type}\n")
    return "".join(lines)
