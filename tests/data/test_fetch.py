"""Files fetched from a public source: whole and verified, or not kept at all."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import lzma
import tarfile
import threading
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from typer.testing import CliRunner

from tacit.cli.main import app
from tacit.datasets import SOURCES, archives, fetch, find, load_w8a
from tacit.datasets.sources import File
from tacit.exceptions import FileError, InputError

ROWS = b"-1 1:1 300:1\n1 7:1\n-1 \n"


def digest(data):
    return hashlib.sha256(data).hexdigest()


class Server(ThreadingHTTPServer):
    """Pages by their paths; it counts what was asked for."""

    daemon_threads = True

    def __init__(self):
        self.pages, self.asked, self.cut, self.silent = {}, [], None, False
        super().__init__(("127.0.0.1", 0), Answer)

    def url(self, path):
        return f"http://127.0.0.1:{self.server_address[1]}/{path}"


class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        body = self.server.pages.get(self.path.lstrip("/"))
        if body is None:
            self.send_error(404)
            return
        self.send_response(200)
        if not self.server.silent:  # about its length
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: self.server.cut])

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.delenv("TACIT_DATA", raising=False)
    monkeypatch.setattr("tacit.datasets.store.download_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture
def w8a(server, cache, monkeypatch):
    """The data set w8a, as if this server had it."""
    put(monkeypatch, "w8a", File("w8a", digest(ROWS), len(ROWS), server.url("w8a")))
    server.pages["w8a"] = ROWS
    return cache / "w8a"


def put(monkeypatch, name, *files):
    monkeypatch.setitem(SOURCES, name, replace(SOURCES[name], files=files))


def nothing_kept(cache):
    return not cache.exists() or not [path for path in cache.rglob("*") if path.is_file()]


def test_what_is_fetched_is_kept_and_not_fetched_again(server, w8a):
    for _ in range(3):
        X, y = load_w8a()
        assert X.shape == (3, 300) and X.toarray().sum() == 3 and y.tolist() == [-1, 1, -1]
    assert server.asked == ["/w8a"]
    assert [path.name for path in w8a.iterdir()] == ["w8a"]
    assert (w8a / "w8a").read_bytes() == ROWS


def test_a_packed_page_is_kept_unpacked(server, w8a):
    server.pages["w8a"] = gzip.compress(ROWS)
    load_w8a()
    assert (w8a / "w8a").read_bytes() == ROWS


def test_the_directory_comes_before_the_cache_and_the_source(server, w8a, tmp_path, monkeypatch):
    load_w8a()
    here = tmp_path / "data" / "w8a"
    here.mkdir(parents=True)
    (here / "w8a.xz").write_bytes(lzma.compress(ROWS))
    monkeypatch.setenv("TACIT_DATA", str(tmp_path / "data"))
    assert find("w8a") == {"w8a": here / "w8a.xz"}
    (here / "w8a.xz").write_bytes(lzma.compress(ROWS[:-1]))
    with pytest.raises(FileError, match=r"data.w8a.w8a.xz is not the published w8a"):
        load_w8a()  # and not the good copy in the cache
    (here / "w8a.xz").unlink()
    assert load_w8a()[0].shape == (3, 300)
    assert server.asked == ["/w8a"]


def test_nothing_is_fetched_unless_wanted(server, w8a):
    with pytest.raises(FileError, match=r"no file w8a .*tacit data fetch w8a"):
        load_w8a(download=False)
    assert not server.asked


def test_a_wrong_checksum_is_refused_and_not_kept(server, w8a, cache):
    server.pages["w8a"] = other = ROWS.replace(b"7", b"8")
    with pytest.raises(FileError, match=f"{digest(other)[:12]}.*{digest(ROWS)[:12]}"):
        load_w8a()
    assert nothing_kept(cache)


def test_a_damaged_copy_in_the_cache_is_refused(server, w8a):
    load_w8a()
    (w8a / "w8a").write_bytes(ROWS[:-1])
    with pytest.raises(FileError, match=r"cache.w8a.w8a is not the published w8a.*delete it"):
        load_w8a()
    assert server.asked == ["/w8a"]


@pytest.mark.parametrize("silent", [False, True])
def test_an_interrupted_download_is_not_kept(server, w8a, cache, silent):
    server.cut, server.silent = 10, silent
    what = "is not the published w8a" if silent else "broke after 10 of 23 bytes|broken one"
    with pytest.raises(FileError, match=what):
        load_w8a()
    assert nothing_kept(cache)
    server.cut = None
    assert load_w8a()[0].shape == (3, 300)


def test_a_page_that_is_not_there(server, w8a, cache):
    server.pages.clear()
    message = r"w8a could not be fetched from http.*: the server answers 404 .*in TACIT_DATA/w8a"
    with pytest.raises(FileError, match=message):
        load_w8a()
    assert nothing_kept(cache)


def test_a_server_that_is_not_there(w8a, cache, monkeypatch):
    with Server() as gone:
        url = gone.url("w8a")
    put(monkeypatch, "w8a", File("w8a", digest(ROWS), len(ROWS), url))
    with pytest.raises(FileError, match=r"could not be fetched from .*no connection.*TACIT_DATA"):
        load_w8a()
    assert nothing_kept(cache)


@pytest.mark.parametrize("silent", [False, True])
def test_a_download_that_is_too_large(server, w8a, cache, monkeypatch, silent):
    server.silent = silent
    monkeypatch.setattr("tacit.datasets.store.MOST_BYTES", 20)
    with pytest.raises(FileError, match=r"could not be fetched .* 20 are taken|more than 20 bytes"):
        load_w8a()
    assert nothing_kept(cache)


def test_a_bomb_is_not_unpacked(server, w8a, cache):
    server.pages["w8a"] = gzip.compress(bytes(1 << 24))
    with pytest.raises(FileError, match="unpacks to more than"):
        load_w8a()
    assert nothing_kept(cache)


def test_a_cache_that_cannot_be_written(w8a, cache):
    cache.write_bytes(b"in the way")
    with pytest.raises(FileError, match="cannot keep data sets in"):
        load_w8a()


def test_another_archive_is_not_opened(server, cache, monkeypatch):
    page = zipped(w8a=ROWS)
    file = File("w8a", digest(ROWS), len(ROWS), server.url("w8a"), ("w8a",), digest(page))
    put(monkeypatch, "w8a", file)
    server.pages["w8a"] = zipped(w8a=ROWS, more=b"1")  # the file in it is the published one
    with pytest.raises(FileError, match="is not the published archive of w8a"):
        load_w8a()
    assert nothing_kept(cache)
    server.pages["w8a"] = page
    assert load_w8a()[0].shape == (3, 300)


def zipped(**members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return out.getvalue()


def tarred(mode, **members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as file:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    return out.getvalue()


def debian(**members):
    parts = [b"!<arch>\n"]
    for name, data in members.items():
        head = f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode()
        parts += [head, data, b"\n" * (len(data) % 2)]
    return b"".join(parts)


@pytest.mark.parametrize(
    ("page", "members"),
    [
        (zipped(a=b"no", b=ROWS), ("b",)),
        (zipped(inner=zipped(b=ROWS)), ("inner", "b")),
        (tarred("w:gz", a=b"no", b=ROWS), ("b",)),
        (debian(odd=b"123", data=tarred("w:xz", b=gzip.compress(ROWS))), ("data", "b")),
    ],
)
def test_files_inside_packages(server, cache, monkeypatch, page, members):
    file = File("w8a", digest(ROWS), len(ROWS), server.url("w8a"), members)
    put(monkeypatch, "w8a", file)
    for damaged in (page[: len(page) // 2], ROWS, b"", b"PK", b"!<arch>\n"):
        server.pages["w8a"] = damaged
        with pytest.raises(FileError):
            load_w8a()
        assert nothing_kept(cache)
    server.pages["w8a"] = page
    assert load_w8a()[0].shape == (3, 300)
    with pytest.raises(FileError, match="is not an archive that holds other"):
        archives.member("it", page, "other", 100)


def test_one_package_is_fetched_once_for_all_its_files(server, cache, monkeypatch):
    halves = {"cod-rna": b"-1 1:1 2:2\n", "cod-rna.t": b"1 8:3\n"}
    server.pages["both"] = tarred("w:gz", **halves)
    url = server.url("both")
    files = [File(name, digest(data), len(data), url, (name,)) for name, data in halves.items()]
    put(monkeypatch, "cod_rna", *files)
    fetch("cod_rna")
    assert server.asked == ["/both"] and None not in find("cod_rna").values()
    (cache / "cod_rna" / "cod-rna.t").unlink()
    fetch("cod_rna")
    assert len(server.asked) == 2 and None not in find("cod_rna").values()


def test_every_registered_file_is_told_apart_and_well_formed():
    sums = [file.sha256 for source in SOURCES.values() for file in source.files]
    assert len(set(sums)) == len(sums)
    assert all(len(text) == 64 and set(text) <= set("0123456789abcdef") for text in sums)
    for source in SOURCES.values():
        for file in source.files:
            assert file.size > 0 and (file.url is None or file.url.startswith("https://"))


def test_names_that_are_unknown_are_answered_with_the_known():
    with pytest.raises(InputError, match="no data set 'minst'; there are adult, mnist"):
        fetch("minst")


def test_commands_list_and_fetch(server, w8a):
    run = CliRunner()
    before = run.invoke(app, ["data", "list"])
    assert before.exit_code == 0 and "missing: w8a (tacit data fetch w8a)" in before.output
    assert "adult: census income of 1994; 32,561 + 16,281 × 14" in before.output
    assert "comes with the package" in before.output
    done = run.invoke(app, ["data", "fetch", "w8a", "--json"])
    assert done.exit_code == 0
    after = json.loads(run.invoke(app, ["data", "list", "--json"]).stdout)
    (one,) = [one for one in after["datasets"] if one["name"] == "w8a"]
    assert one["missing"] == [] and one["where"] == f"found in {w8a}"
    assert "1 files verified" in run.invoke(app, ["data", "fetch", "w8a"]).output
    assert server.asked == ["/w8a"]
    (w8a / "w8a").write_bytes(ROWS[:-1])
    for name in ("w8a", "cifar10", "nothing"):
        failed = run.invoke(app, ["data", "fetch", name])
        assert failed.exit_code == 2 and "error: " in failed.output


def test_labels_are_integers(w8a):
    assert load_w8a()[1].dtype == np.int64
