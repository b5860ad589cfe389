"""Writes vllm_eagle3_patches/data/model_types.json from public transformers wheels.

    pip download --no-deps -d wheels transformers==4.57.6; the same for 5.3.0 and 5.24.0
    python tools/make_model_types.py wheels/transformers-{4.57.6,5.3.0,5.24.0}-*.whl

Facts only: which model_type a class stands for, and which the text part of its config has.
A later wheel adds to an earlier one; where a class's types differ, all are kept.
"""

from __future__ import annotations

import json
import sys
import tempfile
import zipfile
from pathlib import Path

from vllm_eagle3_patches import transformers_names as names

DATA = Path(__file__).parents[1] / "vllm_eagle3_patches" / "data" / "model_types.json"


def facts(wheels: list[Path]) -> dict[str, object]:
    """from: what was read; architectures: class -> model types of its text config; text:
    model_type -> that of its text config where it is another; causal: model_type -> class."""
    architectures: dict[str, set[str]] = {}
    text: dict[str, str] = {}
    causal: dict[str, str] = {}
    for wheel in wheels:
        with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
            wanted = [n for n in archive.namelist() if n.startswith("transformers/models/")]
            archive.extractall(folder, wanted)
            root = Path(folder) / "transformers"
            for cls, types in names.classes(root).items():
                found = names.text_types(root, cls, types)
                if None not in found:
                    architectures.setdefault(cls, set()).update(t for t in found if t)
                for model_type in types:
                    own = names.text_type(root, model_type)
                    if own is not None and own != model_type:
                        text[model_type] = own
            causal |= names.causal(root)
    return {
        "from": [wheel.name.rsplit("-py3", 1)[0] for wheel in wheels],
        "architectures": {cls: sorted(types) for cls, types in sorted(architectures.items())},
        "text": dict(sorted(text.items())),
        "causal": dict(sorted(causal.items())),
    }


def written(found: dict[str, object]) -> str:
    """One line for each fact."""
    parts = []
    for key, value in found.items():
        if isinstance(value, dict):
            rows = ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items())
            parts.append(f"{json.dumps(key)}: {{\n{rows}\n}}")
        else:
            parts.append(f"{json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    DATA.write_text(written(facts([Path(name) for name in sys.argv[1:]])))
