import pytest
from real import (
    CLOSED,
    DEEPSEEK_FILE,
    NATIVE,
    changes,
    class_in,
    cut,
    edits,
    patched,
    swap,
    text,
    transform,
)

from codemods.behaviour import (
    assert_changes_nothing_twice,
    assert_holds,
    assert_refused,
    assert_sound,
)
from codemods.stream import Run

NAME = "aux-capture"
EDIT = edits("0.17.1")[NAME]
SOURCE = cut(text("0.17.1", DEEPSEEK_FILE), "DeepseekV2Model")
FOR = "        for layer in islice(self.layers, self.start_layer, self.end_layer):\n"
CALL = """            hidden_states, residual = layer(
                positions, hidden_states, residual, llama_4_scaling
            )
"""
INDENTED = "".join(f"    {line}\n" for line in CALL.splitlines())
RANK = "        if not get_pp_group().is_last_rank:\n"
RETURN_RANK = """            return IntermediateTensors(
                {"hidden_states": hidden_states, "residual": residual}
            )
"""
NORM = "        hidden_states, _ = self.norm(hidden_states, residual)\n"
RETURN = f"{NORM}        return hidden_states\n"
ATTRIBUTE = "    fall_back_to_pt_during_load = False\n"
DECODER = "class DeepseekV2Model(nn.Module):\n"


@pytest.mark.parametrize("version", CLOSED)
def test_noop_on_its_own_result(version: str) -> None:
    assert_changes_nothing_twice(version, NAME)


@pytest.mark.parametrize("version", NATIVE)
def test_noop_on_the_capture_that_upstream_added(version: str) -> None:
    source = text(version, DEEPSEEK_FILE)
    assert transform(source, EDIT) == source


@pytest.mark.parametrize("version", CLOSED)
def test_holds(version: str) -> None:
    assert_holds(version, NAME)


@pytest.mark.parametrize("version", CLOSED)
def test_replaces_one_line_and_adds_the_rest(version: str) -> None:
    gone, come = changes(text(version, DEEPSEEK_FILE), patched(version, NAME)[DEEPSEEK_FILE])
    iteration = (
        "self.layers[self.start_layer:self.end_layer]"
        if version in ("0.10.1", "0.10.1.1")
        else "islice(self.layers, self.start_layer, self.end_layer)"
    )
    assert gone == [f"for layer in {iteration}:"]
    assert come[0] == "aux_hidden_state_layers: tuple[int, ...] = ()"
    loop = come.index("aux_hidden_states = []")
    assert come[loop : loop + 5] == [
        "aux_hidden_states = []",
        "for idx, layer in enumerate(",
        f"{iteration},",
        "start=self.start_layer,",
        "):",
    ]
    assert come[-4:] == [
        "if self.end_layer in self.aux_hidden_state_layers:",
        "aux_hidden_states.append(hidden_states + residual)",
        "if aux_hidden_states:",
        "return hidden_states, aux_hidden_states",
    ]


def test_keeps_the_comments_around_the_loop() -> None:
    source = swap(SOURCE, FOR, f"        # one\n{FOR}            # two\n")
    source = swap(source, NORM, f"        # three\n{NORM[:-1]}  # four\n")
    after = transform(source, EDIT)
    for comment in ("# one", "# two", "# three", "# four"):
        assert after.count(comment) == 1
    assert f"        # one\n        aux_hidden_states = []\n{' ' * 8}for" in after
    assert f"            # two\n{CALL}" in after


