import ast
import os
from pathlib import Path

import pytest
from real import (
    CLOSED,
    DEEPSEEK,
    DEEPSEEK_FILE,
    DEEPSEEK_V32,
    KIMI,
    KIMI_FILE,
    NATIVE,
    WITH_KIMI,
    sources,
    text,
)

from vllm_eagle3_patches.errors import IntegrityError, RefusedError
from vllm_eagle3_patches.sources import (
    BOM,
    ClassSite,
    Sources,
    _may_name_a_class,
    _named,
    bases,
    decode,
    encode,
    find_classes,
    module_path,
    sha256,
)

FILE = "vllm/a.py"


def laid(root: Path, **files: str) -> Sources:
    """Sources with these modules of package `vllm`; `b__c` is `vllm/b/c.py`."""
    for name, content in files.items():
        path = root / "vllm" / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return Sources(root)


@pytest.mark.parametrize("data", [b"x = 1\r\n", b"x = 1", BOM + b"x = 1\n", b"", BOM])
def test_decode_and_encode_are_inverse(data: bytes) -> None:
    decoded = decode(data, FILE)
    assert not decoded.startswith("\ufeff")
    assert encode(decoded, like=data) == data


def test_decode_refuses_what_is_not_utf8() -> None:
    with pytest.raises(RefusedError, match="not UTF-8") as raised:
        decode(b"x = '\xff'", FILE)
    assert raised.value.where == FILE


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    os.mkfifo(tmp_path / FILE)
    with pytest.raises(IntegrityError, match="not a regular file"):
        Sources(tmp_path).data(FILE)


def test_a_file_is_read_once(tmp_path: Path) -> None:
    where = laid(tmp_path, a="x = 1\n")
    assert where.data(FILE) == b"x = 1\n"
    (tmp_path / FILE).write_text("x = 2\n")
    assert where.data(FILE) == b"x = 1\n"
    assert where.tree(FILE) is where.tree(FILE)


def test_an_overlay_hides_the_file_and_leaves_it_alone(tmp_path: Path) -> None:
    where = laid(tmp_path, a="x = 1\n")
    over = where.with_overlay({FILE: b"x = 2\n", "vllm/new.py": b""})
    assert over.data(FILE) == b"x = 2\n"
    assert over.exists("vllm/new.py") and not where.exists("vllm/new.py")
    assert over.with_overlay({"vllm/new.py": b"y"}).data(FILE) == b"x = 2\n"
    assert (tmp_path / FILE).read_bytes() == where.data(FILE) == b"x = 1\n"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    where = Sources(tmp_path)
    assert not where.exists(FILE)
    with pytest.raises(IntegrityError, match="missing") as raised:
        where.data(FILE)
    assert raised.value.where == str(tmp_path / FILE)
    laid(tmp_path, a="")
    assert not Sources(tmp_path).exists("vllm/a.py/b.py")


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir(parents=True)
    with pytest.raises(IntegrityError, match="not a regular file") as raised:
        Sources(tmp_path).data(FILE)
    assert raised.value.where == str(tmp_path / FILE)


@pytest.mark.parametrize(
    "content",
    [b"def f(:\n", b"x = 1\0\n", b"x = '\xff'\n", b"\tx\n  y\n", b"(" * 300 + b")" * 300],
)
def test_what_is_not_python_is_refused(tmp_path: Path, content: bytes) -> None:
    where = Sources(tmp_path, {FILE: content})
    with pytest.raises(RefusedError, match=r"not valid Python|not UTF-8") as raised:
        where.tree(FILE)
    assert FILE in str(raised.value.where)


@pytest.mark.parametrize("depth", [5_000, 100_000])
def test_what_is_nested_too_deeply_is_refused(tmp_path: Path, depth: int) -> None:
    where = Sources(tmp_path, {FILE: b"x = " + b"not " * depth + b"1\n"})
    with pytest.raises(RefusedError, match="not valid Python"):
        where.tree(FILE)


def test_the_line_of_a_syntax_error_is_named(tmp_path: Path) -> None:
    with pytest.raises(RefusedError) as raised:
        Sources(tmp_path, {FILE: b"x = 1\ny = = 2\n"}).tree(FILE)
    assert str(raised.value.where).endswith(f"{FILE}:2")


def test_the_fingerprint_is_of_what_was_read(tmp_path: Path) -> None:
    def fingerprint(where: Sources, *paths: str) -> str:
        for path in paths:
            where.exists(path)
        return where.fingerprint()

    def fresh(**overlay: bytes) -> Sources:
        return Sources(tmp_path, {f"vllm/{name}.py": data for name, data in overlay.items()})

    first = fingerprint(fresh(a=b"1", b=b"2"), "vllm/a.py", "vllm/b.py")
    assert fingerprint(fresh(a=b"1", b=b"2"), "vllm/b.py", "vllm/a.py") == first
    others = [
        fingerprint(fresh(a=b"1", b=b"2"), "vllm/a.py"),
        fingerprint(fresh(a=b"1", b=b"3"), "vllm/a.py", "vllm/b.py"),
        fingerprint(fresh(a=b"2", b=b"1"), "vllm/a.py", "vllm/b.py"),
        fingerprint(fresh(a=b"1"), "vllm/a.py", "vllm/b.py"),
        fingerprint(fresh(a=b"1", b=b""), "vllm/a.py", "vllm/b.py"),
        fresh().fingerprint(),
    ]
    assert len({first, *others}) == len(others) + 1


