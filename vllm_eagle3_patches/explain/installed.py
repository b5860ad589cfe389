"""The installation that the user names beside a log: is the gate it failed at open there?"""

from __future__ import annotations

from dataclasses import dataclass

from vllm_eagle3_patches import installation, operations, target
from vllm_eagle3_patches.errors import PatchError
from vllm_eagle3_patches.explain.report import Report
from vllm_eagle3_patches.gates.base import Finding, State
from vllm_eagle3_patches.installation import Installation


@dataclass(frozen=True)
class Installed:
    """What was seen.

    Attributes:
        installation: None where none was found.
        gate: the state of the gate the log's cause belongs to, None where that is not known.
        problem: why nothing, or not the gate, could be looked at.
    """

    installation: Installation | None
    gate: Finding | None = None
    problem: str | None = None

    def notes(self, found: Report) -> list[str]:
        """What the reader of the log has to know of it."""
        if self.installation is None:
            return [f"the installation named was not looked at: {self.problem}"]
        told = []
        logged, here = found.facts.version, self.installation.version
        if logged is not None and logged != here:
            told.append(f"the log is of vLLM {logged}, the installation named has {here}")
        if self.problem is not None:
            told.append(f"its gates could not be looked at: {self.problem}")
        return told

    def advice(self) -> str | None:
        """What to do in place of `apply`, where applying is not what is missing."""
        if self.gate is None or self.installation is None:
            return None
        where = f"vLLM {self.installation.version} in {self.installation.package}"
        return {
            State.OPEN: f"the gate is open in {where}: start the server from there again; this log "
            "is of a start before `apply`, or of another installation",
            State.NATIVE: f"{where} has this natively: start the server from there; this log is "
            "of another installation",
            State.REFUSED: f"apply refuses {where}: {self.gate.detail}",
            State.NOT_APPLICABLE: f"{where} has no such gate: this log is of another installation",
        }.get(self.gate.state)

    def as_json(self) -> dict[str, object]:
        here = self.installation
        return {
            "version": here and here.version,
            "package": here and str(here.package),
            "distribution": here and here.distribution,
            "state": self.gate and self.gate.state.value,
            "problem": self.problem,
        }


def look(
    found: Report, *, python: str | None, site_packages: str | None, allow_editable: bool
) -> Installed | None:
    """The installation named by `--python` or `--site-packages`; None where none is named."""
    if python is None and site_packages is None:
        return None
    try:
        here = installation.find(
            python=python, site_packages=site_packages, allow_editable=allow_editable
        )
    except PatchError as error:
        return Installed(None, problem=error.what)
    name = found.facts.target_architecture or found.facts.model
    if found.gate is None:
        return Installed(here)
    try:
        report = operations.check(here, target.request(name))
    except PatchError as error:
        return Installed(here, problem=error.what)
    gate = next((gate for gate in report.findings if gate.gate == found.gate), None)
    return Installed(here, gate)
