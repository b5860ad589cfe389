"""What a command meets that it was not made for; each is run as a user runs it."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import lay


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return lay(tmp_path / "env")
