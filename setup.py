"""Builds the native kernels: one shared library, no Python or torch headers, so one wheel fits every Python.

Each instruction set is the same source compiled again (csrc/isa_*.cpp); the library picks one when it is loaded.
Without a C++ compiler the package still installs and runs on plain torch operations, more slowly.

  CXX                          the compiler (default: the first of c++, g++, clang++)
  CXXFLAGS                     added after our own flags
  WIREBOUND_REQUIRE_NATIVE=1   a library that cannot be built is an error, not a warning
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Distribution, Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

SOURCE = Path(__file__).resolve().parent / "csrc"
PARTS = ("training", "layers")  # of the kernels; the one that takes longer to compile first
LIBRARY = Path("wirebound") / "_native" / "libwirebound.so"  # the same name on every platform

FLAGS = [
    "-O3", "-std=c++17", "-fPIC", "-pthread", "-fvisibility=hidden", "-fvisibility-inlines-hidden",
    "-fno-math-errno", "-ffp-contract=fast",  # no -ffast-math: a NaN must stay one
    "-falign-loops=64",  # inner loops took up to a twentieth longer where they happened to start badly
    "-Wall", "-Wextra", "-Wno-psabi",
]  # fmt: skip
LINK_FLAGS = ["-dynamiclib"] if sys.platform == "darwin" else ["-shared", "-Wl,-z,relro"]


def instruction_sets() -> dict[str, list[str]]:
    """Name of each instruction set to compile for, and its flags; the lowest first, because the linker keeps the
    first copy of every inline function of the standard library, and that copy must run on every processor."""
    machine = platform.machine().lower()
    if machine in ("x86_64", "amd64"):
        # The lowest set is for processors from before 2013: less optimised, it takes half as long to compile.
        # Compilers order instructions for a processor of this set better than for x86-64 at large.
        v3 = ["-march=x86-64-v3", "-mtune=haswell"]
        return {"baseline": ["-march=x86-64", "-O2"], "v3": v3, "v4": ["-march=x86-64-v4"]}
    if machine in ("aarch64", "arm64"):
        return {"neon": []}
    return {"baseline": []}


def find_compiler() -> list[str]:
    """The C++ compiler as a command."""
    if chosen := os.environ.get("CXX"):
        return shlex.split(chosen)
    for name in ("c++", "g++", "clang++"):
        if path := shutil.which(name):
            return [path]
    raise FileNotFoundError("no C++ compiler found (looked for CXX, c++, g++, clang++)")


def run(command: list[str]) -> None:
    """Runs one compiler command; its messages become part of the error, or are shown if it only warns."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{shlex.join(command)}\n{done.stdout}{done.stderr}")
    if done.stderr:
        print(done.stderr, file=sys.stderr)


def build_library(target: Path) -> None:
    """Compiles csrc/ and links it into `target`."""
    compiler = find_compiler()
    extra = shlex.split(os.environ.get("CXXFLAGS", ""))
    sets = instruction_sets()
    lowest = next(iter(sets.values()))
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:

        def compile_object(job: tuple[str, str, list[str]]) -> str:
            name, source, flags = job
            output = str(Path(folder) / f"{name}.o")
            run([*compiler, *FLAGS, *flags, *extra, "-c", str(SOURCE / source), "-o", output])
            return output

        jobs = [(name, f"{name}.cpp", lowest) for name in ("dispatch", "parallel", "scratch")]
        for name, flags in sets.items():
            jobs += [(f"{name}-{part}", f"isa_{part}.cpp", [f"-DWB_ISA={name}", *flags]) for part in PARTS]
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            objects = list(pool.map(compile_object, jobs))
        # Linked beside the target and moved over it: a process that has the old library loaded keeps it intact.
        linked = target.with_suffix(f".{os.getpid()}.tmp")
        try:
            run([*compiler, *LINK_FLAGS, "-pthread", *objects, "-o", str(linked)])
            linked.replace(target)
        finally:
            linked.unlink(missing_ok=True)


class BuildNative(build_ext):
    """Stands in for the usual extension build: nothing here is a Python extension module."""

    def in_place(self) -> bool:
        return bool(self.inplace or getattr(self, "editable_mode", False))

    def target(self) -> Path:
        return (SOURCE.parent / "src" if self.in_place() else Path(self.build_lib)) / LIBRARY

    def run(self) -> None:
        try:
            build_library(self.target())
        except (OSError, RuntimeError) as error:
            if os.environ.get("WIREBOUND_REQUIRE_NATIVE") == "1":
                raise
            if not self.in_place():
                self.target().unlink(missing_ok=True)  # an earlier build's must not end up in this wheel
            print(
                f"warning: wirebound is installed WITHOUT its native kernels, and will be slower:\n{error}",
                file=sys.stderr,
            )

    def get_outputs(self) -> list[str]:
        return [str(self.target())] if self.target().exists() else []

    def get_output_mapping(self) -> dict[str, str]:
        return {}

    def get_source_files(self) -> list[str]:
        return sorted(str(path.relative_to(SOURCE.parent)) for path in SOURCE.iterdir() if path.is_file())


class PlatformWheel(bdist_wheel):
    """Any Python 3, this platform: the library knows nothing about Python."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


class PlatformDistribution(Distribution):
    """Makes setuptools treat the package as one with native code."""

    def has_ext_modules(self) -> bool:
        return True


setup(
    distclass=PlatformDistribution,
    ext_modules=[Extension("wirebound._native", sources=[])],
    cmdclass={"build_ext": BuildNative, "bdist_wheel": PlatformWheel},
)
