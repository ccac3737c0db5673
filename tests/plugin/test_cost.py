"""Installed and unused, the plugin imports nothing beyond the standard library and pytest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROBE = """
import sys, pytest

class Names:
    def pytest_unconfigure(self):
        names = {name.split(".")[0] for name in sys.modules}
        known = set(sys.stdlib_module_names) | {"_pytest", "pytest", "py", "pluggy", "iniconfig", "packaging", "pygments"}
        print("IMPORTED", sorted(name for name in names - known if not name.startswith(("_", "test_"))))
        print("OURS", sorted(name for name in sys.modules if name.startswith("pytest_hami")))

sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-p", "pytest_hami.plugin"], plugins=[Names()]))
"""


def test_an_unused_plugin_imports_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_plain.py").write_text("def test_plain():\n    pass\n")
    done = subprocess.run(
        [sys.executable, "-c", PROBE], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    lines = dict(line.split(" ", 1) for line in done.stdout.splitlines() if line.startswith(("IMPORTED", "OURS")))
    assert lines["IMPORTED"] == "['pytest_hami']"
    assert lines["OURS"] == str(
        ["pytest_hami", "pytest_hami.checks", "pytest_hami.fixtures", "pytest_hami.plugin", "pytest_hami.settings"]
    )
