#!/usr/bin/env python3
"""Checks who includes whom: an arrow goes down only.

    tools, examples -> fusion -> nn -> observers -> ops -> runtime
    inside ops: public header <- family folder -> ops/detail -> ops/cpu, ops/cuda -> runtime

    tools/check_arrows.py            checks the repository
    tools/check_arrows.py --self-test  shows that each rule catches what it is for

What a rule forbids and the house needs all the same stands in the lists below, with its reason.
Entries that nothing needs any more are named, so that the lists shrink.
"""

import re
import subprocess
import sys
from pathlib import Path

# What each room may include. A room is the first folder of a path, but for the parts that are linked
# apart and what tools and examples share. Tests may include everything.
CORE = {"runtime", "ops", "observers", "nn", "fusion"}
APART = {"nn/models", "nn/optim", "nn/data", "fusion/distributed"}
MAY_INCLUDE = {
    "runtime": set(),
    "ops": {"runtime"},
    "observers": {"ops", "runtime"},
    "nn": {"observers", "ops", "runtime"},
    "nn/models": {"nn", "observers", "ops", "runtime"},
    "nn/optim": {"nn", "observers", "ops", "runtime"},
    "nn/data": {"ops", "runtime"},
    "fusion": {"nn", "observers", "ops", "runtime"},
    "fusion/distributed": CORE | {"nn/optim", "nn/data"},
    "quanta.h": CORE | APART,
    "examples": CORE | APART | {"quanta.h", "tools/console"},
    "tools": CORE | APART | {"quanta.h", "tools/console"},
    "tools/console": CORE | APART | {"quanta.h"},
}

# Who may include a family's private headers although it is not of that family.
# (file or folder that includes, family): why
FAMILY_EXCEPTIONS = {
    ("nn/detail/dynamic_linear.cpp", "linear"): "a layer with an activation behind it is one kernel",
    ("ops/attention", "activation"): "a part of attention's gradient is that of softmax",
    ("ops/sort", "reduce"): "the gradient of topk goes where the index points",
}

# Other includes that a rule forbids. (file that includes, file included): why
OTHER_EXCEPTIONS = {
    ("quanta.h", "observers.h"): "written by observers/CMakeLists.txt from its list of sources",
    ("runtime/cuda/launch.h", "built_with.h"): "written by cmake/QuantaCuda.cmake",
    ("ops/cpu/fake_quantize.cpp", "ops/detail/floating.h"): "the gradients are of either float dtype",
    ("ops/cuda/library.h", "ops/cpu/conv_shape.h"): "sizes that all kernels for convolutions take",
    ("ops/cuda/library_cublaslt.cpp", "ops/cpu/onednn/plan_cache.h"): "it knows nothing of oneDNN",
    ("ops/cuda/library_cudnn.cpp", "ops/cpu/onednn/plan_cache.h"): "it knows nothing of oneDNN",
}

# Words that belong to the one place where an op is run (design.md, section 2a): only runtime and
# its tests use them.
RUN_ONLY = re.compile(r"\b(is_recording|needs_grad|OpScope)\b")

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def room(path):
    """The room that a file belongs to."""
    parts = path.split("/")
    if len(parts) == 1:
        return path
    if len(parts) > 2 and "/".join(parts[:2]) in MAY_INCLUDE:
        return "/".join(parts[:2])
    return parts[0]


def family(path):
    """The family whose folder holds a file, or None. ops/<name>.h is for all."""
    parts = path.split("/")
    if parts[0] == "ops" and len(parts) > 2 and parts[1] not in ("cpu", "cuda", "detail"):
        return parts[1]
    return None


def is_private(path):
    """True for a header that is not installed."""
    return (
        family(path) is not None
        or path == "runtime/check.h"
        or re.search(r"/(detail|cpu|cuda|yaml)/", path) is not None
    )


def problem(source, target):
    """What is wrong when `source` includes `target` (both as paths in the repository), or None."""
    source_room, target_room = room(source), room(target)
    if source_room == "tests":
        return None
    allowed = MAY_INCLUDE.get(source_room)
    if allowed is None:
        return f"no rule says what {source_room} may include"
    if source_room != target_room and target_room not in allowed:
        return f"{source_room} does not include {target_room}"
    if source_room == "ops":
        text = problem_in_ops(source, target)
        if text:
            return text
    if source.endswith(".h") and not is_private(source) and is_private(target):
        if source_room in CORE or source_room.startswith("nn/") or source_room == "quanta.h":
            return "a public header includes a private one"
    if source_room == "examples" and is_private(target) and target_room != "examples":
        return "an example includes a private header"
    owner = family(target)
    if owner and owner != family(source):
        return f"what lies in ops/{owner} is for that family"
    return None


# Which parts of ops each part may include, besides itself.
OPS_MAY_INCLUDE = {
    "public": set(),
    "family": {"public", "detail", "cpu", "cuda"},
    "detail": {"public", "cpu", "cuda"},
    "cpu": set(),
    "cuda": set(),
}


