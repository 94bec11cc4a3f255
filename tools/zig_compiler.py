"""Runs zig as a C or C++ compiler for Linux with an old glibc: the compiler of tools/zig.cmake.

    python tools/zig_compiler.py cc|c++ x86_64|aarch64 ARGUMENT...

Owns the target's name and GCC's spelling of ARM's architectures, which ggml's build uses and zig does not know. Leaves
the choice of flags to CMake.
"""

from __future__ import annotations

import os
import re
import sys

GLIBC = "2.28"  # manylinux_2_28
NAMES = {"fp16": "fullfp16"}  # GCC's name of an extension, and LLVM's


def translated(argument: str) -> str:
    """-march=armv8.2-a+dotprod as zig's -mcpu=generic+v8_2a+dotprod; anything else as it is."""
    match = re.fullmatch(r"-march=armv(\d)(?:\.(\d))?-a((?:\+\w+)*)", argument)
    if match is None:
        return argument
    version = f"v{match[1]}_{match[2]}a" if match[2] else f"v{match[1]}a"
    extensions = [NAMES.get(name, name) for name in match[3].split("+") if name]
    return "-mcpu=generic+" + "+".join([version, *extensions])


def main() -> None:
    tool, machine, *arguments = sys.argv[1:]
    import ziglang

    zig = os.path.join(os.path.dirname(str(ziglang.__file__)), "zig")
    command = [zig, tool, "-target", f"{machine}-linux-gnu.{GLIBC}", *map(translated, arguments)]
    os.execv(zig, command)


if __name__ == "__main__":
    main()
