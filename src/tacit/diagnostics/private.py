r"""Advice for those who may not look: from a noisy second moment and a noisy mean.

Two events, both Gaussian, on sums that are exact integers. Rows have norm at most R. Everything
else is post-processing:

- The noise E on XᵀX/n has ‖E‖ ≤ σ(√(2d) + t) with probability 1 − 2e^(−t²/2) (see
  `tacit.preprocessing.PrivatePCA`), so by Weyl's inequality every eigenvalue is known up to that
  much.
- Σλ ≤ R² is public, so that λ_{k+1} + … + λ_d ≤ R² − (λ₁ + … + λ_k).
- The mean square distance to the mean is tr(XᵀX)/n − ‖μ‖², and ‖μ̂‖² is too large by the noise it
  is known to carry.

Where rows are people's, one row of everybody is looked at, and a third event is a histogram of how
many rows people have, up to a public number of them. Everybody has one vote there, whatever the
number, so that it tells how many rows should count before that is decided.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from scipy.linalg import eigh

from tacit import __version__
from tacit.data.owners import Owners, choose_rows, require_same_order
from tacit.data.rows import as_rows
from tacit.diagnostics.advice import TRAIN_DELTA, TRAIN_EPSILON, Advice, RowFacts, advise
from tacit.diagnostics.base import plain
from tacit.exceptions import InputError, MissingBound
from tacit.ledger import Ledger
from tacit.ledger.required import require_ledger
from tacit.mechanisms.additive import noisy_sum
from tacit.mechanisms.covariance import noisy_second_moment
from tacit.mechanisms.histogram import UP, VOTE
from tacit.mechanisms.lattice import require_precision
from tacit.mechanisms.random_streams import Key
from tacit.mechanisms.release import BoundedSum, Releases, Token
from tacit.preprocessing.base import block_rows
from tacit.privacy import sentences
from tacit.privacy.accounting.accountants import gaussian_mu
from tacit.privacy.accounting.calibrate import calibrate
from tacit.privacy.budget import Budget
from tacit.privacy.certificate import Certificate
from tacit.privacy.events import Event, Gaussian, sensitivity
from tacit.privacy.public_size import resolve_size
from tacit.privacy.relation import Neighbors
from tacit.privacy.unit import ROW, Unit

MEAN_SHARE = 0.3  # of μ, that the mean gets, and so does the histogram of people
PEOPLE = "Rows of people"
FAILURE = 0.05


@dataclass(frozen=True, eq=False)
class PrivateInspection:
    """What was released about rows, and advice: it may go out if its certificate says so.

    Attributes
    ----------
    n, d : int
        Rows, or the public number that stands for them; columns.
    eigenvalues : ndarray of shape (d,)
        Of XᵀX/n with noise, falling; some may be negative.
    edge : float
        How far each may be off, with probability 95%.
    above_noise : int
        How many exceed that: directions that noise does not hide.
    mean_norm, rms_distance : float
        Estimates: norm of the mean; root mean square distance of rows to it.
    advice : Advice
    certificate : Certificate
    people : ndarray of shape (k,), optional
        How many people have 1, 2, ... and k rows or more, through noise; some may be negative.
    """

    n: int
    d: int
    eigenvalues: np.ndarray
    edge: float
    above_noise: int
    mean_norm: float
    rms_distance: float
    advice: Advice
    certificate: Certificate
    people: np.ndarray | None = None

    @property
    def releasable(self) -> bool:
        """Whether it may go out."""
        return self.certificate.releasable

    def to_dict(self) -> dict[str, Any]:
        """What was found, with the certificate, as plain JSON values.

        Returns
        -------
        dict
            Attributes by name.
        """
        claim = self.certificate
        budget = {"epsilon": claim.epsilon, "delta": claim.delta, "neighbors": claim.neighbors}
        facts: dict[str, Any] = plain(vars(self))
        return {"releasable": self.releasable, **budget, **facts}


def inspect_privately(
    data: Any,
    *,
    epsilon: float,
    delta: float,
    bound: float | None = None,
    neighbors: Neighbors = "replace_special",
    public_size: int | None = None,
    groups: Any = None,
    max_rows_per_group: int | None = None,
    identifier: str | None = None,
    train: tuple[float, float] = (TRAIN_EPSILON, TRAIN_DELTA),
    ledger: Ledger | None = None,
    random_state: int | None = None,
) -> PrivateInspection:
    """Look at private rows through noise: spectrum, mean and advice, with a certificate.

    Parameters
    ----------
    data : Rows, array or sparse matrix, of shape (n, d)
        Of bounded norm: behind `Normalize` or `ClipNorm`, or with ``bound``. Longer rows are
        shortened, never trusted.
    epsilon, delta : float
        What looking may cost.
    bound : float, optional
        Public bound on the norm of rows.
    neighbors : str
        The relation. With ``add_or_remove_one`` ``public_size`` must be given.
    public_size : int, optional
        Public number that stands for the number of rows, or of people.
    groups : sequence of n identifiers, optional
        Whose rows are whose: everybody counts once, and how many rows people have is shown.
    max_rows_per_group : int, optional
        With ``groups``: the most rows of a person that are told apart. Public.
    identifier : str, optional
        With ``groups``: what the certificate calls them.
    train : (epsilon, delta), optional
        Budget of the training that advice is wanted for.
    ledger : Ledger, optional
        Account that the budget is taken from, before any noise is drawn.
    random_state : int, optional
        Repeatable noise: for tests, not for release.

    Returns
    -------
    PrivateInspection
        With its certificate.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.normal(size=(5000, 4)) * [0.5, 0.01, 0.01, 0.01]
    >>> found = inspect_privately(rows, epsilon=1.0, delta=1e-6, bound=1.0, random_state=0)
    >>> found.above_noise, found.certificate.verify().holds
    (1, True)
    """
    budget = Budget(epsilon, delta)
    rows = as_rows(data, bound=bound)
    if rows.bound is None:
        raise MissingBound("inspect_privately", "bound=, or rows behind Normalize or ClipNorm")
    d, radius = rows.d, float(rows.bound)
    if (groups is None) != (max_rows_per_group is None):
        raise InputError("groups= and max_rows_per_group= belong together")
    who = ROW
    if max_rows_per_group is not None:
        who = Unit("person", max_rows_per_group, identifier)
        require_same_order(data, groups)
        rows = replace(rows, owners=Owners.of(groups, who, rows.n))
    size = resolve_size(rows.units, neighbors, public_size)
    draws = d + d * (d + 1) // 2 + (0 if rows.owners is None else who.rows)
    slack = require_precision(budget.epsilon, budget.delta, draws)
    left = Budget(budget.epsilon, budget.delta - slack)
    unit = sensitivity(neighbors)
    z_mean = unit / (MEAN_SHARE * gaussian_mu(left.epsilon, left.delta))
    first: list[tuple[str, Event]] = [("Mean", Gaussian(z_mean))]
    if rows.owners is not None:
        first.append((PEOPLE, Gaussian(z_mean)))
    known = [event for _, event in first]
    z = calibrate(lambda z: [*known, Gaussian(z)], left, neighbors)
    spent = [*first, ("Second moment", Gaussian(z))]
    key = Key.fresh() if random_state is None else Key.from_seed(random_state)
    facts = {"kind": "inspection", who.plural: size, "columns": d, "bound": radius}
    entry = None
    if ledger is not None:
        require_ledger(ledger, seeded=key.seeded)
        how: dict[str, Any] = {"draws": draws, "budget": budget, "plan": facts, "unit": who}
        entry = ledger.reserve(spent, neighbors=neighbors, **how)
    run = Releases(key, spent, unit=who)
    people = None
    if rows.owners is not None:
        people = _rows_of_people(rows.owners, run.token(PEOPLE).at("inspected people"))
        rows = choose_rows(rows, run.public.hashed("rows of people"))[0].one_each()
    mean_token = run.token("Mean").at("inspected mean").per_row(rows)
    total = noisy_sum(rows.passes(), d, radius, mean_token)
    token = run.token("Second moment").at("inspected moment").per_row(rows)
    moment = noisy_second_moment(rows.passes(block_rows(d)), d, radius, token, size=size)
    run.close()
    certificate = Certificate.issue(
        epsilon=budget.epsilon,
        delta=budget.delta,
        neighbors=neighbors,
        unit=who,
        spent=spent,
        releasable=not key.seeded,
        reasons=sentences.reasons(key.seeded),
        assumptions=(*_assumptions(neighbors, size, d, who), *filter(None, [rows.origin])),
        warnings=sentences.cautions(budget.delta, size),
        numerical_delta=slack,
        plan={**facts, "arithmetic": "exact", **({"ledger": entry.to_dict()} if entry else {})},
        versions={"tacit": __version__, "numpy": np.__version__},
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    if entry is not None:
        entry.settle("summary", certificate.digest)
    found = _read(total / size, moment / size, (radius, z_mean, z, size), certificate, train)
    return replace(found, people=people)


def _rows_of_people(owners: Owners, token: Token) -> np.ndarray:
    """People by how many rows they have, up to the unit's: a vote of everybody, with noise."""
    most = owners.unit.rows
    sizes = np.bincount(owners.codes, minlength=owners.people)
    votes = np.bincount(np.minimum(sizes[sizes > 0], most) - 1, minlength=most)
    total = BoundedSum(votes * VOTE, 1 / VOTE, 1.0, UP, "votes", owner=owners.unit)
    return token.gaussian(total)


