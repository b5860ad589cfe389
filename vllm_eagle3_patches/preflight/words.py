"""The words of a command line -> options with their values, as argparse shares them out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from vllm_eagle3_patches.preflight.declared import Declared, Option, Takes
from vllm_eagle3_patches.preflight.findings import Finding, error, warning
from vllm_eagle3_patches.preflight.option_values import refused

CLASS = "argument"
# Where the installed source cannot be read: the short options that matter here, and the options
# without a value that stand before the model now and then.
SHORT = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-q": "--quantization",
    "-sc": "--speculative-config",
    "-ac": "--attention-config",
}
FLAGS = ("trust-remote-code", "enforce-eager", "async-scheduling", "language-model-only")
FLAG_PREFIXES = ("enable-", "disable-", "no-", "skip-")
NEGATIVE = re.compile(r"-\d+$|-\d*\.\d+$")  # argparse: a value, where no option looks like it
LEVEL = re.compile(r"-O(?!$)")


@dataclass
class Words:
    """What a command line is made of.

    Attributes:
        options: names without dashes, and values, in order; a flag's value is "true".
        rest: the words that belong to no option; the first is the model.
        findings: what vLLM's parser refuses.
    """

    options: list[tuple[str, str]] = field(default_factory=list)
    rest: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def split(words: Sequence[str], declared: Declared | None = None) -> Words:
    """Shares the words out; with `declared`, by what the installed vLLM's parser knows."""
    return _Splitter(words, declared if declared and declared.readable else None).run()


def is_option(word: str) -> bool:
    """Whether argparse takes the word for an option and not for a value."""
    return (
        word.startswith("-")
        and len(word) > 1
        and not NEGATIVE.match(word)
        and " " not in word.partition("=")[0]
    )


class _Splitter:
    def __init__(self, words: Sequence[str], declared: Declared | None) -> None:
        self.words = words
        self.declared = declared
        self.position = 0
        self.found = Words()
        self.sure = True  # the next word belongs to no option, if it is none itself

    def run(self) -> Words:
        while self.position < len(self.words):
            word = self.words[self.position]
            self.position += 1
            if word == "--":
                self._others(self.words[self.position :])
                break
            if is_option(word):
                self._option(word)
            else:
                self._others([word])
        return self.found

    def _others(self, words: Sequence[str]) -> None:
        for word in words:
            if self.found.rest and self.sure and self.declared is not None:
                self._error(
                    f"{word!r} belongs to no option, and the model is named already: vLLM's "
                    "parser refuses it",
                    "take it out, or quote the value it is a part of",
                )
            self.found.rest.append(word)

    def _option(self, word: str) -> None:
        if LEVEL.match(word):  # -O3
            return
        key, equals, value = word.partition("=")
        head, dot, tail = key.partition(".")
        if head.startswith("--"):
            head = head.replace("_", "-")
        attached = ""
        option = self._known(head)
        if option is None and self.declared is not None:
            if " " in word and not self.declared.candidates(head):
                self._others([word])  # argparse: no option that it knows, and a space in it
                return
            option, attached = self._completed(head)
        name = option.name if option else SHORT.get(head, head)
        takes = Takes.ONE if dot else option.takes if option else Takes.UNKNOWN
        if attached:
            value, equals = attached, "="
        if not equals:
            given = self._value(name, takes)
            value, takes = (given, takes) if given is not None else ("true", Takes.UNKNOWN)
        elif takes is Takes.NOTHING:
            self._error(f"{name} takes no value, and {value!r} is given", f"{name} by itself")
        if not dot and option is not None and self.declared is not None and takes is Takes.ONE:
            wanted = refused(self.declared, option, value)
            if wanted is not None:
                self._error(f"{name} is {value!r}; it has to be {wanted}", f"correct {name}")
        if name.startswith("--") or option is not None:
            self.found.options.append((name.lstrip("-") + (f".{tail}" if dot else ""), value))

    def _known(self, head: str) -> Option | None:
        if self.declared is None:
            return None
        if head == "-O":
            return Option("--optimization-level", Takes.ONE)
        return self.declared.option(head)

    def _completed(self, head: str) -> tuple[Option | None, str]:
        """The option that argparse completes an abbreviation to, and a value glued to `-q`."""
        assert self.declared is not None
        candidates = self.declared.candidates(head)
        if len(candidates) == 1:
            whole = candidates[0]
            glued = not whole.startswith("--") and not whole.startswith(head)
            return self.declared.option(whole), head[len(whole) :] if glued else ""
        if candidates:
            options = {o.name for n in candidates if (o := self.declared.option(n)) is not None}
            self._error(
                f"{head} may stand for {' or '.join(sorted(options)[:4])}: vLLM's parser refuses "
                "it",
                "write the option out",
            )
        elif head[2:] not in REMOVED:
            self._unknown(head)
        return None, ""

    def _unknown(self, head: str) -> None:
        assert self.declared is not None
        close = get_close_matches(head, self.declared.names, n=1, cutoff=0.75)
        long = self.declared.option(SHORT.get(head, ""))
        fix = (
            f"write {long.name}"
            if long is not None
            else f"did you mean {close[0]}?"
            if close
            else "leave it out, or take a vLLM that has it"
        )
        # A plugin of vLLM may declare options of its own.
        make = warning if self.declared.has_plugins else error
        detail = f"{head} is no option of the installed vLLM's serve command"
        self.found.findings.append(make(CLASS, detail, fix))

    def _value(self, name: str, takes: Takes) -> str | None:
        """Takes the words that follow, as many as belong to the option; the first is returned."""
        following = self.words[self.position] if self.position < len(self.words) else None
        there = following is not None and not is_option(following)
        self.sure = takes is not Takes.UNKNOWN
        if takes is Takes.NOTHING:
            if there and str(following).lower() in ("true", "false"):
                self.position += 1
                self._error(
                    f"{name} takes no value, and {following!r} follows it: vLLM refuses that",
                    f"{name} by itself; to switch it off --no-{name[2:]}",
                )
            return "true"
        if not there:
            if takes is not Takes.UNKNOWN and self.declared is not None:
                self._error(f"{name} wants a value, and none follows it", f"{name} VALUE")
            return None
        assert following is not None
        if takes is Takes.UNKNOWN and _is_flag(name) and following.lower() not in TRUTHS:
            return "true"
        self.position += 1
        while takes is Takes.SOME and self.position < len(self.words):
            if is_option(self.words[self.position]):
                break
            self.position += 1
        return following

    def _error(self, detail: str, fix: str) -> None:
        self.found.findings.append(error(CLASS, detail, fix))


TRUTHS = ("true", "false")
# Options of vLLM's V0 engine; the V1 parser knows none of them.
REMOVED = ("speculative-model", "num-speculative-tokens", "speculative-draft-tensor-parallel-size")


def _is_flag(name: str) -> bool:
    bare = name.removeprefix("--")
    return bare in FLAGS or bare.startswith(FLAG_PREFIXES)
