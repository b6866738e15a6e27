#!/usr/bin/env python3
"""tools/bench/startup.py with processes that answer what the test wants."""

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
import startup  # noqa: E402

# Takes so many milliseconds to its model and as many again to the result; the first process of all
# takes ten times as long. "error" fails.
PROGRAM = """\
    #!{python}
    import json, os, sys, time
    if "{word}" == "error":
        sys.exit("no such file")
    mark = __file__ + ".ran"
    ms = float("{word}") * (1 if os.path.exists(mark) else 10)
    open(mark, "w").close()
    begun = time.monotonic_ns()
    print("something else")
    print(json.dumps({{"begun_ns": begun, "ready_ns": begun + int(1e6 * ms), "first_ns": begun + int(2e6 * ms)}}))
"""


class StartupTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def program(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(text))
        os.chmod(path, 0o755)
        return [path]

    def measured(self, **words):
        found = {name.replace("_", " "): self.program(name, PROGRAM.format(python=sys.executable, word=word)) for name, word in words.items()}
        return startup.measure(found, 1, rounds=3)

    def test_the_ratio_is_of_the_fastest_peer_and_the_packed_file(self):
        times, failed = self.measured(quanta="5", quanta_packed="2", ort="8", ov="3")
        self.assertEqual(failed, {})
        name, ratio = startup.ratio(times)
        self.assertEqual(name, "ov")
        self.assertAlmostEqual(ratio, 1.5)

    def test_the_first_round_is_not_counted(self):
        times, _ = self.measured(quanta_packed="2")
        self.assertEqual(len(times["quanta packed"]), 3)
        for turn in times["quanta packed"]:
            self.assertAlmostEqual(turn["library_ms"], 4.0)
            self.assertAlmostEqual(turn["model_ms"], 2.0)
        self.assertIsNone(startup.ratio(times))

    def test_the_process_begins_before_the_library_is_there(self):
        begun = startup.time.monotonic_ns()
        turn = startup.start(self.program("one", PROGRAM.format(python=sys.executable, word="1")), 1)
        self.assertGreater(turn["process_ms"], turn["library_ms"])
        self.assertLess(turn["process_ms"] - 10 * turn["library_ms"], (startup.time.monotonic_ns() - begun) / 1e6)

    def test_the_memory_is_what_the_process_had_at_its_most(self):
        small = startup.start(self.program("small", PROGRAM.format(python=sys.executable, word="1")), 1)
        text = PROGRAM.format(python=sys.executable, word="1").replace("print(\"something else\")", "bytearray(b'x' * 40_000_000)")
        large = startup.start(self.program("large", text), 1)
        self.assertGreater(large["peak_mb"], small["peak_mb"] + 30)

    def test_what_fails_is_told_and_the_others_go_on(self):
        times, failed = self.measured(quanta_packed="1", ort="error")
        self.assertEqual(failed, {"ort": "no such file"})
        self.assertEqual(list(times), ["quanta packed"])

    def test_the_table_has_a_row_for_each_side_and_the_fastest_first(self):
        times, failed = self.measured(quanta_packed="4", ort="2")
        text = startup.table([("net", 2, times, failed)])
        self.assertLess(text.index("| ort |"), text.index("| quanta packed |"))
        self.assertIn("| net | 2 | ort | 0.50 |", text)

    def test_peers_run_where_their_files_are(self):
        path = os.path.join(self.folder, "net")
        os.mkdir(path)
        for name in ("ort_u8s8.onnx", "ov_int8.xml", "torch_dyn_x86.pth", "float.onnx"):
            open(os.path.join(path, name), "w").close()
        options = startup.parse([self.folder, "--python", "python3", "--batch", "4"])
        found = startup.commands(options, "net", 3)
        self.assertEqual(sorted(found), ["ort_u8s8", "ort_u8s8, saved", "ov_int8", "ov_int8, cached", "quanta", "quanta packed", "quanta packed, mapped", "quanta packed, plan", "quanta, mapped"])
        self.assertEqual([name for name, command in sorted(found.items()) if "--map" in command], ["quanta packed, mapped", "quanta, mapped"])
        for command in found.values():
            self.assertEqual(command[command.index("--batch") + 1], "4")
            self.assertEqual(command[command.index("--threads") + 1], "3")
        options = startup.parse([self.folder, "--python", "python3", "--harness", "/harness"])
        self.assertIn("torch_dyn_x86", startup.commands(options, "net", 1))
        self.assertEqual(len(startup.commands(startup.parse([self.folder]), "net", 1)), 5)

    def test_wrong_arguments_are_refused(self):
        for arguments in ([self.folder, "--rounds", "0"], ["/nonexistent"], [self.folder, "--threads", "0"]):
            with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit):
                startup.parse(arguments)

    def test_all_times_are_written(self):
        os.mkdir(os.path.join(self.folder, "mlp"))
        program = self.program("quanta", """\
            #!{python}
            import json, sys
            if "--save" in sys.argv:
                open(sys.argv[sys.argv.index("--save") + 1], "w").close()
            else:
                print(json.dumps({{"begun_ns": 0, "ready_ns": 1000000, "first_ns": 2000000}}))
        """.format(python=sys.executable))  # fmt: skip
        target = os.path.join(self.folder, "times.json")
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            status = startup.main([self.folder, "--model", "mlp", "--quanta", program[0], "--rounds", "2", "--threads", "1", "--json", target])
        self.assertEqual(status, 0)
        self.assertTrue(os.path.exists(os.path.join(self.folder, "mlp", "quanta_packed.safetensors")))
        with open(target, encoding="utf-8") as file:
            result = json.load(file)
        self.assertEqual(len(result[0]["times"]["quanta packed"]), 2)


if __name__ == "__main__":
    unittest.main()
