"""The classes of a target: wrapper, language model, decoder; found by reading `__init__`.

A text model is a causal class whose `self.model` (or `self.transformer`, ...) is the decoder.  A
wrapper holds a causal class as its language model; in 0.15.x Kimi-K2.5 held a bare decoder beside
an `lm_head` of its own.  Where the config names the language model (`init_vllm_registered_model`
without `architectures`), the structure is open-ended until a config is given.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from vllm_eagle3_patches import backend, decoder, handover, registry
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.sources import (
    ClassSite,
    Sources,
    assigned,
    bases,
    default_of,
    find_classes,
    owner_of,
    walk,
)

BY_CONFIG = ("init_vllm_registered_model", "initialize_model")


@dataclass(frozen=True)
class Structure:
    """One way the target is built (one for each platform that has its own files).

    Attributes:
        top: the class the registry names.
        causal: the class whose `inner` attribute is the decoder, the same as `top` for a text
            model; None where a wrapper holds a bare decoder, or the config decides.
        decoder: the class whose `forward` runs the layers; None where the config decides.
        language: the wrapper's attribute for its language model; None for a text model.
        inner: the path from the causal class (from `top` where there is none) to its decoder.
        outer: the class that `inner` leads through, where its path has two steps (OPT, ChatGLM).
        bare: whether the drafter loader is given a decoder without `.model` as language model.
        unread: why nothing below `top` could be named, or None.
        chosen: the class of the language model that a config named, or None; another one may
            come beside it.
    """

    top: ClassSite
    causal: ClassSite | None
    decoder: ClassSite | None
    language: str | None = None
    inner: str = "model"
    outer: ClassSite | None = None
    bare: bool = False
    unread: str | None = None
    chosen: ClassSite | None = None

    @property
    def is_wrapper(self) -> bool:
        return self.language is not None

    @property
    def by_config(self) -> bool:
        return self.decoder is None and self.unread is None


def _stored(
    sources: Sources, site: ClassSite
) -> Iterator[tuple[str, ClassSite, ast.FunctionDef, ast.expr]]:
    """(attribute, owner, method, value) of each `self.x = value` in `__init__`, nearest first."""
    seen: set[str] = set()
    for owner in bases(sources, site):
        here: set[str] = set()
        for method in _makers(owner):
            for node in walk(method):
                if isinstance(node, ast.Assign):
                    pairs = [(t, node.value) for t in node.targets]
                elif isinstance(node, ast.AnnAssign) and node.value is not None:
                    pairs = [(node.target, node.value)]
                else:
                    continue
                for target, value in pairs:
                    if (
                        isinstance(target, ast.Attribute)
                        and isinstance(target.value, ast.Name)
                        and target.value.id == "self"
                        and target.attr not in seen
                    ):
                        here.add(target.attr)
                        yield target.attr, owner, method, value
        seen |= here


def _makers(owner: ClassSite) -> Iterator[ast.FunctionDef]:
    """`__init__`, and the private methods of the class that build it (`_build`, Inkling)."""
    init = owner.method("__init__")
    if init is not None:
        yield init
    build = owner.method("_build")
    if build is not None:
        yield build


class _Maker:
    """Which classes an expression in a method of a class can construct."""

    def __init__(self, sources: Sources, site: ClassSite) -> None:
        self.sources, self.site = sources, site
        self.by_config = False

    def classes(
        self, owner: ClassSite, method: ast.FunctionDef, value: ast.expr
    ) -> list[ClassSite]:
        """The classes; `by_config` is set where the config decides.

        Raises:
            RefusedError: an architecture is named that the registry lacks.
        """
        found: dict[tuple[str, str], ClassSite] = {}
        for site in self._expand(owner, method, value, 0):
            found[site.path, site.name] = site
        return list(found.values())

    def _expand(
        self, owner: ClassSite, method: ast.FunctionDef, value: ast.expr, depth: int
    ) -> Iterator[ClassSite]:
        if depth > 6:
            return
        if isinstance(value, ast.IfExp):
            yield from self._expand(owner, method, value.body, depth + 1)
            yield from self._expand(owner, method, value.orelse, depth + 1)
        elif isinstance(value, ast.Name):
            for given in assigned(method, value.id):
                yield from self._expand(owner, method, given, depth + 1)
        elif isinstance(value, ast.Call):
            yield from self._called(owner, method, value, depth)

    def _called(
        self, owner: ClassSite, method: ast.FunctionDef, call: ast.Call, depth: int
    ) -> Iterator[ClassSite]:
        func = call.func
        if isinstance(func, ast.Name) and func.id in BY_CONFIG:
            made = next((k.value for k in call.keywords if k.arg == "model_class"), None)
            if isinstance(made, ast.Name):  # Llama4
                yield from self._type_named(owner, method, made.id)
                return
            named = _architectures(call)
            entries = registry.read(self.sources)
            self.by_config = self.by_config or not named
            for name in named:
                if name not in entries:
                    where = f"{owner.path}:{call.lineno}"
                    raise RefusedError(f"the registry has no {name}", where=where)
                yield from registry.classes(self.sources, entries[name])
        elif isinstance(func, ast.Name):
            yield from self._type_named(owner, method, func.id)
        elif isinstance(func, ast.Attribute) and ast.unparse(func.value) == "self":
            for holder in bases(self.sources, self.site):
                attribute = holder.attribute(func.attr)
                if isinstance(attribute, ast.Name):
                    yield from find_classes(self.sources, holder.path, attribute.id)
                    return
                maker = holder.method(func.attr)
                if maker is not None:
                    for node in walk(maker):
                        if isinstance(node, ast.Return) and node.value is not None:
                            yield from self._expand(holder, maker, node.value, depth + 1)
                    return

    def _type_named(
        self, owner: ClassSite, method: ast.FunctionDef, name: str
    ) -> Iterator[ClassSite]:
        """A class by its name, or by a parameter's default that is a class."""
        if name == decoder.PLACEHOLDER:
            return
        direct = find_classes(self.sources, owner.path, name)
        if direct:
            yield from direct
            return
        default = default_of(method, name)
        for given in (*([default] if default is not None else []), *assigned(method, name)):
            if isinstance(given, ast.Name):
                yield from find_classes(self.sources, owner.path, given.id)


