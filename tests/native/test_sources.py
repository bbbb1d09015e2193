"""The sources of the kernels and the Python that calls them say the same: functions, structs, numbers."""

import ctypes
import os
import re
import shlex
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from torch import nn

from wirebound.nn.activations import KERNEL_NUMBERS
from wirebound.ops import faults, library, structs
from wirebound.ops.native import layers, stack
from wirebound.ops.philox import Stream
from wirebound.ops.rule import RuleKind

CSRC = Path(__file__).resolve().parents[2] / "csrc"
C_TYPES = {
    "void": None, "int": library.INT, "int32_t": library.INT, "uint32_t": library.UINT, "int64_t": library.LONG,
    "uint64_t": library.ULONG, "const char*": library.TEXT,
}  # fmt: skip
STRUCTS = {
    "wb_" + re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower(): struct
    for name, struct in vars(structs).items()
    if isinstance(struct, type) and issubclass(struct, ctypes.Structure) and struct is not ctypes.Structure
}
NUMBERS = {
    **{f"WB_{name}": getattr(faults, name) for name in ("FINE", "NOT_FINITE", "NO_MEMORY", "BAD_INDEX", "DORMANT")},
    **{f"WB_{kind.name}": int(kind) for kind in RuleKind},
    **{f"WB_STREAM_{s.name}": int(s) for s in (Stream.NOISE, Stream.NEWBORN, Stream.NEWBORN_LAYER, Stream.SIGN, Stream.DROPOUT)},
    "WB_IDENTITY": KERNEL_NUMBERS[nn.Identity], "WB_RELU": KERNEL_NUMBERS[nn.ReLU], "WB_TANH": KERNEL_NUMBERS[nn.Tanh],
    "WB_SIGMOID": KERNEL_NUMBERS[nn.Sigmoid], "WB_LSTM": layers._KINDS["lstm"], "WB_GRU": layers._KINDS["gru"],
    "WB_CROSS_ENTROPY": stack.CROSS_ENTROPY, "WB_MEAN_SQUARE": stack.MEAN_SQUARE, "WB_ABI_VERSION": library.ABI_VERSION,
}  # fmt: skip


def _compiler() -> list[str]:
    if chosen := os.environ.get("CXX"):
        return shlex.split(chosen)
    found = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if found is None:
        pytest.skip("no C++ compiler")
    return [found]


def _functions() -> dict[str, tuple[object, list[object]]]:
    """The functions of kernels.def as ``library.PROTOTYPES`` has them."""
    text = re.sub(r"//.*", "", (CSRC / "kernels.def").read_text())
    entry = re.compile(r"WB_(REAL_)?FUNCTION\((\w+), ([^,]+), (\w+),\s*\(([^()]*)\),\s*\(([^()]*)\)\)")
    found = {}
    for real, _, result, name, parameters, arguments in entry.findall(text):
        listed = [re.fullmatch(r"\s*(.*?)(\w+)\s*", one) for one in parameters.split(",") if one.strip() != "void"]
        assert [one[2] for one in listed] == [a.strip() for a in arguments.split(",") if a.strip()], name
        types = [one[1].strip() for one in listed]
        kinds = [library.POINTER if kind.endswith("*") else C_TYPES[kind] for kind in types]
        found[f"wb_{name}_*" if real else f"wb_{name}"] = (C_TYPES[result], kinds)
    assert len(found) == len(re.findall(r"^WB_(?:REAL_)?FUNCTION", text, re.M))
    return found


def test_python_declares_the_functions_of_the_list():
    ours, theirs = library.PROTOTYPES, _functions()
    assert list(ours) == list(theirs)
    for name, (result, arguments) in theirs.items():
        assert ours[name] == (result, arguments), name


def test_structs_and_numbers_are_those_of_the_header(tmp_path):
    """Asks the compiler: the offset and size of every field, the size of every struct, every shared number."""
    lines = []
    for name, struct in STRUCTS.items():
        lines.append(f'std::printf("{name} %zu\\n", sizeof({name}));')
        for field, *_ in struct._fields_:
            lines.append(
                f'std::printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), sizeof((({name}*)nullptr)->{field}));'
            )
    lines += [f'std::printf("{name} %d\\n", static_cast<int>({name}));' for name in NUMBERS]
    source, program = tmp_path / "layout.cpp", tmp_path / "layout"
    body = "\n".join(lines)
    source.write_text(f'#include <cstddef>\n#include <cstdio>\n#include "wirebound.h"\nint main() {{\n{body}\n}}\n')
    subprocess.run([*_compiler(), "-std=c++17", f"-I{CSRC}", source, "-o", program], check=True)
    said = subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()
    ours = []
    for name, struct in STRUCTS.items():
        ours.append(f"{name} {ctypes.sizeof(struct)}")
        for field, *_ in struct._fields_:
            at = getattr(struct, field)
            ours.append(f"{name}.{field} {at.offset} {at.size}")
    ours += [f"{name} {number}" for name, number in NUMBERS.items()]
    assert said == ours


def test_every_struct_of_the_header_is_compared():
    header = (CSRC / "wirebound.h").read_text()
    assert set(re.findall(r"typedef struct (\w+)", header)) == set(STRUCTS)


@pytest.mark.slow
def test_an_editor_can_open_every_file_by_itself():
    compiler = _compiler()

    def complaints(path: Path) -> str:
        command = [*compiler, "-std=c++17", "-fsyntax-only", "-x", "c++", path]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.stderr if done.returncode else ""

    files = sorted(path for path in CSRC.iterdir() if path.suffix in (".cpp", ".h"))
    assert len(files) > 30
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        assert [text for text in pool.map(complaints, files) if text] == []


def test_nothing_is_thrown_through_the_interface():
    """Every exported function calls its kernel through the one place that catches; only two are no kernels."""
    own, exported = (CSRC / "dispatch.cpp").read_text().split('extern "C" {')
    assert "catch (const std::exception&)" in own
    assert re.findall(r"^int (\w+_packed)\(.*\{\n    return call\(", own, re.M) == ["forward_packed", "backward_packed"]
    bodies = re.findall(r"^[\w ]+\*? ?(wb_\w+)\([^)]*\) \{(.*?)\}$", exported, re.M | re.S)
    assert len(bodies) == len(re.findall(r"^[\w ]+\*? ?wb_\w+\(", exported, re.M))
    caught = re.compile(r"return (call|(forward|backward)_packed<\w+>)\(")
    assert [name for name, body in bodies if not caught.search(body)] == ["wb_abi_version", "wb_isa"]
    assert "wb_##name parameters { return call(" in exported
