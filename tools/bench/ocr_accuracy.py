#!/usr/bin/env python3
"""Whether PP-OCR reads and finds as much in int8 as in float, on pictures that are drawn here.

  tools/setup --models
  python3 -m venv VENV && VENV/bin/pip install numpy onnx pillow
  VENV/bin/python tools/bench/ocr_accuracy.py [--pictures 200] [-- OPTIONS OF quanta quantize]

Draws pictures of two to four lines of text each (words, numbers and signs in sizes, colours, noise and
a tilt of shades, from a seed), quantizes the reader and the detector with pictures of another seed, and
runs both versions of both networks by `quanta run`. Of the reader: 100 - the edits that its lines need,
in percent of the characters; lines are cut out where they were drawn, so that it is judged alone. Of the
detector: the share of lines that a found box covers with an intersection over union of at least 0.5.
Prints a table, and with --json a file; exit status 1 when int8 loses more than --most points."""

import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from PIL import Image, ImageDraw, ImageFont

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HEIGHT, WIDTH = 320, 480  # of a picture
LINE_HEIGHT, LINE_WIDTH = 48, 320  # that the reader takes
WORDS = ("the quick brown fox jumps over a lazy dog quantized tensors hold codes and scales each layer "
         "of this network reads eight bits Invoice Total Date Street Berlin London Model Page Chapter "
         "Observer Kernel Copyright Return Address Number Order price tax sum due").split()


def draw_line(random):
    """A line's text: words, numbers, prices."""
    parts = []
    for _ in range(random.integers(1, 4)):
        kind = random.integers(0, 4)
        if kind < 2:
            parts.append(str(random.choice(WORDS)))
        elif kind == 2:
            parts.append(str(random.integers(0, 100000)))
        else:
            parts.append(f"{random.integers(1, 999)}.{random.integers(0, 99):02}")
    return " ".join(parts)


def draw_picture(random):
    """A picture [H, W, 3] of 8 bits, its lines, and their boxes (left, top, right, bottom)."""
    dark_ink = random.integers(0, 3) > 0
    ground = random.integers(170, 256, 3) if dark_ink else random.integers(0, 80, 3)
    ink = random.integers(0, 80, 3) if dark_ink else random.integers(180, 256, 3)
    image = Image.new("RGB", (WIDTH, HEIGHT), tuple(int(c) for c in ground))
    draw = ImageDraw.Draw(image)
    lines, boxes = [], []
    top = int(random.integers(8, 24))
    for _ in range(random.integers(2, 5)):
        font = ImageFont.load_default(size=int(random.integers(22, 38)))
        text = draw_line(random)
        left = int(random.integers(8, 40))
        box = draw.textbbox((left, top), text, font=font)
        while box[2] > WIDTH - 8 and " " in text:
            text = text.rsplit(" ", 1)[0]
            box = draw.textbbox((left, top), text, font=font)
        if box[3] > HEIGHT - 8:
            break
        draw.text((left, top), text, font=font, fill=tuple(int(c) for c in ink))
        lines.append(text)
        boxes.append(box)
        top = box[3] + int(random.integers(14, 30))
    pixels = np.asarray(image, np.float32)
    shade = np.linspace(-1, 1, WIDTH)[None, :, None] * random.uniform(-25, 25)
    noise = random.normal(0, random.uniform(0, 10), pixels.shape)
    return np.clip(pixels + shade + noise, 0, 255).astype(np.uint8), lines, boxes


def as_input(pixels):
    """[H, W, 3] of 8 bits -> [3, H, W] in -1..1, as the networks take it."""
    return (pixels.astype(np.float32) / 127.5 - 1.0).transpose(2, 0, 1)


def cut_line(pixels, box):
    """The line in a box as the reader takes it: 48 high, padded to 320 with the ground of its end."""
    left, top, right, bottom = box
    part = Image.fromarray(pixels[max(top - 3, 0):bottom + 3, max(left - 3, 0):right + 3])
    width = min(max(round(part.width * LINE_HEIGHT / part.height), 8), LINE_WIDTH)
    line = as_input(np.asarray(part.resize((width, LINE_HEIGHT), Image.BILINEAR)))
    result = np.zeros((3, LINE_HEIGHT, LINE_WIDTH), np.float32)
    result[:, :, :width] = line
    return result


def make_data(seed, pictures):
    random = np.random.default_rng(seed)
    drawn = [draw_picture(random) for _ in range(pictures)]
    lines = [cut_line(pixels, box) for pixels, _, boxes in drawn for box in boxes]
    return drawn, np.stack([as_input(pixels) for pixels, _, _ in drawn]), np.stack(lines)


def run_quanta(arguments):
    done = subprocess.run([os.path.join(ROOT, "build", "release", "tools", "quanta"), *arguments],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"quanta {' '.join(arguments)}: {done.stdout}")


