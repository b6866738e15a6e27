#!/usr/bin/env python3
"""tools/bench/compare.py and its parts, with programs that say what the test wants."""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "bench"))
import compare  # noqa: E402
import revision_build  # noqa: E402
import timed_programs  # noqa: E402
from paired import Row, in_rounds, sides_of_round  # noqa: E402

# A quanta-bench whose benchmarks take what times.json beside it says.
BENCH = """\
    #!{python}
    import json, os, re, sys
    here = os.path.dirname(os.path.abspath(__file__))
    times = json.load(open(os.path.join(here, "times.json")))["kernels"]
    options = dict(a.partition("=")[::2] for a in sys.argv[1:])
    if "--benchmark_list_tests" in options:
        print("\\n".join(times))
        sys.exit(0)
    runs = []
    for name, ms in times.items():
        if re.search(options["--benchmark_filter"], name):
            if ms is None:
                sys.exit("boom")
            runs.append({{"name": name, "real_time": 1000 * ms, "time_unit": "us"}})
    json.dump({{"benchmarks": runs}}, open(options["--benchmark_out"], "w"))
"""

# A quanta whose networks do so.
QUANTA = """\
    #!{python}
    import json, os, sys
    here = os.path.dirname(os.path.abspath(__file__))
    networks = json.load(open(os.path.join(here, "times.json")))["networks"]
    if "--help" in sys.argv:
        print("  --model TEXT:{{" + ",".join(networks) + "}} [resnet18]  The network")
        sys.exit(0)
    name = sys.argv[sys.argv.index("--model") + 1]
    form, ms = networks[name]
    def say(what):
        print(json.dumps(what), flush=True)
    if sys.argv[sys.argv.index("--dtype") + 1] != form:
        say({{"error": "bench: --dtype: expected another"}})
        sys.exit(1)
    say({{"ready": True}})
    for line in sys.stdin:
        say({{"ns": [1e6 * ms, 1e6 * ms, 1e9]}})
"""


def write_program(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(textwrap.dedent(text).format(python=sys.executable))
    os.chmod(path, 0o755)


def write_build(folder, kernels, networks):
    tools = os.path.join(folder, "tools")
    os.makedirs(tools)
    write_program(os.path.join(tools, "quanta-bench"), BENCH)
    write_program(os.path.join(tools, "quanta"), QUANTA)
    with open(os.path.join(tools, "times.json"), "w", encoding="utf-8") as file:
        json.dump({"kernels": kernels, "networks": networks}, file)
    return folder


class WithFolder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)


class PairedTest(unittest.TestCase):
    def row(self, ratios):
        return Row("x", [2.0] * len(ratios), [2.0 * ratio for ratio in ratios])

    def test_a_ratio_is_the_median_of_those_within_rounds(self):
        row = Row("x", [1.0, 2.0, 100.0], [2.0, 2.0, 110.0])
        self.assertEqual(row.ratio(), 1.1)

    def test_slower_needs_three_quarters_of_the_rounds(self):
        self.assertTrue(self.row([1.03] * 9).is_slower(1.02))
        self.assertTrue(self.row([0.9, 0.9] + [1.05] * 7).is_slower(1.02))
        self.assertFalse(self.row([0.9, 0.9, 0.9] + [1.05] * 6).is_slower(1.02))

    def test_the_limit_itself_is_not_beyond_it(self):
        self.assertFalse(self.row([1.02] * 9).is_slower(1.0201))
        self.assertFalse(self.row([1.0] * 9).is_slower(1.02))

    def test_faster_is_the_same_on_the_other_side(self):
        self.assertTrue(self.row([0.9] * 9).is_faster(1.02))
        self.assertFalse(self.row([0.9] * 6 + [1.0] * 3).is_faster(1.02))

    def test_one_round_is_its_own_quartiles(self):
        self.assertEqual(self.row([1.5]).quartiles(), (1.5, 1.5))

    def test_the_sides_change_places(self):
        self.assertEqual([sides_of_round(i)[0] for i in range(4)], ["old", "new", "old", "new"])

    def test_what_a_round_lacks_is_left_out(self):
        rounds = iter([{"a": 1.0, "b": 1.0}, {"a": 1.0}])
        rows = in_rounds(2, {"old": lambda: {"a": 2.0, "b": 2.0}, "new": lambda: next(rounds)})
        self.assertEqual(list(rows), ["a"])
        self.assertEqual(rows["a"].ratio(), 0.5)


