"""What the papers print, from ``printed.toml``."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

#: Numbers by claim.
PRINTED: dict[str, Any] = tomllib.loads(
    Path(__file__).with_name("printed.toml").read_text(encoding="utf-8")
)
