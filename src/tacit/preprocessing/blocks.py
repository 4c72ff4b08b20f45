"""Private stages on blocks of columns: each on its own columns, with its own part of the noise."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Self

import numpy as np

from tacit.data.rows import Chunk, Rows
from tacit.exceptions import InputError
from tacit.preprocessing.base import Context, PrivateStage, Stage, densify, require_unmoved
from tacit.preprocessing.free import Bound, ClipNorm, Normalize, RandomProjection, Root
from tacit.preprocessing.noiseless_impute import FillGaps
from tacit.preprocessing.private_center import PrivateCenter
from tacit.preprocessing.private_equalize import PrivateEqualize
from tacit.preprocessing.private_extent import PrivateBounds
from tacit.preprocessing.private_impute import PrivateImpute
from tacit.preprocessing.private_pca import PrivatePCA
from tacit.preprocessing.private_scale import PrivateScale
from tacit.privacy.events import Gaussian
from tacit.privacy.sensitivity.drift import Drift

#: What may stand in a block: free stages, and private ones that pay by one Gaussian event. A
#: noiseless stage would move other rows of the block, which no rule of drift here covers.
FREE = (Bound, ClipNorm, FillGaps, Normalize, RandomProjection, Root)
PAYING = (PrivateBounds, PrivateCenter, PrivateEqualize, PrivateImpute, PrivatePCA, PrivateScale)
STAGES: dict[str, type[Stage]] = {kind.__name__: kind for kind in (*FREE, *PAYING)}

#: Steps between the streams of two stages of one block and the next: more than a plan has stages.
APART = 1 << 20


@dataclass(frozen=True)
class _Columns:
    """The columns of one block; a gap counts as zero unless a stage of the block fills it."""

    start: int
    stop: int
    filled: bool

    def apply(self, chunk: Chunk) -> np.ndarray:
        cells = np.ascontiguousarray(densify(chunk)[:, self.start : self.stop], dtype=np.float64)
        return cells if self.filled else np.where(np.isnan(cells), 0.0, cells)


@dataclass
class PrivateBlocks(PrivateStage):
    """Stages on blocks of neighbouring columns, each block by itself, put side by side again.

    What becomes of a block depends on its columns alone, so scales or means are those of the
    block, and noise is for its norm bound, not for that of the whole row. A row out is no longer
    than √(Σ B²), with B the bounds of the blocks behind their stages.

    *Cost.* The stages that pay divide one Gaussian event of noise multiplier z: the i-th has noise
    z/√(pᵢ) with Σ pᵢ = 1, and releases with these multipliers compose to z exactly (Dong, Roth &
    Su 2022, Corollary 3.3: 1/z² = Σ pᵢ/z²). A row is in every block, so nothing is in parallel.

    Parameters
    ----------
    blocks : sequence of (int, sequence of Stage)
        Columns of a block (of the last one None, for all that are left, and `ClipNorm` alone), and
        its stages in their order: `Bound`, `ClipNorm`, `FillGaps`,
        `Normalize`, `RandomProjection`, `Root`, `PrivateBounds`, `PrivateCenter`,
        `PrivateEqualize`, `PrivateImpute`, `PrivatePCA`, `PrivateScale`. The parts pᵢ are in
        proportion to the squares of their shares.

    Examples
    --------
    >>> from tacit.data.rows import as_rows
    >>> rows = as_rows(np.tile([[0.5, 1.0, 0.0], [-0.5, 0.0, 1.0]], (5000, 1)), bound=1.5)
    >>> blocks = [(1, [ClipNorm(0.5), PrivateScale(strength=0.01)]), (2, [ClipNorm(1.0)])]
    >>> stage = PrivateBlocks(noise_multiplier=1.0, blocks=blocks).fit(rows)
    >>> stage.transform([[0.5, 1.0, 0.0]]).round(1)
    array([[1., 1., 0.]])
    """

    blocks: Any = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        listed = isinstance(self.blocks, list | tuple)
        if not listed or not all(map(_is_block, self.blocks)):
            raise InputError(
                "PrivateBlocks: blocks must be pairs of a number of columns and a list of stages"
            )
        self._blocks = tuple((width, tuple(map(_stage, own))) for width, own in self.blocks)
        open_ = [i for i, (width, _) in enumerate(self._blocks) if width is None]
        if open_ and (open_ != [len(self._blocks) - 1] or not _clips(self._blocks[-1][1])):
            raise InputError(
                "PrivateBlocks: only the last block may be all that is left, with ClipNorm alone"
            )
        for _, stages in self._blocks:
            for stage in stages:
                self._check(stage)
            filler = max((i for i, s in enumerate(stages) if s.fills_gaps), default=-1)
            if deaf := [s.name for s in stages[: max(filler, 0)] if not s.keeps_gaps]:
                raise InputError(
                    f"PrivateBlocks: {stages[filler].name} must come before {deaf[0]}, which "
                    "cannot pass over missing values"
                )
        if not any(stage.pays for _, stages in self._blocks for stage in stages):
            raise InputError("PrivateBlocks: no stage pays; leave it out, or use a private stage")

    def _check(self, stage: Any) -> None:
        if type(stage) not in STAGES.values():
            named = stage.name if isinstance(stage, Stage) else repr(stage)[:80]
            raise InputError(f"PrivateBlocks takes no {named}; it takes {', '.join(STAGES)}")
        if getattr(stage, "noise_multiplier", None) is not None:
            raise InputError(f"PrivateBlocks: {stage.name} has a part of the noise; give its share")
        if stage.pays and not isinstance(stage.event(1.0), Gaussian):
            raise InputError(f"PrivateBlocks: {stage.name} must pay by a Gaussian event")

    # What is public beforehand

    @property
    def fills_gaps(self) -> bool:  # type: ignore[override]
        """Whether missing values are filled here."""
        return any(stage.fills_gaps for _, stages in self._blocks for stage in stages)

    def _chains(self) -> tuple[tuple[Any, tuple[Stage, ...]], ...]:
        """Blocks with their stages, fitted ones once they are; the last may be without a width."""
        chains = getattr(self, "chains_", None)
        if chains is None:
            return self._blocks
        return tuple((width, chain) for (width, _), chain in zip(self._blocks, chains, strict=True))

    def budget_parts(self) -> list[float]:
        """Parts of the noise of the stages that pay, in their order; they add up to one.

        Returns
        -------
        list of float
            One for each stage.
        """
        shares = [s.share**2 for _, stages in self._blocks for s in stages if isinstance(s, PAYING)]
        return [share / math.fsum(shares) for share in shares]

    def _walk(self) -> Iterator[tuple[Stage, int]]:
        """Every stage with the number of its columns in."""
        for width, stages in self._chains():
            d = width or 1  # of what is left, whose stage goes by no number of columns
            for stage in stages:
                yield stage, d
                d = stage.width(d)

    def event(self, noise_multiplier: float) -> Gaussian:
        return Gaussian(noise_multiplier)

    def draws(self, d: int) -> int:
        return sum(stage.draws(columns) for stage, columns in self._walk() if stage.pays)

    def _spans(self, d: int) -> list[int]:
        """Columns of every block, of rows with d of them."""
        fixed = sum(width or 0 for width, _ in self._blocks)
        left = d - fixed if self._blocks[-1][0] is None else 0
        if d != fixed + left or left < 0:
            raise InputError(f"PrivateBlocks has blocks of {fixed} columns, the rows have {d}")
        return [left if width is None else width for width, _ in self._blocks]

    def width(self, d: int) -> int:
        total = 0
        for columns, (_, stages) in zip(self._spans(d), self._chains(), strict=True):
            for stage in stages:
                columns = stage.width(columns)
            total += columns
        return total

    def bound(self, radius: float | None, d: int | None = None) -> float | None:
        return self._joined("bound", radius)

    def typical(self, radius: float | None, d: int | None = None) -> float | None:
        return self._joined("typical", radius)

    def _joined(self, what: str, radius: float | None) -> float | None:
        """√(Σ B²) of the blocks, each of whose rows in is no longer than the whole row."""
        ends: list[float] = []
        for width, stages in self._chains():
            end, columns = radius, width or 1
            for stage in stages:
                end, columns = getattr(stage, what)(end, columns), stage.width(columns)
            if end is None:
                return None
            ends.append(end)
        return math.hypot(*ends) * (1 + 1e-12)

    def drift(self, incoming: Drift, n: int, d: int | None = None) -> Drift:
        require_unmoved(self, incoming)
        return super().drift(incoming, n, d)

    def shortage(self, size: int, d: int, noise_multiplier: float) -> str:
        paying = [(stage, columns) for stage, columns in self._walk() if stage.pays]
        said = [
            stage.shortage(size, columns, noise_multiplier / math.sqrt(part))
            for (stage, columns), part in zip(paying, self.budget_parts(), strict=True)
        ]
        return " ".join(filter(None, said))

    # Fitting and mapping

    def fit(self, rows: Any, context: Context | None = None) -> Self:
        rows, _, context = self._prepare(rows, context)
        require_unmoved(self, context.drift)
        parts, chains, at = iter(enumerate(self.budget_parts(), 1)), [], 0
        for width, (_, stages) in zip(self._spans(rows.d), self._blocks, strict=True):
            seen = self._block(rows, at, width, stages)
            chain = []
            for stage in stages:
                own = copy.copy(stage)
                if own.pays:
                    own.fit(seen, self._paid(context, *next(parts)))
                else:  # shown no rows, as in a plan
                    own.fit(seen.hidden(), replace(context, token=None))
                seen = own.through(seen)
                chain.append(own)
            chains.append(tuple(chain))
            at += width
        self.chains_ = tuple(chains)
        return self

    def _paid(self, context: Context, number: int, part: float) -> Context:
        """The context of one stage: its part of the token, and streams that no other draws from."""
        token = context.release("blocks").part(part)
        return replace(context, token=token, position=context.position + APART * number)

    @staticmethod
    def _block(rows: Rows, at: int, width: int, stages: Sequence[Stage]) -> Rows:
        columns = _Columns(at, at + width, any(stage.fills_gaps for stage in stages))
        return rows.through(columns, d=width, bound=rows.bound)

    def apply(self, chunk: Chunk) -> np.ndarray:
        chains, at, ends = self._require("chains_"), 0, []
        widths = self._spans(chunk.shape[1])
        for width, (_, stages), chain in zip(widths, self._blocks, chains, strict=True):
            columns = _Columns(at, at + width, any(stage.fills_gaps for stage in stages))
            cells: Chunk = columns.apply(chunk)
            for stage in chain:
                cells = stage.apply(cells)
            ends.append(densify(cells))
            at += width
        return np.hstack(ends)

    # What is told and kept

    def cautions(self) -> tuple[str, ...]:
        return tuple(text for stage, _ in self._walk() for text in stage.cautions())

    def note(self) -> str:
        notes = [stage.note() for stage, _ in self._walk()]
        return "blocks of columns by themselves: " + "; ".join(dict.fromkeys(filter(None, notes)))

    def parameters(self) -> dict[str, Any]:
        blocks = [
            [width, [{"name": s.name, "parameters": s.parameters()} for s in stages]]
            for width, stages in self._chains()
        ]
        return {**super().parameters(), "blocks": blocks}

    def arrays(self) -> dict[str, np.ndarray]:
        return {
            f"block{i}_stage{j}_{name}": value
            for i, chain in enumerate(getattr(self, "chains_", ()))
            for j, stage in enumerate(chain)
            for name, value in stage.arrays().items()
        }

    @classmethod
    def restore(cls, parameters: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        chains = []
        for i, (_, entries) in enumerate(parameters["blocks"]):
            chain = []
            for j, entry in enumerate(entries):
                start = f"block{i}_stage{j}_"
                own = {k.removeprefix(start): v for k, v in arrays.items() if k.startswith(start)}
                chain.append(STAGES[entry["name"]].restore(entry["parameters"], own))
            chains.append(tuple(chain))
        stage = cls(**parameters)
        stage.chains_ = tuple(chains)
        return stage


def _stage(given: Any) -> Any:
    """A stage, or one of the name and with the settings that a file tells."""
    if not isinstance(given, Mapping):
        return given
    if given.get("name") not in STAGES:
        raise InputError(f"PrivateBlocks takes no {given.get('name')!r:.80}")
    return STAGES[given["name"]](**given["parameters"])


def _is_block(block: Any) -> bool:
    """Whether it is a pair of a number of columns, at least one, and a list."""
    if not (isinstance(block, list | tuple) and len(block) == 2):
        return False
    width, stages = block
    whole = isinstance(width, Integral) and not isinstance(width, bool) and int(width) >= 1
    return (whole or width is None) and isinstance(stages, list | tuple)


def _clips(stages: Sequence[Any]) -> bool:
    return all(isinstance(stage, ClipNorm) for stage in stages)