class ComparisonTest(WithFolder):
    def compared(self, old, new, *arguments):
        builds = {side: write_build(os.path.join(self.folder, side), *times) for side, times in (("old", old), ("new", new))}
        options = compare.parse(["HEAD", "--rounds", "2", "--batch", "1", "--seconds", "0.001", *arguments])
        comparison = compare.compare(builds, options, compare.Progress(io.StringIO()))
        text = io.StringIO()
        compare.report(comparison, "HEAD", text)
        return comparison, text.getvalue()

    def test_what_is_slower_is_named_and_the_rest_is_not(self):
        old = {"conv2d/3x3": 1.0, "add[a]": 2.0}, {"mlp": ("int8", 1.0), "gru": ("dynamic-int8", 1.0)}
        new = {"conv2d/3x3": 1.5, "add[a]": 2.0}, {"mlp": ("int8", 1.0), "gru": ("dynamic-int8", 1.03)}
        comparison, text = self.compared(old, new)
        self.assertEqual([row.name for row in comparison.slower()], ["conv2d/3x3, 1 thread(s)", "gru, batch 1, 1 thread(s)"])
        self.assertEqual([row.ratio() for row in comparison.slower()], [1.5, 1.03])
        self.assertEqual(len(comparison.rows), 4)
        self.assertIn("slower by more than 2 %, 2 of 4", text)

    def test_what_looks_slower_is_timed_again_with_twice_the_rounds(self):
        comparison, _ = self.compared(({"a": 1.0, "b": 1.0}, {}), ({"a": 1.1, "b": 1.0}, {}))
        self.assertEqual({name: len(row.old) for name, row in comparison.rows.items()}, {"a, 1 thread(s)": 4, "b, 1 thread(s)": 2})

    def test_what_only_one_side_has_is_listed(self):
        comparison, text = self.compared(({"gone": 1.0, "a": 1.0}, {}), ({"a": 1.0, "come": 1.0}, {"mlp": ("int8", 1.0)}))
        self.assertEqual(comparison.only, {"old": ["gone"], "new": ["come", "mlp"]})
        self.assertIn("only in HEAD: gone", text)
        self.assertIn("only in this tree: come, mlp", text)
        self.assertIn("nothing is slower by more than 2 %, of 1", text)

    def test_a_filter_chooses_kernels_and_networks(self):
        both = {"conv": 1.0, "add": 1.0}, {"mlp": ("int8", 1.0), "conv_net": ("int8", 1.0)}
        comparison, _ = self.compared(both, both, "--filter", "conv")
        self.assertEqual(sorted(comparison.rows), ["conv, 1 thread(s)", "conv_net, batch 1, 1 thread(s)"])

    def test_only_leaves_the_others_out(self):
        both = {"conv": 1.0}, {"mlp": ("int8", 1.0)}
        comparison, _ = self.compared(both, both, "--only", "networks")
        self.assertEqual(list(comparison.rows), ["mlp, batch 1, 1 thread(s)"])

    def test_a_program_that_fails_is_told_and_the_others_go_on(self):
        kernels = {f"k{i}": 1.0 for i in range(compare.TOGETHER)}
        comparison, text = self.compared(({**kernels, "bad": 1.0}, {}), ({**kernels, "bad": None}, {}))
        self.assertEqual(len(comparison.rows), compare.TOGETHER)
        self.assertIn("not timed", text)
        self.assertIn("boom", text)

    def test_names_are_taken_literally(self):
        self.assertEqual(timed_programs.escaped("a(b)[1]|2.0"), r"a\(b\)\[1\]\|2\.0")

    def test_arguments_that_make_no_sense_are_refused(self):
        for arguments in (["--rounds", "0"], ["--filter", "("], ["--limit", "0.5"], ["--seconds", "0"]):
            with self.assertRaises(SystemExit) as caught, contextlib.redirect_stderr(io.StringIO()):
                compare.parse(["HEAD", *arguments])
            self.assertEqual(caught.exception.code, 2)


