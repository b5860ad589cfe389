"""What an unpacked `transformers` says of model types, read as text and never imported.

Sources: `models/auto/modeling_auto.py`, tables `MODEL_..._MAPPING_NAMES` (model_type -> class);
`models/*/configuration_*.py`, attributes `model_type`, `sub_configs` (4.x) and
`sub_configs_defaults` (5.x); `PretrainedConfig.get_text_config`, which takes the one sub-config
of these names that is there, else the config itself.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path

TABLES = (
    "CAUSAL_LM",
    "IMAGE_TEXT_TO_TEXT",
    "VISION_2_SEQ",
    "MULTIMODAL_LM",
    "SPEECH_SEQ_2_SEQ",
    "PRETRAINING",
)
CAUSAL = "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"
SPECIAL = "SPECIAL_MODEL_TYPE_TO_MODULE_NAME"
TEXT_PARTS = ("text_encoder", "decoder", "generator", "text_config")


@lru_cache(maxsize=512)
def _tree(path: Path) -> ast.Module | None:
    try:
        return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


def _assigned(body: list[ast.stmt]) -> dict[str, ast.expr]:
    found: dict[str, ast.expr] = {}
    for statement in body:
        if isinstance(statement, ast.Assign):
            found |= {t.id: statement.value for t in statement.targets if isinstance(t, ast.Name)}
        elif (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and statement.value is not None
        ):
            found[statement.target.id] = statement.value
    return found


def _auto(folder: Path, file: str) -> dict[str, ast.expr]:
    tree = _tree(folder / "models" / "auto" / file)
    return _assigned(tree.body if tree else [])


def _pairs(node: ast.expr) -> list[tuple[str, str]]:
    """The (key, value) strings of `OrderedDict([(key, value), ...])`; several where a value is a
    tuple."""
    items = node.args[0] if isinstance(node, ast.Call) and node.args else node
    found = []
    for item in getattr(items, "elts", ()):
        parts: list[ast.expr] = list(getattr(item, "elts", ()))
        if len(parts) == 2 and isinstance(parts[0], ast.Constant):
            values = getattr(parts[1], "elts", [parts[1]])
            texts = [v.value for v in values if isinstance(v, ast.Constant)]
            found += [(str(parts[0].value), str(text)) for text in texts]
    return found


def classes(folder: Path) -> dict[str, list[str]]:
    """Class of a generating model -> the model types it stands for."""
    found: dict[str, list[str]] = {}
    for name, value in _auto(folder, "modeling_auto.py").items():
        if name.endswith("MAPPING_NAMES") and any(table in name for table in TABLES):
            for model_type, cls in _pairs(value):
                types = found.setdefault(cls, [])
                types += [model_type] if model_type not in types else []
    return found


def causal(folder: Path) -> dict[str, str]:
    """model_type -> the causal class, as vLLM looks it up for a config without architectures."""
    value = _auto(folder, "modeling_auto.py").get(CAUSAL)
    return dict(_pairs(value)) if value is not None else {}


def text_types(folder: Path, cls: str, model_types: list[str]) -> list[str | None]:
    """The model_type of the text config of each of a class's model types; None where the
    config.json decides it.  Of several types those count in whose module the class is defined."""
    own = [t for t in model_types if _defines(folder, t, cls)] or model_types
    return sorted({text_type(folder, t) for t in own}, key=str)


def text_type(folder: Path, model_type: str) -> str | None:
    """The model_type of `config.get_text_config()`, None where the config.json decides it or the
    class is not found."""
    for path in sorted((folder / "models" / _module(folder, model_type)).glob("configuration_*")):
        tree = _tree(path)
        for node in tree.body if tree else ():
            if isinstance(node, ast.ClassDef) and not node.name.endswith("VisionConfig"):
                value = _assigned(node.body).get("model_type")
                if isinstance(value, ast.Constant) and value.value == model_type:
                    return _text_type(path, node)
    return None


def _text_type(path: Path, node: ast.ClassDef) -> str | None:
    parts = _sub_configs(path, node)
    names = [name for name in TEXT_PARTS if name in parts]
    overrides = any(getattr(s, "name", None) == "get_text_config" for s in node.body)
    if overrides and "thinker_config" in parts:
        names = ["thinker_config"]
    elif overrides or len(names) > 1:
        return None
    if not names:
        own = _attribute(path, node, "model_type")
        holds = any(
            isinstance(n, ast.Attribute)
            and n.attr == "text_config"
            and isinstance(n.ctx, ast.Store)
            for n in ast.walk(node)
        )
        return str(own.value) if isinstance(own, ast.Constant) and not holds else None
    found = _find(path, parts[names[0]])
    return _text_type(*found) if found else None


def _sub_configs(path: Path, node: ast.ClassDef) -> dict[str, str]:
    """Name of a sub-config -> its class; of 5.x's `SubConfigSpec` the `config_class`."""
    value = _attribute(path, node, "sub_configs_defaults") or _attribute(path, node, "sub_configs")
    if not isinstance(value, ast.Dict):
        return {}
    found = {}
    for key, item in zip(value.keys, value.values, strict=True):
        if isinstance(item, ast.Call):
            kept = [k.value for k in item.keywords if k.arg == "config_class"]
            item = kept[0] if kept else item
        if isinstance(key, ast.Constant):
            found[str(key.value)] = ast.unparse(item)
    return found


def _attribute(path: Path, node: ast.ClassDef, name: str) -> ast.expr | None:
    """The value a class or a base of it gives to an attribute."""
    own = _assigned(node.body).get(name)
    if own is not None:
        return own
    for base in node.bases:
        found = _find(path, ast.unparse(base))
        if found and found[1] is not node:
            value = _attribute(*found, name)
            if value is not None:
                return value
    return None


def _find(path: Path, name: str) -> tuple[Path, ast.ClassDef] | None:
    """The class of this name in the file, or where the file imports it from."""
    tree = _tree(path)
    for node in tree.body if tree else ():
        if isinstance(node, ast.ClassDef) and node.name == name:
            return path, node
    for node in tree.body if tree else ():
        if isinstance(node, ast.ImportFrom) and node.level and node.module:
            if not any(alias.name == name for alias in node.names):
                continue
            base = path.parents[node.level - 1].joinpath(*node.module.split("."))
            for file in (base.with_suffix(".py"), *sorted(base.glob("configuration_*.py"))):
                if file != path and file.is_file() and (found := _find(file, name)):
                    return found
    return None


@lru_cache(maxsize=2048)
def _module(folder: Path, model_type: str) -> str:
    """The folder of a model type below `models/`."""
    for file in ("configuration_auto.py", "auto_mappings.py"):
        special = _auto(folder, file).get(SPECIAL)
        pairs = dict(_pairs(special)) if special is not None else {}
        if model_type in pairs:
            return pairs[model_type]
    return model_type.replace("-", "_")


def _defines(folder: Path, model_type: str, cls: str) -> bool:
    files = (folder / "models" / _module(folder, model_type)).glob("modeling_*.py")
    return any(f"class {cls}(".encode() in file.read_bytes() for file in files)
