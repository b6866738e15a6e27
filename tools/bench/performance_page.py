#!/usr/bin/env python3
"""Writes docs/performance.md and its chart from what the benchmarks measured.

  performance_page.py --networks FILE... [--ops FILE...] [--peers FOLDER] [--output docs/performance.md]

--networks  of `quanta networks --json`, one for each number of threads
--ops       of `quanta-bench --benchmark_out`
--peers     a folder with results of the side-by-side harness (its --json files): Quanta beside
            PyTorch, ONNX Runtime and OpenVINO
The chart goes beside the page, under its name with .svg. Needs nothing but Python's own library.
"""

import argparse
import datetime
import json
import os
import statistics
import subprocess
import textwrap

import peers as side_by_side

# How many times faster than the fastest int8 peer each network has to be.
TARGETS = {
    "resnet50": 1.10, "resnet18": 1.10, "mobilenet_v2": 1.60, "mobilenet_v3_large": 2.00,
    "lstm": 1.40, "gru": 2.00, "bert4": 1.15, "mlp": 1.60, "efficientnet_b0": 1.10, "yolo_n": 1.10,
    "crnn": 1.10, "vit_tiny": 1.10, "bert_base": 1.10, "distilbert_16": 1.10, "distilbert_512": 1.10,
    "two_tower": 1.10,
    "ocr_det": 1.10, "ocr_cls": 1.10, "ocr_rec": 1.10,
}  # fmt: skip
INT8_PEERS = ("torch_int8", "torch_dyn", "ort_int8", "ort_dyn", "ov_int8")


# What the page's columns mean.
WORDS = [
    "- **batch**: inputs that one call takes. Times are of a whole call, not of an input.",
    "- **threads**: that ops may use, in float and in int8 alike. One thread tells how good a kernel is, all of them what a program gets.",
    "- **float ms, int8 ms**: the median time of a call once caches, plans and packed weights are there; loading and quantizing are not in it.",
    "- **float / int8**: Quanta's own float time over its int8 time. Above 1 int8 is faster; below 1 the row says `slower`.",
    "- **rounds, paired**: both sides have a turn in every round, so that whatever else runs on the machine slows both. A ratio is taken within each "
    "round, and the median of these is shown: it need not be the quotient of the two times beside it.",
    "- **GOP/s**: 10^9 operations a second of the int8 form. A multiply-add counts as two; what is added, pooled or looked up counts as none.",
    "- **of int8 peak**: the share of what these threads reach in chains of the vector instruction named above, which do nothing else: "
    "the most that a kernel without AMX could get. **of AMX**: the share of the tiles' rate; kernels with AMX can be above 100 % of the former.",
    "- **GB/s, of bandwidth**: bytes of all tensors that ops read and write, each counted once an op, in 10^9 a second, and the share of what the "
    "machine reads (or copies) from a set of that size. Above 100 % the data lay in a nearer cache.",
    "- **fastest int8 peer, ratio, wanted**: of PyTorch, ONNX Runtime and OpenVINO in int8 the one that took least time in the paired rounds; its time "
    "over Quanta's, above 1 Quanta is faster; and the ratio that the project has set itself. `short` marks what is below.",
    "- **SQNR dB**: 10 log10(signal / noise) of the int8 output beside float, higher is nearer. "
    "**peak MB**: the most memory that the process held.",
    "- **The chart**: bars are ratios at batch 1, one for each number of threads, and the dashed line is 1, where both take the same time. Above: float "
    "over int8. Below, where there are peers: the fastest int8 peer over Quanta, with a red mark at the ratio that is wanted.",
]


def number(value, digits=3):
    if value is None:
        return ""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.{digits}g}"


def percent(value):
    return "" if value is None else f"{100 * value:.0f} %"


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def marked_ratio(ratio):
    """Float's time over int8's."""
    if ratio is None:
        return ""
    return f"**{number(ratio)} slower**" if ratio < 1 else number(ratio)


