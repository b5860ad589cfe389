"""How long `rehearse` takes to a verdict on Kimi-K2.5's twin, and in how much memory.

Runs on the CPU engine of the engine tests (`make engine-setup` builds it). Beside the figure
stands what it replaces: a try with the real weights, 25 to 40 minutes until it has failed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
for folder in ("tests", "tests/engine"):
    sys.path.insert(0, str(ROOT / folder))

import environments  # noqa: E402
from preflight import published  # noqa: E402
from preflight.folders import write_model  # noqa: E402
from rehearsal import models  # noqa: E402

VERSION = "0.32.0"
TRY = (25 * 60, 40 * 60)  # seconds
ASKED, MEMORY = 60, 3  # seconds, GiB


def built() -> bool:
    """Whether the engine is there already; building it is no matter of a benchmark."""
    cache = environments.cache()
    stamps = (cache / "native.stamp", cache / "vllm" / f"{VERSION}.stamp")
    return all(stamp.is_file() for stamp in stamps)


def rehearse(folder: Path) -> dict[str, float]:
    """Seconds and peak bytes of one rehearsal, as it says itself, and whether it passed."""
    shapes = published.tensors(published.KIMI_MHA, models.KIMI_K25)
    target = write_model(folder / "target", models.KIMI_K25)
    drafter = write_model(folder / "drafter", published.KIMI_MHA, shapes)
    python = environments.python_of(environments.NATIVE)
    command = [sys.executable, "-m", "vllm_eagle3_patches", "rehearse", target, "--json", "--quiet"]
    done = subprocess.run(
        [*map(str, command), "--drafter", str(drafter), "--python", str(python)],
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{environments.stock(VERSION)}"},
        capture_output=True,
        text=True,
    )
    answer = json.loads(done.stdout)
    return {"exit": done.returncode, "seconds": answer["seconds"], "peak": answer["peak_bytes"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    print(f"\nrehearse, Kimi-K2.5's twin, vLLM {VERSION} on {os.cpu_count()} CPUs")
    if not built():
        print("  not measured: the engine is not built (make engine-setup)")
        return
    found = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            found.append(rehearse(Path(folder)))
    seconds = statistics.median(one["seconds"] for one in found)
    peak = max(one["peak"] for one in found) / 2**30
    passed = sum(one["exit"] == 0 for one in found)
    print(f"  verdict after {seconds:.0f} s (asked: {ASKED}), {passed} of {rounds} passed")
    print(f"  memory {peak:.1f} GiB at most (asked: {MEMORY})")
    low, high = (int(a / seconds) for a in TRY)
    print(f"  a try with the real weights takes 25 to 40 minutes: {low} to {high} times as long")


if __name__ == "__main__":
    main()
