"""What every stage has in common.

A stage looks at the data in one of four ways, its *kind*: ``free`` (never),
``public`` (at other, public rows), ``private`` (through noise, as an event),
``noiseless`` (exactly, which makes everything after it more sensitive). Fitted, it
is a row-wise map; an affine one folds into the model's coefficients.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
import scipy.sparse as sp

from tacit.data.rows import CHUNK_ROWS, Chunk, Rows, as_rows
from tacit.exceptions import InputError, MissingBound, ReleaseError
from tacit.mechanisms.random_streams import Key
from tacit.mechanisms.release import PublicRandomness, Releases, Token
from tacit.params import Params
from tacit.privacy.events import Event, Failure, Gaussian
from tacit.privacy.sensitivity.drift import Drift
from tacit.progress import Progress

Kind = Literal["free", "public", "private", "noiseless"]

SLIP = 2.0**-36  # a few thousand roundings of a well-conditioned map
LARGEST_FLOAT = sys.float_info.max
#: What public settings and norm bounds may be: their squares, sums and ratios are ordinary floats.
LEAST_SETTING, LARGEST_SETTING = 1e-100, 1e100


@dataclass(frozen=True)
class Context:
    """What a stage is told when it is fitted inside a plan.

    Attributes
    ----------
    size : int
        The public normaliser: the number of rows, or a stand-in for it.
    token : Token or None
        What a stage that pays may release.
    public : PublicRandomness
        Random signs that anybody may know.
    before : tuple of Stage
        The fitted stages in front, which public rows must pass as well.
    position : int
        Place in the plan; it keeps the randomness of two stages apart.
    drift : Drift or None
        How far the rows that come in may lie from a neighbour's, after noiseless stages.
    counted : bool
        Whether ``size`` is the number of rows itself; not so where that is private.
    strict : bool
        Whether exact products are to be checked.
    norm : float or None
        Norm of a typical row, by what the stages in front have released.

    Examples
    --------
    >>> from tacit.privacy import Gaussian
    >>> Context.paid(Gaussian(2.0), size=1000).size
    1000
    """

    size: int
    token: Token | None = None
    public: PublicRandomness = field(default_factory=lambda: PublicRandomness(Key.fresh()))
    before: tuple[Stage, ...] = ()
    position: int = 0
    drift: Drift | None = None
    counted: bool = True
    strict: bool = False
    norm: float | None = None

    @classmethod
    def paid(
        cls,
        event: Event,
        size: int,
        *,
        failure: float = 0.0,
        key: Key | None = None,
        **more: Any,
    ) -> Context:
        """A context for a stage by itself, outside any plan: what it may release is one event.

        Parameters
        ----------
        event : Event
            What fitting costs.
        size : int
            The public normaliser.
        failure : float
            Probability that what it releases may fail, besides.
        key : Key, optional
            Where randomness comes from; a fresh one unless given.
        **more
            Other attributes.

        Returns
        -------
        Context
            With a token for that event.
        """
        counted = [("stage", event), *([("stage", Failure(failure))] if failure else [])]
        run = Releases(key or Key.fresh(), counted)
        return cls(size, run.token("stage"), run.public, **more)

    def release(self, label: str) -> Token:
        """The token, drawn from the stream of that name and of the stage's place in the plan.

        Parameters
        ----------
        label : str
            Name of the stream.

        Returns
        -------
        Token
            What may be drawn.
        """
        if self.token is None:
            raise ReleaseError("a stage that was not paid for looks at private rows")
        return self.token.at(label, self.position)


@dataclass
class Stage(Params):
    """A step before training; subclasses say how they pay, and map rows.

    `fit` sets attributes that end in an underscore and returns the stage; a
    plan fits copies, so the stages passed to an estimator stay as they were.
    """

    kind: ClassVar[Kind]
    #: Whether the map is affine, so that `fold` can carry coefficients back through it.
    affine: ClassVar[bool] = False
    #: Parameters that are data rather than settings: never written to a file.
    unsaved: ClassVar[tuple[str, ...]] = ()
    #: Whether missing values (NaN) pass through, as gaps that stay where they are.
    keeps_gaps: ClassVar[bool] = False
    #: Whether missing values are filled here.
    fills_gaps: ClassVar[bool] = False
    #: Whether a row of zeros stays one.
    keeps_zero: ClassVar[bool] = False
    #: Whether rows are taken out, by making them rows of zeros that count nothing.
    blanks: ClassVar[bool] = False
    #: Whether fitting is an event of its own, which `event` states.
    pays: ClassVar[bool] = False
    #: Whether it takes rows as they come, so that no other stage may stand in front.
    must_be_first: ClassVar[bool] = False
    #: Whether several threads may map chunks at the same time.
    thread_safe: ClassVar[bool] = True
    #: Whether no row out exceeds the bound, whatever rows come in.
    certain_norm: ClassVar[bool] = False
    #: Whether columns are divided by public numbers, which `column_scales` has once it is fitted.
    scales_columns: ClassVar[bool] = False
    #: Whether rows are moved by one vector, all alike, or not at all: weights mean what they did.
    translates: ClassVar[bool] = False
    #: Whether rows leave it as they came: it is there for what it releases, behind all others.
    keeps_rows: ClassVar[bool] = False
    #: Whether it maps rows by a network that no model file holds, and that `supply` brings.
    external: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """Name of its class."""
        return type(self).__name__

    @property
    def makes_gaps(self) -> bool:
        """Whether rows out may have missing values although rows in have none."""
        return False

    @property
    def in_memory(self) -> bool:
        """Whether all rows are in memory at once while it is fitted."""
        return False

    @property
    def takes_tables(self) -> bool:
        """Whether rows in are rows of a table with named columns."""
        return False

    @property
    def tested(self) -> bool:
        """Whether its drift holds only under a condition on the rows, which a plan then tests."""
        return False

    @property
    def fails(self) -> bool:
        """Whether what it releases rests on a threshold: a plan then counts a `Failure` for it."""
        return False

    def event(self, noise_multiplier: float) -> Event:
        """What fitting costs, given its noise, if it `pays`.

        Parameters
        ----------
        noise_multiplier : float
            Standard deviation of the noise, in contributions of one row.

        Returns
        -------
        Event
            As an accountant takes it.
        """
        raise TypeError(f"{self.name} does not say what it costs")

    def failure(self, probability: float, noise_multiplier: float) -> Failure:
        """What may fail, with that probability, given its noise, if it `fails`.

        Parameters
        ----------
        probability : float
            That a plan sets aside of δ.
        noise_multiplier : float
            Of its noise.

        Returns
        -------
        Failure
            With the law of its threshold where that is known, which tells what several rows cost.
        """
        return Failure(probability)

    def draws(self, d: int) -> int:
        """How many noise values it draws, for d columns in, if it `pays`.

        Parameters
        ----------
        d : int
            Columns in.

        Returns
        -------
        int
            Numbers drawn.
        """
        raise TypeError(f"{self.name} does not say how much noise it draws")

    def width(self, d: int) -> int:
        """Columns out, for d columns in: public, whatever private rows hold.

        Parameters
        ----------
        d : int
            Columns in.

        Returns
        -------
        int
            Columns out.
        """
        return d

    def widest(self, d: int) -> int:
        """Most columns out, for at most d in, where `width` is known only once it is fitted.

        Parameters
        ----------
        d : int
            Most columns in.

        Returns
        -------
        int
            `width`, as a rule; before `fit`, that may be what is expected.
        """
        return self.width(d)

    def bound(self, radius: float | None, d: int | None = None) -> float | None:
        """Norm bound of the rows out, for rows of norm at most ``radius`` in.

        Parameters
        ----------
        radius : float or None
            Norm bound of the rows in; None if there is none.
        d : int, optional
            Columns in.

        Returns
        -------
        float or None
            Norm bound of the rows out.
        """
        raise TypeError(f"{self.name} does not say how it bounds rows")

    def typical(self, radius: float | None, d: int | None = None) -> float | None:
        """Scale of the rows out, for choosing settings: the bound, unless that is far off.

        Parameters
        ----------
        radius : float or None
            Norm bound of the rows in.
        d : int, optional
            Columns in.

        Returns
        -------
        float or None
            A norm that rows out may be expected to have.
        """
        return self.bound(radius, d)

    def shown(self, radius: float, d: int) -> float | None:
        """The same for rows of that scale, once fitted: by what was released besides.

        Parameters
        ----------
        radius : float
            Scale of the rows in.
        d : int
            Columns in.

        Returns
        -------
        float or None
            Scale of the rows out.
        """
        return self.typical(radius, d)

    def rounding_bound(self, radius: float) -> float:
        """How far a computed row may lie from the ideal one, in norm bounds of the rows out.

        Parameters
        ----------
        radius : float
            Norm bound of the rows in.

        Returns
        -------
        float
            In units of the norm bound of the rows out.
        """
        return SLIP

    def lipschitz(self, d: int | None = None) -> float | None:
        """How much farther apart the map can carry two rows; None if there is no limit.

        Parameters
        ----------
        d : int, optional
            Columns in.

        Returns
        -------
        float or None
            A Lipschitz constant in the L2 norm.
        """
        return None

    def drift(self, incoming: Drift, n: int, d: int | None = None) -> Drift:
        """Drift of the rows out, for that of the rows in (``docs/drift.md``, section 3).

        Parameters
        ----------
        incoming : Drift
            Of the rows in.
        n : int
            Number of rows.
        d : int, optional
            Columns in.

        Returns
        -------
        Drift
            Of the rows out.
        """
        bound = self.bound(incoming.bound, d)
        if bound is None:
            raise InputError(
                f"{self.name} does not bound its rows before it is fitted; put it in front of the "
                "noiseless stages"
            )
        if not incoming.l1:
            return Drift(bound)
        factor = self.lipschitz(d)
        if factor is None:
            raise InputError(
                f"{self.name} may tear apart rows that lie close together, so it cannot follow a "
                "noiseless stage; put it in front of that, or use ClipNorm(radius) here"
            )
        return incoming.lipschitz(factor, bound)

    def expand(
        self,
        before: Sequence[Stage],
        *,
        columns: int,
        size: int,
        mu: float,
        intercept: bool,
        takes_moment: bool,
    ) -> tuple[tuple[Stage, ...], str]:
        """The stages that it stands for, chosen by public facts, and why; itself, as a rule.

        Parameters
        ----------
        before : sequence of Stage
            The stages in front, not yet fitted.
        columns, size : int
            Columns of the table; number of rows, or the public stand-in for it.
        mu : float
            Gaussian budget of the whole plan, per unit of sensitivity.
        intercept : bool
            Whether an intercept is fitted.
        takes_moment : bool
            Whether the trainer's steps follow a second moment, if one is released.

        Returns
        -------
        stages : tuple of Stage
            What takes its place.
        why : str
            The reason, in words; empty if it stays.
        """
        return (self,), ""

    def shortage(self, size: int, d: int, noise_multiplier: float) -> str:
        """What to say, before it is fitted, if rows are too few for its noise; empty if not.

        Parameters
        ----------
        size : int
            Number of rows, or the public stand-in for it.
        d : int
            Columns in.
        noise_multiplier : float
            Of its noise.

        Returns
        -------
        str
            A warning, or nothing.
        """
        return ""

    def require_rows(self, size: int, d: int, noise_multiplier: float, failure: float) -> None:
        """Refuse, before anything is spent, rows that are too few for it to be of any use.

        Parameters
        ----------
        size : int
            Number of rows, or the public stand-in for it.
        d : int
            Columns in.
        noise_multiplier : float
            Of its noise.
        failure : float
            Probability that was counted for accidents, if it `fails`.
        """

    @property
    def carries_constant(self) -> bool:
        """Whether rows out have a constant feature, so that the trainer adds none."""
        return False

    def resolve(
        self, before: Sequence[Stage], *, columns: int, size: int, outputs: int, mu: float
    ) -> Self:
        """The same stage with every ``"auto"`` replaced, by public facts only.

        Parameters
        ----------
        before : sequence of Stage
            The stages in front, resolved and not yet fitted.
        columns : int
            Columns of the rows in.
        size, outputs : int
            Number of rows, or the public stand-in for it; columns of scores.
        mu : float
            Gaussian budget left for training, per unit of sensitivity.

        Returns
        -------
        Self
            The stage itself if nothing was left to choose, or a copy.
        """
        return self

    def why(self) -> str:
        """What `resolve` chose and why, in words; empty if there was nothing to choose.

        Returns
        -------
        str
            For `CalibratedPlan.explain`.
        """
        return ""

    def cautions(self) -> tuple[str, ...]:
        """After `fit`: what a certificate should warn of.

        Returns
        -------
        tuple of str
            Sentences.
        """
        return ()

    def found(self) -> str:
        """After `fit`: what it found out through noise that people should be told at once.

        Returns
        -------
        str
            A clause; empty as a rule.
        """
        return ""

    @property
    def column_scales(self) -> tuple[float, ...]:
        """After `fit`: what the columns were divided by, if it `scales_columns`."""
        return ()

    @property
    def monotone(self) -> tuple[tuple[int, int, int], ...]:
        """Which weights of rows out must not fall from one to the next: start, stop and sign.

        With sign -1 they must not rise. One weight by itself must not be negative, or positive.
        """
        return ()

    @property
    def shift(self) -> np.ndarray | None:
        """After `fit`: the released vector whose subtraction is all that it does, if it is.

        Whoever computes sums may subtract it then, so that sparse rows stay sparse.
        """
        return None

    def mean_noise_norm(self, noise_multiplier: float, radius: float, size: int, d: int) -> float:
        """How far from the origin the noise of a mean leaves rows that it centres; 0 if none.

        Parameters
        ----------
        noise_multiplier : float
            z, of its own release.
        radius : float
            R, norm bound of the rows that come in.
        size : int
            n, number of rows, or the public stand-in for it.
        d : int
            Columns.

        Returns
        -------
        float
            Root of the expected square of that noise's norm.
        """
        return 0.0

    def moment_noise(self, noise_multiplier: float | None, size: int, d: int) -> float:
        """Norm of the noise on a second moment that it releases; 0 if it releases none.

        Parameters
        ----------
        noise_multiplier : float or None
            z, of its own release; None if that was made before.
        size, d : int
            Number of rows, or the public stand-in for it; columns.

        Returns
        -------
        float
            σ√(2d) for rows of norm 1, about the largest eigenvalue of the noise.
        """
        return 0.0

    @property
    def moment(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Eigenvalues (k,) and eigenvectors (d, k) of a second moment that it has released."""
        return None

    def beyond(self, chunk: Chunk) -> np.ndarray:
        """Which rows lie beyond what it was told to expect: asked of public rows only.

        Parameters
        ----------
        chunk : ndarray, sparse matrix or Table, of shape (n, d)
            Public rows.

        Returns
        -------
        ndarray of bool, of shape (n,)
            Or of shape (0,) if there is nothing to expect.
        """
        return np.zeros(0, dtype=bool)

    def fit(self, rows: Any, context: Context | None = None) -> Self:
        """Learn what the map needs; nothing, unless overridden.

        Parameters
        ----------
        rows : Rows, or array of shape (n, d)
            Private rows, or what stands for them if the stage never looks.
        context : Context, optional
            What a plan tells it; outside any plan a private stage pays for itself.

        Returns
        -------
        Self
            The fitted stage.
        """
        as_rows(rows, gaps=self.fills_gaps)
        return self

    def gathers(self, *, moved: bool) -> bool:
        """Whether it needs all rows in one place to be fitted, so that no cluster can do it.

        Parameters
        ----------
        moved : bool
            Whether a noiseless stage is in front.

        Returns
        -------
        bool
            True if so.
        """
        return False

    def precompute(self, rows: Rows, context: Context, progress: Progress) -> None:
        """Do slow work on rows ahead of the first pass, to show how far it is; mostly nothing.

        Parameters
        ----------
        rows : Rows
            Those that come in.
        context : Context
            What the plan tells it.
        progress : callable
            Told how far it is.
        """

    def example(self, d: int) -> Any:
        """One row that it can map, made up.

        Parameters
        ----------
        d : int
            Columns that come in.

        Returns
        -------
        ndarray of shape (1, d), or Table
            A table of one row, if it takes tables.
        """
        return np.zeros((1, d))

    def supply(self, network: Any) -> None:
        """Bring the network of a stage that is `external`.

        Parameters
        ----------
        network : str, path or Extractor
            What was left out of its file.

        Raises
        ------
        TypeError
            If it has no network.
        """
        raise TypeError(f"{self.name} has no network")

    def apply(self, chunk: Chunk) -> Chunk:
        """Map one chunk, each row by itself.

        Parameters
        ----------
        chunk : ndarray or sparse matrix of shape (n, d)
            Rows in.

        Returns
        -------
        ndarray or sparse matrix of shape (n, width)
            Rows out.
        """
        raise TypeError(f"{self.name} does not map rows")

    def through(self, rows: Rows) -> Rows:
        """``rows`` seen through this stage, with their new width and bound.

        Parameters
        ----------
        rows : Rows
            Rows in.

        Returns
        -------
        Rows
            Rows out, none of which is computed yet.
        """
        bound = usable(self.bound(rows.bound, rows.d))
        return rows.through(self, d=self.width(rows.d), bound=bound)

    def transform(self, rows: Any) -> Any:
        """Map rows of any kind; what is given as `Rows` stays lazy.

        Parameters
        ----------
        rows : Rows, array or sparse matrix of shape (n, d), or table
            Rows in.

        Returns
        -------
        Rows, ndarray or sparse matrix of shape (n, width)
            Rows out.
        """
        seen = self.through(as_rows(rows, gaps=self.fills_gaps))
        return seen if isinstance(rows, Rows) else seen.collect()

    def fold(self, coef: np.ndarray, intercept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients (K, d) on rows out, rewritten for rows in.

        Parameters
        ----------
        coef : ndarray of shape (K, width)
            Coefficients on rows out.
        intercept : ndarray of shape (K,)
            Intercepts.

        Returns
        -------
        coef : ndarray of shape (K, d)
            Coefficients on rows in.
        intercept : ndarray of shape (K,)
            Intercepts that give the same scores.
        """
        raise TypeError(f"{self.name} is not affine")

    def unfold(self, coef: np.ndarray, intercept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients (K, d) on rows in, rewritten for rows out: what `fold` undoes.

        Where columns are lost, the nearest that `fold` can reach.

        Parameters
        ----------
        coef : ndarray of shape (K, d)
            Coefficients on rows in.
        intercept : ndarray of shape (K,)
            Intercepts.

        Returns
        -------
        coef : ndarray of shape (K, width)
            Coefficients on rows out.
        intercept : ndarray of shape (K,)
            Intercepts.
        """
        raise TypeError(f"{self.name} is not affine")

    def note(self) -> str:
        """One sentence for the certificate: how this stage pays.

        Returns
        -------
        str
            Empty if there is nothing to say.
        """
        return ""

    def assumption(self) -> str:
        """What the guarantee takes for granted on its account; empty if nothing.

        Returns
        -------
        str
            A clause of the certificate.
        """
        return "its public rows are public" if self.kind == "public" else ""

    def parameters(self) -> dict[str, Any]:
        """Settings as plain JSON values.

        Returns
        -------
        dict
            Name to value, without what is data.
        """
        names = [item.name for item in fields(self) if item.name not in self.unsaved]
        return {name: _plain(getattr(self, name)) for name in names}

    def arrays(self) -> dict[str, np.ndarray]:
        """What was fitted, for a model file.

        Returns
        -------
        dict
            Name to array, of any shape.
        """
        fitted = {k: v for k, v in vars(self).items() if k.endswith("_")}
        return {k: np.asarray(v) for k, v in fitted.items() if v is not None}

    @classmethod
    def restore(cls, parameters: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        """A fitted stage from `parameters` and `arrays`.

        Parameters
        ----------
        parameters : mapping
            Settings by name.
        arrays : mapping
            What was fitted, by name.

        Returns
        -------
        Self
            The fitted stage.
        """
        stage = cls(**parameters)
        for name, value in arrays.items():
            setattr(stage, name, value if value.ndim else value.item())
        return stage

    def _require(self, attribute: str) -> Any:
        if not hasattr(self, attribute):
            raise InputError(f"{self.name} is not fitted yet; call fit first")
        return getattr(self, attribute)


@dataclass
class PrivateStage(Stage):
    """A stage that looks at the private rows through noise.

    Parameters
    ----------
    share : float
        Part of the plan's μ, its Gaussian budget, spent here: 0.1 takes one per
        cent of μ² from the training.
    noise_multiplier : float, optional
        Noise in contributions of one row, instead of a share.
    """

    share: float = 0.1
    noise_multiplier: float | None = None
    kind: ClassVar[Kind] = "private"
    pays: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_share(self)
        if self.noise_multiplier is not None:
            require_positive(self, "noise_multiplier")

    def event(self, noise_multiplier: float) -> Event:
        return Gaussian(noise_multiplier)

    def _prepare(self, rows: Any, context: Context | None) -> tuple[Rows, float, Context]:
        """Rows, their norm bound and the context: what no private fit does without."""
        rows = as_rows(rows, gaps=self.fills_gaps)
        if rows.bound is None:
            raise MissingBound(
                self.name,
                "ClipNorm(radius) or Normalize() as a stage before it",
                "PrivateBounds() there, which finds bounds through noise",
            )
        return rows, rows.bound, self._context(rows, context)

    def _context(self, rows: Rows, context: Context | None) -> Context:
        """The context given, or that of a stage outside a plan, which pays for itself."""
        if context is not None:
            return context
        if self.noise_multiplier is None:
            raise InputError(f"{self.name} outside a plan needs noise_multiplier=")
        return Context.paid(self.event(self.noise_multiplier), rows.n)


@dataclass
class NoiselessStage(Stage):
    """A stage that looks at the private rows exactly, without noise.

    It costs nothing by itself and makes everything after it more sensitive:
    `drift` says by how much. What it learned is never released, so the fitted
    model must work without it: `release` says what takes its place.
    """

    kind: ClassVar[Kind] = "noiseless"

    @property
    def margin(self) -> float:
        """After `fit`: how many rows would have to change before the condition could fail."""
        return float(self._require("_margin")) if self.tested else math.inf

    def bound(self, radius: float | None, d: int | None = None) -> float | None:
        return radius

    def drift(self, incoming: Drift, n: int, d: int | None = None) -> Drift:
        raise TypeError(f"{self.name} does not say how far it lets rows drift")

    def _slip(self, condition: float) -> float:
        """`rounding_bound`, for a map that amplifies the error of a solver by ``condition``."""
        return max(SLIP, 2.0**-40 * condition)

    def release(self, rows: Rows, context: Context) -> Stage | None:
        """What maps rows at prediction in its place; None if they stay as they are.

        Parameters
        ----------
        rows : Rows
            Those that came in. Whatever is read from them here goes through noise and is an
            event of the plan.
        context : Context
            What the plan tells it.

        Returns
        -------
        Stage or None
            A fitted stage.
        """
        return None

    def arrays(self) -> dict[str, np.ndarray]:
        raise InputError(f"what {self.name} learned from private rows is never written to a file")


def around_gaps(change: Callable[[Chunk], Chunk], chunk: Chunk) -> Chunk:
    """``change`` of the observed values: gaps count as zero and stay gaps.

    Sparse chunks stay sparse: if a gap anywhere made them dense, it would show in
    the last bits of the norms of all rows beside it.
    """
    cells = chunk.data if sp.issparse(chunk) else chunk
    gaps = np.isnan(cells)
    if not gaps.any():
        return change(chunk)
    zeros = np.where(gaps, 0.0, cells)
    if not sp.issparse(chunk):
        return np.where(gaps, np.nan, change(zeros))
    changed = change(sp.csr_array((zeros, chunk.indices, chunk.indptr), shape=chunk.shape))
    changed.data = np.where(gaps, np.nan, changed.data)
    return changed


def require_positive(stage: Stage, name: str) -> None:
    value = getattr(stage, name)
    number = isinstance(value, Real) and not isinstance(value, bool)
    # Beyond these, arithmetic on rows would break.
    if not number or not LEAST_SETTING <= value <= LARGEST_SETTING:
        raise InputError(
            f"{stage.name}({name}={value!r:.80}): {name} must be a positive number, from "
            f"{LEAST_SETTING:g} to {LARGEST_SETTING:g}"
        )


def require_share(stage: Any) -> None:
    if isinstance(stage.share, bool) or not 0 < stage.share < 1:
        raise InputError(f"{stage.name}: share must lie between 0 and 1, not {stage.share!r}")


def require_count(stage: Stage, name: str) -> int:
    value = getattr(stage, name)
    if isinstance(value, bool) or not (isinstance(value, Integral) and int(value) >= 1):
        raise InputError(f"{stage.name}({name}={value!r}): {name} must be at least 1, an integer")
    return int(value)


def require_unmoved(stage: Stage, incoming: Drift | None) -> None:
    """Refuse rows that moved: counts of rows beyond an edge jump when rows cross it."""
    if incoming is not None and incoming.l1:
        raise InputError(
            f"{stage.name} counts how many rows lie beyond an edge. All rows that a noiseless "
            "stage has moved, however little, may cross it together, so it cannot follow a "
            "noiseless stage; put it in front of that"
        )


def require_columns(stage: Any, d: int | None = None) -> list[int]:
    """Indices given as ``columns``, all of ``d`` if they are None."""
    if stage.columns is None:
        return list(range(d or 0))
    given = list(stage.columns)
    if len(set(given)) != len(given) or any(
        isinstance(c, bool) or not isinstance(c, Integral) or c < 0 for c in given
    ):
        raise InputError(f"{stage.name}(columns={stage.columns!r}) must be different indices")
    if d is not None and given and max(given) >= d:
        raise InputError(f"{stage.name}(columns=...) names column {max(given)}; there are {d}")
    return [int(c) for c in given]


def usable(bound: float | None) -> float | None:
    """A norm bound, or None if it is too large or too small to compute with, as good as none."""
    return bound if bound is not None and LEAST_SETTING <= bound <= LARGEST_SETTING else None


def saturated(cells: np.ndarray) -> np.ndarray:
    """Values in place, those beyond the floats being the largest float of their sign.

    Clamping is a projection: it brings no two rows farther apart, and makes none longer.
    """
    clamped: np.ndarray = np.clip(cells, -LARGEST_FLOAT, LARGEST_FLOAT, out=cells)
    return clamped


def affine(chunk: Chunk, mean: Any, scale: Any = None) -> np.ndarray:
    """(x − mean) / scale of every value, finite for whatever is finite, without a word.

    Examples
    --------
    >>> affine(np.array([[3.0, 1e308]]), np.array([1.0, -1e308]), np.array([2.0, 1e-300]))
    array([[1.00000000e+000, 1.79769313e+308]])
    """
    with np.errstate(over="ignore"):
        moved = saturated(densify(chunk) - mean)  # by itself: a division may bring it back
        return moved if scale is None else saturated(moved / scale)


def block_rows(d: int) -> int:
    """How many rows of d columns to look at together: 32 MB of them."""
    return max(1, min(CHUNK_ROWS, (1 << 22) // max(d, 1)))


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if hasattr(value, "to_dict"):
        return value.to_dict()
    return value


def densify(chunk: Chunk) -> np.ndarray:
    return chunk.toarray() if sp.issparse(chunk) else np.asarray(chunk)
