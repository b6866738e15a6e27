"""Entries of compile_commands.json, for scripts that have compilers read sources."""

import shlex
from pathlib import Path


def reading_words(entry):
    """The words of a compilation, without the cache before it and what it makes."""
    words = shlex.split(entry["command"])
    for at, word in enumerate(words[:6]):  # also behind `cmake -E env NAME=VALUE`
        if Path(word).name == "ccache":
            words = words[at + 1:]
            break
    if "-o" in words:
        output = words.index("-o")
        words = words[:output] + words[output + 2:]
    return [word for word in words if word != "-c"]
