#!/usr/bin/env python3
"""Lets a configured tree's compiler read every source that it would compile, without making code.

    tools/check_syntax.py FOLDER   FOLDER holds compile_commands.json

Warnings are errors. Ends with 1 and the compiler's text when it does not take one of them. Precompiled headers have to be there.
"""

import concurrent.futures
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path


def reading(entry):
    """The arguments of a compilation, without what it makes."""
    words = shlex.split(entry["command"])
    if Path(words[0]).name == "ccache":
        words = words[1:]
    kept = []
    words = iter(words)
    for word in words:
        if word == "-o":
            next(words)
        elif word != "-c":
            kept.append(word)
    return [*kept, "-fsyntax-only", "-Werror"]


def read(entry):
    """What the compiler says of one that it does not take."""
    result = subprocess.run(reading(entry), cwd=entry["directory"], stdin=subprocess.DEVNULL,
                            capture_output=True, text=True)
    return "" if result.returncode == 0 else f"{entry['file']}:\n{result.stderr}"


def main():
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__, file=sys.stderr)
        return 2
    commands = Path(sys.argv[1]) / "compile_commands.json"
    if not commands.exists():
        print(f"{commands}: expected one: configure the tree first", file=sys.stderr)
        return 2
    entries = [entry for entry in json.loads(commands.read_text())
               if "cmake_pch" not in Path(entry["file"]).name]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        wrong = [text for text in pool.map(read, entries) if text]
    print("\n".join(wrong) if wrong else f"syntax: {len(entries)} sources read without a warning")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
