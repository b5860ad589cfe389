"""The page docs/supported.md, from the surveys of some versions."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

Data = Mapping[str, Mapping[str, dict[str, Any]]]  # version -> architecture -> facts
STATES = ("native", "closed", "refused")
HEAD = """\
# What is supported

Made by `make docs` from the real sources of each release (`tools/make_supported.py`). It is what
`vllm-eagle3-patch check --all` says of a fresh installation.

![Every architecture in every release, as a heat map](supported.svg)

- **native**: this vLLM has EAGLE-3 for it; nothing is written.
- **opens**: `apply --model NAME` makes it work, and the proofs hold: the edited files compile,
  nothing beside the named classes changed, a second run changes nothing, and every gate passes.
- **native, claimed**: upstream's class claims it, and this tool could not read its decoder to see
  for itself (the models that vLLM runs with the code of transformers, above all).
- **+ config**: the config names the language model. The wrapper is native, or opens; the rest
  depends on the language model, which is an architecture of this table too.
- **refused**: nothing is written; the number is the reason below.
- `-`: this release does not have it.

Up to 0.21 vLLM keeps a list of model types beside the code, which the type has to join: from a
name alone it is looked up, and where nobody knows it, `--model DIR` is needed.

The last column says how an architecture that opens is proved: **engine** where a model of it was
booted on vLLM 0.32.0, drafted, and gave the right auxiliary states, else **structure**: by the
proofs named above.
"""


def everything(data: Data) -> list[tuple[str, str]]:
    """(kind, architecture) of all versions, text first, by name."""
    found = {(facts["kind"], name) for version in data.values() for name, facts in version.items()}
    latest = {name: kind for kind, name in sorted(found, reverse=True)}
    return sorted(((k, n) for n, k in latest.items()), key=lambda p: (p[0] != "text", p[1].lower()))


def reason(facts: Mapping[str, Any]) -> str:
    """Why, without the name of the class it was said of, and without places in files."""
    said = re.sub(r"^(not read: )?\w+(: | (?=holds|makes|does|runs))", "", facts["detail"])
    return re.sub(r" \(vllm/[^)]*\)$", "", str(said)).rstrip(":")


def page(data: Data, engine: Collection[str]) -> str:
    """`engine`: the architectures that a real engine has shown."""
    refused: dict[str, list[str]] = {}
    for version in data.values():
        for name, facts in version.items():
            if facts["state"] == "refused":
                names = refused.setdefault(reason(facts), [])
                if name not in names:
                    names.append(name)
    numbers = {why: i for i, why in enumerate(sorted(refused, key=_order(refused)), 1)}
    parts = [HEAD, _summary(data, engine)]
    for kind in ("text", "multimodal"):
        rows = [name for k, name in everything(data) if k == kind]
        title = "Text models" if kind == "text" else "Multimodal models"
        parts.append(f"## {title}\n\n{_table(data, rows, numbers, engine)}")
    parts.append("## Why some are refused\n")
    for why, number in numbers.items():
        parts.append(f"{number}. {why}: {', '.join(f'`{n}`' for n in sorted(refused[why]))}")
    return "\n".join(parts) + "\n"


def _order(refused: Mapping[str, list[str]]) -> Any:
    return lambda why: (-len(refused[why]), why)


def _summary(data: Data, engine: Collection[str]) -> str:
    lines = [
        "| vLLM | architectures | native | opens | refused | native or opens |",
        "|---|---|---|---|---|---|",
    ]
    for version, rows in data.items():
        counts = [sum(f["state"] == state for f in rows.values()) for state in STATES]
        share = f"{100 * (counts[0] + counts[1]) / len(rows):.1f} %"
        lines.append(f"| {version} | {len(rows)} | {' | '.join(map(str, counts))} | {share} |")
    return "\n".join(lines) + f"\n\nProved on the engine: {len(engine)} architectures.\n"


def _table(
    data: Data, names: list[str], numbers: Mapping[str, int], engine: Collection[str]
) -> str:
    lines = [f"| architecture | {' | '.join(data)} | proved by |", "|---" * (len(data) + 2) + "|"]
    for name in names:
        cells = [_cell(rows.get(name), numbers) for rows in data.values()]
        opens = any(rows.get(name, {}).get("state") == "closed" for rows in data.values())
        proof = "engine" if name in engine else "structure" if opens else ""
        lines.append(f"| {name} | {' | '.join(cells)} | {proof} |")
    return "\n".join(lines) + "\n"


def _cell(facts: Mapping[str, Any] | None, numbers: Mapping[str, int]) -> str:
    if facts is None:
        return "-"
    if facts["state"] == "refused":
        return f"refused ({numbers[reason(facts)]})"
    word = "native" if facts["state"] == "native" else "opens"
    if facts.get("claimed"):
        word += ", claimed"
    return f"{word} + config" if "language-model" in facts.get("config", ()) else word
