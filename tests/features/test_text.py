"""Sentence encoders: words, transformers, and folders that hold none."""

from __future__ import annotations

import json
import math
import shutil

import numpy as np
import pytest
from safetensors.numpy import load, save
from tests.features import nets
from tokenizers import Tokenizer

from tacit.exceptions import FileError, InputError
from tacit.features import open_extractor
from tacit.features.bert import read_bert
from tacit.features.tokens import WordPiece

SPLIT = WordPiece({word: i for i, word in enumerate(nets.WORDS)})


def spelled(text, **options):
    return [nets.WORDS[i] for i in SPLIT(text, **options)][1:-1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Good FILM!", ["good", "film", "!"]),
        ("a very\tbad\nfilms", ["a", "very", "bad", "film", "##s"]),
        ("Café", ["cafe"]),
        ("filmx", ["[UNK]"]),
        ("good\u200b\x00film", ["[UNK]"]),  # what cannot be seen vanishes
        ("bad\xa0film", ["bad", "film"]),
        ("a!!a", ["a", "!", "!", "a"]),
        ("\u4e2da", ["[UNK]", "a"]),
        ("good" * 26, ["[UNK]"]),
        ("", []),
    ],
)
def test_words_are_split_as_bert_splits_them(text, words):
    assert spelled(text) == words


def test_long_texts_are_cut_and_short_ones_marked():
    assert SPLIT("") == [2, 3]
    assert SPLIT("a " * 50, limit=6) == [2, 8, 8, 8, 8, 3]
    with pytest.raises(FileError, match=r"lacks \[CLS\], \[UNK\]"):
        WordPiece({"[SEP]": 0})


def by_hand(bert, text):
    """The published formulas, number by number, in float64."""
    w = {name: value.astype(np.float64) for name, value in bert.weights.items()}

    def norm(x, at):
        out = []
        for row in x:
            m = sum(row) / len(row)
            v = sum((c - m) ** 2 for c in row) / len(row)
            scaled = [(c - m) / math.sqrt(v + bert.epsilon) for c in row]
            out.append(np.array(scaled) * w[f"{at}.weight"] + w[f"{at}.bias"])
        return np.array(out)

    def linear(x, at):
        return np.array([w[f"{at}.weight"] @ row + w[f"{at}.bias"] for row in x])

    numbers = bert.split(text, bert.tokens)
    x = norm(
        [
            w["embeddings.word_embeddings.weight"][n]
            + w["embeddings.position_embeddings.weight"][i]
            + w["embeddings.token_type_embeddings.weight"][0]
            for i, n in enumerate(numbers)
        ],
        "embeddings.LayerNorm",
    )
    d = x.shape[1] // bert.heads
    for i in range(bert.layers):
        at = f"encoder.layer.{i}"
        q, k, v = (linear(x, f"{at}.attention.self.{p}") for p in ("query", "key", "value"))
        mixed = np.zeros_like(x)
        for h in range(bert.heads):
            part = slice(h * d, (h + 1) * d)
            for a in range(len(x)):
                scores = [math.exp(q[a, part] @ k[b, part] / math.sqrt(d)) for b in range(len(x))]
                total = sum(scores)
                mixed[a, part] = sum(s / total * v[b, part] for b, s in enumerate(scores))
        x = norm(
            linear(mixed, f"{at}.attention.output.dense") + x, f"{at}.attention.output.LayerNorm"
        )
        hidden = linear(x, f"{at}.intermediate.dense")
        gelu = np.vectorize(lambda c: c * 0.5 * (1 + math.erf(c / math.sqrt(2))))(hidden)
        x = norm(linear(gelu, f"{at}.output.dense") + x, f"{at}.output.LayerNorm")
    vector = x.mean(axis=0) if bert.pooling == "mean" else x[0]
    return vector / np.linalg.norm(vector) if bert.normalize else vector


@pytest.mark.parametrize(("pooling", "normalize"), [("mean", True), ("cls", False)])
def test_the_encoder_follows_the_published_formulas(tmp_path, pooling, normalize):
    bert, _ = read_bert(nets.write_bert(tmp_path, pooling=pooling, normalize=normalize))
    for text in ("", "good", "A very bad film!", "a " * 40):
        assert bert(text)[0] == pytest.approx(by_hand(bert, text), abs=2e-5)
        assert bert(text).shape == (1, 8) and bert(text).dtype == np.float32


