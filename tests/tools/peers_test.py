#!/usr/bin/env python3
"""tools/bench/peers.py with peers that answer what the test wants."""

import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
import textwrap
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "bench"))
import peer_worker  # noqa: E402
import peers  # noqa: E402

# Answers what stands behind its own name: milliseconds of a request, or "error".
PEER = """\
    #!{python}
    import json, sys
    word = "{word}"
    streams = int(sys.argv[sys.argv.index("--streams") + 1]) if "--streams" in sys.argv else 1
    def say(what):
        print(json.dumps(what), flush=True)
    if word == "error":
        say({{"error": "no such file"}})
        sys.exit(1)
    say({{"ready": True, "arguments": sys.argv[1:]}})
    turns = 0
    for line in sys.stdin:
        turns += 1
        if json.loads(line)["cmd"] == "quit":
            say({{"rss_peak_mb": 12.0}})
        elif word == "later" and turns > 1:
            say({{"error": "lost"}})
        else:
            ns = 1e6 * (2.0 if word == "later" else float(word))
            say({{"ns": [ns] * 4 * streams, "elapsed_ns": 4 * ns, "cpu_ns": 2 * ns * 4 * streams}})
"""


class PeersTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def program(self, name, word):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(PEER).format(python=sys.executable, word=word))
        os.chmod(path, 0o755)
        return [path]

    def measured(self, streams=0, **words):
        found = {name: self.program(name, word) + (["--streams", str(streams)] if streams else []) for name, word in words.items()}
        return peers.measure("net", 1, 1, streams, found, rounds=3, seconds=0.01)

    def test_the_ratio_of_latencies_is_the_peers_time_over_ours(self):
        result = self.measured(quanta="2", ort_dyn="3", ov_int8="1")
        self.assertEqual({name: ratio[0] for name, ratio in peers.ratios(result).items()}, {"ort_dyn": 1.5, "ov_int8": 0.5})
        self.assertEqual(peers.fastest(result), (0.5, "ov_int8"))

    def test_the_ratio_in_streams_is_our_rate_over_the_peers(self):
        result = self.measured(streams=2, quanta="2", ort_dyn="3")
        self.assertAlmostEqual(result["peers"]["quanta"]["requests_per_second"], 1000)
        self.assertAlmostEqual(peers.ratios(result)["ort_dyn"][0], 1.5)

    def test_a_peer_that_cannot_start_is_told_and_the_others_go_on(self):
        result = self.measured(quanta="2", ov_int8="error")
        self.assertEqual(result["failed"], {"ov_int8": "ov_int8: no such file"})
        self.assertEqual(list(result["peers"]), ["quanta"])
        self.assertIsNone(peers.fastest(result))
        self.assertIn("no such file", peers.table([result]))

    def test_a_peer_that_fails_later_is_left_out(self):
        result = self.measured(quanta="2", ort_dyn="3", ov_int8="later")
        self.assertEqual(result["failed"], {"ov_int8": "ov_int8: lost"})
        self.assertEqual(peers.fastest(result), (1.5, "ort_dyn"))

    def test_the_table_names_the_nearest_peer(self):
        text = peers.table([self.measured(quanta="2", ort_dyn="3", ov_int8="1")])
        self.assertIn("| net | 1 | 1 |  | 2 (2) | 500 | 12 | ov_int8 | 1 (1) | 1000 | 12 | 0.50 | 0.50 |", text)

    def test_the_ratio_of_processor_time_is_of_a_request(self):
        self.assertEqual(peers.cpu_ratio(self.measured(quanta="2", ort_dyn="3"), "ort_dyn"), 1.5)

    def options(self, *arguments):
        return peers.parse([self.folder, "--python", "py", "--quanta", "quanta", *arguments])

    def commands(self, names, *arguments, streams=0, model="net"):
        os.makedirs(os.path.join(self.folder, model))
        for name in names:
            open(os.path.join(self.folder, model, name), "w", encoding="utf-8").close()
        return peers.commands(self.folder, model, self.options(*arguments), 8, 2, streams)

    def test_each_file_that_is_there_makes_a_peer(self):
        found = self.commands(["quanta_int8.onnx", "float.onnx", "ort_u8s8.onnx", "ort_dyn.onnx", "ov_int8.xml"], "--sizes", "x=1,3,32,32", streams=4)
        self.assertEqual(sorted(found), ["ort_dyn", "ort_int8_u8s8", "ov_int8", "quanta"])
        for command in found.values():
            self.assertEqual(command[command.index("--sizes") + 1], "x=8,3,32,32")
            self.assertEqual(command[command.index("--streams") + 1], "4")
            self.assertEqual(command[command.index("--threads") + 1], "2")
        self.assertIn("--onnx", found["quanta"])

    def test_without_int8_files_the_peers_run_the_float_file(self):
        found = self.commands(["float.onnx", "float.safetensors", "calib.safetensors"])
        self.assertEqual(sorted(found), ["ort_float", "ov_float", "quanta"])
        self.assertIn("--calib", found["quanta"])
        self.assertEqual(found["quanta"][found["quanta"].index("--dtype") + 1], "int8")

    def test_recurrent_and_transformer_networks_are_dynamic(self):
        found = self.commands(["float.safetensors", "calib.safetensors"], model="lstm")
        self.assertEqual(found["quanta"][found["quanta"].index("--dtype") + 1], "dynamic-int8")
        self.assertNotIn("--calib", found["quanta"])

    def test_attention_may_be_int8_too(self):
        for model, dtype in (("bert4", "dynamic-int8-attention"), ("lstm", "dynamic-int8"), ("resnet18", "int8")):
            found = self.commands(["float.safetensors", "calib.safetensors"], "--int8-attention", model=model)
            self.assertEqual(found["quanta"][found["quanta"].index("--dtype") + 1], dtype)

    def test_a_folder_without_a_network_is_told(self):
        with self.assertRaisesRegex(peers.PeerError, "expected quanta_int8.onnx or float.safetensors .* got other"):
            self.commands(["other"])
        with self.assertRaisesRegex(peers.PeerError, "none: expected a folder of that name"):
            peers.commands(self.folder, "none", self.options(), 1, 1, 0)

    def test_the_figures_go_into_files(self):
        self.program("quanta", "2")
        self.commands(["quanta_int8.onnx", "ov_int8.xml"])
        out = os.path.join(self.folder, "out")
        python = self.program("python", "3")[0]
        with contextlib.redirect_stdout(io.StringIO()) as text, contextlib.redirect_stderr(io.StringIO()):
            status = peers.main([self.folder, "--model", "net", "--python", python, "--quanta", os.path.join(self.folder, "quanta"), "--rounds", "2",
                                 "--seconds", "0.01", "--json", out, "--streams", "0", "2"])  # fmt: skip
        self.assertEqual(status, 0)
        self.assertEqual(text.getvalue().count("| net |"), 2)
        self.assertEqual(sorted(os.listdir(out)), ["net_b1_t1.json", "net_b1_t1_s2.json"])
        with open(os.path.join(out, "net_b1_t1.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["peers"]["quanta"]["round_medians_ms"], [2.0, 2.0])


class WorkerTest(unittest.TestCase):
    def test_sizes_are_those_given_or_those_of_the_file(self):
        self.assertEqual(peer_worker.parse_sizes(["x=1,3,4"]), {"x": [1, 3, 4]})
        self.assertEqual(peer_worker.full_sizes("x", ["N", 3, 4], 8, {}), [8, 3, 4])
        self.assertEqual(peer_worker.full_sizes("x", [None, None], 8, {"x": [2, 5]}), [2, 5])
        with self.assertRaisesRegex(ValueError, "--sizes: expected those of input 'x'"):
            peer_worker.full_sizes("x", ["N", "length"], 8, {})
        with self.assertRaises(SystemExit):
            peer_worker.parse_sizes(["x"])


if __name__ == "__main__":
    unittest.main()
