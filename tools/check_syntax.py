#!/usr/bin/env python3
"""Lets a configured tree's compiler read every source that it would compile, without making code.

    tools/check_syntax.py FOLDER   FOLDER holds compile_commands.json

Warnings are errors. Ends with 1 and the compiler's text when it does not take one of them.
Precompiled headers save time where they are there; what a build makes for sources has to be.
"""

import concurrent.futures
import json
import os
import subprocess
import sys
from pathlib import Path

from compilation import reading_words


def reading(entry):
    """The words that let the compiler read, without precompiled headers that are not there: clang then
    reads the headers themselves."""
    words = reading_words(entry)
    kept = []
    at = 0
    while at < len(words):
        rest = words[at:at + 4]
        is_missing = rest[:3] == ["-Xclang", "-include-pch", "-Xclang"] and not Path(rest[3]).exists()
        kept += [] if is_missing else [words[at]]
        at += 4 if is_missing else 1
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
