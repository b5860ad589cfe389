from __future__ import annotations

from collections.abc import Sequence

from vllm_eagle3_patches.explain.lines import Line
from vllm_eagle3_patches.explain.signatures import Frame
from vllm_eagle3_patches.explain.tracebacks import KEPT_FRAMES, Assembler, Raised

HEADER = "Traceback (most recent call last):"


def assemble(lines: Sequence[str], place: str | None = None) -> list[Raised]:
    assembler = Assembler()
    found = []
    for number, text in enumerate(lines, 1):
        level = None if place is None else "ERROR"
        found += assembler.feed(Line(number, "P", "P", level, place, None, text))
    return [*found, *assembler.flush()]


def frame(name: str, code: str = "call()") -> list[str]:
    return [
        f'  File "/x/site-packages/vllm/{name}.py", line 7, in {name}',
        f"    {code}",
        "    ^^^",
    ]


def test_an_exception_with_its_frames() -> None:
    [raised] = assemble(["before", HEADER, *frame("a"), *frame("b", "raise X"), "ValueError: no"])
    assert (raised.fault.exception, raised.fault.message) == ("ValueError", "no")
    assert raised.fault.frames == (
        Frame("vllm/a.py", 7, "a", "call()"),
        Frame("vllm/b.py", 7, "b", "raise X"),
    )
    assert raised.line.number == 9


def test_without_a_message() -> None:
    [raised] = assemble([HEADER, *frame("a", "assert x"), "AssertionError"])
    assert (raised.fault.exception, raised.fault.message) == ("AssertionError", "")


def test_names_of_all_kinds() -> None:
    for name in (
        "torch.OutOfMemoryError",
        "torch._dynamo.exc.Unsupported",
        "huggingface_hub.errors.RepositoryNotFoundError",
        "Exception",
        "KeyboardInterrupt",
        "safetensors_rust.SafetensorError",
        "some.plugin.Oops",
        "ray.exceptions.RayTaskError(RuntimeError)",
        "subprocess.TimeoutExpired",
        "queue.Empty",
    ):
        [raised] = assemble([HEADER, *frame("a"), f"{name}: what"])
        assert raised.fault.exception == name


def test_a_chain_gives_each_exception_its_own_frames() -> None:
    found = assemble(
        [
            *(HEADER, *frame("a"), "KeyError: 'x'", ""),
            *("During handling of the above exception, another exception occurred:", ""),
            *(HEADER, *frame("b"), "ValueError: y", ""),
            *("The above exception was the direct cause of the following exception:", ""),
            *(HEADER, *frame("c"), "RuntimeError: z"),
        ]
    )
    assert [(r.fault.exception, r.fault.frames[0].function) for r in found] == [
        ("KeyError", "a"),
        ("ValueError", "b"),
        ("RuntimeError", "c"),
    ]


def test_pydantic_is_unwrapped() -> None:
    [raised] = assemble(
        [
            *(HEADER, *frame("a")),
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig",
            "  Value error, Model architectures ['X'] are not supported for now.",
            "Supported architectures: ['Y'] [type=value_error, input_value=ArgsKwargs(()), x]",
            "    For further information visit https://errors.pydantic.dev/2.12/v/value_error",
        ]
    )
    assert raised.fault.exception == "ValueError"
    assert raised.fault.message == (
        "Model architectures ['X'] are not supported for now.\nSupported architectures: ['Y']"
    )
    assert len(raised.fault.frames) == 1


def test_pydantic_without_its_head() -> None:
    [raised] = assemble(["  Assertion failed, the rule [type=assertion_error, input_value=1]"])
    assert (raised.fault.exception, raised.fault.message) == ("AssertionError", "the rule")


def test_a_message_of_several_lines_ends_with_the_record() -> None:
    found = assemble([HEADER, *frame("a"), "OSError: one", "two", "", "three"], place="a.py:1")
    assert found[0].fault.message == "one\ntwo\nthree"


def test_an_unlogged_message_ends_where_other_lines_begin() -> None:
    found = assemble([HEADER, *frame("a"), "RuntimeError: one", "another program's line"])
    assert [raised.fault.message for raised in found] == ["one"]


def test_a_traceback_cut_at_either_end() -> None:
    [raised] = assemble(["    some code", *frame("a"), "ValueError: x"])
    assert len(raised.fault.frames) == 1
    [raised] = assemble([HEADER, *frame("a"), *frame("b")])
    assert raised.fault.cut
    assert [f.function for f in raised.fault.frames] == ["a", "b"]


def test_indentation_may_be_lost() -> None:
    lines = [line.strip() for line in (HEADER, *frame("a"), *frame("b"), "ValueError: x")]
    [raised] = assemble(lines)
    assert [f.code for f in raised.fault.frames] == ["call()", "call()"]


def test_all_in_one_line() -> None:
    text = " ".join(
        line.strip() for line in (HEADER, *frame("a"), *frame("b", "raise ValueError("))
    )
    [raised] = assemble([f"{text} ValueError: x y"])
    assert [f.function for f in raised.fault.frames] == ["a", "b"]
    assert (raised.fault.exception, raised.fault.message) == ("ValueError", "x y")


def test_only_the_innermost_frames_are_kept() -> None:
    many = [line for i in range(100) for line in frame(f"f{i}")]
    [raised] = assemble([HEADER, *many, "RecursionError: deep"])
    assert len(raised.fault.frames) == KEPT_FRAMES
    assert raised.fault.frames[-1].function == "f99"


def test_exceptions_in_destructors_are_ignored() -> None:
    found = assemble(
        ["Exception ignored in: <function X.__del__ at 0x7f>", HEADER, *frame("a"), "TypeError: x"]
    )
    assert found == []


def test_code_is_not_an_exception() -> None:
    assert assemble(["Error: by some program", "INFO: x", "else: ValueError", "Timeout"]) == []
    found = assemble([HEADER, '  File "a.py", line 1, in a', "    except KeyError:", "OSError: x"])
    assert [raised.fault.exception for raised in found] == ["OSError"]


def test_frames_of_an_unfinished_traceback_are_not_taken_over() -> None:
    link = "The above exception was the direct cause of the following exception:"
    for between in ([], [link]):
        found = assemble([*frame("a"), *between, HEADER, *frame("b"), "ValueError: x"])
        assert [f.function for f in found[-1].fault.frames] == ["b"]
    cut, _ = assemble([*frame("a"), HEADER, *frame("b"), "ValueError: x"])
    assert cut.fault.cut and [f.function for f in cut.fault.frames] == ["a"]


def test_native_frames_are_no_exception() -> None:
    found = assemble(['  File "misc/cudawrap.cc", line 92, in ncclCuMemHostEnable()'] * 3)
    assert [raised.fault.exception for raised in found] == [None]
