"""Claims are recomputed, and what was changed or damaged is found."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256

import pytest

from tacit.cli.tasks.outputs import FILES
from tacit.cli.tasks.verify import verify
from tacit.exceptions import FileError
from tacit.files import MANIFEST


def copied(fitted, tmp_path):
    for name in (*FILES, MANIFEST):
        (tmp_path / name).write_bytes((fitted.out / name).read_bytes())
    return tmp_path


def test_an_honest_claim_holds(fitted):
    for path in (fitted.out, *(fitted.out / name for name in FILES[:2])):
        verdict = verify(path)
        assert verdict.problems == () and verdict.to_dict()["claimed"] == 2.0
        assert set(verdict.recomputed) == {"dp-accounting", "recheck"}
        assert all(value <= 2.0 for value in verdict.recomputed.values())


def test_a_forged_claim_does_not_hold(fitted, tmp_path):
    forged = replace(fitted.estimator.certificate_, epsilon=1.0)  # with a digest that fits
    forged.save(tmp_path / "certificate.json")
    verdict = verify(tmp_path / "certificate.json")
    assert verdict.to_dict()["holds"] is False
    assert any("above the claimed 1" in problem for problem in verdict.problems)


def test_an_edited_certificate_is_found(fitted, tmp_path):
    path = copied(fitted, tmp_path) / "certificate.json"
    path.write_text(path.read_text().replace('"epsilon": 2.0', '"epsilon": 1.0'))
    verdict = verify(path)
    assert verdict.certificate is None and "wrong digest" in verdict.problems[0]
    assert verify(tmp_path).problems  # though the model beside it is sound
    path.write_text(path.read_text()[:-40])
    assert "not valid JSON" in verify(path).problems[0]


@pytest.mark.parametrize("where", [8, 0.5, -1])
def test_an_edited_model_is_found(fitted, tmp_path, where):
    path = copied(fitted, tmp_path) / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[int(where * len(data)) if where == 0.5 else where] ^= 1
    path.write_bytes(data)
    assert verify(path).problems
    assert verify(tmp_path).to_dict()["holds"] is False


def test_model_and_certificate_must_belong_together(fitted, tmp_path):
    copied(fitted, tmp_path)
    other = replace(fitted.estimator.certificate_, created="2001-01-01T00:00:00+00:00")
    other.save(tmp_path / "certificate.json")
    (problem,) = verify(tmp_path).problems
    assert "certificate.json is not the file that manifest.json names" in problem
    # Nor does it help to forge a manifest as well.
    said = json.loads((tmp_path / MANIFEST).read_text())
    said["files"]["certificate.json"] = sha256(
        (tmp_path / "certificate.json").read_bytes()
    ).hexdigest()
    (tmp_path / MANIFEST).write_text(json.dumps(said))
    assert "different certificate" in verify(tmp_path).problems[0]


@pytest.mark.parametrize("content", [b"", b"{}", b"\0\1\2" * 100, b"some text", b"[1, 2]"])
def test_what_is_not_ours_is_bad_input(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    for path in (tmp_path / "file", tmp_path / "none", tmp_path):
        with pytest.raises(FileError):
            verify(path)
