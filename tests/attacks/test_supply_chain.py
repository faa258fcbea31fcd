"""Somebody exchanges a package on its way to us: `make` refuses the file, and installs nothing that
is not locked.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def installations(target: str) -> list[list[str]]:
    """What follows `pip install` in every command that make would run on a new machine."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "--dry-run", "VENV=nowhere", target]
    shown = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    ).stdout
    lines = [shlex.split(line) for line in shown.splitlines() if " pip install " in line]
    return [words[words.index("install") + 1 :] for words in lines]


def wheel(folder: Path, content: str, requires: str = "") -> str:
    """Writes the wheel of a package with one module, and returns its digest."""
    info = "greeting-1.0.dist-info"
    with zipfile.ZipFile(folder / "greeting-1.0-py3-none-any.whl", "w") as file:
        file.writestr("greeting.py", content)
        file.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n{requires}"
        )
        file.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        file.writestr(f"{info}/RECORD", "")
    return hashlib.sha256((folder / "greeting-1.0-py3-none-any.whl").read_bytes()).hexdigest()


@pytest.mark.parametrize(
    "target", ["nowhere/.core", "nowhere/.spark", "nowhere/.supply", "nowhere/.lowest"]
)
def test_make_installs_locked_files_and_ourselves_and_nothing_else(target):
    commands = installations(target)
    ours = [words for words in commands if words[-2:] == ["-e", "."]]
    for words in commands:
        assert "--no-deps" in words
        if words in ours:
            assert "--no-build-isolation" in words
        else:
            assert {"--require-hashes", "--only-binary"} <= set(words)
            assert words[-2] == "-r"
            assert words[-1].startswith("requirements/")
    assert len(ours) == 1


def test_pip_refuses_a_file_with_another_digest_and_what_is_not_locked(tmp_path):
    digest = wheel(tmp_path, "print('hello')\n", requires="Requires-Dist: not-locked\n")
    lock = tmp_path / "lock.txt"
    lock.write_text(f"greeting==1.0 --hash=sha256:{digest}\n", encoding="utf-8")
    options = [
        word for word in installations("nowhere/.core")[1] if not word.startswith("requirements/")
    ]

    def install(folder: str) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--no-index",
            "--find-links",
            str(tmp_path),
        ]
        command += ["--target", str(tmp_path / folder), *options, str(lock)]
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("PIP_")
        }
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    good = install("good")
    assert good.returncode == 0, good.stderr
    assert (tmp_path / "good" / "greeting.py").exists()
    assert not (tmp_path / "good" / "not_locked").exists()
    wheel(tmp_path, "print('something else')\n")
    bad = install("bad")
    assert bad.returncode != 0
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in bad.stderr
    assert not (tmp_path / "bad" / "greeting.py").exists()
