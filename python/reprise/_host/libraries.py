# SPDX-License-Identifier: MIT
"""The host driver's libraries as the package carries them, and the environment of a process that runs on
them: they are loaded ahead of PyTorch, so that its own search for NVIDIA's finds these."""

import os
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIB = HERE / "lib"    # the libraries, preload.txt and gpus.txt
SITE = HERE / "site"  # what Python loads as it starts: sitecustomize.py
# The versions of CUDA that there are libraries of, in the order of the columns of preload.txt, and the
# PyTorch whose requests they answer.
CUDAS = (13, 12)
PYTORCH = (2, 11)


def _lines(name):
    try:
        text = (LIB / name).read_text(encoding="utf-8")
    except OSError:
        return []
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def names(cuda=CUDAS[0]):
    """File names of the libraries of a version of CUDA, in the order in which they are loaded."""
    column = CUDAS.index(cuda)
    return [words[min(column, len(words) - 1)] for words in map(str.split, _lines("preload.txt"))]


def missing():
    """What is wrong with this package's libraries, in a sentence; None: all are there."""
    wanted = [name for cuda in CUDAS for name in names(cuda)]
    absent = [name for name in wanted if not (LIB / name).is_file()]
    if wanted and not absent:
        return None
    return (f"the host driver's libraries are not in {LIB}{': no ' + absent[0] if absent else ''}: install "
            "the package reprise-cuda again, for x86-64 Linux")


def gpus():
    """What the libraries can pass for: {key: NVIDIA's name}. Of host/gpus.txt."""
    fields = [line.split(maxsplit=7) for line in _lines("gpus.txt")]
    return {words[0]: words[-1] for words in fields}


def environment(gpu, kernels, cuda=CUDAS[0], given=None):
    """The environment of a process on the host driver.

    Arguments:
        gpu (str): What it passes for, a key of :func:`gpus`.
        kernels (path): The file to which the process adds, at its end, the kernels that it used.
        cuda (int): The version of CUDA that its PyTorch is built for, one of CUDAS.
        given (dict, optional): The environment to start from. Default: this process's.
    """
    env = dict(os.environ if given is None else given)
    ours = names(cuda)
    # Not twice: a process that runs on them already has them in another folder.
    others = [entry for entry in env.get("LD_PRELOAD", "").replace(":", " ").split()
              if os.path.basename(entry) not in ours]
    paths = [entry for entry in env.get("PYTHONPATH", "").split(os.pathsep) if entry]
    env.update(LD_PRELOAD=":".join([*(str(LIB / name) for name in ours), *others]),
               PYTHONPATH=os.pathsep.join([str(SITE), *paths]),
               REPRISE_HOST_GPU=gpu, REPRISE_HOST_KERNELS=str(kernels), REPRISE_HOST_QUIET="1")
    return env
