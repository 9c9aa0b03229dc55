# SPDX-License-Identifier: MIT
"""Memory that other processes lend to this one, which may have any allocator (see lending.py)."""

import collections
import contextlib
import os
import socket
import threading
from multiprocessing import process
from multiprocessing.connection import Client

import torch

from .. import _C
from .lending import BATCH

_lenders: dict[object, object] = {}  # connections, by address
_making = threading.Lock()
_mapped: dict[int, int] = {}  # bytes of mappings, by address
_late: collections.deque[object] = collections.deque()  # mappings that nobody holds


class _Connection:
    """To a process that lends."""

    def __init__(self, address):
        self.connection = Client(address, "AF_UNIX", authkey=process.current_process().authkey)
        self.lock = threading.Lock()
        self.back = collections.deque()  # loans to give back
        self.process = os.getpid()

    def take(self, loan, message, maps):
        """What the lender answers; the facts of the mappings and their descriptors, where it maps them."""
        files = []
        try:
            with self.lock:
                self.connection.send(("give", loan, message, maps))
                answer = self.connection.recv()
                if not isinstance(answer, list):
                    return answer, files
                with socket.socket(fileno=os.dup(self.connection.fileno())) as way:
                    while len(files) < answer[-1]:
                        got, some, *_ = socket.recv_fds(way, 1, BATCH)
                        files += some
                        if not got or not some:
                            raise EOFError
        except (OSError, EOFError):
            for file in files:
                os.close(file)
            raise
        finally:
            self.give_back()
        return answer, files

    def give_back(self, *loans):
        """Gives loans back, now or with the next message. Garbage is collected anywhere, in the midst of
        another message too."""
        self.back.extend(loans)
        while self.back and self.lock.acquire(blocking=False):
            try:
                done = []
                while self.back:
                    done.append(self.back.popleft())
                with contextlib.suppress(OSError):
                    self.connection.send(("back", done))
            finally:
                self.lock.release()


class _Mapping:
    """Of a loan."""

    def __init__(self, lender, loan, device, address, count, file_bytes):
        self.lender, self.loan = lender, loan
        self.where = device, address, count, file_bytes
        _mapped[address] = count * file_bytes

    def end(self):
        """False: the current stream captures, so that it cannot be waited for."""
        stream = torch.cuda.current_stream(self.where[0]).cuda_stream
        if not _C.unmap_shared(*self.where, stream):
            return False
        del _mapped[self.where[1]]
        self.lender.give_back(self.loan)
        return True


class _Hold:
    """On a mapping, of the storage that lies in it."""

    def __init__(self, mapping):
        self.mapping = mapping

    def __del__(self):
        _late.append(self.mapping)
        end_late()


def end_late():
    """Ends the mappings that nobody holds any more. As PyTorch does, it waits for the current stream."""
    for _ in range(len(_late)):
        with contextlib.suppress(IndexError):  # another thread was faster
            mapping = _late.popleft()
            if not mapping.end():
                _late.append(mapping)


def holds(address):
    """Is it in memory of another process?"""
    return any(base <= address < base + size for base, size in list(_mapped.items()))


def _connection(address):
    with _making:
        lender = _lenders.get(address)
        if lender is None or lender.process != os.getpid():
            lender = _lenders[address] = _Connection(address)
        return lender


def borrow(address, loan, message, device, size):
    """The storage of a message."""
    end_late()
    lender = _connection(address)
    answer, files = lender.take(loan, message, True)
    if isinstance(answer, str):
        raise RuntimeError(answer)
    try:
        _, file_bytes, offset, count = answer
        base = _C.map_shared(device, file_bytes, files)
    except RuntimeError:
        lender.give_back(loan)
        raise
    finally:
        for file in files:
            os.close(file)
    hold = _Hold(_Mapping(lender, loan, device, base, count, file_bytes))
    return torch.from_dlpack(_C.shared_capsule(base + offset, size, device, hold)).untyped_storage()


def receive(address, loan, message):
    """Takes a message about a storage that is here already."""
    answer, _ = _connection(address).take(loan, message, False)
    if isinstance(answer, str):
        raise RuntimeError(answer)
