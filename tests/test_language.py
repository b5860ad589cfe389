"""Wrappers with the config.json of published models, as far as its keys matter here."""

import json
from pathlib import Path
from typing import Any

import pytest
import wheels
from real import sources
from test_installation import *  # noqa: F403
