"""The heat map docs/supported.svg: architectures by releases, from the surveys."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from supported_text import Data, everything

CELL, ROW, NAME, GAP, BLOCKS = 15, 12, 172, 22, 4  # pixels; blocks stand side by side
TOP = 108
# Okabe and Ito's colours, which people of all colour visions tell apart; marks say it again.
LEGEND = {
    "native": "native: nothing to do",
    "opens": "opened by apply",
    "half": "native or opened, and the config names the language model",
    "refused": "refused, with a reason",
    "absent": "not in this release",
}
WORDS = {"closed": "opens"}
STYLE = """
text { font: 9px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #24292f }
.title { font-size: 15px; font-weight: 600 }
.head { font-size: 11px; font-weight: 600 }
.note { font-size: 10px }
.native { fill: #0072b2 }
.opens { fill: #56b4e9 }
.refused { fill: #d55e00 }
.absent { fill: #8c959f; fill-opacity: .14 }
.mark { stroke: #fff; stroke-width: 1.4; fill: none }
.proved { fill: #10273a }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } }
"""


def picture(data: Data, engine: Collection[str]) -> str:
    """The SVG's text; `engine`: the architectures that a real engine has shown."""
    rows: list[tuple[str, str | None]] = []  # heading or architecture
    kind = ""
    for group, name in everything(data):
        if group != kind:
            kind = group
            rows.append((f"{group.capitalize()} models", None))
        rows.append((name, group))
    height = -(-len(rows) // BLOCKS)
    step = NAME + CELL * len(data) + GAP
    parts = [_legend(bool(engine))]
    for block in range(BLOCKS):
        left = 16 + block * step
        for i, version in enumerate(data):
            x, y = left + NAME + CELL * i + CELL * 0.7, TOP - 5
            parts.append(f'<text transform="translate({x:g} {y}) rotate(-60)">{version}</text>')
        for at, (name, group) in enumerate(rows[block * height : (block + 1) * height]):
            y = TOP + at * ROW
            if group is None:
                parts.append(f'<text class="head" x="{left}" y="{y + 9}">{name}</text>')
                continue
            parts.append(f'<text x="{left}" y="{y + 9}">{_short(name)}</text>')
            for i, (version, known) in enumerate(data.items()):
                shown = version == "0.32.0" and name in engine
                label = f"{name}, vLLM {version}"
                parts.append(_cell(left + NAME + CELL * i, y, known.get(name), label, shown))
    width, bottom = 16 + BLOCKS * step, TOP + height * ROW + 16
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom}" '
    head += f'width="{width}" height="{bottom}" role="img" aria-label="EAGLE-3 support">'
    return f"{head}\n<style>{STYLE}</style>\n" + "\n".join(parts) + "\n</svg>\n"


def _short(name: str) -> str:
    """The name, its usual endings in short: the column is narrow."""
    name = name.replace("ForConditionalGeneration", "…CondGen").replace("ForCausalLM", "…LM")
    return name if len(name) <= 32 else f"{name[:31]}…"


def _cell(x: float, y: float, facts: Mapping[str, Any] | None, label: str, shown: bool) -> str:
    w, h = CELL - 2, ROW - 2
    if facts is None:
        return f'<rect class="absent" x="{x:g}" y="{y:g}" width="{w}" height="{h}"/>'
    state = WORDS.get(facts["state"], facts["state"])
    rect = f'<rect class="{state}" x="{x:g}" y="{y:g}" width="{w}" height="{h}">'
    rect += f"<title>{label}: {state}</title></rect>"
    if state == "refused":
        rect += f'<path class="mark" d="M{x + 4:g} {y + 2.5:g}l5 5m0 -5l-5 5"/>'
    elif "language-model" in facts.get("config", ()):
        rect += f'<path class="mark" d="M{x + 1.5:g} {y + h - 1:g}l{w - 3} -{h - 2}"/>'
    if shown:
        rect += f'<circle class="proved" cx="{x + w / 2:g}" cy="{y + h / 2:g}" r="2.4"/>'
    return rect


def _legend(engine: bool) -> str:
    parts = ['<text class="title" x="16" y="24">EAGLE-3 for every architecture of vLLM</text>']
    x = 16.0
    samples: dict[str, Mapping[str, Any] | None] = {
        "native": {"state": "native"},
        "opens": {"state": "closed"},
        "half": {"state": "closed", "config": ["language-model"]},
        "refused": {"state": "refused"},
        "absent": None,
    }
    for key, words in LEGEND.items():
        parts.append(_cell(x, 38, samples[key], words, False))
        parts.append(f'<text class="note" x="{x + 18:g}" y="47">{words}</text>')
        x += 36 + 5.3 * len(words)
    words = "…LM is ForCausalLM, …CondGen is ForConditionalGeneration"
    parts.append(f'<text class="note" x="16" y="64">{words}</text>')
    if engine:
        parts.append(_cell(x, 38, samples["opens"], "proved on the engine", True))
        parts.append(f'<text class="note" x="{x + 18:g}" y="47">proved on the engine</text>')
    return "\n".join(parts)