def _architectures(call: ast.Call) -> list[str]:
    for keyword in call.keywords:
        if keyword.arg == "architectures" and isinstance(keyword.value, ast.List):
            return [str(e.value) for e in keyword.value.elts if isinstance(e, ast.Constant)]
    return []


def _is_causal(sources: Sources, site: ClassSite) -> bool:
    return all(owner_of(sources, site, method) for method in ("compute_logits", "forward"))


def _runs_layers(sources: Sources, site: ClassSite) -> bool:
    return decoder.forward_with_loop(sources, site) is not None


def _called_in_forward(sources: Sources, site: ClassSite) -> set[str]:
    """The attributes X of `self.X(...)` and `self.X.y(...)` in forward."""
    owner = owner_of(sources, site, "forward")
    forward = owner.method("forward") if owner else None
    found = set()
    for node in walk(forward) if forward else ():
        if isinstance(node, ast.Call):
            parts = ast.unparse(node.func).split(".")
            if parts[0] == "self" and len(parts) > 1:
                found.add(parts[1])
    return found


def variants(sources: Sources, site: ClassSite) -> list[ClassSite]:
    """The classes of which a class's `__new__` makes one, by a table of its module (MiniCPMV); the
    class itself where it has none."""
    new = site.method("__new__")
    used = {n.id for n in ast.walk(new) if isinstance(n, ast.Name)} if new else set()
    for statement in sources.tree(site.path).body if new else ():
        value = getattr(statement, "value", None)
        targets = getattr(statement, "targets", [getattr(statement, "target", None)])
        names = {t.id for t in targets if isinstance(t, ast.Name)}
        if isinstance(value, ast.Dict) and names & used:
            found = [
                cls
                for item in value.values
                if isinstance(item, ast.Name)
                for cls in find_classes(sources, site.path, item.id)
            ]
            if len(found) == len(value.values):
                return found
    return [site]


def _with_place(error: RefusedError) -> str:
    return error.what if error.where is None else f"{error.what} ({error.where})"


def of_class(sources: Sources, top: ClassSite) -> Structure:
    """The structure of the target whose registered class is `top`, `unread` where the decoder
    cannot be named with certainty.

    Raises:
        RefusedError: a file is nested too deeply to be read.
    """
    try:
        if backend.runs(sources, top):
            return Structure(top, None, None, unread=backend.unread(sources, top))
        return _of_class(sources, top)
    except RefusedError as error:
        return Structure(top, None, None, unread=_with_place(error))
    except RecursionError:
        what = "a file of the target is nested too deeply to be read"
        raise RefusedError(what, where=top.path) from None


