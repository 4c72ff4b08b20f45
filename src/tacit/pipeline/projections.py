"""Counterparts of PCA, TruncatedSVD and random projections."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any

from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.random_projection import (
    GaussianRandomProjection,
    SparseRandomProjection,
    johnson_lindenstrauss_min_dim,
)

from tacit.exceptions import InputError
from tacit.pipeline.parts import Given, Option, Part, Place, refusal
from tacit.preprocessing import (
    NoiselessPCA,
    PrivatePCA,
    PublicPCA,
    RandomProjection,
    SoftPCA,
    Stage,
)

SOFT = 0.05  # strength of SoftPCA, in squared norm bounds


def components(name: str, step: PCA | TruncatedSVD, given: Given) -> Part:
    k, centered = step.n_components, isinstance(step, PCA)
    if not _whole(k):
        why = "a number of components that is read from private rows leaks; pass an integer"
        raise refusal(name, f"n_components={k!r}", why)
    if k < 1:
        raise refusal(name, f"n_components={k!r}", "pass an integer of at least 1")
    if centered and step.whiten:
        raise refusal(
            name,
            "whiten=True",
            "dividing by the private rows' own small eigenvalues has no bound; leave it out, or "
            "put StandardScaler in front",
        )
    k = int(k)

    def tight(place: Place) -> list[Stage]:
        _require_columns(name, k, place)
        return place.tight()

    def public(place: Place) -> list[Stage]:
        return [*tight(place), PublicPCA(given.public, k)]

    def private(place: Place) -> list[Stage]:
        # Noise of the second moment, R²·z·√d/n in norm, within a quarter of R²/k.
        noise = 0.25 / k * place.n / math.sqrt(place.d)
        share = place.share(f"{k} components", noise)
        return [*tight(place), PrivatePCA(n_components=k, share=share)]

    def soft(place: Place) -> list[Stage]:
        return [*tight(place), SoftPCA(SOFT * place.typical**2)]

    def noiseless(place: Place) -> list[Stage]:
        return [*tight(place), NoiselessPCA(k, given.gap, centered=centered)]

    free = "public rows give the components: no cost"
    noisy = "noise in the second moment stays within a quarter of an average component"
    fading = (
        f"all columns stay, and directions with less than {SOFT:g} of the largest possible second "
        f"moment fade away, instead of those behind the first {k}"
    )
    tested = f"a test that the eigengap is at least {given.gap or 0:g} is part of the plan"
    about_zero = (
        "PCA centres rows; its counterparts take components about zero (NoiselessPCA apart), so "
        "put "
        "StandardScaler in front unless rows lie about zero"
    )
    return Part.of(
        name,
        Option("PublicPCA", public, free, needs=given.lacks("public")),
        Option("PrivatePCA", private, noisy),
        Option("SoftPCA", soft, fading, noiseless=True),
        Option("NoiselessPCA", noiseless, tested, noiseless=True, needs=given.lacks("gap")),
        note=about_zero if centered else "uncentred, like TruncatedSVD",
    )


def random_projection(
    name: str, step: GaussianRandomProjection | SparseRandomProjection, given: Given
) -> Part:
    k = step.n_components
    if k != "auto" and not (_whole(k) and k >= 1):
        raise refusal(name, f"n_components={k!r}", "pass an integer of at least 1, or 'auto'")
    seed = int(step.random_state) if isinstance(step.random_state, Integral) else None

    def build(place: Place) -> list[Stage]:
        # "auto" goes by the number of rows, which is public.
        width = johnson_lindenstrauss_min_dim(place.n, eps=step.eps) if k == "auto" else k
        _require_columns(name, width, place)
        return [RandomProjection(int(width), seed)]

    said = "a matrix of random signs looks at no row: no cost"
    return Part.of(name, Option("RandomProjection", build, said))


def _whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _require_columns(name: str, k: int, place: Place) -> None:
    if k > place.d:
        raise InputError(f"{name} asks for {k} components of rows with {place.d} columns")
