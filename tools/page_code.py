#!/usr/bin/env python3
"""Writes the code that a page of docs/ shows into files, so that a test compiles what is shown.

    page_code.py PAGE FOLDER

A comment `<!-- code: net.h -->` before a block names the file that the block goes to; with
`<!-- code: main of quantize.cpp -->` the blocks of that name, in their order, become the main
function of that file. Blocks without such a comment are left out. Files that would not change are
not written.
"""

import pathlib
import re
import sys

MARK = re.compile(r"<!-- code: (main of )?([\w.]+) -->\n```cpp\n(.*?)```", re.DOTALL)
MAIN_HEAD = '#include <cstdio>\n#include <optional>\n#include <vector>\n\n#include "net.h"\n\n'


def files_of(page: str) -> dict:
    blocks = {}
    mains = set()
    for is_main, name, code in MARK.findall(page):
        blocks.setdefault(name, []).append(code)
        if is_main:
            mains.add(name)
    result = {}
    for name, parts in blocks.items():
        text = "".join(parts)
        result[name] = MAIN_HEAD + "int main() {\n" + text + "}\n" if name in mains else text
    return result


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    page, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    files = files_of(page.read_text())
    if not files:
        print(f"page_code: {page}: no block is named by a comment", file=sys.stderr)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
