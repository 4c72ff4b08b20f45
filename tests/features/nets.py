"""Small networks made by hand: ONNX files byte by byte, and a folder with a tiny BERT."""

from __future__ import annotations

import json
import struct

import numpy as np
from safetensors.numpy import save

FLOAT = 1
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "film", "##s", "a", "!", "very", "cafe"]


def _varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(number, value):
    """One field of a protocol buffer: an integer, or bytes."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    if isinstance(value, float):
        return _varint(number << 3 | 5) + struct.pack("<f", value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def tensor(name, values, elsewhere=None):
    values = np.asarray(values, dtype=np.float32)
    dims = b"".join(field(1, side) for side in values.shape)
    if elsewhere is None:
        return dims + field(2, FLOAT) + field(8, name) + field(9, values.tobytes())
    where = field(13, field(1, "location") + field(2, elsewhere))
    return dims + field(2, FLOAT) + field(8, name) + where + field(14, 1)


def _value(name, shape, kind=FLOAT):
    dims = (field(1, field(2 if isinstance(side, str) else 1, side)) for side in shape)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, b"".join(dims))))


def node(kind, inputs, outputs, *attributes):
    parts = [field(1, name) for name in inputs] + [field(2, name) for name in outputs]
    return b"".join(parts) + field(4, kind) + b"".join(field(5, part) for part in attributes)


def model(nodes, inputs, outputs, tensors=()):
    """An ONNX file of nodes; inputs and outputs are (name, shape[, kind])."""
    graph = b"".join(field(1, part) for part in nodes) + field(2, "g")
    graph += b"".join(field(5, part) for part in tensors)
    graph += b"".join(field(11, _value(*each)) for each in inputs)
    graph += b"".join(field(12, _value(*each)) for each in outputs)
    return field(1, 8) + field(8, field(1, "") + field(2, 13)) + field(7, graph)


def of_vectors(d, width=5, seed=0, batch="n"):
    """tanh(x W + b)."""
    rng = np.random.default_rng(seed)
    nodes = [
        node("MatMul", ["x", "W"], ["s"]),
        node("Add", ["s", "b"], ["t"]),
        node("Tanh", ["t"], ["y"]),
    ]
    tensors = [tensor("W", rng.normal(size=(d, width))), tensor("b", rng.normal(size=width))]
    return model(nodes, [("x", [batch, d])], [("y", ["n", width])], tensors)


def of_images(size=8, channels=3, width=5, seed=0, last=False):
    """relu(flat(x) W), for images of one size, or a pool over the pixels if size is None."""
    rng = np.random.default_rng(seed)
    side = "s" if size is None else size
    shape = ["n", side, side, channels] if last else ["n", channels, side, side]
    count = channels if size is None else channels * size * size
    weights = tensor("W", rng.normal(size=(count, width)) / np.sqrt(count))
    first = [] if size else [node("GlobalAveragePool", ["x"], ["p"])]
    nodes = [
        *first,
        node("Flatten", ["p" if first else "x"], ["f"]),
        node("MatMul", ["f", "W"], ["s"]),
        node("Relu", ["s"], ["y"]),
    ]
    return model(nodes, [("x", shape)], [("y", ["n", width]), ("s", ["n", width])], [weights])


INT64 = 7


def of_tokens(words, width=6, seed=0, names=("input_ids", "attention_mask"), pooled=False):
    """tanh(softmax(xxᵀ)x) of the vectors x of tokens: no BERT, and as any encoder looks outside."""
    vectors = tensor("E", np.random.default_rng(seed).normal(size=(words, width)))
    nodes = [
        node("Gather", ["E", "input_ids"], ["x"]),
        node("Transpose", ["x"], ["t"], _integers("perm", [0, 2, 1])),
        node("MatMul", ["x", "t"], ["s"]),
        node("Softmax", ["s"], ["p"]),
        node("MatMul", ["p", "x"], ["h"]),
        node("Tanh", ["h"], ["last_hidden_state"]),
        node(
            "ReduceMax",
            ["h"],
            ["most"],
            _integers("axes", [1]),
            field(1, "keepdims") + b"\x18\0" + field(20, 2),
        ),
    ]
    given = [(name, ["n", "tokens"], INT64) for name in names]
    found = [("last_hidden_state", ["n", "tokens", width]), ("most", ["n", width])]
    return model(nodes, given, found[::-1] if pooled else found, [vectors])


def _integer(name, value):
    return field(1, name) + field(3, value) + field(20, 2)


def _integers(name, values):
    return field(1, name) + b"".join(field(8, value) for value in values) + field(20, 7)


def write_encoder(folder, seed=0, **how):
    """A folder with an encoder that is no BERT: ONNX, and a tokenizer of pairs of bytes (BPE)."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    made = Tokenizer(models.BPE(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    marks = ["<s>", "<pad>", "</s>", "<unk>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=marks, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(["a good film", "a very bad film", "good films"], trainer)
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    made.enable_padding(length=20, pad_id=1, pad_token="<pad>")  # which must not be done
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    (folder / "model.onnx").write_bytes(of_tokens(made.get_vocab_size(), seed=seed, **how))
    config = {"model_type": "roberta", "max_position_embeddings": 18, "pad_token_id": 1}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def write_bert(folder, seed=0, *, layers=2, width=8, heads=2, pooling="mean", normalize=True):
    """A tiny BERT with random weights, in the files of a published one."""
    rng = np.random.default_rng(seed)
    shapes = {
        "embeddings.word_embeddings.weight": (len(WORDS), width),
        "embeddings.position_embeddings.weight": (16, width),
        "embeddings.token_type_embeddings.weight": (2, width),
        "embeddings.LayerNorm.weight": (width,),
        "embeddings.LayerNorm.bias": (width,),
    }
    for i in range(layers):
        at = f"encoder.layer.{i}"
        for part in ("query", "key", "value"):
            shapes[f"{at}.attention.self.{part}.weight"] = (width, width)
            shapes[f"{at}.attention.self.{part}.bias"] = (width,)
        shapes[f"{at}.attention.output.dense.weight"] = (width, width)
        shapes[f"{at}.attention.output.dense.bias"] = (width,)
        shapes[f"{at}.intermediate.dense.weight"] = (4 * width, width)
        shapes[f"{at}.intermediate.dense.bias"] = (4 * width,)
        shapes[f"{at}.output.dense.weight"] = (width, 4 * width)
        shapes[f"{at}.output.dense.bias"] = (width,)
        for part in ("attention.output", "output"):
            shapes[f"{at}.{part}.LayerNorm.weight"] = (width,)
            shapes[f"{at}.{part}.LayerNorm.bias"] = (width,)
    weights = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "1_Pooling").mkdir(exist_ok=True)
    modes = {
        "pooling_mode_mean_tokens": pooling == "mean",
        "pooling_mode_cls_token": pooling == "cls",
    }
    files = {
        "config.json": {
            "model_type": "bert",
            "num_attention_heads": heads,
            "num_hidden_layers": layers,
            "layer_norm_eps": 1e-12,
        },
        "tokenizer_config.json": {"do_lower_case": True},
        "sentence_bert_config.json": {"max_seq_length": 12},
        "modules.json": [{"type": "x.Normalize"}] if normalize else [],
        "1_Pooling/config.json": {"word_embedding_dimension": width, **modes},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    (folder / "model.safetensors").write_bytes(save(weights))
    return folder