def processor():
    fields = {}
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
    flags = fields.get("flags", "").split()
    known = ["avx2", "avx_vnni", "avx512f", "avx512_vnni", "amx_int8", "amx_bf16"]
    return {
        "name": fields.get("model name", "unknown"),
        "family": f"family {fields.get('cpu family', '?')}, model {fields.get('model', '?')}",
        "flags": [flag for flag in known if flag in flags],
        "virtual": "hypervisor" in flags,
    }


def revision():
    try:
        answer = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
        return answer.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def machine_text(machines):
    cpu = processor()
    kind = ", a virtual machine" if cpu["virtual"] else ""
    lines = [
        f"- Machine: {cpu['name']} ({cpu['family']}{kind}), {os.cpu_count()} CPUs, {', '.join(cpu['flags'])}; "
        f"load average {os.getloadavg()[0]:.1f} at the end.",
        f"- {datetime.date.today().isoformat()}, revision {revision()}.",
    ]
    for machine in machines:
        text = (
            f"- {machine['threads']} thread{'s give' if machine['threads'] > 1 else ' gives'} "
            f"{number(machine['peak_gops'])} GOP/s in chains of {machine['peak_instruction']}"
        )
        if machine["tiles_gops"]:
            text += f", {number(machine['tiles_gops'])} GOP/s with AMX tiles"
        text += (
            f", and read {number(machine['cache_gbytes_per_second'])} GB/s from the caches, "
            f"{number(machine['memory_gbytes_per_second'])} GB/s from memory."
        )
        lines.append(text)
    return "\n".join(lines)


def network_rows(networks):
    has_tiles = any("of_tiles" in row for row in networks)
    header = ["network", "batch", "threads", "float ms", "int8 ms", "float / int8", "GOP/s", "of int8 peak"]
    header += ["of AMX"] if has_tiles else []
    header += ["GB/s", "of bandwidth"]
    rows = []
    for row in networks:
        cells = [row["model"] + ("" if row["frozen"] else " (eager)"), row["batch"], row["threads"], number(row["float_ms"]), number(row["int8_ms"])]
        cells += [marked_ratio(row["float_over_int8"]), number(row["gops"]), percent(row.get("of_peak"))]
        cells += [percent(row.get("of_tiles"))] if has_tiles else []
        cells += [number(row["gbytes_per_second"]), percent(row["of_bandwidth"])]
        rows.append(cells)
    return table(header, rows)


def op_rows(runs):
    per_unit = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
    rows = []
    for run in runs:
        name = run["name"].split("/iterations:")[0].removesuffix("/manual_time").removesuffix("/real_time")
        int8 = run["real_time"] * per_unit[run["time_unit"]]
        float_us = run["float_ms"] * 1e3 if "float_ms" in run else None
        bandwidth = run.get("of_copy", run.get("of_read"))
        rows.append([name, run.get("label", ""), number(int8), number(float_us), marked_ratio(run.get("float/int8")),
                     number(run.get("GOP/s")), percent(run.get("of_peak")), number(run.get("GB/s")), percent(bandwidth)])
    return table(["op", "kernel", "int8 us", "float us", "float / int8", "GOP/s", "of int8 peak", "GB/s", "of bandwidth"], rows)


def compare_with_peers(result):
    """Quanta beside the fastest int8 peer of one run; None when one of them is missing."""
    peers = result["peers"]
    ours = peers.get("quanta")
    others = {name: peer for name, peer in peers.items() if name.startswith(INT8_PEERS)}
    if ours is None or not others:
        return None

    def ratio(peer):
        # Rounds are paired: both had their turn in each.
        return statistics.median(a / b for a, b in zip(peer["round_medians_ms"], ours["round_medians_ms"]))

    fastest = min(others, key=lambda name: ratio(others[name]))
    lightest = min(others, key=lambda name: others[name]["rss_peak_mb"])
    torch = next((others[name] for name in ("torch_int8_x86", "torch_dyn_x86") if name in others), {})
    return {
        "model": result["model"], "batch": result["batch"], "threads": result["threads"],
        "ours": ours, "fastest": fastest, "fastest_ms": others[fastest]["median_ms"], "ratio": ratio(others[fastest]),
        "lightest": lightest, "lightest_mb": others[lightest]["rss_peak_mb"], "torch_db": torch.get("sqnr_db"),
        "target": TARGETS.get(result["model"]),
    }  # fmt: skip


