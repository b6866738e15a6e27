#!/usr/bin/env python3
"""Lets clang-tidy read sources, each once: not again until it, a header of ours, or the checks change.

    tools/check_tidy.py FOLDER SOURCE...   FOLDER holds compile_commands.json

Sources that the tree does not compile are passed over. Findings are errors: ends with 1 and their text.
What has been read without one is marked in FOLDER/read.
"""

import concurrent.futures
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

from compilation import reading_words


class Reader:
    def __init__(self, tree):
        self.tree = tree
        version = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
        self.checks = version + Path(".clang-tidy").read_bytes()
        self.commands = {}
        for entry in json.loads((tree / "compile_commands.json").read_text()):
            self.commands.setdefault(Path(entry["file"]).resolve(), []).append(entry)

    def compiles(self, source):
        return source in self.commands

    def digest(self, source):
        """Of all that a reading depends on, but for the system's headers. Empty where a header is missing:
        clang-tidy tells of it."""
        whole = hashlib.sha256(self.checks)
        for entry in self.commands[source]:
            words = reading_words(entry)
            rule = subprocess.run([*words, "-MM", "-MT", "all"], cwd=entry["directory"],
                                  capture_output=True, text=True)
            if rule.returncode != 0:
                return ""
            whole.update(" ".join(words).encode())
            for name in rule.stdout.replace("\\\n", " ").split()[1:]:
                text = (Path(entry["directory"]) / name).read_bytes()
                whole.update(f"\n{name} {len(text)}\n".encode() + text)
        return whole.hexdigest()

    def read(self, source):
        """What clang-tidy finds in one, unless it has been read."""
        mark = self.tree / "read" / source.relative_to(Path.cwd())
        digest = self.digest(source)
        if digest and mark.exists() and mark.read_text() == digest:
            return ""
        result = subprocess.run(["clang-tidy", "-p", self.tree, "--quiet", "--warnings-as-errors=*", source],
                                stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if result.returncode != 0:
            told = [line for line in result.stderr.splitlines() if not line.endswith(" generated.")]
            return "\n".join([result.stdout, *told])
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.write_text(digest)
        return ""


def main():
    if len(sys.argv) < 3 or sys.argv[1] in ("-h", "--help"):
        print(__doc__, file=sys.stderr)
        return 2
    tree = Path(sys.argv[1])
    if not (tree / "compile_commands.json").exists():
        print(f"{tree}: expected compile_commands.json: configure the tree first", file=sys.stderr)
        return 2
    reader = Reader(tree)
    sources = [Path(name).resolve() for name in sys.argv[2:]]
    outside = [source for source in sources if not source.is_relative_to(Path.cwd())]
    if outside:
        print(f"{outside[0]}: expected a source within {Path.cwd()}", file=sys.stderr)
        return 2
    sources = [source for source in sources if reader.compiles(source)]
    found = 0
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for done, text in enumerate(pool.map(reader.read, sources), 1):
            if text:
                found += 1
                print(text, flush=True)
            if sys.stderr.isatty():
                print(f"\r{done}/{len(sources)}", end="\n" if done == len(sources) else "", file=sys.stderr)
    print(f"tidy: {len(sources) - found} of {len(sources)} sources read without a finding")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
