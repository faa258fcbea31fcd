"""Asks for known vulnerabilities of every package that is locked, for all systems at once.

Exit code 0: all were asked about, and nothing is known. 1: something is known. 2: not all could be
asked about, so that nothing is proved. pip-audit alone ends with 0 where a service knows none of
the packages, and with 1 where there is no network.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.requirements import Requirement

CLEAN, FOUND, NOT_ASKED = range(3)


def locked(files: list[Path]) -> dict[str, set[str]]:
    """Returns the versions of every package in lock files. One that depends on Python's version has
    several.
    """
    versions: dict[str, set[str]] = {}
    for file in files:
        for line in file.read_text("utf-8").splitlines():
            if line and not line.startswith((" ", "#")):
                requirement = Requirement(line.removesuffix("\\"))
                (pin,) = requirement.specifier
                versions.setdefault(requirement.name, set()).add(pin.version)
    return versions


def ask(pins: list[str]) -> list[dict]:
    """Returns what pip-audit reports of packages, one version of each, or nothing where it could
    not ask.
    """
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder, "asked.txt")
        asked.write_text("\n".join(pins), encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "pip_audit",
            "--disable-pip",
            "--no-deps",
            "--progress-spinner",
            "off",
        ]
        answer = subprocess.run(
            [*command, "--format", "json", "-r", asked], capture_output=True, text=True, check=False
        )
    if not answer.stdout:
        print(answer.stderr[-500:])
        return []
    return json.loads(answer.stdout)["dependencies"]


def report(versions: dict[str, set[str]], ask=ask) -> int:
    """Prints what is known of the packages and returns the exit code."""
    waiting = sorted((name, version) for name in versions for version in versions[name])
    asked, found = 0, 0
    while waiting:
        turn = dict(waiting)  # pip-audit takes one version of a package at a time
        waiting = [pin for pin in waiting if pin not in turn.items()]
        for package in ask([f"{name}=={version}" for name, version in turn.items()]):
            asked += "vulns" in package
            for known in package.get("vulns", []):
                found += 1
                repaired = ", ".join(known["fix_versions"]) or "no version yet"
                print(
                    f"{package['name']} {package['version']}: {known['id']}, repaired in {repaired}"
                )
    wanted = sum(map(len, versions.values()))
    if asked < wanted:
        print(
            f"The vulnerability service answered for {asked} of {wanted} packages. All must be "
            "asked about. Run this where there is a network."
        )
    else:
        print(f"{wanted} packages asked about, {found} known vulnerabilities.")
    return FOUND if found else NOT_ASKED if asked < wanted else CLEAN


if __name__ == "__main__":
    files = Path(__file__).parent.glob("*.txt")
    sys.exit(
        report(locked([file for file in files if file.stem != "lowest"]))
    )  # nobody is given the oldest versions
