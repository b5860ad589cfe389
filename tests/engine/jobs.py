"""What is run for each version: the scenarios, and the state of the installation they run in."""

from laboratory import open_only, product, substitute

MODELS = ("kimi_k25", "kimi_k2", "deepseek_v3")
PATCHED, NATIVE = ("0.15.1", "0.16.0", "0.17.1"), ("0.32.0",)
MORE_PATCHED = ("0.15.0", "0.17.0")
MUTATED = "0.17.1"  # the version whose patch is mutated, and compiled in the short run

# The gates that are closed for Kimi-K2.5, in the order in which a start-up meets them.
CLOSED = {
    version: ("model-type", "image-token", "weight-sharing", "interface", "aux-capture")
    if version.startswith("0.15.")
    else ("model-type", "image-token", "interface", "aux-capture")
    for version in (*PATCHED, *MORE_PATCHED)
}


def scenario(model, drafter=None, **options):
    name = f"{model}/{drafter or 'off'}" + ("/compile" if options.get("compile") else "")
    return {"name": name, "model": model, "drafter": drafter and f"drafter_{drafter}", **options}


def off():
    return [
        scenario("kimi_k25", digest=True, image=True),
        scenario("kimi_k2", digest=True),
        scenario("deepseek_v3", digest=True),
    ]


def speculating(version):
    """Drafters with and without embedding and head; layers as configured, at the ends, default."""
    # upstream's own DeepSeek code cannot capture at id 0: `Tensor + NoneType`
    ends = "last" if version in NATIVE else "ends"
    return [
        scenario("kimi_k25", "shared", observe=True, image=True),
        scenario("kimi_k25", "own", observe=True),
        scenario("kimi_k25", ends, observe=True),
        scenario("kimi_k25", "default", observe=True),
        scenario("kimi_k2", "own", observe=True),
        scenario("kimi_k2", "default", observe=True),
        scenario("deepseek_v3", "shared", observe=True),
        scenario("deepseek_v3", ends, observe=True),
    ]


def extracting(version):
    if not version.startswith("0.17."):
        return []
    return [
        {"name": f"{model}/extract", "model": model, "extract": [0, 4, 8], "tokens": 1}
        for model in ("kimi_k25", "deepseek_v3")
    ]


def refused():
    return [scenario(model, "shared") for model in MODELS]


def life(lab, version):
    """One installation through its life: as installed, patched, reverted; never cleaned between."""
    tree = lab.tree(version, "life")
    if version in NATIVE:
        applied = product("apply", tree)
        return {"apply": applied, "patched": lab.run(version, tree, off() + speculating(version))}
    found = {"check": product("check", tree)}
    found["stock"] = lab.run(version, tree, off() + refused())
    found["apply"] = product("apply", tree)
    scenarios = off() + speculating(version) + extracting(version)
    found["patched"] = lab.run(version, tree, scenarios)
    found["revert"] = product("revert", tree)
    found["reverted"] = lab.run(version, tree, [*off()[:1], *refused()])
    return found


def half_open(lab, version):
    """With the first n gates opened, for each n: what stops the start-up then."""
    found, gates = {}, CLOSED[version]
    for count in range(1, len(gates)):
        tree = lab.tree(version, f"up-to-{gates[count - 1]}")
        open_only(tree, gates[:count])
        scenarios = refused() if count == 1 else refused()[:1]
        found[gates[count]] = lab.run(version, tree, scenarios)
    return found


def one_closed(lab, version):
    """With every gate but one opened, for each: what stops the start-up then."""
    found, gates = {}, CLOSED[version]
    for closed in gates[:-1]:  # all but the last is what `half_open` ends with
        tree = lab.tree(version, f"all-but-{closed}")
        open_only(tree, [gate for gate in gates if gate != closed])
        found[closed] = lab.run(version, tree, refused()[:1])
    return found


def compiled(lab, version):
    tree = lab.tree(version, "compiled")
    product("apply", tree)
    return lab.run(version, tree, [scenario("kimi_k25", "shared", compile=True, observe=True)])


CAPTURE = """\
            if idx in self.aux_hidden_state_layers:
                aux_hidden_states.append(
                    hidden_states.clone()
                    if residual is None
                    else hidden_states + residual
                )
"""
LAYER = """\
            hidden_states, residual = layer(
                positions, hidden_states, residual, llama_4_scaling
            )
"""
MUTATIONS = {
    "none": None,
    "residual dropped": ("else hidden_states + residual\n", "else hidden_states\n"),
    "ids shifted by one": (
        "if idx in self.aux_hidden_state_layers:",
        "if idx + 1 in self.aux_hidden_state_layers:",
    ),
    "captured after the layer": (CAPTURE + LAYER, LAYER + CAPTURE),
}


def mutated(lab, mutation):
    """The same scenarios on a patched installation with one mistake put in."""
    tree = lab.tree(MUTATED, mutation.replace(" ", "-"))
    product("apply", tree, "--model", "DeepseekV3ForCausalLM")
    if MUTATIONS[mutation]:
        substitute(tree / "vllm/model_executor/models/deepseek_v2.py", *MUTATIONS[mutation])
    return lab.run(
        MUTATED,
        tree,
        [
            scenario("deepseek_v3"),
            scenario("deepseek_v3", "own", observe=True),
            scenario("deepseek_v3", "default", observe=True),
        ],
    )
