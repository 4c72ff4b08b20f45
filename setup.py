"""The compiled loops of tacit.engine; all else is in pyproject.toml.

Without a compiler that takes them the package is installed all the same: NumPy then finds the same
numbers in more time.
"""

from setuptools import Extension, setup

FOLDER = "src/tacit/engine/kernels"
NATIVE = Extension(
    "tacit.engine.kernels.native",
    [f"{FOLDER}/native.c"],
    depends=[f"{FOLDER}/loops.h"],
    define_macros=[("Py_LIMITED_API", "0x030B0000")],
    extra_compile_args=["-std=gnu11", "-O3", "-ffp-contract=off", "-fno-math-errno", "-Wno-psabi"],
    py_limited_api=True,
    optional=True,
)

setup(ext_modules=[NATIVE], options={"bdist_wheel": {"py_limited_api": "cp311"}})