def test_names_with_a_prefix_and_half_precision_are_read(tmp_path):
    usual, _ = read_bert(nets.write_bert(tmp_path))
    tensors = load((tmp_path / "model.safetensors").read_bytes())
    other = {f"bert.{name}": value.astype(np.float16) for name, value in tensors.items()}
    (tmp_path / "model.safetensors").write_bytes(save(other))
    again, _ = read_bert(tmp_path)
    assert again("a good film") == pytest.approx(usual("a good film"), abs=0.02)


def test_the_digest_covers_words_and_settings(tmp_path):
    digests = {open_extractor(nets.write_bert(tmp_path / "a")).digest}
    digests.add(open_extractor(nets.write_bert(tmp_path / "b", seed=1)).digest)
    digests.add(open_extractor(nets.write_bert(tmp_path / "c", pooling="cls")).digest)
    digests.add(open_extractor(nets.write_bert(tmp_path / "d", normalize=False)).digest)
    folder = nets.write_bert(tmp_path / "e")
    (folder / "vocab.txt").write_text((folder / "vocab.txt").read_text().replace("good", "fine"))
    digests.add(open_extractor(folder).digest)
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 7}')
    digests.add(open_extractor(folder).digest)
    assert len(digests) == 6
    same = shutil.copytree(tmp_path / "a", tmp_path / "copy")
    assert open_extractor(same).digest in digests


def damage(folder, what):
    config = json.loads((folder / "config.json").read_text())
    if what == "pickle":
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    elif what == "roberta":
        (folder / "config.json").write_text(json.dumps({**config, "model_type": "roberta"}))
    elif what == "json":
        (folder / "config.json").write_text("{")
    elif what == "layers":
        (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
    elif what == "cut":
        whole = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(whole[:-9])
    elif what == "words":
        (folder / "vocab.txt").write_text("\n".join([*nets.WORDS, "more", "words"]))
    elif what == "max":
        (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_max_tokens": true}')
    else:
        (folder / what).unlink()


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("pickle", "could run code, and are not read"),
        ("roberta", "only 'bert' is understood"),
        ("json", "is not JSON"),
        ("layers", "not a complete BERT model"),
        ("cut", "not a complete BERT model"),
        ("words", "more words than embeddings"),
        ("max", "mean or the first token"),
        ("vocab.txt", "cannot read .*vocab.txt"),
        ("config.json", "cannot read .*config.json"),
    ],
)
def test_a_folder_that_holds_no_whole_model_is_refused(tmp_path, what, words):
    nets.write_bert(tmp_path)
    damage(tmp_path, what)
    with pytest.raises(FileError, match=words):
        open_extractor(tmp_path)


def test_a_text_at_another_place_in_memory_is_the_same(tmp_path):
    net = open_extractor(nets.write_bert(tmp_path))
    texts = ["a good film", "very bad", "", "films ! a ! a"] * 5
    with net.workers(2) as each:
        first = list(each(net.alone, texts))
    with net.workers(1) as each:
        again = list(each(net.alone, texts[::-1]))[::-1]
    assert [a.tobytes() for a in first] == [a.tobytes() for a in again]


# Any other architecture, in ONNX


def by_numpy(folder, text, seed=0):
    """What the network of `nets.of_tokens` says of a text, and its tokens."""
    tokens = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokens.no_padding()
    ids = tokens.encode(text).ids
    vectors = np.random.default_rng(seed).normal(size=(tokens.get_vocab_size(), 6))
    x = vectors.astype(np.float32)[ids]
    scores = np.exp(x @ x.T - (x @ x.T).max(axis=1, keepdims=True))
    return np.tanh(scores / scores.sum(axis=1, keepdims=True) @ x), ids


def alone(net, texts, jobs=1):
    with net.workers(jobs) as each:
        return list(each(net.alone, texts))


def test_an_encoder_that_is_no_bert_is_run_from_onnx_with_its_own_tokenizer(tmp_path):
    folder = nets.write_encoder(tmp_path)
    net = open_extractor(folder)
    assert net.takes == "text" and net.width == 6
    for text in ("a good film", "Caf\u00e9!", "", "\ud800 half"):
        vectors, ids = by_numpy(folder, text.replace("\ud800", ""))
        assert ids[0] == 0 and ids[-1] == 2 and 1 not in ids  # marks at both ends, none filled up
        assert alone(net, [text])[0] == pytest.approx(vectors.mean(axis=0), abs=1e-5)
    assert set(net.versions) == {"onnxruntime", "tokenizers"}
    assert net.settings["tokens"] == 16  # of 18 positions, two stand before the first
    texts = ["a good film", "very bad", "", "films ! a ! a"] * 5
    first, again = alone(net, texts, 2), alone(open_extractor(folder), texts[::-1])[::-1]
    assert [a.tobytes() for a in first] == [a.tobytes() for a in again]