def part_of_ops(path):
    parts = path.split("/")
    if len(parts) == 2:
        return "public"
    return parts[1] if parts[1] in ("cpu", "cuda", "detail") else "family"


def problem_in_ops(source, target):
    if room(target) != "ops":
        return None
    source_part, target_part = part_of_ops(source), part_of_ops(target)
    if source_part == "public" and source.endswith(".cpp"):
        source_part = "family"  # ops/support.cpp
    if source_part != target_part and target_part not in OPS_MAY_INCLUDE[source_part]:
        if target_part == "family":
            return None  # said by the rule on families
        return f"{source_part} files of ops do not include ops/{target_part}"
    return None


def resolve(source, name, files):
    """The path in the repository of what `source` includes as `name`, or None for other headers."""
    if name.startswith("quanta/"):
        return name[len("quanta/"):]
    for folder in (Path(source).parent, Path("examples"), Path("tests"), Path("tools")):
        path = (folder / name).as_posix()
        while "/../" in path:
            path = re.sub(r"[^/]+/\.\./", "", path, count=1)
        if path in files:
            return path
    return None


def check(texts):
    """All that is wrong with the sources, {path: text}, and the exceptions that nothing needs."""
    wrong = []
    used = set()
    for source, text in sorted(texts.items()):
        for match in INCLUDE.finditer(text):
            target = resolve(source, match.group(1), texts)
            what = target and problem(source, target)
            if not what:
                continue
            places = [source, *(folder.as_posix() for folder in Path(source).parents)]
            keys = [(place, family(target)) for place in places]
            key = next((key for key in keys if key in FAMILY_EXCEPTIONS), (source, target))
            if key in FAMILY_EXCEPTIONS or key in OTHER_EXCEPTIONS:
                used.add(key)
                continue
            line = text.count("\n", 0, match.start()) + 1
            wrong.append(f"{source}:{line}: includes {target}: {what}")
        if room(source) in ("runtime",) or source.startswith("tests/runtime/"):
            continue
        match = RUN_ONLY.search(text)
        if match:
            line = text.count("\n", 0, match.start()) + 1
            wrong.append(f"{source}:{line}: {match.group(0)} belongs to runtime and its tests")
    exceptions = [*FAMILY_EXCEPTIONS, *OTHER_EXCEPTIONS]
    return wrong, [key for key in exceptions if key not in used]


def self_test():
    for source, target in (
        ("runtime/tensor.cpp", "ops/conv.h"),
        ("ops/conv/conv.cpp", "observers/observer.h"),
        ("observers/observer.cpp", "nn/module.h"),
        ("nn/conv.cpp", "fusion/convert.h"),
        ("nn/conv.cpp", "nn/models/resnet.h"),
        ("fusion/convert.cpp", "nn/optim/optimizer.h"),
        ("nn/data/image.cpp", "nn/module.h"),
        ("examples/qat.cpp", "tools/cli/demo.h"),
        ("tools/cli/demo.cpp", "examples/support/progress.h"),
        ("ops/conv/conv.cpp", "ops/linear/gradient.h"),
        ("ops/cpu/lookup.cpp", "ops/conv.h"),
        ("ops/cpu/lookup.cpp", "ops/conv/geometry.h"),
        ("ops/conv.h", "ops/detail/spatial.h"),
        ("ops/conv.h", "runtime/check.h"),
        ("nn/conv.h", "nn/detail/padding.h"),
        ("examples/qat.cpp", "runtime/check.h"),
    ):
        assert problem(source, target), f"{source} may include {target}?"
    for source, target in (
        ("ops/conv/conv.cpp", "ops/conv/geometry.h"),
        ("ops/conv/conv.cpp", "ops/quantize.h"),
        ("ops/conv/cpu_int8.cpp", "ops/cpu/simd/simd.h"),
        ("nn/models/resnet.cpp", "nn/detail/padding.h"),
        ("tests/ops/conv_test.cpp", "ops/conv/geometry.h"),
        ("fusion/convert.cpp", "runtime/check.h"),
    ):
        assert not problem(source, target), problem(source, target)


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return 0
    if sys.argv[1:]:
        print(__doc__, file=sys.stderr)
        return 2
    root = Path(__file__).resolve().parent.parent
    listed = subprocess.run(
        ["git", "ls-files", "--", "*.h", "*.cpp", "*.cu"],
        cwd=root, check=True, capture_output=True, text=True).stdout.split()
    texts = {path: (root / path).read_text() for path in listed if (root / path).exists()}
    self_test()
    wrong, unused = check(texts)
    for key in unused:
        print(f"tools/check_arrows.py: nothing needs the exception {key} any more", file=sys.stderr)
    print("\n".join(wrong) if wrong else f"arrows: {len(texts)} files, every arrow goes down")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