def test_the_attribute_stands_before_init_so_that_subclasses_have_it() -> None:
    names = [
        getattr(s, "name", None) or s.target.id
        for s in class_in(patched("0.17.1", NAME)[DEEPSEEK_FILE], "DeepseekV2Model").body
        if hasattr(s, "name") or hasattr(s, "target")
    ]
    assert names == [
        "aux_hidden_state_layers",
        "__init__",
        "embed_input_ids",
        "set_aux_hidden_state_layers",
        "get_eagle3_aux_hidden_state_layers",
        "forward",
    ]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        # the loop
        (FOR, FOR.replace("layer in", "block in"), "does not call the layer"),
        (FOR, FOR.replace("layer in", "idx, layer in"), "the loop iterates `islice"),
        (FOR, FOR.replace("islice", "reversed"), "the loop iterates"),
        (FOR, FOR.replace("self.layers,", "self.stack,"), "0 loops"),
        (FOR, FOR.replace("self.start_layer", "0"), "the loop iterates"),
        (FOR, FOR.replace("self.end_layer", "self.end_layer - 1"), "the loop iterates"),
        (FOR, FOR.replace("self.layers,", "self.layers,  # all\n"), "comments inside"),
        (FOR, f"        for layer in self.layers:\n            pass\n{FOR}", "2 loops"),
        (FOR, FOR.replace("for layer", "if layer").replace(" in ", " == "), "0 loops"),
        (CALL, f"{CALL}        else:\n            pass\n", "break, continue or else"),
        (CALL, f"{CALL}            if residual is None:\n                break\n", "break"),
        # the call
        (CALL, CALL + CALL, "more than once"),
        (CALL, CALL.replace("= layer(", "= layer.run("), "does not call the layer"),
        (CALL, CALL.replace("= layer(", "= self.run("), "does not call the layer"),
        (CALL, CALL.replace("            )\n", "            )[:2]\n"), "does not call the layer"),
        (CALL, CALL.replace("            )\n", "            ) or (0, 0)\n"), "does not call"),
        (CALL, CALL.replace("residual = layer(", "residual = pair = layer("), "result goes to"),
        # after it
        (RANK, RANK.replace("not ", ""), "one return behind the loop"),
        (RANK, RANK.replace("is_last_rank", "is_first_rank"), "one return behind the loop"),
        (RETURN_RANK, "            return None\n", "one return behind the loop"),
        (RETURN, RETURN.replace("return hidden_states", "return hidden_states * 2"),
         r"returns `hidden_states \* 2`"),
        (RETURN, RETURN.replace("return hidden_states", "return"), "returns nothing"),
        (RETURN, NORM, "one return behind the loop"),
        # names
        (FOR, f"        idx = layer_idx = 0\n{FOR}", "uses the names idx and layer_idx"),
        (FOR, f"        aux_hidden_states = None\n{FOR}", "unknown form"),
        (ATTRIBUTE, f"{ATTRIBUTE}    aux_hidden_state_layers = ()\n", "unknown form"),
        # the class
        (DECODER, "class DeepseekV2Decoder(nn.Module):\n", "0 top-level classes"),
        (DECODER, f"{DECODER}    pass\n\n\n{DECODER}", "2 top-level classes"),
        (FOR + CALL, f"        x = 1; y = 2\n{FOR}{CALL}", "on one line"),
        (FOR + CALL, f"{FOR[:-1]} hidden_states, residual = layer(positions, hidden_states)\n",
         "on one line"),
    ],
)  # fmt: skip
def test_refuses_another_structure(old: str, new: str, reason: str) -> None:
    assert_refused(swap(SOURCE, old, new), EDIT, reason)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (FOR, "        for layer in self.layers:\n"),
        (FOR, f"        for x in ():\n            pass\n{FOR}"),
        (FOR, f"        idx = 0\n{FOR}"),
        (FOR, f"        idx = 0\n        print(idx)\n{FOR}"),
        (CALL, f"{CALL}            self.seen = True\n"),
        (CALL, f"            self.seen = True\n{CALL}"),
        (CALL, f"            with nullcontext():\n{INDENTED}"),
        (CALL, f"            if layer:\n{INDENTED}            else:\n{INDENTED}"),
        (RANK, f"        hidden_states = hidden_states + hidden_states\n{RANK}"),
        (RETURN_RANK, f"{RETURN_RANK}        else:\n            pass\n"),
        (RETURN, RETURN.replace("_ = self.norm", "residual = self.norm")),
        (RETURN, f"{NORM}        self.seen = True\n        return hidden_states\n"),
        (ATTRIBUTE, "\n"),
    ],
)  # fmt: skip
def test_holds_on_another_structure_of_the_same_meaning(old: str, new: str) -> None:
    source = swap(SOURCE, old, new)
    after = transform(source, EDIT)
    assert_sound(source, after, EDIT)
    before, ids = Run(source), tuple(range(8))
    assert isinstance(before.result, int)
    assert (Run(after).result, Run(after).calls) == (before.result, before.calls)
    streams = Run(SOURCE).streams  # what is done to the state behind the loop comes later
    assert Run(after, ids).result == (before.result, [streams[k] for k in ids])


def test_refuses_a_class_without_forward() -> None:
    renamed = SOURCE.replace("    def forward(", "    def run(")
    assert_refused(renamed, EDIT, "no method forward")


def test_refuses_an_asynchronous_loop() -> None:
    source = swap(SOURCE, "    def forward(", "    async def forward(")
    source = swap(source, FOR, FOR.replace("for", "async for"))
    assert_refused(source, EDIT, "aux-capture: ")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("hidden_states + residual)\n            hidden", "hidden_states)\n            hidden"),
        ("start=self.start_layer,", "start=self.start_layer + 1,"),
        ("return hidden_states, aux_hidden_states", "return hidden_states, []"),
    ],
)
def test_refuses_a_capture_that_is_wrong(old: str, new: str) -> None:
    source = cut(text("0.18.0", DEEPSEEK_FILE), "DeepseekV2Model")
    assert_refused(swap(source, old, new), EDIT, "unknown form")
