"""Another revision of Quanta, built beside this one with the same options.

Its sources are a git worktree in build/compare/REVISION and its build folder lies in there, as it
would in a checkout; both stay, so that a second comparison with the same revision begins at once.
"""

import os
import shutil
import subprocess

# What decides how the code is compiled and linked, beside all that is named QUANTA_...
OPTIONS = (
    "CMAKE_BUILD_TYPE", "CMAKE_C_COMPILER", "CMAKE_CXX_COMPILER", "CMAKE_CXX_COMPILER_LAUNCHER",
    "CMAKE_CXX_FLAGS", "CMAKE_CXX_FLAGS_RELEASE", "CMAKE_DISABLE_PRECOMPILE_HEADERS",
    "CMAKE_EXE_LINKER_FLAGS", "CMAKE_INTERPROCEDURAL_OPTIMIZATION", "CMAKE_PREFIX_PATH",
)  # fmt: skip
# What the programs that are timed do without, and that they are built. All else is as in this build:
# the same flags let ccache give what another build has compiled.
LEFT_OUT = {
    "QUANTA_BUILD_TESTS": "OFF", "QUANTA_BUILD_EXAMPLES": "OFF", "QUANTA_INSTALL": "OFF",
    "QUANTA_BUILD_TOOLS": "ON", "QUANTA_BUILD_BENCHMARKS": "ON",
}  # fmt: skip
TARGETS = ("quanta_cli", "quanta_bench")


class CompareError(Exception):
    """What the user has to know; its text says what was expected and what came."""


def git(repository, *arguments):
    answer = subprocess.run(["git", "-C", repository, *arguments], capture_output=True, text=True)
    if answer.returncode != 0:
        raise CompareError(f"git {' '.join(arguments)}: {answer.stderr.strip()}")
    return answer.stdout.strip()


def resolve(repository, revision):
    """The full name of a commit."""
    try:
        return git(repository, "rev-parse", "--verify", "--quiet", revision + "^{commit}")
    except CompareError:
        raise CompareError(f"REVISION: expected a commit, branch or tag, got '{revision}'") from None


def cache_options(build):
    """The options of a build folder, as arguments of cmake, for another one."""
    path = os.path.join(build, "CMakeCache.txt")
    if not os.path.exists(path):
        raise CompareError(f"--build: expected a configured build folder, got '{build}'")
    found = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            name, colon, rest = line.partition(":")
            kind, equals, value = rest.rstrip("\n").partition("=")
            if not colon or not equals or kind in ("INTERNAL", "STATIC") or name.startswith(("#", "//")):
                continue
            # Paths that CMake found are found again.
            if name in OPTIONS or (name.startswith("QUANTA_") and kind in ("BOOL", "STRING", "UNINITIALIZED")):
                found[name] = (kind, value)
    if found.get("CMAKE_BUILD_TYPE", ("", ""))[1] != "Release":
        raise CompareError(f"--build: expected a Release build, got {found.get('CMAKE_BUILD_TYPE', ('', 'none'))[1]} in '{build}'")
    for name, value in LEFT_OUT.items():
        found[name] = ("BOOL", value)
    return [f"-D{name}:{kind}={value}" for name, (kind, value) in sorted(found.items()) if value != ""]


def check_out(repository, commit, tree):
    """The sources of `commit` in the folder `tree`, with this tree's third_party/."""
    git(repository, "worktree", "prune")
    known = git(repository, "worktree", "list", "--porcelain").splitlines()
    if f"worktree {os.path.realpath(tree)}" not in known:
        shutil.rmtree(tree, ignore_errors=True)
        os.makedirs(os.path.dirname(tree), exist_ok=True)
        git(repository, "worktree", "add", "--quiet", "--detach", tree, commit)
    # Whole again, should it have been interrupted.
    git(tree, "checkout", "--quiet", "--force", "--detach", commit)
    third_party = os.path.join(repository, "third_party")
    link = os.path.join(tree, "third_party")
    if os.path.isdir(third_party) and not os.path.lexists(link):
        os.symlink(third_party, link)


def run_logged(command, log):
    with open(log, "a", encoding="utf-8") as file:
        status = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT).returncode
    if status != 0:
        with open(log, encoding="utf-8", errors="replace") as file:
            tail = "".join(file.readlines()[-20:])
        raise CompareError(f"{' '.join(command[:2])} ended with status {status}; the end of {log}:\n{tail}")


def build_revision(repository, build, commit, say):
    """Builds `commit` with the options of the build folder `build`; its build folder."""
    tree = os.path.join(repository, "build", "compare", commit[:12])
    options = cache_options(build)
    say(f"building {commit[:12]} in {os.path.relpath(tree, repository)}")
    check_out(repository, commit, tree)
    other = os.path.join(tree, "build", "release")
    os.makedirs(other, exist_ok=True)
    log = os.path.join(other, "compare.log")
    with open(log, "w", encoding="utf-8"):
        pass
    run_logged(["cmake", "-G", "Ninja", "-S", tree, "-B", other, *options], log)
    run_logged(["cmake", "--build", other, "--target", *TARGETS], log)
    return other
