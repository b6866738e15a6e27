#!/usr/bin/env python3
"""Prints the JSON files of quanta-bench (--benchmark_out=FILE) as a Markdown table."""

import json
import sys


def number(value, unit=""):
    if value is None:
        return ""
    if value >= 100:
        return f"{value:.0f}{unit}"
    return f"{value:.3g}{unit}"


def microseconds(run):
    per_unit = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
    return run["real_time"] * per_unit[run["time_unit"]]


def main():
    print("| op | int8 us | float us | float / int8 | GB/s | of copy | GOP/s | of peak | of AMX |")
    print("|---|---|---|---|---|---|---|---|---|")
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            runs = json.load(file)["benchmarks"]
        for run in runs:
            name = run["name"].split("/iterations:")[0].removesuffix("/real_time")
            ratio = number(run.get("float/int8"))
            if "slower_than_float" in run:
                ratio = f"**{ratio}** slower"
            float_us = run["float_ms"] * 1e3 if "float_ms" in run else None
            cells = [name, number(microseconds(run)), number(float_us), ratio]
            cells += [number(run.get(key)) for key in ("GB/s", "of_copy", "GOP/s", "of_peak", "of_amx")]
            print("| " + " | ".join(cells) + " |")


main()
