"""The one directory of a stack of real processes: everything is written there, and nothing of it outlives us."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from pytest_hami.cluster import reaper
from pytest_hami.cluster.base import ClusterUnavailable

PREFIX = "pytest-hami-stack-"
LOCK = "lock"
END_LIMIT = 10.0


class Workspace:
    """A private directory under the system's temporary one, with a lock that lives as long as we do.

    A reaper, a small process beside us, ends marked processes and removes the directory when we close it and when we are
    killed. What a killed reaper left is removed by the next workspace.
    """

    def __init__(self) -> None:
        """Raises ClusterUnavailable when there is no place for it."""
        remove_leftovers()
        try:
            self.directory = Path(tempfile.mkdtemp(prefix=PREFIX))
            self._lock = _locked(self.directory)
            self._reaper = subprocess.Popen(
                [sys.executable, "-I", "-S", reaper.__file__, str(os.getpid()), str(self.directory)],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise ClusterUnavailable(f"no place for a local cluster in {tempfile.gettempdir()}: {error}") from None
        (self.directory / "logs").mkdir()

    @property
    def environment(self) -> dict[str, str]:
        """The variables that mark a process as one of this stack."""
        return {reaper.MARK: str(self.directory)}

    def write(self, name: str, content: str | bytes) -> Path:
        """Write a file that only we can read, and return its path."""
        path = self.directory / name
        path.touch(mode=0o600)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def log(self, name: str) -> Path:
        """Return the path of a process's log."""
        return self.directory / "logs" / f"{name}.log"

    def close(self) -> None:
        """End what is left of the stack and remove the directory; safe to call twice."""
        if self._reaper.stdin is not None and not self._reaper.stdin.closed:
            self._reaper.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._reaper.wait(END_LIMIT)
            os.close(self._lock)


def remove_leftovers() -> None:
    """Remove the directories of stacks whose owner and reaper were both killed, and end their processes."""
    for directory in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        # Gone in between, or somebody else's.
        with contextlib.suppress(OSError):
            if directory.lstat().st_uid != os.geteuid() or directory.is_symlink():
                continue
            file = os.open(directory / LOCK, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                reaper.clear(directory)
            finally:
                os.close(file)


def _locked(directory: Path) -> int:
    """Return an open, locked file; it gets its name once it is locked, so that nobody finds it unlocked."""
    fresh = directory / f".{LOCK}"
    file = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(file, fcntl.LOCK_EX)
    fresh.rename(directory / LOCK)
    return file
