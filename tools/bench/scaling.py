#!/usr/bin/env python3
"""How training and evaluation on several processes scale: measured here on 1, 2 and 4 processes, and a
model of it, checked against that, for 8 to 1,024 nodes.

    tools/bench/scaling.py --build build/release [--steps N] [--batch N] [--model NAME]
                           [--node-cores N] [--gradient-mb MB --compute-ms MS] [--json FILE]
    tools/bench/scaling.py --self-test

Needs mpirun, the programs quanta and quanta-collectives, and Fashion-MNIST. Prints Markdown for
docs/distributed.md.

The model of a step on P nodes, each of which computes for t(b) seconds for its b examples, of which the
share BACKWARD is the backward pass:

    wait      = n * 2 * (latency + (P - 1) * message)   n sums that the step waits for (batch norm,
                                                        observers), each of two exchanges in which a
                                                        node sends to all others
    gradients = 2 * (P - 1) / P * bytes / bandwidth + buckets * 2 * (latency + (P - 1) * message)
    hidden    = min(gradients - the last bucket's, BACKWARD * t(b))
    step      = t(b) + wait + gradients - hidden
"""

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile

BACKWARD = 2 / 3
# Latency, seconds of one more message of a node, bytes a second of its link. What is usual for TCP on
# 10 Gbit/s Ethernet, RDMA on 100 Gbit/s, and RDMA on 400 Gbit/s: assumed, not measured.
NETWORKS = {"10 Gbit/s": (25e-6, 3e-6, 1.1e9), "100 Gbit/s": (3e-6, 0.5e-6, 11e9),
            "400 Gbit/s": (2e-6, 0.3e-6, 45e9)}  # fmt: skip
NODES = [8, 16, 32, 64, 128, 256, 512, 1024]
ENOUGH = 0.7  # below this share of perfect scaling it is said why


@dataclasses.dataclass
class Network:
    latency: float
    message: float
    bandwidth: float


@dataclasses.dataclass
class Step:
    """What one step of a training sends."""

    gradient_bytes: float
    buckets: int
    waits: int  # sums that the step waits for


def parts_of_step(step, network, nodes, compute):
    """Seconds of a step: computing, waiting for small sums, and what of the gradients is not hidden."""
    if nodes == 1:
        return compute, 0.0, 0.0
    exchange = 2 * (network.latency + (nodes - 1) * network.message)
    travel = 2 * (nodes - 1) / nodes * step.gradient_bytes / network.bandwidth
    gradients = travel + step.buckets * exchange
    last = gradients / max(step.buckets, 1)
    hidden = min(gradients - last, BACKWARD * compute)
    return compute, step.waits * exchange, gradients - hidden


def efficiency(step, network, nodes, compute_alone, compute):
    """Share of perfect scaling: examples a second of all nodes over those of as many that are alone."""
    return compute_alone / sum(parts_of_step(step, network, nodes, compute))


def why(step, network, nodes, compute):
    """What takes most of the time that is lost."""
    _, wait, gradients = parts_of_step(step, network, nodes, compute)
    if wait > gradients:
        return f"{step.waits} sums of batch norms and observers wait for {nodes - 1} messages each"
    travel = 2 * (nodes - 1) / nodes * step.gradient_bytes / network.bandwidth
    return "the gradients' bytes" if travel > gradients / 2 else "messages of the gradients' buckets"


def fit(sums, nodes):
    """Latency and bandwidth of this machine: of the smallest sum and of the largest."""
    smallest = statistics.median(one["seconds"] for one in sums if one["bytes"] <= 4096)
    largest = max(sums, key=lambda one: one["bytes"])
    travel = max(largest["seconds"] - smallest, 1e-9)
    bandwidth = 2 * (nodes - 1) / nodes * largest["bytes"] / travel
    return Network(smallest / 2, 0.0, bandwidth)


def environment():
    """That of processes that share cores, and that root may start."""
    return dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_hwloc_base_binding_policy="none",
                OMP_WAIT_POLICY="passive")  # fmt: skip


