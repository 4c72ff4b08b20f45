"""The claim of a certificate, a model or an output, recomputed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tacit.cli.tasks.outputs import CERTIFICATE, MODEL, PathLike
from tacit.exceptions import CertificateError, FileError, InputError
from tacit.files import find_output, first_bytes
from tacit.persistence import load
from tacit.privacy.certificate import Certificate, Verification

MARKS = (b"tacit-certificate/", b"tacit-model/")  # what a file of ours bears, damaged or not


@dataclass(frozen=True)
class Verdict(Verification):
    """What recomputing a claim found; neither claim nor certificate if none could be read."""

    certificate: Certificate | None = None


def verify(path: PathLike) -> Verdict:
    """Recompute the claim of a certificate, a model, or a directory that holds them.

    A file with Tacit's mark that cannot be read whole is a problem: it was
    changed or damaged. A file without it, or none at all, is bad input.
    """
    files, problems = [Path(path)], list[str]()
    if files[0].is_dir():
        output, problems = find_output(files[0])
        files = [output[name] for name in (CERTIFICATE, MODEL) if name in output]
        if not files and not problems:
            raise FileError(f"{path} holds neither {CERTIFICATE} nor {MODEL}")
    found: list[Certificate] = []
    for file in files:
        start = first_bytes(file)
        is_model = b"\0" in start[:8]  # it begins with the length of its header, as 8 bytes
        try:
            found.append(load(file).certificate_ if is_model else Certificate.load(file))
        except (InputError, CertificateError) as error:
            if not any(mark in start for mark in MARKS):
                raise FileError(f"{file} is neither a certificate nor a model of Tacit") from error
            problems.append(str(error) if str(file) in str(error) else f"{file}: {error}")
    if len({certificate.digest for certificate in found}) > 1:
        problems.append(f"{MODEL} carries a different certificate from {CERTIFICATE}")
    if not found:
        return Verdict(False, None, {}, tuple(problems))
    check = found[0].verify()
    problems += check.problems
    verdict = {**vars(check), "holds": not problems, "problems": tuple(problems)}
    return Verdict(**verdict, certificate=found[0])