def test_sha256() -> None:
    assert sha256(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_class_site() -> None:
    (node,) = ast.parse("class A:\n    x = y = 1\n    z: int = 2\n    def f(self): ...\n").body
    assert isinstance(node, ast.ClassDef)
    site = ClassSite(FILE, node)
    assert (site.name, site.line) == ("A", 1)
    method = site.method("f")
    assert method is not None and method.name == "f" and site.method("g") is None
    for name, value in {"x": "1", "y": "1", "z": "2"}.items():
        found = site.attribute(name)
        assert found is not None and ast.unparse(found) == value
    assert site.attribute("f") is None


def test_module_path_finds_modules_and_packages(tmp_path: Path) -> None:
    where = laid(tmp_path, a="", p____init__="")
    (tmp_path / "vllm/p").mkdir(exist_ok=True)
    (tmp_path / "vllm/p/__init__.py").write_text("")
    assert module_path(where, "vllm.a") == "vllm/a.py"
    assert module_path(where, "vllm.p") == "vllm/p/__init__.py"
    assert module_path(where, "vllm.q") is None
    assert module_path(where, "torch.nn") is None


def test_find_classes_follows_imports(tmp_path: Path) -> None:
    where = laid(
        tmp_path,
        a="from .b import B as A\nfrom vllm.b import C\nfrom torch import D\n",
        b="try:\n    from .c import B\nexcept ImportError:\n    pass\nclass C: ...\n",
        c="class B: ...\n",
    )
    assert [(s.path, s.name) for s in find_classes(where, FILE, "A")] == [("vllm/c.py", "B")]
    assert [(s.path, s.name) for s in find_classes(where, FILE, "C")] == [("vllm/b.py", "C")]
    assert find_classes(where, FILE, "D") == find_classes(where, FILE, "E") == []


def test_a_name_that_is_only_called_is_looked_up_without_a_tree(tmp_path: Path) -> None:
    where = laid(tmp_path, a="from vllm.b import make, A", b="def make(\n): ...\nclass A: ...")
    assert find_classes(where, FILE, "make") == []
    assert list(where._trees) == [FILE]
    assert where.asked_for() == [FILE, "vllm/b.py"]  # the answer rests on it all the same
    assert [site.path for site in find_classes(where, FILE, "A")] == ["vllm/b.py"]


@pytest.mark.parametrize(
    "text",
    [
        "class A: ...",
        "class A(B): ...",
        "class  A (B): ...",
        "from b import A",
        "from b import (\n    A\n)",
        "from b import A\n(c,) = (1,)",
        "from b import c as A",
        "A(1)\nfrom b import A, c",
    ],
)
def test_every_way_to_name_a_class_is_seen_in_the_text(text: str) -> None:
    assert _may_name_a_class(text.encode(), "A")


@pytest.mark.parametrize("version", ["0.10.1.1", "0.17.1", "0.32.0"])
def test_every_class_of_the_real_models_is_seen_in_the_text(version: str) -> None:
    where = sources(version)
    folder = where.root / "vllm/model_executor/models"
    for path in sorted(folder.glob("*.py"))[::3]:
        data = path.read_bytes()
        names = _named(ast.parse(data))
        assert [name for name in names if not _may_name_a_class(data, name)] == [], path


def test_find_classes_ends_where_imports_go_in_circles(tmp_path: Path) -> None:
    where = laid(tmp_path, a="from .b import A\n", b="from .a import A\n")
    assert find_classes(where, FILE, "A") == []


def test_find_classes_gives_each_platforms_class(tmp_path: Path) -> None:
    where = laid(
        tmp_path,
        a="if cuda:\n    from .b import A\nelif rocm:\n    from .c import A\nelse:\n"
        "    class A: ...\n",
        b="class A: ...\n",
        c="class A: ...\n",
    )
    found = [site.path for site in find_classes(where, FILE, "A")]
    assert found == ["vllm/b.py", "vllm/c.py", "vllm/a.py"]


def test_bases_nearest_first_each_once(tmp_path: Path) -> None:
    where = laid(
        tmp_path,
        a="from .b import P, Q\nclass A(nn.Module, P, Q[int], R): ...\nclass R(A): ...\n",
        b="class O: ...\nclass P(O): ...\nclass Q(O, Protocol): ...\n",
    )
    (site,) = find_classes(where, FILE, "A")
    assert [base.name for base in bases(where, site)] == ["A", "P", "O", "Q", "R"]


@pytest.mark.parametrize("version", CLOSED)
def test_the_real_causal_class_and_its_bases(version: str) -> None:
    (site,) = find_classes(sources(version), DEEPSEEK_FILE, DEEPSEEK)
    names = [base.name for base in bases(sources(version), site)]
    assert names[:2] == [DEEPSEEK, "DeepseekV2ForCausalLM"]
    assert "SupportsPP" in names and "SupportsEagle3" not in names


@pytest.mark.parametrize("version", WITH_KIMI)
def test_the_real_wrapper_and_its_bases(version: str) -> None:
    (site,) = find_classes(sources(version), KIMI_FILE, KIMI)
    assert "SupportsMultiModal" in {base.name for base in bases(sources(version), site)}


@pytest.mark.parametrize("version", [v for v in NATIVE if v > "0.28"])
def test_the_real_class_of_each_platform(version: str) -> None:
    path = module_path(sources(version), "vllm.models.deepseek_v32")
    assert path is not None
    found = {site.path for site in find_classes(sources(version), path, DEEPSEEK_V32)}
    assert {"vllm/models/deepseek_v32/nvidia/model.py", DEEPSEEK_FILE} <= found


def test_real_files_survive_decoding() -> None:
    data = sources("0.17.1").data(DEEPSEEK_FILE)
    assert encode(text("0.17.1", DEEPSEEK_FILE), like=data) == data