def run_network(model, x, work, batch=8):
    """The only result for x [N, ...], some of them at a time."""
    results = []
    path, out = os.path.join(work, "x.npy"), os.path.join(work, "y.npy")
    for begin in range(0, len(x), batch):
        np.save(path, x[begin:begin + batch])
        run_quanta(["run", model, "--input", path, "--output", out])
        results.append(np.load(out))
    return results


def read_lines(probabilities, characters):
    """The most probable character of each column; the same one again is one, the first is none."""
    lines = []
    for row in probabilities.argmax(2):
        text, previous = "", 0
        for best in row:
            if best != previous:
                text += characters[best]
            previous = best
        lines.append(text)
    return lines


def edits(left, right):
    """Levenshtein's distance."""
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(right, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


def read_right(texts, wanted):
    """Percent of the characters; spaces do not count, which PP-OCR seldom writes."""
    wrong = sum(edits(text.replace(" ", ""), want.replace(" ", ""))
                for text, want in zip(texts, wanted))
    return 100.0 - 100.0 * wrong / sum(len(want.replace(" ", "")) for want in wanted)


def find_boxes(inside):
    """Boxes around what hangs together above 0.3, grown to the letters' full height."""
    left_over = inside > 0.3
    boxes = []
    for y0, x0 in np.argwhere(left_over):
        if not left_over[y0, x0]:
            continue
        left_over[y0, x0] = False
        pending, top, bottom, left, right = [(y0, x0)], y0, y0, x0, x0
        while pending:
            y, x = pending.pop()
            top, bottom, left, right = min(top, y), max(bottom, y), min(left, x), max(right, x)
            for b, a in ((y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)):
                if 0 <= b < HEIGHT and 0 <= a < WIDTH and left_over[b, a]:
                    left_over[b, a] = False
                    pending.append((b, a))
        h, w = bottom - top + 1, right - left + 1
        if h < 4 or w < 4:
            continue
        grow = h * w * 1.6 / (2 * (h + w))
        boxes.append((left - grow, top - grow, right + 1 + grow, bottom + 1 + grow))
    return boxes


def overlap(a, b):
    """Intersection over union."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    both = max(width, 0.0) * max(height, 0.0)
    area = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (a, b))
    return both / (area - both)


def found(maps, drawn):
    """Percent of the lines that were drawn."""
    hits = total = 0
    for inside, (_, _, boxes) in zip(maps, drawn):
        candidates = find_boxes(inside)
        total += len(boxes)
        hits += sum(any(overlap(box, other) >= 0.5 for other in candidates) for box in boxes)
    return 100.0 * hits / total


def characters_of(model):
    """From the file's metadata."""
    names = {entry.key: entry.value for entry in onnx.load(model).metadata_props}
    return ["", *names["character"].splitlines(), " "]


def main():
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    own, options_of_quantize = sys.argv[1:end], sys.argv[end + 1:]
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=os.path.join(ROOT, "third_party", "models"))
    parser.add_argument("--pictures", type=int, default=200)
    parser.add_argument("--calibration", type=int, default=24, help="pictures to calibrate with")
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--most", type=float, default=0.5, help="points that int8 may lose")
    parser.add_argument("--json")
    options = parser.parse_args(own)
    paths = {}
    for folder, _, names in os.walk(options.models):
        for name in names:
            paths[name] = os.path.join(folder, name)
    drawn, pictures, lines = make_data(options.seed, options.pictures)
    _, calibration_pictures, calibration_lines = make_data(options.seed + 1, options.calibration)
    wanted = [text for _, texts, _ in drawn for text in texts]
    rows = []
    with tempfile.TemporaryDirectory() as work:
        characters = characters_of(paths["ch_PP-OCRv4_rec_infer.onnx"])
        subjects = (
            ("reader", "characters read right", "ch_PP-OCRv4_rec_infer.onnx", lines,
             calibration_lines,
             lambda results: read_right(
                 [text for part in results for text in read_lines(part, characters)], wanted)),
            ("detector", "lines found", "ch_PP-OCRv4_det_infer.onnx", pictures,
             calibration_pictures,
             lambda results: found([one[0] for part in results for one in part], drawn)))
        for name, what, file, x, calibration, judge in subjects:
            samples, int8 = os.path.join(work, "calib.npy"), os.path.join(work, name + ".onnx")
            np.save(samples, calibration)
            run_quanta(["quantize", paths[file], "--calib", samples, "--out", int8,
                        *options_of_quantize])
            row = {"network": name, "figure": what, "of": len(x)}
            row["float"] = judge(run_network(paths[file], x, work))
            row["int8"] = judge(run_network(int8, x, work))
            rows.append(row)
            print(f"{name:<10} {what:<24} {len(x):>5} inputs  float {row['float']:6.2f} %  "
                  f"int8 {row['int8']:6.2f} %", flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    return 0 if all(row["float"] - row["int8"] <= options.most for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
