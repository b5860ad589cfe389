"""What the commands cost, as ratios measured in one run; `make bench` prints them.

Everything is run in turn, round after round, so that a busy machine slows all alike. A figure is
the median over the rounds, a ratio the median of the rounds' own ratios. Nothing fails on them.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
VERSION = "0.17.1"
LISTED, SECONDS = "0.32.0", 20  # the release that check --all lists, and the limit for it
WALL, CPU, PEAK = range(3)  # seconds, seconds, KiB
NAMES = ("wall", "CPU", "peak memory")
BASELINE = "import argparse, importlib.metadata, json, hashlib, csv"
LIBCST = "import libcst, sys; [libcst.parse_module(open(p, 'rb').read()) for p in sys.argv[1:]]"
INSTALL = "import sys, wheels, pathlib; wheels.install(sys.argv[1], pathlib.Path(sys.argv[2]))"
# Runs a command from a small process, as the peak memory of a child begins with its parent's.
LAUNCH = """
import os, sys, time
quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
start = time.perf_counter()
process = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ, file_actions=quiet)
_, status, usage = os.wait4(process, 0)
wall, cpu = time.perf_counter() - start, usage.ru_utime + usage.ru_stime
print(wall, cpu, usage.ru_maxrss, os.waitstatus_to_exitcode(status))
"""
TOOL = (sys.executable, "-m", "vllm_eagle3_patches")


@dataclass
class Job:
    """One command to measure; `prepare` is run before each time, and not measured."""

    name: str
    command: Sequence[str]
    expected: int = 0
    prepare: Callable[[], object] = lambda: None
    stdin: Path = Path(os.devnull)
    environment: dict[str, str] = field(default_factory=dict)
    measured: list[tuple[float, ...]] = field(default_factory=list)

    def run(self) -> None:
        self.prepare()
        with self.stdin.open("rb") as stdin:
            done = subprocess.run(
                [sys.executable, "-I", "-S", "-c", LAUNCH, *self.command],
                env={**os.environ, **self.environment},
                stdin=stdin,
                stdout=subprocess.PIPE,
                check=True,
            )
        wall, cpu, peak, code = done.stdout.split()
        if int(code) != self.expected:
            raise SystemExit(f"{self.name}: exit {int(code)}, not {self.expected}")
        self.measured.append((float(wall), float(cpu), int(peak)))

    def median(self, what: int) -> float:
        return statistics.median(one[what] for one in self.measured)


@dataclass(frozen=True)
class Limit:
    """A limit that the issue sets for `job`, as a multiple of `base`."""

    job: Job
    base: Job
    what: int
    limit: float

    def ratio(self, what: int) -> float:
        pairs = zip(self.job.measured, self.base.measured, strict=True)
        return statistics.median(one[what] / other[what] for one, other in pairs)


def install(into: Path, version: str = VERSION) -> Path:
    """A private copy of the real wheel's sources."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    command = [sys.executable, "-c", INSTALL, version, str(into)]
    subprocess.run(command, env=environment, check=True)
    return into / "site-packages"


class Place:
    """A site-packages folder that `fresh` lays anew from the pristine one, as uv does: by hard
    links, which every command here breaks (`check` on the pristine one would tell)."""

    def __init__(self, pristine: Path, site: Path) -> None:
        self.pristine, self.site = pristine, site
        self.fresh()

    def fresh(self) -> None:
        shutil.rmtree(self.site, ignore_errors=True)
        shutil.copytree(self.pristine, self.site, copy_function=os.link)


