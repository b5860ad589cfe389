"""A child ends when its parent does, however the parent ends, and takes what it made along."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from pathlib import Path

from vllm_eagle3_patches.rehearsal.inside import group

TEMPORARY = "vllm-eagle3-rehearsal-"


def _end(folder: Path) -> None:
    """From a process outside the group: what is being killed cannot clean up behind itself."""
    own = os.getpgrp()
    if os.fork() == 0:
        os.setsid()
        group.kill(own)
        for _ in range(5):
            if folder.name.startswith(TEMPORARY):  # and not what the user wants to keep
                shutil.rmtree(folder, ignore_errors=True)
            time.sleep(0.2)
        os._exit(0)


def end_with_parent(folder: Path) -> None:
    """Standard input is a pipe that the parent holds open: its end means that it is gone.

    Then the temporary folder is removed, and the whole process group is killed: vLLM's workers
    are in it.
    """
    descriptor = os.dup(0)
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    sys.stdin = None

    def watch() -> None:
        while True:
            try:
                if not os.read(descriptor, 4096):
                    break
            except InterruptedError:
                continue
            except OSError:
                break
        _end(folder)

    threading.Thread(target=watch, name="parent", daemon=True).start()
