"""Run the benchmarks by name, or all."""

from __future__ import annotations

import sys

from benchmarks import apiserver, checks, deviceplugin, plugin, stack

ALL = {
    "checks": checks.main, "plugin": plugin.main, "apiserver": apiserver.main, "stack": stack.main,
    "device-plugin": deviceplugin.main,
}  # fmt: skip


def main(names: list[str]) -> int:
    """Print the figures of the named benchmarks."""
    unknown = sorted(set(names) - set(ALL))
    if unknown:
        print(f"benchmarks: unknown name {unknown[0]!r}; known are {', '.join(ALL)}", file=sys.stderr)
        return 4
    for name in names or ALL:
        ALL[name]()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
