# SPDX-License-Identifier: MIT
"""python -m reprise estimate FILE:FUNCTION --gpu h200: how much memory the graphs of a program will take
on a GPU, asked where there is none.

The program runs in a process of its own on the host driver (libraries.py). Captures and their memory
are real there. What is not said by them, workspaces of cuDNN, is named here by the kernels that ran in
its place."""

import argparse
import json
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from . import libraries, subject, torch_found

_DESCRIPTION = """How much memory the graphs of a program will take on a GPU. Needs none.

FUNCTION is what is captured, and --shape gives the arguments of a call. A function without
parameters makes it instead: it returns a callable, and a list of tuples of arguments, one for each
graph, unless --shape gives them."""
_EPILOG = """examples:
  python -m reprise estimate model.py:build --gpu h200
  python -m reprise estimate model.py:net --shape 1x3x224x224:half --shape 8x3x224x224:half
  python -m reprise estimate serve.py:step --shape 64x1:int64,scalar:int64 --json"""

# Kernels of PyTorch's that ran where a GPU runs cuDNN.
_CONVOLUTIONS = re.compile(r"im2col|col2im|vol2col|col2vol|conv_depthwise|conv2d|conv3d|conv_")
_ATTENTION = re.compile(r"flash_fwd|flash_bwd|flash::|fmha_cutlass")


# ---- The command line ----


def _parser():
    parser = argparse.ArgumentParser(prog="python -m reprise estimate", description=_DESCRIPTION,
                                     epilog=_EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("subject", metavar="FILE:FUNCTION")
    keys = sorted(libraries.gpus(), reverse=True) or ["h200"]
    parser.add_argument("--gpu", choices=keys, default=keys[0], help=f"default: {keys[0]}")
    parser.add_argument("--shape", action="append", default=[], metavar="ARGUMENTS",
                        help="the arguments of one call, for one graph: tensors as 8x1024 or 8x128:int64 "
                        "(float32 unless a type is given), =3 for a value of Python's, commas between")
    parser.add_argument("--grad", action="store_true",
                        help="with gradients: forward and backward, or a whole step; off otherwise")
    parser.add_argument("--without-install", action="store_true",
                        help="with PyTorch's allocator, as without reprise.install()")
    parser.add_argument("--json", action="store_true", help="sizes in bytes, as one JSON object")
    return parser


def _request(args):
    path, function = subject.split(args.subject)
    return {"file": path, "function": function, "shapes": [subject.shape(text) for text in args.shape],
            "install": not args.without_install, "grad": args.grad}


# ---- The process ----


def _ended(code):
    """What is to be said of a process that gave no answer; "": it has said so itself."""
    if code >= 0:
        return ""
    name = signal.Signals(-code).name
    why = (": is this machine's memory enough for the program's parameters and one of its runs?"
           if name == "SIGKILL" else "")
    return f"the process that ran the program ended by {name}{why}"


def _kernels(path):
    """The kernels that the process used: {name: how often}."""
    used = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            count, _, name = line.split(" ", 2)
            used[name] = used.get(name, 0) + int(count)
    return used


def _start(request, gpu, cuda):
    """Runs the request on the host driver: the answer or None, the kernels, and the exit code."""
    with tempfile.TemporaryDirectory(prefix="reprise-estimate-") as folder:
        answer, kernels = Path(folder, "answer"), Path(folder, "kernels")
        command = [sys.executable, "-m", f"{__package__}.program", json.dumps(request), str(answer)]
        # What the program prints is not the answer.
        code = subprocess.run(command, stdout=2, check=False,
                              env=libraries.environment(gpu, kernels, cuda)).returncode
        if code or not answer.exists():
            return None, {}, code or 1
        return json.loads(answer.read_text(encoding="utf-8")), _kernels(kernels), 0


# ---- What is told ----


def left_out(used):
    """Libraries whose workspaces are not in the plan, for these kernels: [{library, use, runs, note}]."""
    def runs(pattern):
        return sum(count for name, count in used.items() if pattern.search(name))
    rows = [("convolutions", runs(_CONVOLUTIONS),
             "PyTorch's own ran in their place, and what these work in is in the plan instead"),
            ("attention", runs(_ATTENTION),
             "PyTorch's own ran in its place; in half precision a GPU of this kind takes cuDNN's")]
    return [{"library": "cuDNN", "use": use, "runs": count, "note": note}
            for use, count, note in rows if count]


def text_of(found):
    lines = [f"{found['gpu']}, PyTorch {found['torch']}, "
             f"{'with' if found['installed'] else 'without'} reprise.install()", found["text"]]
    lines += [f"in the plan: {row['library']}'s workspace of {row['bytes'] / 2**20:.1f} MiB in each graph "
              "that multiplies" for row in found["workspaces"]]
    lines += [f"not in the plan: cuDNN's workspaces for {row['use']}; {row['note']}"
              for row in found["left_out"]]
    return "\n".join(lines)


def _fail(sentence):
    print(f"reprise estimate: {sentence}", file=sys.stderr)
    return 2


def main(arguments):
    """The command; its exit code: 0, 1 where a shape has no graph, 2 for what the user has to mend."""
    args = _parser().parse_args(arguments)
    try:
        request = _request(args)
    except subject.Wrong as error:
        return _fail(error)
    torch = torch_found.find()
    wrong = libraries.missing() or torch_found.problem(torch)
    if wrong:
        return _fail(wrong)
    found, used, code = _start(request, args.gpu, torch.cuda_major)
    if found is None:
        return _fail(_ended(code)) and 1 if code < 0 else code
    found["left_out"] = left_out(used)
    text = found.pop("text")
    print(json.dumps(found, indent=1) if args.json else text_of({**found, "text": text}))
    for row in found["failures"]:
        print(f"reprise estimate: {row['name']} is not captured: {row['reason']}", file=sys.stderr)
    return 1 if found["failures"] else 0
