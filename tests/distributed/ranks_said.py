"""What the tests of several processes share: what ranks say on stderr."""


def ranks_said(text):
    """The lines that begin with a rank. Open MPI 5 ends a paragraph of its own with a byte of 0."""
    return [line for line in text.replace("\0", "").splitlines() if line.startswith("rank ")]
