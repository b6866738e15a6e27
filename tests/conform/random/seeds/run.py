"""Makes random cases of a suite with the real packages, or recomputes the visible ones.

    run.py SUITE... [--seed N] [--count N] [--out FOLDER]     writes SUITE_random_N
    run.py SUITE... --reproduce                               compares with the golden cases
"""

import argparse
import collections
import importlib
import os
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402

import golden  # noqa: E402
from draw import Draw  # noqa: E402

SUITES = (
    "aimet_affine", "aimet_analyzers", "aimet_encodings_json", "aimet_float",
    "calibrators", "descriptors", "modelopt_blocks", "modelopt_fake",
)  # fmt: skip


def reproduce(module, name):
    """How many visible cases the installed packages still give."""
    passed = collections.Counter()
    failed = collections.Counter()
    for case in golden.load(name):
        op = case["op"]
        if op not in module.OPS:
            failed[f"{op} (not here)"] += 1
            continue
        try:
            got = golden.attempt(module.OPS[op], case["attrs"], case["inputs"])
            problems = golden.differences(got, case["outputs"], case["compare"])
        except golden.Skip as reason:
            problems = [f"skipped: {reason}"]
        (failed if problems else passed)[op] += 1
        if problems:
            print(f"  {case['id']}: {problems[0][:300]}")
    for op in sorted(passed | failed):
        print(f"{op:42} {passed[op]:5} reproduced {failed[op]:5} not")


def generate(module, name, seed, count, folder):
    draw = Draw(seed)
    writer = golden.Writer(f"{name}_random_{seed}", f"random cases, seed {seed}: {module.SOURCE}")
    skipped = collections.Counter()
    for _ in range(count):
        tag, op, attrs, inputs, compare = module.random_case(draw)
        try:
            outputs = golden.attempt(module.OPS[op], attrs, inputs)
        except golden.Skip as reason:
            skipped[f"{op}: {str(reason)[:90]}"] += 1
            continue
        compare = compare(outputs) if callable(compare) else compare
        writer.add("error" if "error" in outputs else tag, op, attrs, inputs, outputs, compare)
    writer.save(folder)
    failing = sum("error" in case["outputs"] for case in writer.cases)
    print(f"{writer.name}: {len(writer.cases)} cases, {failing} of them failures")
    for reason, times in skipped.items():
        print(f"  skipped {times} times: {reason}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("suites", nargs="*", default=SUITES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--out", default="out")
    parser.add_argument("--reproduce", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name in arguments.suites:
        module = importlib.import_module(name)
        if arguments.reproduce:
            reproduce(module, name)
        else:
            generate(module, name, arguments.seed, arguments.count, arguments.out)


if __name__ == "__main__":
    main()
