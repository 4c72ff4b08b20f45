"""Counterparts of StandardScaler, MinMaxScaler, MaxAbsScaler and Normalizer."""

from __future__ import annotations

import math

from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, StandardScaler

from tacit.pipeline.parts import LEAST_SHARE, Given, Option, Part, Place, refusal
from tacit.preprocessing import (
    Bound,
    ClipNorm,
    NoiselessScale,
    Normalize,
    PrivateCenter,
    PrivateScale,
    PublicScale,
    Stage,
)


def standard(name: str, step: StandardScaler, given: Given) -> Part:
    centered = bool(step.with_mean)
    if not step.with_std:
        return _centering(name) if centered else Part.nothing(name, "it neither centres nor scales")

    def settings(place: Place) -> dict[str, float]:
        # Noise of a mean square, √2·R²·z/n, within a quarter of R²/d.
        share = place.share("the scales", 0.25 * place.n / (math.sqrt(2) * place.d))
        noise = math.sqrt(2) * place.unit * place.stir / (share * place.mu)
        # No less than that noise, which is never divided by then.
        strength = place.typical**2 * max(0.01 / place.d, noise / place.n)
        return {"share": share, "strength": strength}

    def public(place: Place) -> list[Stage]:
        return [PublicScale(given.public, with_mean=centered), ClipNorm(2 * math.sqrt(place.d))]

    def private(place: Place) -> list[Stage]:
        return [*place.tight(), PrivateScale(centered=centered, **settings(place))]

    def noiseless(place: Place) -> list[Stage]:
        radius = math.sqrt(place.d)
        return [*place.tight(), NoiselessScale(centered=centered, radius=radius, **settings(place))]

    free = "public rows give the scales, and rows longer than 2√d are shortened: no cost"
    noisy = "noise in a column's mean square stays within a quarter of an average one"
    exact = "exact scales in training, and noisy ones, just as dear, for prediction"
    return Part.of(
        name,
        Option("PublicScale", public, free, needs=given.lacks("public")),
        Option("PrivateScale", private, noisy),
        Option("NoiselessScale", noiseless, exact, noiseless=True),
        note="" if centered else "without means, columns are divided by their root mean square",
    )


def _centering(name: str) -> Part:
    def build(place: Place) -> list[Stage]:
        return [*place.tight(), PrivateCenter(share=LEAST_SHARE)]

    said = "a noisy mean is subtracted, shrunk by its noise: few rows make it useless, not harmful"
    why = "a model of exactly centred rows needs that mean whenever it predicts"
    return Part(name, (Option("PrivateCenter", build, said),), (("noiseless centring", why),))


def extremes(name: str, step: MinMaxScaler | MaxAbsScaler, given: Given) -> Part:
    if not isinstance(given.bounds, Bound):
        raise refusal(
            name,
            "a norm bound alone",
            "one row can move the smallest or largest value all the way, however many rows there "
            "are; give bounds=(low, high)",
        )
    if others := [kind for kind in given.before if kind != "SimpleImputer"]:
        raise refusal(name, f"a place behind {others[0]}", "put it first")
    said = "bounds= maps every column to [-1, 1] already, without looking at rows"
    return Part.nothing(name, said)


def normalizer(name: str, step: Normalizer, given: Given) -> Part:
    if step.norm != "l2":
        raise refusal(name, f"norm={step.norm!r}", "use norm='l2'")
    note = "each row by itself: no cost"
    if isinstance(given.bounds, Bound):
        note += "; it is the row of columns mapped to [-1, 1] that is scaled to norm 1"
    return Part.of(name, Option("Normalize", lambda place: [Normalize()], note))
