"""Whether a text of the signature table stands in vLLM's source: the check, not a test."""

from __future__ import annotations

import re
from pathlib import Path

PLACEHOLDER = re.compile(r"\{\w*\}")
JOINT = re.compile(r"""(?<!\\)(["'])(?=[\s+])[ \t]*(?:#[^\n]*)?\s*[\\+]?\s*[rf]{0,2}\1""")
SELF_NAMING = re.compile(r"\{([^{}!:=]+)=\}")
SPREAD = 400  # characters that may stand between two pieces of one text


def spoken(source: str) -> str:
    """The source with the joints of string literals taken out, as a message reads."""
    joined = JOINT.sub("", source)
    joined = SELF_NAMING.sub(r"\1={\1}", joined)
    return joined.replace("\\n", "\n").replace("\\'", "'").replace('\\"', '"')


def stands_in(text: str, source: str) -> bool:
    """All literal pieces of the text, in order and close together."""
    pieces = [re.escape(piece.strip("'")) for piece in PLACEHOLDER.split(text)]
    between = rf".{{0,{SPREAD}}}?"
    return re.search(between.join(filter(None, pieces)), source, re.DOTALL) is not None


def sources(tree: Path, names: list[str]) -> list[str]:
    return [spoken((tree / name).read_text()) for name in names if (tree / name).is_file()]


def wanted(record: dict[str, object]) -> str | None:
    """What to look for in the source: `in_source` where the log's text is not quoted as such."""
    if "in_source" in record:
        found = record["in_source"]
        return None if found is None else str(found)
    text = record.get("code") or record.get("text")
    return None if text is None else f"{text}{{}}{record.get('tail', '')}"
