#!/usr/bin/env python3
"""Checks an installed include folder: each header compiles alone, quanta.h brings all of them, and
each says what throws and what threads may share.

    tools/check_headers.py FOLDER [COMPILER [OPTIONS]]   FOLDER holds quanta/quanta.h

The compiler is c++ unless one is named. Each header is compiled as the only line of a file, with
warnings as errors.
"""

import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

# Headers that declare nothing.
SILENT = {"quanta/quanta.h", "quanta/observers.h"}

INCLUDE = re.compile(r'^\s*#\s*include\s+["<](quanta/[^">]+)[">]', re.MULTILINE)


def reached(folder):
    """What quanta.h brings, headers that its headers include among it."""
    seen, left = set(), ["quanta/quanta.h"]
    while left:
        name = left.pop()
        if name not in seen:
            seen.add(name)
            left += INCLUDE.findall((folder / name).read_text())
    return seen


def unsaid(name, text):
    """What the comments of a header leave open."""
    comments = " ".join(re.findall(r"//.*", text))
    topics = {"what throws": r"\bthrow", "what threads may share": r"\bthread"}
    return [f"{name} does not say {topic}" for topic, word in topics.items()
            if name not in SILENT and not re.search(word, comments, re.IGNORECASE)]


def compile_alone(folder, name, command, scratch):
    """The compiler's text if the header does not compile alone."""
    source = Path(scratch) / (name.replace("/", "_") + ".cpp")
    source.write_text(f"#include <{name}>\n")
    result = subprocess.run(
        [*command, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion",
         "-Werror", f"-I{folder}", str(source)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return "" if result.returncode == 0 else f"{name} does not compile alone:\n{result.stderr}"


def main():
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    folder, command = Path(sys.argv[1]), sys.argv[2:] or ["c++"]
    names = sorted(path.relative_to(folder).as_posix() for path in folder.glob("quanta/**/*.h"))
    if "quanta/quanta.h" not in names:
        print(f"{folder}: expected quanta/quanta.h in it", file=sys.stderr)
        return 2
    wrong = []
    for name in names:
        text = (folder / name).read_text()
        wrong += unsaid(name, text)
        for target in INCLUDE.findall(text):
            if target not in names:
                wrong.append(f"{name} includes {target}, which is not installed")
    if not wrong:
        hidden = sorted(set(names) - reached(folder))
        wrong += [f"{name} is installed, but quanta.h does not bring it" for name in hidden]
    with tempfile.TemporaryDirectory() as scratch:
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            texts = pool.map(lambda name: compile_alone(folder, name, command, scratch), names)
            wrong += [text for text in texts if text]
    fine = f"headers: {len(names)}, each compiles alone and says what throws and what threads share"
    print("\n".join(wrong) if wrong else fine)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
