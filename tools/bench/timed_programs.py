"""Quanta's two programs that tell times: quanta-bench (kernels) and quanta bench --worker (networks)."""

import json
import os
import re
import statistics
import subprocess
import tempfile

from revision_build import CompareError

MILLISECONDS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}


def environment(threads):
    return dict(os.environ, OMP_NUM_THREADS=str(threads))


def escaped(name):
    """`name` in a regular expression of Google Benchmark, which may be POSIX's or ECMAScript's."""
    return re.sub(r"([][.*+?(){}|^$\\])", r"\\\1", name)


class Kernels:
    """The benchmarks of one quanta-bench."""

    def __init__(self, build):
        self.program = os.path.join(build, "tools", "quanta-bench")

    def names(self):
        answer = subprocess.run([self.program, "--benchmark_list_tests"], capture_output=True, text=True)
        if answer.returncode != 0:
            raise CompareError(f"{self.program}: ended with status {answer.returncode}: {answer.stderr.strip()}")
        return answer.stdout.split()

    def times(self, names, threads):
        """Milliseconds of each of `names`, of one run of the program. Those that fail are missing."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "times.json")
            pattern = "^(" + "|".join(map(escaped, names)) + ")$"
            command = [self.program, f"--benchmark_filter={pattern}", f"--benchmark_out={path}",
                       "--benchmark_out_format=json"]  # fmt: skip
            answer = subprocess.run(command, capture_output=True, text=True, env=environment(threads))
            if answer.returncode != 0:
                raise CompareError(f"{self.program}: ended with status {answer.returncode} in {', '.join(names)}: {answer.stderr.strip()[-500:]}")
            with open(path, encoding="utf-8") as file:
                runs = json.load(file)["benchmarks"]
        return {run["name"]: run["real_time"] * MILLISECONDS[run["time_unit"]]
                for run in runs if not run.get("error_occurred")}  # fmt: skip


class Network:
    """One network in one process of quanta bench --worker."""

    def __init__(self, build, model, dtype, batch, threads):
        command = [os.path.join(build, "tools", "quanta"), "bench", "--worker", "--model", model,
                   "--dtype", dtype, "--batch", str(batch), "--threads", str(threads)]  # fmt: skip
        self.what = " ".join(command[1:])
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, env=environment(threads))  # fmt: skip
        try:
            self._receive()
        except CompareError:
            self.close()
            raise

    def _receive(self):
        line = self.process.stdout.readline()
        if not line.startswith("{"):
            self.process.kill()
            told = self.process.communicate()[1].strip().splitlines()
            raise CompareError(f"{self.what}: {told[0] if told else 'ended without an answer'}")
        answer = json.loads(line)
        if "error" in answer:
            raise CompareError(f"{self.what}: {answer['error']}")
        return answer

    def milliseconds(self, seconds):
        """The median call of a turn that takes so long."""
        self.process.stdin.write(json.dumps({"cmd": "run", "seconds": seconds}) + "\n")
        self.process.stdin.flush()
        return statistics.median(self._receive()["ns"]) / 1e6

    def close(self):
        self.process.kill()
        self.process.communicate()


def network_names(build):
    """What --model of a quanta bench takes; nothing when it says so in a form that is not known."""
    program = os.path.join(build, "tools", "quanta")
    answer = subprocess.run([program, "bench", "--help"], capture_output=True, text=True)
    found = re.search(r"--model TEXT:\{([^}]*)\}", answer.stdout)
    return found.group(1).split(",") if found else []
