"""The language model of a wrapper that its config decides, read as the installed vLLM would.

A wrapper builds it by `init_vllm_registered_model(hf_config=config.text_config)`.  The class is
named by `architectures`: given in the call, set on the text config by the wrapper, standing in
the config.json, or else the causal class that transformers has for its model_type
(`VllmConfig.with_hf_config`, 0.18.0 on).  What the config.json calls the text part differs:
vLLM's `_CONFIG_ATTRS_MAPPING` renames llm_config, its DeepseekVLV2Config takes language_config,
and Qwen's omni models have theirs within thinker_config.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from vllm_eagle3_patches import model_types, registry
from vllm_eagle3_patches.preflight.expressions import Expressions, truth
from vllm_eagle3_patches.preflight.values import UNKNOWN, Bag
from vllm_eagle3_patches.sources import ClassSite, Sources, bases
from vllm_eagle3_patches.structure import BY_CONFIG

TEXT = ("text_config", "llm_config", "language_config")


def text_part(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The part of a config.json that `get_text_config()` gives, None where it is all text."""
    thinker = config.get("thinker_config")
    if isinstance(thinker, dict):
        return text_part(thinker)
    return next((config[key] for key in TEXT if isinstance(config.get(key), dict)), None)


def architecture(sources: Sources, top: ClassSite, config: Mapping[str, Any]) -> str | None:
    """The architecture of the wrapper's language model, a registered one where there is one;
    None where the config.json and the wrapper's code do not tell for certain."""
    part = text_part(config)
    if part is None:
        return None
    given = _given(sources, top, config, part)
    if not isinstance(given, list):
        return None
    names = [name for name in given if isinstance(name, str)]
    model_type = part.get("model_type")
    if not names and isinstance(model_type, str):
        known = model_types.causal_class(sources, model_type)
        names = [known] if known else []
    entries = registry.read(sources)
    return next((name for name in names if name in entries), names[0] if names else None)


def _given(
    sources: Sources, top: ClassSite, config: Mapping[str, Any], part: Mapping[str, Any]
) -> object:
    """The `architectures` the language model is built with, [] where it has none; UNKNOWN where
    that is not certain."""
    for owner in bases(sources, top):
        for method in owner.node.body:
            if isinstance(method, ast.FunctionDef) and any(_calls(method)):
                return _Reader(config, part).read(method)
    return UNKNOWN


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    for found in ast.walk(node):
        if (
            isinstance(found, ast.Call)
            and isinstance(found.func, ast.Name)
            and found.func.id in BY_CONFIG
        ):
            yield found


class _Reader(Expressions):
    """Follows a method up to the call that builds the language model."""

    def __init__(self, config: Mapping[str, Any], part: Mapping[str, Any]) -> None:
        self.text = Bag({"architectures": None, **part})
        self.whole = _bag(config, part, self.text)
        model_config = Bag({"hf_config": self.whole, "hf_text_config": self.text})
        super().__init__(
            {
                "config": self.whole,
                "self": Bag({"config": self.whole}),
                "vllm_config": Bag({"model_config": model_config}),
            }
        )

    def read(self, method: ast.FunctionDef) -> object:
        found = self._run(method.body)
        return UNKNOWN if found is None else found

    def _run(self, body: list[ast.stmt]) -> object | None:
        """What the first call in these statements gives; None where they have none."""
        for statement in body:
            found: object | None = None
            if isinstance(statement, ast.If):
                sure = truth(self.value(statement.test))
                if sure is None:
                    found = self._unsure(statement)
                else:
                    found = self._run(statement.body if sure else statement.orelse)
            elif isinstance(statement, ast.With):
                found = self._run(statement.body)
            elif call := next(_calls(statement), None):
                return self._architectures(call)
            elif isinstance(statement, ast.Assign):
                value = self.value(statement.value)
                for target in statement.targets:
                    self.bind(target, value)
            elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
                self.bind(statement.target, self.value(statement.value))
            if found is not None:
                return found
        return None

    def _unsure(self, statement: ast.If) -> object | None:
        """A condition that is not known: what it may assign is not known either."""
        if any(_calls(statement)):
            return UNKNOWN
        for node in ast.walk(statement):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self.bind(target, UNKNOWN)
        return None

    def _architectures(self, call: ast.Call) -> object:
        """The call's own architectures, or those of the text config that is handed over."""
        keywords = {k.arg: k.value for k in call.keywords}
        config, named = keywords.get("hf_config"), keywords.get("architectures")
        view = keywords.get("vllm_config")
        if isinstance(view, ast.Call) and ast.unparse(view.func).endswith(".with_hf_config"):
            inner = {k.arg: k.value for k in view.keywords}
            config = inner.get("hf_config") or (view.args[0] if view.args else None)
            named = inner.get("architectures") or (view.args[1] if len(view.args) > 1 else None)
        own = self.value(named) if named is not None else None
        if own is None:
            same = config is not None and self.value(config) is self.text
            own = self.text.get("architectures") if same else UNKNOWN
        return [] if own is None else own

    def _call(self, node: ast.Call) -> object:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "get_text_config":
            return self.text if self.value(node.func.value) is self.whole else UNKNOWN
        return UNKNOWN


def _bag(config: Mapping[str, Any], part: Mapping[str, Any], text: Bag) -> Bag:
    """The config as an object; its text part by its own name, and as `text_config`."""
    found: dict[str, object] = {key: text if v is part else v for key, v in config.items()}
    if isinstance(config.get("thinker_config"), dict):
        found["thinker_config"] = _bag(config["thinker_config"], part, text)
    return Bag({**found, "text_config": text})
