"""What must hold of the figures of `gpu.py`; needs neither vLLM nor torch."""

EXACT, ROUNDED = 1e-5, 5e-3  # from the reference: float32 as it is, and through TF32
STALE = 0.5  # at least this far off is the naive capture, on some layer
ERRORS = {
    "1": "RuntimeError: Model does not support EAGLE3 interface but aux_hidden_state_outputs was "
    "requested",
    "2": "RuntimeError: Model does not support EAGLE3 interface",
}  # by model runner
NATIVE = "llama"  # opened by nobody: what it shows is upstream's own


def failures(figures):
    """One line for each thing that does not hold."""
    found = []
    for name, tree in figures["trees"].items():
        found += [f"{name}: {line}" for line in product(tree, figures["digest"], name)]
    for name, job in figures["jobs"].items():
        kind = name.split()[2:] or ["opened"]
        check = {"opened": opened, "stock": stock, "naive": naive}[kind[0]]
        found += [f"{name}: {line}" for line in check(name, job, figures)]
    return found


def product(tree, digest, name):
    applied = tree["apply"]
    if applied["exit"] != 0 or not applied["changed"]:
        yield "apply opened nothing"
    if tree["again"]:
        yield "a second apply wrote something"
    if name.endswith("-naive"):
        return
    if tree["patched_digest"] == digest:
        yield "patched, yet every byte as before"
    if tree["revert"]["exit"] != 0 or tree["reverted_digest"] != digest:
        yield "not every byte as before after revert"


def opened(name, job, figures):
    drafted = job["boots"].get("drafted", {})
    if "counters" not in drafted:
        yield f"did not draft: {drafted.get('error', 'not run')}"
        return
    if not drafted["counters"]["accepted_tokens"]:
        yield "no draft was taken"
    if "lossless" not in job:
        yield "nothing to compare the tokens with"
    elif figures["exact"] and job["lossless"]["equal"] != job["lossless"]["of"]:
        yield "other tokens than without a drafter"
    yield from states(name, job, drafted, EXACT if figures["exact"] else ROUNDED)


def states(name, job, drafted, limit):
    # upstream's Llama gives out the embedding itself at id 0, and eager kernels write into it
    first = 1 if name.startswith(f"{NATIVE} E") else 0
    for kind in ("prefill", "decode"):
        worst = max(job["reference"]["worst"][kind][first:])
        if not worst <= limit or not job["reference"]["rows"][kind]:
            yield f"{kind}: states {worst:.1e} from the reference"
    if " E" in name:
        entry = drafted["entry"]
        worst = max(list(entry["worst"].values())[first:])
        if worst > 0 or not entry["forwards"]:
            yield f"states {worst:.1e} from the stream on entry"


def stock(name, job, figures):
    target, mode, _ = name.split()
    boots = job["boots"]
    error = boots.get("drafted", {}).get("error")
    if error != ERRORS[mode[1]]:
        yield f"ended with {error}"
    off = figures["jobs"][f"{target} {mode}"].get("off", {"lines": 0})
    if not off["lines"]:
        yield "no graph was taken"
    elif off["differ"] or not off["same_tokens"]:
        yield "off, the opened file does not do the same"


def naive(name, job, figures):
    worst = max(job.get("reference", {"worst": {"decode": [0]}})["worst"]["decode"])
    if worst < STALE:
        yield f"a stale residual is only {worst:.1e} from the reference"