def run(processes, program, *arguments):
    """Runs a program under mpirun that writes figures as JSON to its last argument, a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "figures.json")
        command = ["mpirun", "-np", str(processes), program, *map(str, arguments), path]
        answer = subprocess.run(command, capture_output=True, text=True, env=environment())
        if answer.returncode != 0:
            sys.exit(f"{' '.join(command)}: status {answer.returncode}:\n{answer.stderr.strip()}")
        with open(path, encoding="utf-8") as file:
            return json.load(file)


def measure_training(options, quanta, processes, batch):
    return run(processes, quanta, "train", "--model", options.model, "--ranks", processes, "--threads", 1,
               "--steps", options.steps, "--batch", batch, "--json")  # fmt: skip


def side_by_side(quanta, images):
    """Images a second of two processes that know nothing of each other."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, f"{i}.json") for i in range(2)]
        running = [subprocess.Popen([quanta, "evaluate", "--threads", "1", "--images", str(images),
                                     "--json", path], stdout=subprocess.DEVNULL,
                                    stderr=subprocess.DEVNULL, env=environment())
                   for path in paths]  # fmt: skip
        if any(one.wait() != 0 for one in running):
            sys.exit("quanta evaluate: failed")
        rates = []
        for path in paths:
            with open(path, encoding="utf-8") as file:
                rates.append(json.load(file)["images_per_second"])
        return sum(rates)


def measure_evaluation(options, quanta):
    """Ratios of two processes together to two side by side, round by round."""
    ratios = []
    for number in range(options.rounds):
        sides = {}
        for side in ("alone", "together") if number % 2 == 0 else ("together", "alone"):
            if side == "alone":
                sides[side] = side_by_side(quanta, 5000)
            else:
                sides[side] = run(2, quanta, "evaluate", "--threads", 1, "--images", 10000,
                                  "--json")["images_per_second"]  # fmt: skip
        ratios.append(sides["together"] / sides["alone"])
    return sorted(ratios)


def print_measured(options, runs, alone, networks, cores):
    print(f"### Measured here: {options.model}, QAT, batch {options.batch}, one thread a process, {cores} cores\n")
    print("| processes | ms a step | of which waiting | bytes sent a step | messages | model, ms | model / measured |")
    print("|---|---|---|---|---|---|---|")
    for processes, figures in runs.items():
        # Processes that share a core take their turns.
        compute = alone[processes] * max(1.0, processes / cores)
        network = networks.get(processes, Network(0.0, 0.0, 1.0))
        model = sum(parts_of_step(step_of(runs), network, processes, compute))
        measured = figures["seconds_per_step"]
        print(f"| {processes} | {1e3 * measured:.1f} | {1e3 * figures['seconds_waited_per_step']:.1f} "
              f"| {figures['bytes_per_step']:.0f} | {figures['messages_per_step']:.0f} "
              f"| {1e3 * model:.1f} | {model / measured:.2f} |")  # fmt: skip


def step_of(runs):
    """Gradients, buckets and waits, from the run on two processes: a sum is two messages there."""
    two = runs[2]
    sums = two["messages_per_step"] / 2
    return Step(two["gradient_bytes"], two["buckets"], max(0, round(sums) - two["buckets"]))


def print_predictions(title, step, compute_of, batch):
    for kind, share in ((f"weak: {batch} examples a node", False), (f"strong: {64 * batch} examples in all", True)):
        print(f"\n### {title}, {kind}: share of perfect scaling (assumed networks)\n")
        print("| nodes | " + " | ".join(NETWORKS) + " |")
        print("|---|" + "---|" * len(NETWORKS))
        reasons = {}
        for nodes in NODES:
            examples = 64 * batch / nodes if share else batch
            cells = []
            for name, values in NETWORKS.items():
                network = Network(*values)
                compute = compute_of(examples)
                alone = compute_of(64 * batch) / nodes if share else compute
                value = efficiency(step, network, nodes, alone, compute)
                cells.append(f"{value:.2f}")
                if value < ENOUGH and name not in reasons:
                    reasons[name] = f"{name}: below {ENOUGH} from {nodes} nodes on: {why(step, network, nodes, compute)}"
            print(f"| {nodes} | " + " | ".join(cells) + " |")
        for reason in reasons.values():
            print(f"\n{reason}.")


def compute_model(alone, batch):
    """Seconds of a step with b examples on one core, a line through the measured ones."""
    few, many = batch / 4, batch
    slope = max((alone[1] - alone[4]) / (many - few), 1e-9)
    offset = max(alone[1] - slope * many, 0.0)
    return lambda examples, cores=1: offset + slope * examples / cores


