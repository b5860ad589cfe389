"""The proof on a GPU: a stock vLLM, opened by the product, with CUDA graphs and torch.compile.

    python tests/engine/gpu.py --site SITE --work FOLDER --out FIGURES.json [--path FOLDER]

SITE is a folder with a stock vLLM and its dist-info, as `pip install --target SITE` leaves it; it
is only read. The interpreter must have what that vLLM needs, transformers with the models, libcst
and unidiff; `--path` adds a folder to its path. With `--exact` Triton's kernels multiply in
float32, as they do not by default on such a card. FIGURES.json is written anew after every job;
what does not hold is printed at the end, and the exit code is 1.

For each target: `apply` on a copy of SITE, boots in each mode without and with a drafter, the
drafter's states against transformers, `revert`, and the copy against SITE byte for byte. From
SITE itself: the error, and the graph that Dynamo makes without a drafter.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import gpu_checks
import gpu_child
import gpu_compare
import gpu_models
import torch

HERE = Path(__file__).parent
MODES = {"E1": ("eager", 1), "E2": ("eager", 2), "G1": ("graphs", 1), "G2": ("graphs", 2)}
CPU = {"num_gpu_blocks_override": 64}
# beside a dozen others on one card; and no measuring of what those leave free
GPU = {"gpu_memory_utilization": 0.02, "kv_cache_memory_bytes": 64 * 2**20}
CAPTURE = re.compile(r"aux_hidden_states\.append\(hidden_states(\.clone\(\))?\)")
NAIVE = "aux_hidden_states.append(hidden_states if residual is None else hidden_states + residual)"


class Bench:
    """Installations, checkpoints and results below one folder."""

    def __init__(self, arguments):
        self.site, self.work = Path(arguments.site).resolve(), Path(arguments.work).resolve()
        self.out, self.path, self.cpu = Path(arguments.out), arguments.path, arguments.cpu
        self.names = arguments.targets.split(",")
        self.modes = [m for m in MODES if m in arguments.modes.split(",")]
        self.end = time.time() + arguments.seconds
        self.results = {
            "prompts": len(gpu_models.PROMPTS), "tokens_each": gpu_child.TOKENS,
            "exact": arguments.exact, "trees": {}, "jobs": {},
        }  # fmt: skip
        self.references = {}

    def save(self):
        self.out.write_text(json.dumps(self.results, indent=1))

    def tree(self, name, target):
        """A copy of SITE by hard links, opened for the target by the product."""
        tree = self.work / "trees" / name
        shutil.copytree(self.site, tree, copy_function=os.link, symlinks=True)
        self.results["trees"][name] = {
            "check": self.product("check", tree, target),
            "apply": self.product("apply", tree, target),
            "again": self.product("apply", tree, target)["changed"],
        }
        return tree

    def product(self, command, tree, target):
        architecture = gpu_models.TARGETS[target].architecture
        program = [sys.executable, "-m", "vllm_eagle3_patches", command, "--json"]
        options = ["--site-packages", str(tree), "--model", architecture]
        environment = {**os.environ, "PYTHONPATH": self.search(HERE.parent.parent)}
        done = subprocess.run(
            [*program, *options], capture_output=True, text=True, env=environment, cwd=self.work
        )
        assert done.stdout, f"{command} said nothing\n{done.stderr}"
        said = json.loads(done.stdout)
        states = {g["gate"]: g["state"] for g in said["gates"]}
        changed = [str(Path(p).name) for p in said.get("changed", ())]
        return {"exit": done.returncode, "gates": states, "changed": changed}

    def search(self, *folders):
        return os.pathsep.join(map(str, (*folders, *filter(None, (self.path,)))))

    def jobs(self):
        """Name -> (tree, target, mode, boots); the longest first, behind two quick ones."""
        found, stock = {}, self.site
        for mode in sorted(self.modes, key=["E1", "G2", "G1", "E2"].index):
            for name in self.names:
                opened = gpu_models.TARGETS[name].opened
                tree = self.work / "trees" / name if opened else stock
                found[f"{name} {mode}"] = (tree, name, mode, ["plain", "drafted"])
        for mode in (m for m in self.modes if m.startswith("G")):
            for name in filter(lambda n: gpu_models.TARGETS[n].opened, self.names):
                found[f"{name} {mode} stock"] = (stock, name, mode, ["plain", "drafted"])
        if "cohere" in self.names:
            naive = self.work / "trees/cohere-naive"
            for mode in self.modes:
                found[f"cohere {mode} naive"] = (naive, "cohere", mode, ["drafted"])
        return found

    def run(self, name, tree, target, mode, boots):
        """One child process; its answers."""
        kind, runner = MODES[mode]
        folder = self.work / "jobs" / re.sub(r"\W", "-", name + "-" + boots[0])
        folder.mkdir(parents=True)
        said = gpu_models.TARGETS[target]
        request = {
            "mode": kind, "runner": runner, "models": str(self.work / "models"), "target": target,
            "wrapper": said.text is not None, "stream": said.stream, "boots": boots,
            "prompts": gpu_models.PROMPTS, "probe": gpu_models.PROBE,
            "options": CPU if self.cpu else GPU,
            "graph": str(folder / "graph.py"), "states": str(folder / "states.safetensors"),
        }  # fmt: skip
        cache = folder / "cache"
        settings = {
            "PYTHONPATH": self.search(tree), "VLLM_USE_V2_MODEL_RUNNER": runner - 1,
            "VLLM_USE_FLASHINFER_SAMPLER": 0, "VLLM_ENABLE_V1_MULTIPROCESSING": 0,
            "VLLM_NO_USAGE_STATS": 1, "HF_HUB_OFFLINE": 1, "OMP_NUM_THREADS": 1,
            "VLLM_CPU_KVCACHE_SPACE": 1, "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "TORCHINDUCTOR_COMPILE_THREADS": 1, "TORCHINDUCTOR_CACHE_DIR": cache / "inductor",
            "VLLM_CACHE_ROOT": cache / "vllm", "VLLM_CONFIG_ROOT": cache / "config",
        }  # fmt: skip
        if self.results["exact"]:
            settings["TRITON_F32_DEFAULT"] = "ieee"
        answers = folder / "answers.json"
        with (folder / "log").open("w") as log:
            try:
                ended = subprocess.run(
                    [sys.executable, HERE / "gpu_child.py", answers],
                    input=json.dumps(request), stdout=log, stderr=subprocess.STDOUT, text=True,
                    env={**os.environ, **{k: str(v) for k, v in settings.items()}}, cwd=folder,
                    timeout=max(self.end - time.time(), 1),
                ).returncode  # fmt: skip
            except subprocess.TimeoutExpired:
                ended = "out of time"
        found = json.loads(answers.read_text()) if answers.exists() else {"boots": {}}
        for missing in (b for b in boots if b not in found["boots"]):
            tail = (folder / "log").read_text()[-3000:]
            found["boots"][missing] = {"error": f"no answer: ended with {ended}", "trace": tail}
        assert Path(found.get("source", tree)).is_relative_to(tree), found["source"]
        return folder, found

    def job(self, name, tree, target, mode, boots):
        if time.time() > self.end:
            return {"boots": {}, "skipped": True}
        folder, found = self.run(name, tree, target, mode, boots)
        last = found["boots"][boots[-1]]
        if "error" in last and len(boots) > 1 and "EAGLE3 interface" not in last["error"]:
            # is it this boot, or that it is the second one in its process?
            folder, alone = self.run(name, tree, target, mode, boots[-1:])
            found["boots"][boots[-1]] = {"second": last["error"], **alone["boots"][boots[-1]]}
        return found | {"folder": str(folder)}

    def judged(self, target, found):
        """The comparisons of one job, made here, where there is no vLLM."""
        boots, folder, reference = found["boots"], found.get("folder"), self.references[target]
        drafted, plain = boots.get("drafted", {}), boots.get("plain", {})
        if "tokens" in drafted and "tokens" in plain:
            found["lossless"] = gpu_compare.tokens(reference, plain["tokens"], drafted["tokens"])
        if "probed" in drafted:
            states = Path(folder) / "states.safetensors"
            found["reference"] = gpu_compare.states(reference, drafted["probed"], states)
        return found

    def prepared(self):
        started = time.time()
        for name in self.names:
            model = gpu_models.write(self.work / "models", name)
            self.references[name] = gpu_models.Reference(model)
            if gpu_models.TARGETS[name].opened:
                self.tree(name, name)
        if "cohere" in self.names:
            make_naive(self.tree("cohere-naive", "cohere"))
        self.results["digest"] = digest(self.site)
        self.results["prepared_seconds"] = round(time.time() - started, 1)
        self.save()

    def all(self, workers):
        self.prepared()
        with ThreadPoolExecutor(workers) as pool:
            running = {pool.submit(self.job, n, *job): (n, job) for n, job in self.jobs().items()}
            failed = 0
            for future in as_completed(running):
                name, job = running[future]
                found = self.results["jobs"][name] = self.judged(job[1], future.result())
                self.save()
                print(f"{time.time() - self.end:6.0f}", summary(name, found), flush=True)
                good = any("tokens" in boot for boot in found["boots"].values())
                failed = failed + 1 if failed is not None and not good else None
                if failed == 4:
                    give_up(found)
        self.crosswise()
        self.reverted()
        self.save()
        return gpu_checks.failures(self.results)

    def crosswise(self):
        """Off, the opened file against the stock one; naive, the tokens against none drafted."""
        jobs = self.results["jobs"]
        for name, found in jobs.items():
            plain = found["boots"].get("plain", {})
            stock, naive = jobs.get(f"{name} stock", {}), jobs.get(f"{name} naive", {})
            off = stock.get("boots", {}).get("plain", {})
            if "tokens" in plain and "tokens" in off:
                files = [Path(job["folder"]) / "graph.py" for job in (stock, found)]
                texts = [file.read_text() if file.exists() else "" for file in files]
                found["off"] = gpu_compare.graphs(*texts)
                found["off"]["same_tokens"] = plain["tokens"] == off["tokens"]
            drafted = naive.get("boots", {}).get("drafted", {})
            if "tokens" in plain and "tokens" in drafted:
                reference, both = self.references[name.split()[0]], (plain, drafted)
                naive["lossless"] = gpu_compare.tokens(reference, *(b["tokens"] for b in both))

    def reverted(self):
        for name, told in self.results["trees"].items():
            target = name.removesuffix("-naive")
            if name == target:
                tree = self.work / "trees" / name
                told["patched_digest"] = digest(tree)
                told["revert"] = self.product("revert", tree, target)
                told["reverted_digest"] = digest(tree)


def make_naive(tree):
    """What reading the loop alone would suggest: the stale residual added once more."""
    path = tree / "vllm/model_executor/models/commandr.py"
    text, count = CAPTURE.subn(NAIVE, path.read_text())
    assert count == 2, f"found {count} captures"
    path.unlink()
    path.write_text(text)


def digest(tree):
    """One sha256 over names, modes and bytes of all files but bytecode."""
    total = hashlib.sha256()
    for path in sorted(tree.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            bits = hashlib.sha256(path.read_bytes()).hexdigest()
            total.update(f"{path.relative_to(tree)} {path.stat().st_mode:o} {bits}\n".encode())
    return total.hexdigest()


def summary(name, found):
    parts = [name]
    for boot, answer in found["boots"].items():
        told = answer.get("error", f"{answer.get('counters')}")[:160]
        parts.append(f"{boot} {answer.get('seconds')} s {told}")
    if "lossless" in found:
        parts.append("equal {equal}/{of} {gaps}".format(**found["lossless"]))
    for kind, worst in found.get("reference", {}).get("worst", {}).items():
        parts.append(f"{kind} {max(worst):.1e}")
    for answer in found["boots"].values():
        if "entry" in answer:
            parts.append(f"entry {max(answer['entry']['worst'].values()):.1e}")
    return " | ".join(parts)


def give_up(found):
    """Four failures and no success: the rest would only fail as well, and take its time."""
    traces = [boot.get("trace", "") for boot in found["boots"].values()]
    print("nothing works\n" + "\n".join(traces)[-3000:], flush=True)
    os._exit(1)  # without waiting for the other jobs


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--site", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--path", help="folder with further packages")
    parser.add_argument("--targets", default=",".join(gpu_models.TARGETS))
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=1800, help="no job runs longer than this")
    parser.add_argument("--exact", action="store_true", help="no TF32 in Triton's kernels")
    parser.add_argument("--cpu", action="store_true", help="to try it without a GPU: --modes E1")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    failures = Bench(arguments).all(arguments.workers)
    print(*(failures or ["everything holds"]), sep="\n")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