def read_results(folder):
    """Those with one request after the other, and those of many side by side."""
    results = []
    for name in sorted(os.listdir(folder)):
        if name.endswith(".json"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                results.append(json.load(file))
    return [one for one in results if not one.get("streams")], [one for one in results if one.get("streams")]


def read_peers(results):
    compared = list(map(compare_with_peers, results))
    order = list(TARGETS)
    known = [row for row in compared if row is not None and row["model"] in order]
    return sorted(known, key=lambda row: (row["batch"], row["threads"], order.index(row["model"])))


def peer_rows(compared):
    rows = []
    for row in compared:
        ratio = f"{row['ratio']:.2f}"
        if row["ratio"] < row["target"]:
            ratio = f"**{ratio} short**"
        ours = row["ours"]
        rows.append([row["model"], row["batch"], row["threads"], number(ours["median_ms"]),
                     f"{number(row['fastest_ms'])} ({row['fastest']})", ratio, f"{row['target']:.2f}",
                     f"{number(ours.get('sqnr_db'))} / {number(row['torch_db'])}",
                     f"{ours['rss_peak_mb']:.0f} / {row['lightest_mb']:.0f} ({row['lightest']})"])
    return table(["network", "batch", "threads", "Quanta ms", "fastest int8 peer ms", "ratio", "wanted",
                  "SQNR dB, ours / PyTorch's", "peak MB, ours / lightest peer's"], rows)


class Chart:
    """Bars with a label on the left and a number at their end, in panels one below the other."""

    LEFT, WIDTH, BAR, GAP = 190, 760, 15, 10
    COLORS = ("#3465a4", "#73a1d6")

    def __init__(self):
        self.parts, self.y = [], 16

    def text(self, x, y, text, anchor="start", size=12, weight="normal"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" '
                          f'text-anchor="{anchor}">{text}</text>')

    def panel(self, title, legend, groups):
        """groups: (label, [(value, mark or None)])"""
        scale = (self.WIDTH - self.LEFT - 60) / max(max(value, mark or 0) for _, bars in groups for value, mark in bars)
        self.y += 14
        self.text(16, self.y, title, size=14, weight="bold")
        x = self.LEFT
        self.y += 20
        for color, name in zip(self.COLORS, legend):
            self.parts.append(f'<rect x="{x}" y="{self.y - 10}" width="12" height="12" fill="{color}"/>')
            self.text(x + 17, self.y, name)
            x += 110
        self.y += 12
        top = self.y
        for label, bars in groups:
            self.text(self.LEFT - 8, self.y + self.BAR * len(bars) / 2 + 4, label, anchor="end")
            for (value, mark), color in zip(bars, self.COLORS):
                width = value * scale
                self.parts.append(f'<rect x="{self.LEFT}" y="{self.y}" width="{width:.1f}" height="{self.BAR - 2}" fill="{color}"/>')
                self.text(self.LEFT + width + 5, self.y + 11, f"{value:.2f}", size=11)
                if mark is not None:
                    x = self.LEFT + mark * scale
                    self.parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{self.y - 1}" y2="{self.y + self.BAR - 1}" '
                                      'stroke="#c00" stroke-width="2"/>')
                self.y += self.BAR
            self.y += self.GAP
        one = self.LEFT + scale
        self.parts.append(f'<line x1="{one:.1f}" x2="{one:.1f}" y1="{top - 4}" y2="{self.y - self.GAP + 2}" '
                          'stroke="#555" stroke-dasharray="3 3"/>')

    def svg(self):
        height = self.y + 10
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.WIDTH}" height="{height}" '
                f'viewBox="0 0 {self.WIDTH} {height}" font-family="sans-serif" fill="#222">\n'
                f'<rect width="100%" height="100%" fill="#fff"/>\n' + "\n".join(self.parts) + "\n</svg>\n")


def threads_text(count):
    return f"{count} thread" + ("s" if count > 1 else "")