def test_long_texts_are_cut_for_any_tokenizer(tmp_path):
    net = open_extractor(nets.write_encoder(tmp_path))
    long, longer = alone(net, ["film " * 40, "film " * 400])
    assert (long == longer).all()


def test_pooling_and_norm_are_those_of_the_folder(tmp_path):
    folder = nets.write_encoder(tmp_path)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    (folder / "modules.json").write_text('[{"type": "x.Normalize"}]')
    vectors, _ = by_numpy(folder, "good films")
    (found,) = alone(open_extractor(folder), ["good films"])
    assert found == pytest.approx(vectors[0] / np.linalg.norm(vectors[0]), abs=1e-5)


def test_a_network_may_pool_by_itself(tmp_path):
    folder = nets.write_encoder(tmp_path, names=("input_ids", "token_type_ids"), pooled=True)
    vectors, _ = by_numpy(folder, "a bad film")
    net = open_extractor(folder)
    assert alone(net, ["a bad film"])[0] == pytest.approx(np.arctanh(vectors).max(axis=0), abs=1e-4)
    other = open_extractor(folder, output="last_hidden_state")
    assert alone(other, ["a bad film"])[0] == pytest.approx(vectors.mean(axis=0), abs=1e-5)
    assert other.digest != net.digest


def test_the_digest_of_an_encoder_covers_network_tokenizer_and_pooling(tmp_path):
    digests = {open_extractor(nets.write_encoder(tmp_path / "a")).digest}
    digests.add(open_extractor(nets.write_encoder(tmp_path / "b", seed=1)).digest)
    folder = nets.write_encoder(tmp_path / "c")
    words = (folder / "tokenizer.json").read_text()
    spaced = words.replace('"add_prefix_space": false', '"add_prefix_space": true')
    (folder / "tokenizer.json").write_text(spaced)
    digests.add(open_extractor(folder).digest)
    (folder / "modules.json").write_text('[{"type": "x.Normalize"}]')
    digests.add(open_extractor(folder).digest)
    assert len(digests) == 4


def test_a_bert_is_run_from_onnx_where_there_is_a_whole_encoder_and_from_its_weights_elsewhere(
    tmp_path,
):
    folder, other = nets.write_bert(tmp_path / "bert"), nets.write_encoder(tmp_path / "other")
    digest = open_extractor(folder).digest
    (other / "model.onnx").rename(folder / "model.onnx")
    assert open_extractor(folder).digest == digest  # there is no tokenizer.json beside it
    (other / "tokenizer.json").rename(folder / "tokenizer.json")
    net = open_extractor(folder)
    assert net.digest != digest and net.settings["architecture"] == "onnx"
    with pytest.raises(InputError, match="takes no setting 'size'"):
        open_extractor(nets.write_bert(tmp_path / "third"), size=3)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("tokenizer.json", "no tokenizer.json"),
        ("config.json", ""),  # which it can do without
        ("model.onnx", "or of any other with model.onnx and tokenizer.json"),
        ("spoilt tokenizer", "damaged or no tokenizer"),
        ("spoilt network", "damaged or not an ONNX network"),
        ("other inputs", "an encoder takes input_ids"),
        ("numbers", "an encoder takes input_ids"),
    ],
)
def test_a_folder_that_holds_no_whole_encoder_is_refused(tmp_path, what, words):
    folder = nets.write_encoder(tmp_path)
    if what == "spoilt tokenizer":
        (folder / "tokenizer.json").write_text('{"model": 3}')
    elif what == "spoilt network":
        (folder / "model.onnx").write_bytes((folder / "model.onnx").read_bytes()[:-9])
    elif what == "other inputs":
        (folder / "model.onnx").write_bytes(nets.of_tokens(300, names=("input_ids", "pixels")))
    elif what == "numbers":
        (folder / "model.onnx").write_bytes(nets.of_vectors(4))
    else:
        (folder / what).unlink()
    if not words:
        assert open_extractor(folder).settings["tokens"] == 512
        return
    with pytest.raises(InputError, match=words):
        open_extractor(folder)
