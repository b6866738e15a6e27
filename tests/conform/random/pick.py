"""Makes a golden suite of random cases that one quanta-conform does not pass and another does: what keeps
a mend from being lost.

    pick.py --before OLD/quanta-conform --after NEW/quanta-conform --name NAME --out FOLDER SUITE.json...
"""

import argparse
import json
import os
import re
import subprocess

from safetensors.torch import load_file, save_file

LINE = re.compile(r"^(\w+) [^/]+/(\S+) \(")


def results(program, suite):
    """What happened to each case, by id. Op by op, as one may end the program."""
    found = {}
    for op in sorted({case["op"] for case in read(suite)["cases"]}):
        run = subprocess.run([program, "--verbose", "--only", op, suite], capture_output=True, text=True)
        found |= {m[2]: m[1] for m in map(LINE.match, run.stdout.splitlines()) if m}
    return found


def read(suite):
    with open(suite) as file:
        return json.load(file)


def tensors(suite):
    return load_file(suite.removesuffix(".json") + ".safetensors")


def names_in(value):
    """The tensors that a case refers to."""
    if isinstance(value, list):
        return [name for one in value for name in names_in(one)]
    if not isinstance(value, dict):
        return []
    own = [value[key] for key in ("tensor", "scales", "zero_points") if "tensor" in value and key in value]
    return own + [name for key, one in value.items() if key != "tensor" for name in names_in(one)]


class Picked:
    def __init__(self, each):
        self.each, self.cases, self.tensors = each, [], {}
        self.counts = {}

    def add(self, prefix, case, stored):
        """Unless there are enough of its op."""
        if self.counts.get(case["op"], 0) == self.each:
            return
        self.counts[case["op"]] = self.counts.get(case["op"], 0) + 1
        text = json.dumps(case)
        for name in sorted(set(names_in(case))):
            self.tensors[f"{prefix}/{name}"] = stored[name]
            text = text.replace(json.dumps(name), json.dumps(f"{prefix}/{name}"))
        self.cases.append(json.loads(text) | {"id": f"{prefix}.{case['id']}"})

    def write(self, folder, name, source):
        path = os.path.join(folder, name)
        with open(path + ".json", "w") as file:
            json.dump({"suite": name, "source": source, "cases": self.cases}, file, indent=1)
            file.write("\n")
        save_file(self.tensors, path + ".safetensors")
        print(f"{path}: {len(self.cases)} cases: {self.counts}")


def size_of(case, stored):
    return sum(stored[name].nbytes for name in set(names_in(case)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    for name in ("--before", "--after", "--name", "--out"):
        parser.add_argument(name, required=True)
    parser.add_argument("--each", type=int, default=6, help="cases of an op, the smallest first (6)")
    parser.add_argument("suites", nargs="+")
    given = parser.parse_args()
    picked, sources = Picked(given.each), []
    found = []
    for number, suite in enumerate(given.suites):
        before, after = results(given.before, suite), results(given.after, suite)
        stored = tensors(suite)
        content = read(suite)
        sources.append(content["source"])
        prefix = f"{os.path.basename(suite).removesuffix('.json')}.{number}"
        found += [(size_of(case, stored), prefix, case, stored) for case in content["cases"]
                  if before.get(case["id"]) != "passed" and after.get(case["id"]) == "passed"]
    for _, prefix, case, stored in sorted(found, key=lambda one: (one[0], one[1])):
        picked.add(prefix, case, stored)
    picked.write(given.out, given.name, "; ".join(sorted(set(sources))))


if __name__ == "__main__":
    main()
