"""The command as a user runs it, on private copies of the real files that it looks at."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from wheels import tree

from vllm_eagle3_patches.cli.main import main

VERSION = "0.17.1"
KIMI = "KimiK25ForConditionalGeneration"
DEEPSEEK = "DeepseekV3ForCausalLM"
CONFIG = "vllm/config/speculative.py"
DECODER = "vllm/model_executor/models/deepseek_v2.py"
WRAPPER = "vllm/model_executor/models/kimi_k25.py"
LOADER = "vllm/v1/spec_decode/eagle.py"
TOUCHED = [CONFIG, DECODER, WRAPPER, LOADER]  # of Kimi-K2.5, as `sorted` puts them
RECEIPT = "eagle3-patch.json"
# Every file that a command reads for the targets in use here; test_the_copies_tell_the_same in
# cli/test_check.py holds this list to the whole package.
READ = [
    *TOUCHED,
    "vllm/__init__.py",
    "vllm/config/__init__.py",
    "vllm/model_executor/custom_op.py",
    "vllm/model_executor/layers/layernorm.py",
    "vllm/model_executor/layers/logits_processor.py",
    "vllm/model_executor/layers/vocab_parallel_embedding.py",
    "vllm/model_executor/models/deepseek_eagle3.py",
    "vllm/model_executor/models/interfaces.py",
    "vllm/model_executor/models/kimi_k25_vit.py",
    "vllm/model_executor/models/llama_eagle3.py",
    "vllm/model_executor/models/qwen3_eagle3.py",
    "vllm/model_executor/models/registry.py",
    "vllm/model_executor/models/utils.py",
    "vllm/model_executor/models/vision.py",
    "vllm/v1/attention/backends/mla/index_group.py",
    "vllm/v1/spec_decode/llm_base_proposer.py",
    "vllm/v1/worker/gpu_model_runner.py",
]
TOOL = [sys.executable, "-m", "vllm_eagle3_patches"]


def lay(into: Path, version: str = VERSION) -> Path:
    """A site-packages folder with those files of the release and its whole dist-info."""
    origin, site = tree(version), into / "site-packages"
    [info] = origin.glob("*.dist-info")
    shutil.copytree(info, site / info.name, copy_function=shutil.copyfile)
    for relative in READ:
        if (origin / relative).exists():
            (site / relative).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(origin / relative, site / relative)
    return site


def info_of(site: Path) -> Path:
    [info] = site.glob("vllm*.dist-info")
    return info


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def rerecord(site: Path, *relatives: str) -> None:
    """Makes RECORD say that the files are as installed, as a build with these bytes would."""
    record = info_of(site) / "RECORD"
    rows = record.read_text().splitlines(keepends=True)
    for relative in relatives:
        data = (site / relative).read_bytes()
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        [at] = [i for i, row in enumerate(rows) if row.startswith(f"{relative},")]
        rows[at] = f"{relative},sha256={digest},{len(data)}\n"
    record.write_text("".join(rows))


def another_build(site: Path) -> None:
    """No byte-exact release any more, but each structure is as it was: codemods are needed."""
    for relative in TOUCHED:
        with (site / relative).open("a") as file:
            file.write("\n# Another build.\n")
    rerecord(site, *TOUCHED)


def snapshot(folder: Path) -> dict[str, tuple[object, ...]]:
    """Everything in the folder: kind, mode, owner and bytes, or the text of a link."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted([folder, *folder.rglob("*")]):
        state = path.lstat()
        content: object = None
        if stat.S_ISLNK(state.st_mode):
            content = path.readlink()
        elif stat.S_ISREG(state.st_mode):
            content = path.read_bytes()
        name = path.relative_to(folder).as_posix()
        found[name] = (state.st_mode, state.st_uid, state.st_gid, content)
    return found


def difference(
    before: dict[str, tuple[object, ...]], after: dict[str, tuple[object, ...]]
) -> set[str]:
    """The names that are not the same in both; short, where a failure prints it."""
    return {name for name in {*before, *after} if before.get(name) != after.get(name)}


@contextmanager
def unchanged(*folders: Path) -> Iterator[None]:
    """Asserts that nothing in the folders changes meanwhile."""
    before = [snapshot(folder) for folder in folders]
    yield
    for folder, was in zip(folders, before, strict=True):
        assert difference(was, snapshot(folder)) == set(), folder


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object that standard output is."""
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value


def call(*words: str, site: Path | None = None) -> Done:
    """The command within this process: the same but for the start of an interpreter."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(_words(words, site))
        except SystemExit as end:
            assert isinstance(end.code, int)
            code = end.code
        out.flush()
    buffer = out.buffer
    assert isinstance(buffer, io.BytesIO)
    return Done(code, buffer.getvalue().decode(), err.getvalue())


def run(
    *words: str,
    site: Path | None = None,
    tool: Sequence[str] = TOOL,
    cwd: Path | None = None,
    **environment: str | None,
) -> Done:
    """The command as a process of its own, with nothing on its standard input."""
    done = subprocess.run(
        [*tool, *_words(words, site)],
        cwd=cwd,
        env=_environment(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def start(
    *words: str, site: Path | None = None, out: int | IO[bytes] = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*TOOL, *_words(words, site)],
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.PIPE,
    )


def _words(words: Sequence[str], site: Path | None) -> list[str]:
    return [*words, *([] if site is None else ["--site-packages", str(site)])]


def _environment(changes: dict[str, str | None]) -> dict[str, str]:
    together = {**os.environ, **changes}
    return {name: value for name, value in together.items() if value is not None}
