#!/usr/bin/env python3
"""Writes nn/models/detail/unicode_tables.h: what the WordPiece tokenizer knows of Unicode.

  python3 tools/unicode_tables.py > nn/models/detail/unicode_tables.h
"""
import unicodedata

LAST = 0x110000
SURROGATES = range(0xD800, 0xE000)
HANGUL = range(0xAC00, 0xD7A4)  # decomposed by a formula
COMPATIBILITY = (range(0xF900, 0xFB00), range(0x2F800, 0x2FA20))  # ideographs, left as they are


def fold(code):
    """The lower-case letters of a character without its accents."""
    parts = [c for c in unicodedata.normalize("NFD", chr(code)) if unicodedata.category(c) != "Mn"]
    return [ord(low) for part in parts for low in part.lower() if unicodedata.category(low) != "Mn"]


def ranges(belongs):
    found, start = [], None
    for code in range(LAST + 1):
        inside = code < LAST and belongs(unicodedata.category(chr(code)))
        if inside and start is None:
            start = code
        if not inside and start is not None:
            found.append((start, code - 1))
            start = None
    return found


def runs(pairs):
    """[first, count, step, target, target_step] that cover the pairs, the longest ones first found."""
    found, i = [], 0
    while i < len(pairs):
        best = (i, 1, 0)
        for step in (1, 2):
            for target_step in (0, 1, 2):
                j = i
                while (j + 1 < len(pairs) and pairs[j + 1][0] == pairs[j][0] + step
                       and pairs[j + 1][1] == pairs[j][1] + target_step):
                    j += 1
                if j > best[0]:
                    best = (j, step, target_step)
        last, step, target_step = best
        found.append((pairs[i][0], last - i + 1, step, pairs[i][1], target_step))
        i = last + 1
    return found


def rows(items, per_line):
    texts = ["{" + ", ".join(item) + "}" for item in items]
    return "\n".join("    " + ", ".join(texts[i:i + per_line]) + "," for i in range(0, len(texts), per_line))


def table(kind, name, comment, items, per_line):
    print(f"/// {comment}\ninline constexpr {kind} {name}[] = {{\n{rows(items, per_line)}\n}};\n")


def main():
    singles, several = [], []
    for code in range(LAST):
        if code in SURROGATES or code in HANGUL or any(code in part for part in COMPATIBILITY):
            continue
        folded = fold(code)
        if len(folded) == 1 and folded[0] != code:
            singles.append((code, folded[0]))
        elif len(folded) > 1:
            several.append((code, folded + [0] * (3 - len(folded))))
    print("#pragma once\n\n// Private: parts of Unicode " + unicodedata.unidata_version +
          ", written by tools/unicode_tables.py. Tables are sorted.\n\n#include <cstdint>\n\n"
          "// clang-format off\nnamespace quanta::nn::models::unicode {\n")
    print("struct Range {\n  std::uint32_t first, last;\n};\n")
    print("/// Character first + i * step becomes target + i * target_step, for i < count.\nstruct FoldRun {\n"
          "  std::uint32_t first;\n  std::uint16_t count;\n  std::uint8_t step;\n  std::uint32_t target;\n"
          "  std::uint8_t target_step;\n};\n")
    print("/// Characters that become two or three; unused places are 0.\nstruct FoldSeveral {\n"
          "  std::uint32_t from, to[3];\n};\n")
    as_range = lambda found: [(f"{a:#x}", f"{b:#x}") for a, b in found]
    table("Range", "kPunctuation", "Categories P*.", as_range(ranges(lambda c: c[0] == "P")), 6)
    table("Range", "kAccents", "Category Mn: marks without a width of their own.",
          as_range(ranges(lambda c: c == "Mn")), 6)
    table("Range", "kControls", "Categories Cc, Cf and Co.",
          as_range(ranges(lambda c: c in ("Cc", "Cf", "Co"))), 6)
    table("Range", "kSpaces", "Categories Zs, Zl and Zp.",
          as_range(ranges(lambda c: c[0] == "Z")), 6)
    table("FoldRun", "kFolds", "Lower case of the base letter.",
          [(f"{a:#x}", str(n), str(s), f"{t:#x}", str(ts)) for a, n, s, t, ts in runs(singles)], 4)
    table("FoldSeveral", "kFoldsToSeveral", "The same where it takes several characters.",
          [(f"{a:#x}", "{" + ", ".join(f"{x:#x}" for x in f) + "}") for a, f in several], 3)
    print("}  // namespace quanta::nn::models::unicode\n// clang-format on")


if __name__ == "__main__":
    main()