def _read(
    mean: np.ndarray,
    moment: np.ndarray,
    noise: tuple[float, float, float, int],
    certificate: Certificate,
    train: tuple[float, float],
) -> PrivateInspection:
    """Everything that follows from what was released; rows are out of sight here."""
    radius, z_mean, z, size = noise
    d = len(mean)
    values = eigh(moment, eigvals_only=True)[::-1]
    edge = z * radius**2 * (math.sqrt(2 * d) + math.sqrt(2 * math.log(2 / FAILURE))) / size
    shift = z_mean * radius / size
    squared_mean = max(0.0, float(mean @ mean) - d * shift**2)
    square = min(max(float(np.trace(moment)), 0.0), radius**2)
    typical = math.sqrt(max(square - squared_mean, 0.0))
    first = np.concatenate([[0.0], np.cumsum(values) - edge * np.arange(1, d + 1)])
    tails = np.minimum.accumulate(radius**2 - np.clip(first, 0.0, radius**2))
    gaps = np.append(values[:-1] - values[1:] - 2 * edge, values[-1] - edge)
    largest = np.clip(values + edge, 0.0, radius**2)
    facts = RowFacts(
        n=size,
        d=d,
        rank=min(d, size),
        tails=np.append(tails[:-1], 0.0),
        eigenvalues=largest,
        lost=np.sqrt(np.append(largest, 0.0)),
        gaps=np.maximum(gaps, 0.0),
        longest=radius,
        typical=typical or radius,
    )
    advice = advise(facts, epsilon=train[0], delta=train[1], neighbors=certificate.neighbors)
    return PrivateInspection(
        n=size,
        d=d,
        eigenvalues=values,
        edge=edge,
        above_noise=int((values > edge).sum()),
        mean_norm=math.sqrt(squared_mean),
        rms_distance=typical,
        advice=advice,
        certificate=certificate,
    )


def _assumptions(neighbors: Neighbors, size: int, d: int, unit: Unit) -> tuple[str, ...]:
    return (
        sentences.rows_known(size, neighbors, unit),
        f"the names and the number of the columns, {d}, are public",
        sentences.SETTINGS,
        sentences.EXACT,
        "elementary functions give a row the same value wherever it stands",
    )