def self_test():
    step = Step(gradient_bytes=4e6, buckets=4, waits=50)
    network = Network(1e-6, 1e-7, 1e9)
    assert parts_of_step(step, network, 1, 0.1) == (0.1, 0.0, 0.0)
    # Nothing to wait for and all but the last bucket hidden.
    quiet = Step(gradient_bytes=4e6, buckets=4, waits=0)
    compute, wait, shown = parts_of_step(quiet, Network(0.0, 0.0, 1e9), 2, 0.1)
    assert (compute, wait) == (0.1, 0.0) and abs(shown - 1e-3) < 1e-12
    # Too little to hide behind.
    _, _, shown = parts_of_step(quiet, Network(0.0, 0.0, 1e9), 2, 1e-3)
    assert abs(shown - (4e-3 - BACKWARD * 1e-3)) < 1e-12
    values = [efficiency(step, network, nodes, 0.1, 0.1) for nodes in NODES]
    assert values == sorted(values, reverse=True) and values[0] < 1
    assert "sums of batch norms" in why(step, network, 1024, 0.1)
    assert why(Step(1e9, 4, 0), network, 2, 0.1) == "the gradients' bytes"
    sums = [{"bytes": 4, "seconds": 2e-5}, {"bytes": 8_000_000, "seconds": 8e-3 + 2e-5}]
    fitted = fit(sums, 2)
    assert abs(fitted.latency - 1e-5) < 1e-12 and abs(fitted.bandwidth - 1e9) < 1e3
    line = compute_model({1: 0.1, 2: 0.06, 4: 0.04}, 128)
    assert abs(line(128) - 0.1) < 1e-12 and abs(line(32) - 0.04) < 1e-12
    print("scaling: the model's tests passed")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--self-test", action="store_true", help="only check the model's arithmetic")
    parser.add_argument("--build", default="build/release", help="the folder of a build")
    parser.add_argument("--model", default="fashion_mobilenet", help="the network that is trained")
    parser.add_argument("--steps", type=int, default=20, help="of each training")
    parser.add_argument("--batch", type=int, default=128, help="examples of all processes together")
    parser.add_argument("--rounds", type=int, default=5, help="of the evaluation")
    parser.add_argument("--node-cores", type=int, default=32, help="cores of a node in the predictions")
    parser.add_argument("--gradient-mb", type=float, help="predict for another network: its gradients")
    parser.add_argument("--compute-ms", type=float, help="and what its step takes a node with --batch examples")
    parser.add_argument("--json", help="where to write the figures")
    options = parser.parse_args()
    if options.self_test:
        return self_test()
    quanta = os.path.join(options.build, "tools", "quanta")
    collectives = os.path.join(options.build, "tools", "quanta-collectives")
    cores = len(os.sched_getaffinity(0))

    networks = {n: fit(run(n, collectives)["sums"], n) for n in (2, 4)}
    runs = {n: measure_training(options, quanta, n, options.batch) for n in (1, 2, 4)}
    alone = {n: measure_training(options, quanta, 1, options.batch // n)["seconds_per_step"] for n in (1, 2, 4)}
    print_measured(options, runs, alone, networks, cores)
    ratios = measure_evaluation(options, quanta)
    print(f"\nEvaluation on two processes with one thread each, over two that know nothing of each other "
          f"(fashion_resnet, {options.rounds} paired rounds): median {statistics.median(ratios):.3f}, "
          f"{ratios[0]:.3f} to {ratios[-1]:.3f}.")  # fmt: skip

    line = compute_model(alone, options.batch)
    step = step_of(runs)
    print_predictions(f"{options.model}, nodes of {options.node_cores} such cores", step,
                      lambda examples: line(examples, options.node_cores), options.batch)  # fmt: skip
    if options.gradient_mb and options.compute_ms:
        other = Step(options.gradient_mb * 1e6, max(1, round(options.gradient_mb / 25)), step.waits)
        print_predictions(f"A network with {options.gradient_mb:.0f} MB of gradients and "
                          f"{options.compute_ms:.0f} ms of computing a node", other,
                          lambda examples: options.compute_ms * 1e-3 * examples / options.batch,
                          options.batch)  # fmt: skip
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"runs": runs, "alone": alone, "evaluation_ratios": ratios,
                       "networks": {n: dataclasses.asdict(one) for n, one in networks.items()}}, file, indent=1)  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