def unpinned(site: Path, touched: Sequence[str]) -> None:
    """Another build: a comment at the end of each file that is edited, and RECORD says so."""
    [record] = site.glob("*.dist-info/RECORD")
    rows = record.read_text().splitlines(keepends=True)
    for relative in touched:
        data = (site / relative).read_bytes() + b"\n# Another build.\n"
        (site / relative).write_bytes(data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        own = [i for i, row in enumerate(rows) if row.startswith(f"{relative},")]
        rows[own[0]] = f"{relative},sha256={digest},{len(data)}\n"
    record.write_text("".join(rows))


def measure(folder: Path, rounds: int) -> tuple[list[Job], list[Limit]]:
    # As pip does when it installs the tool; baseline and libcst have their bytecode too.
    compiled = [sys.executable, "-m", "compileall", "-q", str(ROOT / "vllm_eagle3_patches")]
    subprocess.run(compiled, check=True)
    pristine = install(folder / "pristine")
    touched = [
        line.split("  ")[1]
        for line in (ROOT / "patches" / VERSION / "SHA256SUMS.before").read_text().splitlines()
    ]
    other = install(folder / "other")
    unpinned(other, touched)
    diff = folder / "diff"
    with diff.open("wb") as file:
        subprocess.run([*TOOL, "diff", "--site-packages", pristine], stdout=file, check=True)

    def tool(name: str, site: Path, *words: str, **rest: object) -> Job:
        return Job(name, [*TOOL, *words, "--site-packages", str(site)], **rest)  # type: ignore[arg-type]

    places = {
        name: Place(other if name == "codemods" else pristine, folder / name / "site-packages")
        for name in ("series", "codemods", "patch", "git")
    }
    series, codemods, patch, git = places.values()
    parsed = [str(other / relative) for relative in touched]
    baseline = Job("python, five imports", [sys.executable, "-c", BASELINE])
    check = tool("check", pristine, "check", expected=1)
    by_series = tool("apply, series", series.site, "apply", prepare=series.fresh)
    libcst = Job("libcst, parse once", [sys.executable, "-c", LIBCST, *parsed])
    by_codemods = tool("apply, codemods", codemods.site, "apply", prepare=codemods.fresh)
    jobs = [
        baseline,
        check,
        by_series,
        libcst,
        by_codemods,
        Job(
            "patch -p1",
            ["patch", "-p1", "--silent", "-d", str(patch.site)],
            prepare=patch.fresh,
            stdin=diff,
        ),
        Job(
            "git apply",
            ["git", "-C", str(git.site), "apply", "-"],
            prepare=git.fresh,
            stdin=diff,
            environment={"GIT_CEILING_DIRECTORIES": str(git.site.parent)},
        ),
    ]
    for job in jobs:  # once for the caches
        job.run()
        job.measured.clear()
    for _ in range(rounds):
        for job in jobs:
            job.run()
    for place in (patch, git):
        for relative in touched:
            if (place.site / relative).read_bytes() != (series.site / relative).read_bytes():
                raise SystemExit(f"{place.site / relative} is not what apply makes of it")
    return jobs, [
        Limit(check, baseline, WALL, 3),
        Limit(check, baseline, PEAK, 1.5),
        Limit(by_series, baseline, WALL, 5),
        Limit(by_codemods, libcst, WALL, 2.5),
    ]


def listing(folder: Path, rounds: int) -> Job:
    """Every architecture of a release: its limit is in seconds, and it takes too long to be run
    as often as the rest."""
    site = install(folder / "listed", LISTED)
    words = [*TOOL, "check", "--all", "--site-packages", str(site)]
    job = Job(f"check --all, {LISTED}", words)
    for _ in range(max(1, rounds // 4)):
        job.run()
    return job


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11, metavar="N")
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        jobs, limits = measure(Path(folder), rounds)
        listed = listing(Path(folder), rounds)
    print(f"vLLM {VERSION}, Python {sys.version.split()[0]}, median of {rounds} rounds\n")
    print(f"{'command':24} {'wall ms':>9} {'CPU ms':>9} {'peak MiB':>9}")
    for job in [*jobs, listed]:
        wall, cpu, peak = (job.median(what) for what in (WALL, CPU, PEAK))
        print(f"{job.name:24} {wall * 1000:9.0f} {cpu * 1000:9.0f} {peak / 1024:9.1f}")
    print(f"\n{'ratio':56} {'is':>6} {'limit':>6}")
    for limit in limits:
        name = f"{limit.job.name} / {limit.base.name}, {NAMES[limit.what]}"
        ratio = limit.ratio(limit.what)
        print(f"{name:56} {ratio:6.2f} {limit.limit:6.2f}{'  over' * (ratio > limit.limit)}")
        if limit.what == WALL:
            print(f"{'  its CPU time, for comparison':56} {limit.ratio(CPU):6.2f}")
    wall = listed.median(WALL)
    over = "  over" * (wall > SECONDS)
    print(f"{listed.name + ', wall seconds':56} {wall:6.2f} {SECONDS:6.2f}{over}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
