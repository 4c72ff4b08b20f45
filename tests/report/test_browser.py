"""The page in a real browser: it shows what it should, fits, and fetches nothing."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tacit.audit.audits import Audit
from tacit.audit.picture import draw_audits
from tacit.privacy.certificate import Certificate, Expense
from tacit.privacy.events import PoissonGaussian
from tacit.report import render_html

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
]
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>\n')
PROBE = """<pre id="probe" hidden></pre><script>
const root = document.documentElement;
document.getElementById("probe").textContent = JSON.stringify({
  text: document.body.innerText,
  room: root.clientWidth,
  needed: root.scrollWidth,
  title: document.title,
  background: getComputedStyle(document.body).backgroundColor,
});
</script></body>"""

CERTIFICATE = Certificate(
    1.0,
    1e-5,
    "replace_special",
    events=tuple(
        Expense(stage, PoissonGaussian(9.5, 300, 0.05), epsilon_alone=0.5, share=0.5)
        for stage in ("PrivateCenter", "DPSGD")
    ),
    assumptions=("the number of rows, 32561, is public",),
    warnings=("delta is larger than 1/n",),
    plan={
        "rows": 32561,
        "features": 107,
        "loss": "logistic",
        "arithmetic": "exact",
        "stages": [
            {"name": "Encode", "kind": "free", "parameters": {"columns": ["age"] * 40}},
            {"name": "PrivateCenter", "kind": "private"},
        ],
        "trainer": {"name": "DPSGD", "parameters": {"steps": 300, "clip": 0.1}},
    },
).to_dict()
RESULTS: dict[str, Any] = {
    "test_accuracy": 0.846,
    "nonprivate_accuracy": 0.853,
    "class_names": ["<=50K", ">50K"],
    "confusion": [[11600, 835], [1670, 2176]],
    "top_features": [{"name": "a-very-long-name-" * 8, "weight": 1.0}],
}

Browse = Callable[..., "Visit"]


class Visit:
    """What a browser made of a page: the document, and what the page asked for."""

    def __init__(self, document: str, log: dict[str, Any]) -> None:
        self.document = document
        self._log = log

    @property
    def probe(self) -> dict[str, Any]:
        found = re.search(r'<pre id="probe"[^>]*>(.*?)</pre>', self.document, re.DOTALL)
        assert found is not None
        return dict(json.loads(html.unescape(found[1])))

    @property
    def requests(self) -> list[str]:
        """Addresses beyond the file that the page, not the browser itself, asked for."""
        start = self._log["constants"]["logEventTypes"]["URL_REQUEST_START_JOB"]
        return [
            event["params"]["url"]
            for event in self._log["events"]
            if event["type"] == start
            and event.get("params", {}).get("initiator", "not an origin") != "not an origin"
            and re.match("(https?|wss?|ftp):", event["params"]["url"])
        ]


@pytest.fixture(scope="session")
def chromium() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    if os.environ.get("CI"):
        pytest.fail("no chromium, chromium-browser or google-chrome is installed")
    pytest.skip("no chromium, chromium-browser or google-chrome is installed")


@pytest.fixture(scope="module")
def browse(chromium: str) -> Browse:
    def visit(source: str, *flags: str) -> Visit:
        with (
            tempfile.TemporaryDirectory(prefix="tacit-", ignore_cleanup_errors=True) as folder,
            socket.socket() as nobody,
        ):
            page, log = Path(folder, "page.html"), Path(folder, "net.json")
            page.write_text(source, encoding="utf-8")
            # The proxy is a port on which nobody listens: no run reaches the network.
            nobody.bind(("127.0.0.1", 0))
            command = [
                chromium,
                *FLAGS,
                f"--user-data-dir={Path(folder, 'profile')}",
                f"--proxy-server=http://127.0.0.1:{nobody.getsockname()[1]}",
                f"--log-net-log={log}",
                *flags,
                "--dump-dom",
                page.as_uri(),
            ]
            done = subprocess.run(command, capture_output=True, timeout=60, check=True)
            return Visit(done.stdout.decode("utf-8"), json.loads(log.read_text(encoding="utf-8")))

    return visit


def page(**changes: Any) -> str:
    return render_html(CERTIFICATE | changes, results=RESULTS, title="Census income")


def probed(source: str) -> str:
    """The page with a script that reports how it was laid out, and leave to run it."""
    unlocked, removed = POLICY.subn("", source)
    assert removed == 1
    return unlocked.replace("</body>", PROBE)


@pytest.fixture(scope="module")
def plain_visit(browse: Browse) -> dict[str, Any]:
    return browse(probed(page())).probe


def test_promise_budget_and_stages_are_visible(plain_visit: dict[str, Any]) -> None:
    text = " ".join(plain_visit["text"].split())
    for words in (
        "Census income",
        "at most 2.72 times what it would have been had that row been blanked out",
        "ε (epsilon) 1 ",
        "δ (delta) 10⁻⁵",
        "PrivateCenter",
        "DPSGD",
        "Encode",
        "delta is larger than 1/n",
    ):
        assert words in text


def test_page_fits_windows_of_all_widths(browse: Browse) -> None:
    # Frames, because some systems do not open windows narrower than 500 pixels.
    wide = '<svg xmlns="http://www.w3.org/2000/svg" width="1500" height="40"></svg>'
    source = render_html(CERTIFICATE, results=RESULTS, curves=wide)
    inner = html.escape(probed(source), quote=True)
    widths = (320, 390, 768, 1280)
    frames = "".join(
        f'<iframe srcdoc="{inner}" style="width:{width}px;height:900px;border:0"></iframe>'
        for width in widths
    )
    script = """<script>
    window.onload = () => {
      const found = [...document.querySelectorAll("iframe")].map(
        (frame) => JSON.parse(frame.contentDocument.getElementById("probe").textContent));
      const pre = document.createElement("pre");
      pre.id = "probe";
      pre.textContent = JSON.stringify({frames: found});
      document.body.replaceChildren(pre);
    };
    </script>"""
    seen = browse(f"<!DOCTYPE html><body>{frames}{script}").probe["frames"]
    for width, frame in zip(widths, seen, strict=True):
        assert width - 20 <= frame["room"] <= width
        assert frame["needed"] <= frame["room"]


def test_dark_readers_get_a_dark_page_and_the_same_banner(
    browse: Browse, plain_visit: dict[str, Any]
) -> None:
    held_back = probed(page(releasable=False, reasons=["seeded: not for release"]))
    seen = browse(held_back, "--force-dark-mode").probe
    assert plain_visit["background"] == "rgb(255, 255, 255)"
    assert seen["background"] == "rgb(18, 22, 27)"
    assert "NOT FOR RELEASE" not in plain_visit["text"]
    assert "NOT FOR RELEASE" in seen["text"]
    assert "seeded: not for release" in seen["text"]


def test_nothing_is_fetched(browse: Browse) -> None:
    source = page()
    assert browse(source).requests == []
    # Nor without the policy: there is nothing on the page for it to hold back.
    assert browse(POLICY.sub("", source)).requests == []
    # The same check does see what other pages fetch ...
    outside = [
        "https://example.test/style.css",
        "http://example.test/image.png",
        "http://example.test/ground.png",
        "https://example.test/frame.html",
    ]
    leaky = (
        f'<link rel="stylesheet" href="{outside[0]}"><img src="{outside[1]}">'
        f'<p style="background: url({outside[2]})">text</p><iframe src="{outside[3]}"></iframe>'
    )
    fetching = source.replace("</main>", leaky + "</main>")
    assert set(browse(POLICY.sub("", fetching)).requests) == set(outside)
    # ... and the policy would hold them back.
    assert browse(fetching).requests == []


def test_hostile_names_do_not_run(browse: Browse) -> None:
    attack = "\"'><script>document.title = 'taken'</script><svg onload=\"document.title='taken'\">"
    certificate = json.loads(json.dumps(CERTIFICATE))
    certificate["events"][0]["stage"] = certificate["plan"]["trainer"]["name"] = attack
    certificate["plan"]["stages"][0]["parameters"] = {attack: attack}
    results = {"top_features": [{"name": attack, "weight": 1.0}], "files": [attack]}
    source = render_html(certificate, results=results, title=attack)
    assert browse(probed(source)).probe["title"] != "taken"
    # The same words do run where they are not escaped.
    unescaped = probed(render_html(CERTIFICATE)).replace("<main>", "<main>" + attack)
    assert browse(unescaped).probe["title"] == "taken"


def test_a_page_that_is_hostile_all_over_does_not_run(browse: Browse) -> None:
    take = "document.title='taken'"
    vectors = [
        f"<script>{take}</script>",
        f"</title><script>{take}</script>",
        f"</style></svg></desc><script>{take}</script>",
        f"--><script>{take}</script>",
        f"]]><script>{take}</script>",
        f'" onload="{take}" onmouseover="{take}" autofocus onfocus="{take}',
        f"' onerror='{take}' src=x '",
        f"<img src=x onerror={take}>",
        f"<svg><animate onbegin={take} attributeName=x dur=1s>",
        f"<iframe srcdoc='<script>parent.{take}</script>'>",
        f"&lt;script&gt;{take}&lt;/script&gt;",
        f"\u202e\x00\x1b<script>{take}</script>",
    ]
    attack = "".join(vectors)
    certificate = json.loads(json.dumps(CERTIFICATE))
    certificate |= {name: [attack] * 2 for name in ("assumptions", "warnings", "reasons")}
    certificate |= {"versions": {attack: attack}, "created": attack, "releasable": False}
    certificate["plan"] |= {"loss": attack, "ledger": {"dataset": attack}}
    certificate["plan"]["stages"] = [
        {"name": attack, "kind": "free", "note": attack, "parameters": {attack: [attack]}}
    ]
    certificate["plan"]["trainer"]["name"] = certificate["events"][0]["stage"] = attack
    results = RESULTS | {"class_names": [attack] * 2, "files": [attack]}
    results["top_features"] = [{"name": attack, "weight": 1.0}]
    audit = Audit(attack, 1.0, 1e-5, 2.5, 0.95, 100, "many-runs", "steps", "replace_one")
    page = probed(render_html(certificate, results=results, title=attack))
    picture = f"<!DOCTYPE html><title>a</title><body>{draw_audits([audit])}{PROBE}"
    for source in (page, picture):
        seen = browse(source)
        assert seen.probe["title"] != "taken"
        assert seen.requests == []
    # Unescaped, it would be seen to run.
    unescaped = f"<!DOCTYPE html><title>a</title><body>{vectors[0]}{PROBE}"
    assert browse(unescaped).probe["title"] == "taken"
