"""All claims, in the order of the papers: what they say, and what tests them."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tacit.research.reproduce import (
    hu_imputation,
    hu_lemmas,
    hu_projection,
    hu_ptr,
    hu_sensitivity,
    li_bounds,
    li_median,
    li_spectrum,
    pinto_dimension,
    pinto_methods,
    pinto_public,
    pinto_theory,
    song,
    song_dimension,
    song_flatness,
    song_lower,
    song_privacy,
    song_upper,
    sun_clusters,
    sun_table,
    sun_theorems,
)
from tacit.research.reproduce.claim import Claim, Finding
from tacit.research.reproduce.work import Work

TESTS: dict[str, Callable[[Work], Finding]] = {
    "sun-table1": sun_table.accuracy,
    "sun-table2": sun_table.concentrated,
    "sun-counterexample": sun_clusters.counterexample,
    "sun-theorem1": sun_theorems.constants,
    "sun-theorem2": sun_theorems.lower_bound,
    "song-dimension": song_dimension.dimension,
    "song-privacy": song_privacy.noise,
    "song-upper-bound": song_upper.upper_bound,
    "song-population": song_upper.population,
    "song-local": song_upper.local,
    "song-lower-bound": song_lower.lower_bound,
    "song-flatness": song_flatness.stationary,
    "song-clipped-risk": song.clipped_risk,
    "song-clipping": song.clipping,
    "li-empirical": li_bounds.empirical,
    "li-population": li_bounds.population,
    "li-median": li_median.medians,
    "li-spectrum": li_spectrum.spectrum,
    "pinto-dimension": pinto_dimension.dimension,
    "pinto-methods": pinto_methods.methods,
    "pinto-public": pinto_public.public_rows,
    "pinto-shift": pinto_public.shift,
    "pinto-mnist": pinto_dimension.mnist,
    "pinto-xi": pinto_public.separable,
    "pinto-raft": pinto_methods.raft,
    "pinto-large": pinto_dimension.large,
    "pinto-theory": pinto_theory.theory,
    "hu-group": hu_sensitivity.group,
    "hu-table2": hu_sensitivity.overall,
    "hu-table3": hu_imputation.imputations,
    "hu-lemmas": hu_lemmas.formulas,
    "hu-ptr": hu_ptr.released,
    "hu-lowrank": hu_projection.lowrank,
    "hu-clipping": hu_projection.clipping,
}


def _claim(name: str, facts: dict[str, Any], shared: dict[str, str]) -> Claim:
    needs: dict[str, Any] = {key: tuple(facts.pop(key, ())) for key in ("data", "modules")}
    differs = facts.pop("differs", "").format(**shared)
    notes = tuple(note.format(**shared) for note in facts.pop("notes", ()))
    return Claim(name, test=TESTS[name], differs=differs, notes=notes, **needs, **facts)


_LISTED = tomllib.loads(Path(__file__).with_name("claims.toml").read_text(encoding="utf-8"))
#: By name, as ``claims.toml`` has them.
CLAIMS: dict[str, Claim] = {
    name: _claim(name, facts, _LISTED["shared"]) for name, facts in _LISTED["claims"].items()
}