def with_language(sources: Sources, structure: Structure, site: ClassSite) -> Structure:
    """The structure of a wrapper whose language model is of this class, by its config."""
    inner = of_class(sources, site)
    if inner.is_wrapper:
        unread = f"its language model, {site.name}, is a wrapper too"
        return replace(structure, unread=unread, chosen=site)
    return replace(inner, top=structure.top, language=structure.language, chosen=site)


def _of_class(sources: Sources, top: ClassSite) -> Structure:
    """Raises RefusedError: the decoder cannot be named with certainty."""
    languages: list[tuple[str, list[ClassSite], bool]] = []
    decoders: list[tuple[str, list[ClassSite], ClassSite | None]] = []
    called = _called_in_forward(sources, top)
    for attribute, owner, method, value in _stored(sources, top):
        maker = _Maker(sources, top)
        found = maker.classes(owner, method, value)
        if maker.by_config or (found and all(_is_causal(sources, s) for s in found)):
            languages.append((attribute, found, maker.by_config))
        elif found and attribute in called:
            if all(_runs_layers(sources, s) for s in found):
                decoders.append((attribute, found, None))
            elif len(found) == 1 and (nested := _nested(sources, found[0])):
                decoders.append((f"{attribute}.{nested[0]}", nested[1], found[0]))
    where = f"{top.path}:{top.line}"
    if len(decoders) == 1 and not languages:
        attribute, found, outer = decoders[0]
        only = _one(found, top, attribute)
        bare = _gives_bare(sources, top)
        if attribute == "language_model":
            return Structure(top, None, only, attribute, attribute, bare=True)
        return Structure(top, top, only, None, attribute, outer, bare)
    if languages:
        names = {attribute for attribute, _, _ in languages}
        if len(names) != 1:
            raise RefusedError(
                f"{top.name} holds several models: {', '.join(sorted(names))}", where=where
            )
        attribute = names.pop()
        found = [site for _, sites, _ in languages for site in sites]
        if any(by_config for _, _, by_config in languages):
            return Structure(top, None, None, attribute)
        language = _one(found, top, attribute)
        inner = _of_class(sources, language)
        if inner.by_config:
            return Structure(top, None, None, attribute)
        return replace(inner, top=top, language=attribute)
    if not decoders:
        bare_ones = [
            attribute
            for attribute, owner, method, value in _stored(sources, top)
            if (found := _Maker(sources, top).classes(owner, method, value))
            and all(_runs_layers(sources, s) for s in found)
        ]
        raise RefusedError(
            f"{top.name} holds no decoder that is called in forward"
            + (f"; {', '.join(bare_ones)} run layers" if bare_ones else ""),
            where=where,
        )
    raise RefusedError(
        f"{top.name} runs several decoders: {', '.join(a for a, _, _ in decoders)}", where=where
    )


def _nested(sources: Sources, site: ClassSite) -> tuple[str, list[ClassSite]] | None:
    """The one attribute whose class runs the layers, where the class only hands its result on."""
    called = _called_in_forward(sources, site)
    found = [
        (attribute, classes)
        for attribute, owner, method, value in _stored(sources, site)
        if attribute in called
        and (classes := _Maker(sources, site).classes(owner, method, value))
        and all(_runs_layers(sources, s) for s in classes)
    ]
    return found[0] if len(found) == 1 and handover.changed(sources, site) is None else None


def _gives_bare(sources: Sources, top: ClassSite) -> bool:
    """Whether a class that holds its decoder itself gives it out as language model: a multimodal
    one does (`SupportsMultiModal.get_language_model`), unless its own method returns self."""
    if not is_multimodal(sources, top):
        return False
    owner = owner_of(sources, top, "get_language_model")
    method = owner.method("get_language_model") if owner else None
    return method is None or ast.unparse(method.body[-1]) != "return self"


def is_multimodal(sources: Sources, site: ClassSite) -> bool:
    return any(owner.name == "SupportsMultiModal" for owner in bases(sources, site))


def _one(found: list[ClassSite], site: ClassSite, attribute: str) -> ClassSite:
    unique = {(s.path, s.name): s for s in found}
    if len(unique) != 1:
        names = ", ".join(f"{s.path}:{s.name}" for s in unique.values())
        raise RefusedError(
            f"the class behind {site.name}.{attribute} is not certain: {names}",
            where=f"{site.path}:{site.line}",
        )
    return next(iter(unique.values()))
