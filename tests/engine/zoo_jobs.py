"""What is run for the zoo: installations in which several targets are opened, one after another."""

import filecmp
import json

import environments
import zoo
from laboratory import HERE, product

ZOO = zoo.everything()
SAMPLE = tuple(name for name, animal in ZOO.items() if animal.sample)
MODELS = "vllm/model_executor/models"
# Mistakes that a patch could well have: what is captured, before and after.
MISTAKES = {
    "stale residual added": (
        "CohereForCausalLM", "commandr.py", "aux_hidden_states.append(hidden_states.clone())",
        "aux_hidden_states.append(hidden_states + residual if residual is not None "
        "else hidden_states.clone())"),
    "deferred residual dropped": (
        "Gemma2ForCausalLM", "gemma2.py", "else hidden_states + residual", "else hidden_states"),
    "ids shifted by one": (
        "GPT2LMHeadModel", "gpt2.py", "if idx in self.aux", "if idx + 1 in self.aux"),
}  # fmt: skip


def parts(everything):
    """The architectures by installation: each opening takes the longer the more are open."""
    names, count = (tuple(ZOO), 8) if everything else (SAMPLE, 2)
    return {f"{n + 1} of {count}": names[n::count] for n in range(count)}


PARTS = {**parts(False), **parts(True)}


def zoo_life(lab, part):
    """All targets of a part opened in one installation; one taken back; all taken back."""
    names = PARTS[part]
    tree = lab.tree(zoo.VERSION, f"zoo-{part.replace(' ', '-')}")
    models = checkpoints(lab, tree, names)
    target = {name: called(models, name) for name in names}
    applied = {name: product("apply", tree, "--model", target[name]) for name in names}
    found = {"apply": applied, "answers": boot(lab, tree, models, names)}
    found["taken_back"] = alone = with_files_of_its_own(applied)
    found["revert_one"] = product("revert", tree, "--model", target[alone])
    found["checks"] = {
        name: product("check", tree, "--model", target[name])["exit"] for name in names
    }
    found["revert"] = product("revert", tree)
    found["unlike_stock"] = unlike(environments.stock(zoo.VERSION), tree)
    return found


def called(models, name):
    """What `--model` is given: a name, or for a wrapper its folder, whose config tells the rest."""
    return str(models / name / "model") if ZOO[name].multimodal else name


def with_files_of_its_own(applied):
    """A target none of whose changed files another one needs too."""

    def needed(report):
        return {*report["changed"], *(gate["file"] for gate in report["gates"])}

    for name, report in applied.items():
        others = set().union(*(needed(r) for other, r in applied.items() if other != name))
        if report["changed"] and not others & set(report["changed"]):
            return name
    raise AssertionError("every changed file is needed by two targets")


def naive(lab, mistake):
    """One target opened, with a mistake put into what was written."""
    name, file, before, after = MISTAKES[mistake]
    tree = lab.tree(zoo.VERSION, mistake.replace(" ", "-"))
    product("apply", tree, "--model", name)
    path = tree / MODELS / file
    text = path.read_text()
    assert before in text, f"{file} has no {before}"
    path.unlink()
    path.write_text(text.replace(before, after))
    return boot(lab, tree, checkpoints(lab, tree, (name,)), (name,))


def checkpoints(lab, tree, names):
    """The folder of the tiny models, with what they must give."""
    models = lab.folder / "zoo" / tree.name
    models.mkdir(parents=True)
    python = environments.python_of(environments.environment_of(zoo.VERSION))
    lab.python(python, [HERE / "zoo_reference.py", models, *names], zoo.VERSION)
    failed = json.loads((models / "zoo.json").read_text())["failed"]
    assert not failed, "\n".join(failed.values())
    return models


def boot(lab, tree, models, names):
    """The answers of one child process, by architecture."""
    python = environments.python_of(environments.environment_of(zoo.VERSION))
    answers = models / "answers.json"
    request = json.dumps({"models": str(models), "architectures": names})
    output = lab.python(python, [HERE / "zoo_child.py", answers], zoo.VERSION, tree, request)
    found = json.loads(answers.read_text())
    missing = set(names) - set(found["architectures"])
    assert not missing, f"no answer for {missing}\n{output}"
    assert found["source"].startswith(str(tree)), f"not under test: {found['source']}"
    assert found["vllm"] == zoo.VERSION
    return found["architectures"]


def unlike(stock, tree):
    """The files that are not byte for byte those of the stock installation.

    But for bytecode, which the interpreter wrote as the models were booted.
    """
    ours, theirs = (
        {p.relative_to(root) for p in root.rglob("*") if p.is_file() and p.suffix != ".pyc"}
        for root in (tree, stock)
    )
    same = {p for p in ours & theirs if filecmp.cmp(tree / p, stock / p, shallow=False)}
    return sorted(map(str, (ours | theirs) - same))


def figures(results):
    """The proof of each architecture, from the results of a run."""
    found = {}
    for name, result in results.items():
        if name.startswith("zoo_life "):
            for architecture, answer in result["answers"].items():
                animal = ZOO[architecture]
                found[architecture] = {
                    "shape": animal.shape,
                    "reference": f"transformers {animal.hf}" if animal.hf else "hooks",
                    "difference": max(*answer["reference"].values(), *answer["few"].values()),
                    "layer_ids": answer["layer_ids"],
                    "drafts": int(answer["counters"]["drafts"]),
                    "accepted": int(answer["counters"]["accepted_tokens"]),
                    "tokens": answer["tokens"],
                    "lossless": answer["lossless"],
                }
    return dict(sorted(found.items()))
