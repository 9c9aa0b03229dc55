# SPDX-License-Identifier: MIT
"""What `python -m reprise estimate` starts on the host driver: runs FILE, asks reprise.estimate, and
leaves the answer in a file for the command to show.

usage: python -m reprise._host.program REQUEST ANSWER      of JSON; REQUEST is the text itself

Ends with 2 where the user has something to put right, and says what."""

import ctypes
import json
import sys

from . import libraries, subject, torch_found

# In the order of host/cublasLt/workspace.h.
_WORKSPACES = ("cuBLAS", "cuBLASLt")


def _import_torch():
    try:
        import torch
    except (ImportError, OSError) as error:
        found = torch_found.find()
        raise subject.Wrong(torch_found.import_problem(found.version if found else "", error)) from error
    return torch


def _on_device(torch, fn):
    """A module's parameters on the device: a file that was written for CPUs serves as well."""
    if isinstance(fn, torch.nn.Module) and any(not p.is_cuda for p in fn.parameters()):
        fn.cuda()
    return fn


def _workspaces():
    """What the libraries were given to work in while graphs were captured: [{library, bytes}]."""
    name = next(name for name in libraries.names(torch_found.find().cuda_major) if "cublasLt" in name)
    ask = ctypes.CDLL(name).cublasHostWorkspaceBytes  # of the library that is loaded
    ask.restype = ctypes.c_size_t
    found = [{"library": name, "bytes": ask(index)} for index, name in enumerate(_WORKSPACES)]
    return [row for row in found if row["bytes"]]


def _answer(torch, found, request):
    shown = dict(vars(found))
    shown["failures"] = [{"name": name, "reason": why} for name, why in found.failures]
    return {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
            "installed": request["install"], **shown, "workspaces": _workspaces(), "text": str(found)}


def run(request):
    """The answer to a request, as JSON knows it."""
    torch = _import_torch()
    import reprise
    if request["install"]:
        reprise.install()
    fn = subject.load(request["file"], request["function"])
    fn, calls = subject.resolve(torch, fn, request["function"], request["shapes"])
    with torch.set_grad_enabled(request["grad"]):
        found = reprise.estimate(_on_device(torch, fn), calls)
    return _answer(torch, found, request)


def main(request, answer):
    try:
        found = run(json.loads(request))
    except subject.Wrong as error:
        print(f"reprise estimate: {error}", file=sys.stderr)
        return 2
    with open(answer, "w", encoding="utf-8") as file:
        json.dump(found, file)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
