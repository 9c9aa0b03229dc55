# SPDX-License-Identifier: MIT
"""Executable graphs: what they may take of a device's memory, what they took, and their pace."""

from .. import _C
from .._base.need import need_gpu

ONE_EACH = 2**64 - 1


def _ordinal(torch, device):
    if device is None:
        return torch.cuda.current_device()
    if isinstance(device, int):
        return device
    device = torch.device(device)
    return torch.cuda.current_device() if device.index is None else device.index


def budget_bytes(budget):
    """What set_exec_budget takes, as bytes."""
    if budget == "one each":
        return ONE_EACH
    if isinstance(budget, bool) or not isinstance(budget, int) or not 0 < budget < ONE_EACH:
        raise ValueError(f"the budget is {budget!r}, but has to be a number of bytes above 0, or "
                         "'one each'")
    return budget


def set_exec_budget(budget, device=None):
    """Sets how much device memory executable graphs may take together.

    A captured graph needs an executable one to be launched: on an H200 some 110 KiB for each path
    that runs beside others, and 2.4 KiB a kernel. On a chip or driver that the library has no such
    figures for it measures them once, ahead of the first capture, which takes up to 64 MiB; not where
    the budget is smaller. Graphs of the same topology take turns in one, by an update,
    where the budget has no room for all; the first is made whatever it takes.

    Arguments:
        budget (int or str): Bytes, or ``"one each"``: no graph shares. Default at start: 64 MiB.
        device (torch.device or int, optional): Default: the current device.

    It counts from now on; executable graphs that exist stay until others need their room. Works
    with :func:`reprise.install` and without. :func:`reprise.exec_info` tells what came of it.
    """
    torch = need_gpu()
    _C.exec_budget(_ordinal(torch, device), budget_bytes(budget))


def exec_info(device=None):
    """What executable graphs take, and how often they were updated, made and dropped.

    Arguments:
        device (torch.device or int, optional): Default: the current device.

    Returns:
        dict: ``budget_bytes``, ``bytes`` (of all, estimated from their nodes), ``most_bytes`` (at any
        time), ``measured_bytes`` (by which the device's free memory fell), ``execs``, ``graphs``,
        ``topologies``, ``hits``, ``updates``, ``refused``, ``instantiated``, ``evicted``,
        ``make_us_per_node``, ``update_us_per_node`` and ``slower_share``; ``path_bytes`` and
        ``node_bytes``, what estimates go by, and ``price_source``, where those come from: ``"fitted
        on NVIDIA H200, driver 580"``, ``"measured here"``, or ``"assumed: as on NVIDIA H200"``, and
        then why in ``price_reason`` (None before the first capture or estimate).
    """
    return _C.exec_info(_ordinal(need_gpu(), device))


def restore_pace(device=None):
    """Lets graphs and launches run at full pace again, after work on side streams.

    A process that has made a few hundred launches on a second stream, as a warm-up on a side stream
    does, pays more for each kernel of every graph, whoever captured it, and for each eager launch, from
    then on: a fifth of a graph of small kernels on an H200. Another context on the device ends that.
    Here one is made and destroyed, unless the pace is already the best that was measured in this
    process: some 0.2 s, and half a gigabyte of device memory for that time. Call it once the program
    has warmed up; graphs that exist gain too. Callables of :func:`graphed` need no side stream.

    Arguments:
        device (torch.device or int, optional): Default: the current device.

    Returns:
        dict: ``before_us`` and ``after_us``, what a node of a graph takes beside its work;
        ``restored``, was a context made? and the ``ms`` of that.

    Raises:
        reprise.Error: There is no room for a context, say; nothing has changed then.

    Waits for its own launches, and for no stream of the program.
    """
    return _C.restore_pace(_ordinal(need_gpu(), device))


def budget_of(ordinal):
    """The budget of a device in bytes."""
    return _C.exec_info(ordinal)["budget_bytes"]
