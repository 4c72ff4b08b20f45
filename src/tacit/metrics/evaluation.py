"""`Evaluation`: figures that may be published, and what follows from the same counts for free."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.exceptions import InputError
from tacit.metrics.conformal import Scores
from tacit.metrics.intervals import Estimate, combine
from tacit.metrics.tables import Reading
from tacit.privacy.certificate import Certificate

if TYPE_CHECKING:
    from tacit.metrics.evaluate import EvaluationPlan

GAPS = (
    *("accuracy", "balanced_accuracy", "recall", "specificity", "precision", "f1", "roc_auc"),
    *("brier_score", "log_loss", "prevalence", "rmse", "mae", "mean_error"),
)
FIRST = ("accuracy", "roc_auc", "r2", "rmse")


@dataclass(frozen=True, eq=False)
class Evaluation(Mapping[str, Estimate]):
    """What was released of how good a model is.

    A mapping from names of figures, which are scikit-learn's, to their estimates.

    Attributes
    ----------
    task : {"classification", "regression"}
        What the model predicts.
    figures : dict of str to Estimate
        Of all units.
    groups : dict of str to Reading
        What is known of every group: figures, curves, calibration, confusion.
    by_class : dict of str to dict
        Figures of every class against the others, where there are more than two.
    gaps : dict of str to dict
        Differences between two groups, by figure.
    classes : tuple of str
        Names, in the order of ``confusion``.
    confusion : list of lists of Estimate
        Shares of (true, predicted) classes in all units.
    curves : dict
        Points of curves.
    calibration : dict of str to list of dict
        By class (of two the second; of more than ten, the most likely one): its observed share, in
        bins of its predicted probability.
    cap : float or None
        Sizes of errors beyond it count as much.
    bounds : (float, float) or None
        Targets and predictions were clamped to them, if they are numbers.
    confidence : float
        Of every interval by itself.
    certificate : Certificate or None
        What was spent.
    scores : Scores or None
        How strange units are, for sets and intervals of predictions.
    lead : Estimate or None
        How much more often the model is right than always saying the most common class would be.
    """

    task: str
    figures: dict[str, Estimate]
    groups: dict[str, Reading] = field(default_factory=dict)
    by_class: dict[str, dict[str, Estimate]] = field(default_factory=dict)
    gaps: dict[str, dict[str, Estimate]] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    confusion: list[list[Estimate]] = field(default_factory=list)
    curves: dict[str, Any] = field(default_factory=dict)
    calibration: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    cap: float | None = None
    bounds: tuple[float, float] | None = None
    confidence: float = 0.95
    certificate: Certificate | None = None
    scores: Scores | None = None
    lead: Estimate | None = None

    @classmethod
    def of(
        cls,
        plan: EvaluationPlan,
        everybody: Reading,
        groups: Mapping[str, Reading],
        *,
        cap: float | None,
        scores: Scores,
    ) -> Evaluation:
        """Put together what was read of all units, and of every group.

        Parameters
        ----------
        plan : EvaluationPlan
            What was counted.
        everybody : Reading
            Of all units.
        groups : mapping of str to Reading
            Of each group.
        cap : float or None
            Of errors.
        scores : Scores
            How strange units are, for sets and intervals.

        Returns
        -------
        Evaluation
            Without a certificate.
        """
        return cls(
            plan.task,
            everybody.figures,
            dict(groups),
            everybody.classes,
            _gaps({name: reading.figures for name, reading in groups.items()}),
            tuple(str(name) for name in plan.classes),
            everybody.confusion,
            everybody.curves,
            everybody.calibration,
            cap,
            plan.bounds,
            plan.confidence,
            scores=scores,
            lead=everybody.lead,
        )

    def __getitem__(self, name: str) -> Estimate:
        return self.figures[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.figures)

    def __len__(self) -> int:
        return len(self.figures)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} {self[name]}" for name in FIRST if name in self)
        return f"Evaluation({shown})"

    @property
    def by_group(self) -> dict[str, dict[str, Estimate]]:
        """Figures of every group."""
        return {name: reading.figures for name, reading in self.groups.items()}

    @property
    def releasable(self) -> bool:
        """Whether it may go out."""
        return self.certificate is not None and self.certificate.releasable

    @property
    def beats_majority(self) -> bool | None:
        """Whether the model is right more often than the most common class is there.

        True if the interval of the accuracy lies above that of the majority, False if below, None
        if the two cannot be told apart.
        """
        if self.lead is None:
            return None
        return True if self.lead.low > 0 else False if self.lead.high < 0 else None

    def threshold(
        self, *, recall: float | None = None, cost: tuple[float, float] | None = None
    ) -> float:
        """A threshold on the probability of the second of two classes, from the same counts.

        Figures of this evaluation are then no test of predictions above it: the threshold was
        chosen on the same rows.

        Parameters
        ----------
        recall : float, optional
            The share of the second class that is to be found; the highest threshold that does.
        cost : (float, float), optional
            Of a false alarm, and of a miss: the threshold of the least expected cost.

        Returns
        -------
        float
            An edge of a bin.
        """
        if len(self.classes) != 2 or (recall is None) == (cost is None):
            raise InputError("of two classes, pass recall=, or cost=(of a false alarm, of a miss)")
        false, true = (np.asarray(side) for side in self.curves["roc"])
        edges = np.asarray(self.curves["edges"])[::-1]
        if recall is not None:
            if not 0 < recall <= 1:
                raise InputError(f"recall={recall!r:.80} must lie in (0, 1]")
            return float(edges[int(np.argmax(true >= recall - 1e-12))])
        try:
            alarm, miss = (float(each) for each in cost)  # type: ignore[union-attr]
        except (TypeError, ValueError):
            alarm = miss = -1.0
        if not (0 <= alarm < math.inf and 0 <= miss < math.inf and alarm + miss > 0):
            raise InputError(
                f"cost={cost!r:.80} must be two costs, of a false alarm and of a miss: (1, 10)"
            )
        share = self["prevalence"].value
        if math.isnan(share):
            raise InputError("noise hides how many there are of either class: test on more rows")
        lost = alarm * (1 - share) * false + miss * share * (1 - true)
        return float(edges[int(np.argmin(lost))])

    def recalibrated(self, probability: Any) -> np.ndarray:
        """Probabilities of the second class, corrected by the observed shares.

        Figures of this evaluation are no test of what comes out: it was corrected on the same rows.

        Parameters
        ----------
        probability : array of shape (n,)
            As predicted.

        Returns
        -------
        ndarray of shape (n,)
            Rising with what was predicted.
        """
        if len(self.classes) != 2 or not self.calibration:
            raise InputError("this evaluation has no calibration curve of two classes")
        from sklearn.isotonic import isotonic_regression

        (parts,) = self.calibration.values()
        middles = [(part["low"] + part["high"]) / 2 for part in parts]
        shares = [part["observed"].value for part in parts]
        widths = [max(part["observed"].width, 1e-6) for part in parts]
        rising = isotonic_regression(shares, sample_weight=1 / np.square(widths))
        values = np.asarray(probability, dtype=np.float64)
        if values.ndim > 1 or not ((values >= 0) & (values <= 1)).all():
            raise InputError(
                "probability must be that of the second class, for every row: "
                "model.predict_proba(X)[:, 1]"
            )
        return np.interp(values, [0.0, *middles, 1.0], [0.0, *rising, 1.0])

    def cutoff(self, coverage: float) -> float:
        """How strange a new row is at most, with at least this probability.

        Parameters
        ----------
        coverage : float
            Between 0 and 1, such as 0.9.

        Returns
        -------
        float
            Of 1 − (probability of its own class), or of the size of its error; infinite if rows
            are too few to say.
        """
        if self.scores is None:
            raise InputError("this evaluation holds no scores to take a cutoff from")
        return self.scores.cutoff(coverage)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values.

        Returns
        -------
        dict
            Attributes by name; estimates have ``value``, ``low`` and ``high``.
        """
        plain: dict[str, Any] = _plain(
            {
                "task": self.task,
                "confidence": self.confidence,
                "figures": self.figures,
                "by_group": self.by_group,
                "groups": {name: reading.to_dict() for name, reading in self.groups.items()},
                "by_class": self.by_class,
                "gaps": self.gaps,
                "classes": list(self.classes),
                "confusion": self.confusion,
                "curves": self.curves,
                "calibration": self.calibration,
                "error_cap": self.cap,
                "beats_majority": self.beats_majority,
            }
        )
        return plain


def _gaps(groups: Mapping[str, Mapping[str, Estimate]]) -> dict[str, dict[str, Estimate]]:
    """Differences between any two groups."""
    found: dict[str, dict[str, Estimate]] = {}
    for one, other in combinations(groups, 2):
        for name in GAPS:
            if name in groups[one] and name in groups[other]:
                pair = [groups[one][name], groups[other][name]]
                wide = 1.0 if pair[0].high <= 1 and pair[0].low >= 0 else math.inf
                apart = combine(pair, [1.0, -1.0], within=(-wide, wide))
                found.setdefault(name, {})[f"{one} - {other}"] = apart
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, Estimate):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
