#!/usr/bin/env python3
"""Prints a header as Doxygen wants it: tools/doxygen_filter.py HEADER (see docs/Doxyfile).

Comments in headers are plain text without commands. What they leave to the eye is said here:
- what stands before a header's first declaration is about the whole file;
- // right above declarations is about all of them up to the next blank line;
- // with dashes behind it is the heading of a section of a class;
- lines that are indented by three blanks or more are code or formulas.
"""

import re
import sys

COMMENT = re.compile(r" *//")
PLAIN = re.compile(r"( {0,2})//(?!/) ?(.*)")
HEADING = re.compile(r"( *)// (.*?) -{3,}$")
ITEM = re.compile(r" */// +([-*]|\d+\.) ")
CLASS = re.compile(r"(class|struct|template.*(class|struct)) .*\{$")
NO_DECLARATION = re.compile(r"\s*($|#|\}|namespace|(public|protected|private):)")


def blocks(lines):
    """Pairs of whether it is a comment, and its lines: runs of // or ///, single lines of code."""
    run = []
    for line in [*lines, None]:
        plain = line is not None and bool(PLAIN.match(line))
        is_comment = line is not None and bool(COMMENT.match(line))
        if run and (not is_comment or plain != bool(PLAIN.match(run[0]))):
            yield True, run
            run = []
        if is_comment:
            run.append(line)
        elif line is not None:
            yield False, [line]


def documentation(comment):
    return [re.sub(r"^( *)//(?!/) ?", r"\1/// ", line).rstrip() for line in comment]


def section(comment):
    indent, title = HEADING.match(comment[0]).groups()
    return [f"{indent}/// \\name {title}", *documentation(comment[1:]), f"{indent}///@{{"]


class Header:
    def __init__(self):
        self.lines = []
        self.shared = []  # the comment of the declarations up to the next blank line
        self.has_declarations = self.in_class = self.in_section = False
        self.depth = 0  # of brackets within a declaration

    def end_section(self):
        if self.in_section:
            self.lines += ["  ///@}", ""]
        self.in_section = False

    def comment(self, lines, following):
        if not self.has_declarations and NO_DECLARATION.match(following):
            kind = "details" if PLAIN.match(lines[0]) else "brief"
            first, *rest = documentation(lines)
            self.lines += ["/// \\file", f"/// \\{kind} {first[4:]}", *rest, ""]
        elif self.depth > 0 or not PLAIN.match(lines[0]):
            self.lines += lines
        elif self.in_class and HEADING.match(lines[0]):
            self.end_section()
            self.lines += section(lines)
            self.in_section = True
        elif following.strip() and not COMMENT.match(following):
            self.shared = documentation(lines)
        else:
            self.lines += lines

    def code(self, line):
        bare = re.sub(r'"(\\.|[^"\\])*"|//.*', "", line)
        if not bare.strip():
            self.shared = []
        if not self.in_class and CLASS.match(bare):
            self.in_class = self.has_declarations = True
        elif self.depth > 0 or not NO_DECLARATION.match(bare):
            if self.depth == 0 and not (self.lines and self.lines[-1].lstrip().startswith("///")):
                self.lines += self.shared
            self.depth += sum(map(bare.count, "({")) - sum(map(bare.count, ")}"))
            self.has_declarations = True
        elif self.in_class and re.match(r"\};| (private|protected):", bare):
            self.end_section()
            self.in_class = not bare.startswith("};")
        self.lines.append(line)


def with_code(lines):
    """Indented lines of comments as Markdown's blocks of code."""
    in_code = in_list = False
    for line in lines:
        indented = re.match(r"( *///) {3,}(?=\S)", line)
        in_list = bool(ITEM.match(line)) or (in_list and bool(indented))
        if indented and not in_list:
            if not in_code:
                yield indented.group(1)
            line = line.replace("///", "///   ", 1)
        in_code = bool(indented) and not in_list
        yield line


def main():
    header = Header()
    with open(sys.argv[1], encoding="utf-8") as file:
        parts = list(blocks(file.read().split("\n")))
    for (is_comment, lines), (_, following) in zip(parts, [*parts[1:], (False, [""])]):
        if is_comment:
            header.comment(lines, following[0])
        else:
            header.code(lines[0])
    print("\n".join(with_code(header.lines)))


if __name__ == "__main__":
    main()
