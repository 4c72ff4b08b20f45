"""The compiled loops of tacit.engine and tacit.mechanisms; all else is in pyproject.toml.

Without a compiler that takes them the package is installed all the same: NumPy then finds the same
numbers in more time.
"""

from setuptools import Extension, setup


def native(package: str, *more: str) -> Extension:
    """The extension of a package, of one file in C and what that includes."""
    folder = "src/" + package.replace(".", "/")
    return Extension(
        f"{package}.native",
        [f"{folder}/native.c"],
        depends=[f"{folder}/{name}" for name in more],
        define_macros=[("Py_LIMITED_API", "0x030B0000")],
        extra_compile_args=[
            "-std=gnu11",
            "-O3",
            "-g0",
            "-ffp-contract=off",
            "-fno-math-errno",
            "-fno-trapping-math",  # values stay what they are; only exceptions may be others
            "-Wno-psabi",
        ],
        py_limited_api=True,
        optional=True,
    )


setup(
    ext_modules=[
        native("tacit.engine.kernels", "loops.h"),
        native("tacit.mechanisms", "rows.h", "noise.h"),
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
