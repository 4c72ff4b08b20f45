"""Networks in ONNX files, run by ONNX Runtime on the processor."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from tacit.exceptions import FileError, InputError
from tacit.features.extractors import Extractor, hash_bytes
from tacit.features.pictures import Picture, load_pillow

# A tensor's entry "location" (TensorProto.external_data): its numbers are in another file.
ELSEWHERE = re.compile(rb"\x6a[\x00-\xff]{1,2}\x0a\x08location\x12")


def open_onnx(
    path: Path,
    data: bytes,
    *,
    output: str | None = None,
    columns: int | None = None,
    **picture: Any,
) -> Extractor:
    """The network in the bytes of an ``.onnx`` file."""
    session, versions = open_session(path, data)
    inputs = session.get_inputs()
    if len(inputs) != 1 or inputs[0].type != "tensor(float)":
        takes = ", ".join(f"{each.name}: {each.type}" for each in inputs) or "nothing"
        raise InputError(
            f"{path.name} takes {takes}; it must take one tensor of float32 (for text, give the "
            "folder that it is in, with tokenizer.json)"
        )
    wanted = output_of(path, session, output)
    entry, shape = inputs[0].name, list(inputs[0].shape)
    if shape and isinstance(shape[0], int) and shape[0] != 1:
        raise InputError(
            f"{path.name} takes {shape[0]} rows at a time; export it for one, or for any number"
        )
    given = {"output": output, "columns": columns, **picture}
    shared: dict[str, Any] = {
        "weights": hash_bytes(data),
        "given": {key: value for key, value in given.items() if value is not None},
        "spec": str(path),
    }
    if len(shape) == 2:
        if picture:
            raise InputError(
                f"{path.name} takes vectors, not images: leave out {', '.join(picture)}"
            )
        length = shape[1] if isinstance(shape[1], int) else columns
        if not length or columns not in (None, length):
            raise InputError(
                f"{path.name} takes vectors of length {shape[1] or 'unknown'}; columns= must say so"
            )

        def of_vector(row: np.ndarray) -> Any:
            cells = np.asarray(row, dtype=np.float32).reshape(1, -1)
            return session.run([wanted], {entry: cells})[0]

        settings = {"output": wanted, "columns": length}
        facts: dict[str, Any] = {"columns": length, "versions": versions}
        return Extractor(
            path.name, "vector", settings=settings, answer=of_vector, **facts, **shared
        )
    if len(shape) != 4 or columns is not None:
        raise InputError(
            f"{path.name} takes a tensor of shape {shape}; it must take an image (1, channels, "
            "height, width) or (1, height, width, channels), or a vector (1, columns)"
        )
    rule = _picture(path, shape, **picture)

    def of_image(image: np.ndarray) -> Any:
        return session.run([wanted], {entry: rule(image)})[0]

    versions["pillow"] = load_pillow().__version__
    settings = {"output": wanted, "picture": rule.to_dict()}
    return Extractor(
        path.name, "image", settings=settings, answer=of_image, versions=versions, **shared
    )


def open_session(path: Path, data: bytes) -> tuple[Any, dict[str, str]]:
    """A network ready to be run, on one thread, and the version of what runs it."""
    try:
        import onnxruntime as ort
    except ImportError:
        raise InputError(
            f'{path.name}: ONNX files need onnxruntime: pip install "tacit[features]"'
        ) from None
    if ELSEWHERE.search(data):
        raise FileError(
            f"{path} keeps weights in other files, which its digest would not cover; save it as "
            "one file"
        )
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.use_deterministic_compute = True
    options.log_severity_level = 4
    # And should another file be named all the same: there is no such folder.
    nowhere = os.path.join(os.devnull, "none")
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path", nowhere
    )
    try:
        session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exceptions share no other base
        raise FileError(f"{path} is damaged or not an ONNX network: {error!s:.300}") from None
    return session, {"onnxruntime": ort.__version__}


def output_of(path: Path, session: Any, output: str | None) -> str:
    """The output that is asked for; the first unless one is named."""
    names = [each.name for each in session.get_outputs()]
    wanted = names[0] if output is None else output
    if wanted not in names:
        raise InputError(f"{path.name} has no output {wanted!r}; it has {', '.join(names)}")
    return str(wanted)


def _picture(path: Path, shape: list[Any], *, size: Any = None, **more: Any) -> Picture:
    """How an image is prepared, from what the network says of its input and what was given."""
    last = shape[3] in (1, 3) and shape[1] not in (1, 3)
    channels, sides = (shape[3], shape[1:3]) if last else (shape[1], shape[2:4])
    if channels not in (1, 3):
        raise InputError(f"{path.name} takes {channels} channels; images have 3, or 1")
    fixed = all(isinstance(side, int) for side in sides)
    if not fixed and size is None:
        raise InputError(f"{path.name} takes images of any size: pass size=, as it was trained")
    rule = Picture.of(sides if size is None else size, channels, last=last, **more)
    if fixed and list(rule.size) != list(sides):
        raise InputError(f"{path.name} takes images of {sides[0]} x {sides[1]}, not size={size!r}")
    return rule
