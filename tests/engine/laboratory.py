"""Prepares installed vLLMs - stock, patched, half patched, mutated - and runs scenarios in them.

Copies of an installation share their files by hard links: the product never writes in place, and
neither does Python with bytecode, so that a copy costs nothing and cannot touch the original.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import environments

HERE = Path(__file__).parent
CHILD_TIMEOUT = 1500


class Laboratory:
    """Two workers, for two cores; every job runs once and is asked for by name."""

    def __init__(self, folder):
        self.folder, self.jobs, self.lock = folder, {}, threading.Lock()
        self.workers = ThreadPoolExecutor(2)

    def start(self, name, job):
        """`name` is (kind of job, what it is about)."""
        if name not in self.jobs:
            self.jobs[name] = self.workers.submit(job, self, name[1])

    def result(self, name):
        return self.jobs[name].result()

    def close(self):
        self.workers.shutdown(cancel_futures=True)

    def tree(self, version, name):
        """A fresh copy of the stock installation, to do anything with."""
        source, target = environments.stock(version), self.folder / "trees" / f"{version}-{name}"
        shutil.copytree(source, target, copy_function=os.link)
        return target

    def checkpoints(self, version):
        """The tiny models with their reference states, made in the environment of that version."""
        environment = environments.environment_of(version)
        folder = self.folder / "models" / environment.name
        with self.lock:
            if not (folder / "reference.json").exists():
                python = environments.python_of(environment)
                self.python(python, [HERE / "reference.py", folder], version)
        return folder

    def run(self, version, tree, scenarios):
        """The answers of one child process, by name of the scenario."""
        answers = self.folder / f"{tree.name}-{len(list(self.folder.glob('*.json')))}.json"
        answers.touch()
        request = {
            "models": str(self.checkpoints(version)),
            "shim": version in environments.OLD.versions,
            "scenarios": scenarios,
        }
        python = environments.python_of(environments.environment_of(version))
        command = [HERE / "child.py", answers]
        output = self.python(python, command, version, tree, json.dumps(request))
        text = answers.read_text()
        found = json.loads(text) if text else {}
        missing = [s["name"] for s in scenarios if s["name"] not in found.get("scenarios", {})]
        assert not missing, f"{tree.name}: no answer for {missing}\n{output}"
        assert Path(found["source"]).is_relative_to(tree), f"not under test: {found['source']}"
        assert found["vllm"] == version
        return found["scenarios"]

    def python(self, python, command, version, tree=None, text=None):
        state = self.folder / "state" / version
        settings = {
            "VLLM_MLA_DISABLE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1",
            # kept from one run to the next, so that a cache gone stale would show
            "VLLM_CACHE_ROOT": state / "vllm", "HF_HOME": state / "hf",
            "VLLM_CONFIG_ROOT": state / "config", "TORCHINDUCTOR_CACHE_DIR": state / "inductor",
        }  # fmt: skip
        if tree:
            settings["PYTHONPATH"] = tree
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VLLM_"))}
        done = subprocess.run(
            [str(part) for part in (python, *command)],
            env=inherited | {k: str(v) for k, v in settings.items()},
            input=text,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=CHILD_TIMEOUT,
        )
        complaint = f"{command[0].name} ended with {done.returncode}\n{done.stdout[-6000:]}"
        assert done.returncode == 0, complaint
        return done.stdout[-6000:]


def product(command, tree, *options):
    """The product's own command on that installation: its exit code and what it says as JSON."""
    program = [sys.executable, "-m", "vllm_eagle3_patches", command]
    options = ["--json", "--site-packages", str(tree), *options]
    done = subprocess.run([*program, *options], capture_output=True, text=True)
    assert done.stdout, f"{command} said nothing\n{done.stderr}"
    return {"exit": done.returncode, **json.loads(done.stdout)}


def open_only(tree, gates, model=None):
    """Open some of the gates, through the library; the command knows only all or nothing."""
    from vllm_eagle3_patches import operations
    from vllm_eagle3_patches.installation import find
    from vllm_eagle3_patches.target import resolve

    installation = find(site_packages=str(tree))
    operations.apply(installation, resolve(installation, model), gates=gates)


def substitute(path, before, after):
    """Replace a text that stands there exactly once; the file is new, not written in place."""
    text = path.read_text()
    assert text.count(before) == 1, f"{path.name}: found {text.count(before)} times: {before}"
    path.unlink()
    path.write_text(text.replace(before, after))