@unittest.skipUnless(all(map(shutil.which, ("git", "cmake", "ninja"))), "needs git, cmake and ninja")
class RevisionBuildTest(WithFolder):
    LISTS = """\
        cmake_minimum_required(VERSION 3.25)
        project(small LANGUAGES NONE)
        foreach(target IN ITEMS quanta_cli quanta_bench)
          add_custom_target(${target} COMMAND ${CMAKE_COMMAND} -E touch ${CMAKE_BINARY_DIR}/${target}_%s)
        endforeach()
    """

    def commit(self, word):
        with open(os.path.join(self.folder, "CMakeLists.txt"), "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(self.LISTS) % word)
        self.git("add", "CMakeLists.txt")
        self.git("commit", "-q", "-m", word)
        return self.git("rev-parse", "HEAD")

    def git(self, *arguments):
        name = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
        return subprocess.run(["git", *name, "-C", self.folder, *arguments], check=True, capture_output=True, text=True).stdout.strip()

    def setUp(self):
        super().setUp()
        self.folder = os.path.realpath(self.folder)
        self.git("init", "-q")
        self.first = self.commit("first")
        self.second = self.commit("second")
        os.makedirs(os.path.join(self.folder, "third_party", "onednn"))
        self.build = os.path.join(self.folder, "build", "release")
        os.makedirs(self.build)
        self.write_cache("Release")

    def write_cache(self, kind):
        with open(os.path.join(self.build, "CMakeCache.txt"), "w", encoding="utf-8") as file:
            file.write(f"//A comment\nCMAKE_BUILD_TYPE:STRING={kind}\nQUANTA_WERROR:BOOL=ON\nQUANTA_CUDA:STRING=AUTO\n"
                       "QUANTA_CCACHE:FILEPATH=/usr/bin/ccache\nCMAKE_CXX_FLAGS:STRING=-march=x\nother:STRING=1\n")  # fmt: skip

    def test_the_options_of_this_build_are_taken_over(self):
        options = revision_build.cache_options(self.build)
        self.assertIn("-DQUANTA_CUDA:STRING=AUTO", options)
        self.assertIn("-DCMAKE_CXX_FLAGS:STRING=-march=x", options)
        self.assertIn("-DQUANTA_WERROR:BOOL=ON", options)
        self.assertIn("-DQUANTA_BUILD_TESTS:BOOL=OFF", options)
        self.assertFalse([option for option in options if "other" in option or "CCACHE" in option])

    def test_a_build_that_is_not_release_is_refused(self):
        self.write_cache("Debug")
        with self.assertRaisesRegex(revision_build.CompareError, "expected a Release build, got Debug"):
            revision_build.cache_options(self.build)

    def test_a_folder_that_is_no_build_is_refused(self):
        with self.assertRaisesRegex(revision_build.CompareError, "expected a configured build folder"):
            revision_build.cache_options(self.folder)

    def test_a_name_that_is_no_revision_is_refused(self):
        with self.assertRaisesRegex(revision_build.CompareError, "REVISION: expected a commit, branch or tag, got 'none'"):
            revision_build.resolve(self.folder, "none")

    def test_the_revision_is_built_apart_and_found_again(self):
        commit = revision_build.resolve(self.folder, "HEAD~1")
        self.assertEqual(commit, self.first)
        other = revision_build.build_revision(self.folder, self.build, commit, lambda text: None)
        self.assertTrue(os.path.exists(os.path.join(other, "quanta_cli_first")))
        self.assertTrue(os.path.exists(os.path.join(other, "quanta_bench_first")))
        tree = os.path.join(self.folder, "build", "compare", commit[:12])
        self.assertTrue(os.path.isdir(os.path.join(tree, "third_party", "onednn")))
        kept = os.path.join(other, "kept")
        open(kept, "w", encoding="utf-8").close()
        os.remove(os.path.join(tree, "CMakeLists.txt"))  # as after an interruption
        self.assertEqual(revision_build.build_revision(self.folder, self.build, commit, lambda text: None), other)
        self.assertTrue(os.path.exists(kept))
        shutil.rmtree(os.path.join(self.folder, "build", "compare"))  # and git still knows the worktree
        revision_build.build_revision(self.folder, self.build, commit, lambda text: None)
        self.assertTrue(os.path.exists(os.path.join(other, "quanta_cli_first")))
        self.assertEqual(self.git("rev-parse", "HEAD"), self.second)

    def test_a_build_that_fails_shows_the_end_of_its_log(self):
        commit = self.commit("${CMAKE_BINARY_DIR} COMMAND false #")
        with self.assertRaisesRegex(revision_build.CompareError, "ended with status"):
            revision_build.build_revision(self.folder, self.build, commit, lambda text: None)


if __name__ == "__main__":
    unittest.main()