def grouped(rows, value, mark):
    """Bars of batch 1: a group for each network, a bar for each number of threads."""
    rows = [row for row in rows if row["batch"] == 1]
    threads = sorted({row["threads"] for row in rows})[:2]
    groups = {}
    for row in rows:
        if row["threads"] in threads:
            groups.setdefault(row["model"], {})[row["threads"]] = (value(row), mark(row))
    complete = [(model, [bars[count] for count in threads]) for model, bars in groups.items() if len(bars) == len(threads)]
    return [threads_text(count) for count in threads], complete


def wrapped(line):
    """Prose in lines of at most 100 columns; tables and pictures as they are."""
    if line.startswith(("|", "!", "#")) or len(line) <= 100:
        return line
    return textwrap.fill(line, 100, subsequent_indent="  " if line.startswith("- ") else "",
                         break_long_words=False, break_on_hyphens=False)


def write(path, text):
    temporary = path + ".part"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", required=True)
    parser.add_argument("--ops", nargs="*", default=[])
    parser.add_argument("--peers")
    parser.add_argument("--output", default="docs/performance.md")
    arguments = parser.parse_args()

    networks, machines, runs = [], [], []
    for path in arguments.networks:
        with open(path, encoding="utf-8") as file:
            figures = json.load(file)
        networks += figures["networks"]
        machines.append(figures["machine"])
    for path in arguments.ops:
        with open(path, encoding="utf-8") as file:
            runs += json.load(file)["benchmarks"]
    results, in_streams = read_results(arguments.peers) if arguments.peers else ([], [])
    compared = read_peers(results)

    chart = Chart()
    legend, groups = grouped(networks, lambda row: row["float_over_int8"], lambda row: None)
    chart.panel("How many times faster int8 is than float (batch 1)", legend, groups)
    if compared:
        legend, groups = grouped(compared, lambda row: row["ratio"], lambda row: row["target"])
        chart.panel("How many times faster than the fastest int8 peer (batch 1; red: wanted)", legend, groups)
    chart_path = os.path.splitext(arguments.output)[0] + ".svg"
    write(chart_path, chart.svg())

    slower = [run["name"].split("/iterations:")[0] for run in runs if "slower_than_float" in run]
    slower += [f"{row['model']} (batch {row['batch']}, {threads_text(row['threads'])})"
               for row in networks if row["float_over_int8"] < 1]
    parts = [
        "# Performance",
        "Written by `tools/run bench`, which measures on the machine that it runs on; nothing here is written by hand.",
        machine_text(machines),
        f"![chart]({os.path.basename(chart_path)})",
        "## What the words mean",
        "\n".join(WORDS),
        "## Networks",
        "Random weights; float and int8 in turns, five rounds, frozen where that can be (else marked eager); medians, and of ratios the median of the rounds. "
        "Recurrent networks and transformers are quantized dynamically, crnn's convolutions statically and its LSTM dynamically; ocr_* are "
        "the ONNX files of examples/ocr.cpp, calibrated with random inputs. Bandwidth is beside reading from a set as large as the weights.",
        network_rows(networks),
    ]  # fmt: skip
    if compared:
        parts += [
            "## Beside PyTorch, ONNX Runtime and OpenVINO",
            "Each in its own process, a slice in every round.",
            peer_rows(compared),
        ]  # fmt: skip
    if in_streams:
        parts += [
            "## Many requests side by side",
            "Streams of one thread each: Quanta's share one model, ONNX Runtime has a session for each, OpenVINO its throughput mode. "
            "The ratio is of requests a second, Quanta's over the peer's, the median of paired rounds.",
            side_by_side.table(in_streams),
        ]  # fmt: skip
    if runs:
        parts += [
            "## Ops",
            "One thread, batch 1, float and int8 in turns. Bandwidth is beside memcpy, or beside reading where an op only reads.",
            op_rows(runs),
        ]  # fmt: skip
    parts.append("Slower in int8 than in float: " + (", ".join(slower) if slower else "none of these") + ".")
    lines = "\n\n".join(parts).split("\n")
    write(arguments.output, "\n".join(map(wrapped, lines)) + "\n")


if __name__ == "__main__":
    main()
