import pytest
from real import DEEPSEEK_FILE, KIMI, class_in, edits, patched, swap, text

from vllm_eagle3_patches import proofs
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.gates.base import Edit

PATH = "vllm/a.py"
EDIT = Edit("e", "g", PATH, ("A",), "interface", {"cls": "A", "inner": "model"})
BEFORE = "import os\nimport sys\n\nclass A:\n    x = 1\n\ndef f():\n    return os\n"


def refused(reason: str) -> "pytest.RaisesExc[RefusedError]":
    return pytest.raises(RefusedError, match=reason)


@pytest.mark.parametrize("data", [b"x = 1\n", b"\xef\xbb\xbfx = 1\r\n", b"x = 1", b""])
def test_compiles(data: bytes) -> None:
    proofs.compiles(PATH, data)


@pytest.mark.parametrize(
    "data", [b"x = \n", b"return 1\n", b"x = '\xff'\n", b"x\0\n", b"def f(a, a): ...\n"]
)
def test_what_does_not_compile_is_refused(data: bytes) -> None:
    with refused("does not compile") as raised:
        proofs.compiles(PATH, data)
    assert raised.value.where == PATH


@pytest.mark.parametrize(
    "after",
    [
        BEFORE,
        BEFORE.replace("x = 1", "x = 2"),
        BEFORE.replace("import sys", "import sys\nfrom a import b"),
        BEFORE.replace("import os\nimport sys", "import sys\nimport os"),
        BEFORE.replace("def f():", "def f():  # why\n"),
    ],
)
def test_stays_in_scope(after: str) -> None:
    proofs.stays_in_scope(PATH, BEFORE, after, [EDIT])


@pytest.mark.parametrize(
    "after",
    [
        BEFORE.replace("return os", "return sys"),
        BEFORE.replace("class A", "class B"),
        BEFORE + "x = 1\n",
        BEFORE.replace("def f():\n    return os\n", ""),
    ],
)
def test_a_change_elsewhere_is_refused(after: str) -> None:
    with refused("reached beyond A"):
        proofs.stays_in_scope(PATH, BEFORE, after, [EDIT])


@pytest.mark.parametrize(
    ("after", "lost"),
    [
        (BEFORE.replace("import os\n", ""), "os"),
        (BEFORE.replace("import os", "import os as o"), "os"),
        (BEFORE.replace("import os\n", "def g():\n    import os\n\n"), None),
    ],
)
def test_a_lost_import_is_refused(after: str, lost: str | None) -> None:
    with refused(f"lost the import of {lost}" if lost else "reached beyond"):
        proofs.stays_in_scope(PATH, BEFORE, after, [EDIT])


@pytest.mark.parametrize(
    "addition",
    [
        "    y = os\n",
        "    y = f\n",
        "    y = len(x)\n",
        "    y = __name__\n",
        "    def g(self):\n        return [z for z in self.x if (w := z)]\n",
        "    def g(self, a):\n        return lambda b: (a, b, A)\n",
        "    def g(self):\n        import json\n        return json\n",
    ],
)
def test_names_that_are_bound(addition: str) -> None:
    after = BEFORE.replace("    x = 1\n", f"    x = 1\n{addition}")
    proofs.names_are_bound(PATH, BEFORE, after)


@pytest.mark.parametrize(
    "addition",
    [
        "    y: int = SimpleNamespace()\n",
        "    def g(self):\n        return SimpleNamespace()\n",
        "    def g(self):\n        return [SimpleNamespace for _ in self.x]\n",
        "    def g(self, a=SimpleNamespace): ...\n",
        "    def g(self) -> SimpleNamespace: ...\n",
        "    class B(SimpleNamespace): ...\n",
        "    def g(self):\n        import SimpleNamespace\n\n    y = lambda: SimpleNamespace\n",
    ],
)
def test_a_name_that_nothing_binds_is_refused(addition: str) -> None:
    after = BEFORE.replace("    x = 1\n", f"    x = 1\n{addition}")
    with refused("uses SimpleNamespace, which the file does not define"):
        proofs.names_are_bound(PATH, BEFORE, after)


def test_a_name_that_was_unbound_before_is_not_our_doing() -> None:
    before = BEFORE.replace("return os", "return unknown")
    proofs.names_are_bound(PATH, before, before.replace("x = 1", "x = 2"))


@pytest.mark.parametrize("version", ["0.10.2", "0.15.1", "0.17.1"])
def test_the_real_edits_settle(version: str) -> None:
    for path, after in patched(version).items():
        own = [edit for edit in edits(version).values() if edit.path == path]
        proofs.codemods_settled(path, text(version, path).encode(), after.encode(), own)


def test_a_result_that_a_second_run_would_change_is_refused() -> None:
    own = [edit for edit in edits("0.17.1").values() if edit.path == DEEPSEEK_FILE]
    before = text("0.17.1", DEEPSEEK_FILE)
    half = patched("0.17.1", "interface")[DEEPSEEK_FILE]
    with refused("a second run"):
        proofs.codemods_settled(DEEPSEEK_FILE, before.encode(), half.encode(), own)


def test_a_real_result_without_its_import_is_refused() -> None:
    edit = edits("0.15.1")["weight-sharing"]
    before = text("0.15.1", edit.path)
    after = patched("0.15.1", edit.name)[edit.path]
    with refused("uses SimpleNamespace"):
        proofs.names_are_bound(
            edit.path, before, swap(after, "from types import SimpleNamespace\n", "")
        )


def test_the_scopes_of_real_edits_are_classes_of_their_files() -> None:
    for version in ("0.10.1", "0.15.1", "0.17.1"):
        for edit in edits(version).values():
            for scope in edit.scopes:
                assert class_in(text(version, edit.path), scope).name == scope
    assert edits("0.17.1")["interface-wrapper"].scopes == (KIMI,)
