"""How a command ends: it says why, names the file and changes nothing; or it does its work."""

from __future__ import annotations

from pathlib import Path

from command import Done, call, difference, snapshot, unchanged

WRITING = ["apply", "revert"]
READING = ["check", "diff", "apply --dry-run"]
ALL = [*READING, *WRITING]


def refused(code: int, *said: str, command: str, site: Path | None, words: list[str] = []) -> Done:  # noqa: B006
    """The command ends with this code, has said these words, and nothing has changed."""
    with unchanged(*([site.parent] if site else [])):
        done = call(*command.split(), *words, site=site)
    assert done.code == code, done
    assert done.out == "" or command == "check"
    assert done.err.startswith("vllm-eagle3-patch: error: ")
    for word in said:
        assert word in done.err, done.err
    assert "Traceback" not in done.err
    if command == "apply":
        told = call("apply", *words, "--json", site=site)
        assert (told.code, told.json["exit"], told.err) == (code, code, "")
        assert told.json["error"]["what"] in done.err
    return done


def works(site: Path) -> None:
    """apply and revert do their work, and nothing is left behind."""
    before = snapshot(site)
    assert call("apply", site=site).code == 0
    assert call("check", site=site).code == 0
    assert call("revert", site=site).code == 0
    assert difference(before, snapshot(site)) == set()
