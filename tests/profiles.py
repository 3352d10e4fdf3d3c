"""How much the campaigns among the tests do: little in every run, much when HYPOTHESIS_PROFILE is "long"."""

from __future__ import annotations

import os

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")


def by_profile(default: int, long: int) -> int:
    """The number that the profile of this run asks for."""
    return {"default": default, "long": long}[PROFILE]
