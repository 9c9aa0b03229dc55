# SPDX-License-Identifier: MIT
"""Memory that this process lends to others, with torch.multiprocessing under install().

A message that is sent names a loan and carries no descriptor: as many may be under way as there is
memory. Whoever gets one connects here, and is given descriptors of the mappings. That connection is
also how it is told that a borrower is done, or gone: then its loans end. A loan ends with its last
borrower and the last message of it, and until then the storage lives.
"""

import contextlib
import itertools
import os
import socket
import threading
import time
from multiprocessing import process
from multiprocessing.connection import Listener

import torch

from .. import _C
from .._base.relaxed import RELAXED

BATCH = 200  # descriptors in one message: the system takes 253

_lender = None
_making = threading.Lock()


class _Loan:
    """A storage that others use or may come to use."""

    def __init__(self, storage):
        self.storage = storage
        self.messages = {}  # under way: what their receiver has to wait for
        self.borrowers = 0


class Lender:
    """Of this process: its loans, and a thread for each process that borrows."""

    def __init__(self):
        self.lock = threading.Lock()
        self.loans = {}       # by number
        self.by_storage = {}  # numbers, by the storage's address in memory
        self.numbers = itertools.count()
        self.listener = Listener(None, "AF_UNIX", backlog=128, authkey=process.current_process().authkey)
        self.address = self.listener.address
        self.process = os.getpid()
        threading.Thread(target=self._accept, name="reprise lends", daemon=True).start()

    def lend(self, storage):
        """Writes a message about the storage: the loan's number and the message's."""
        done = torch.cuda.Event()
        done.record(torch.cuda.current_stream(storage.device))
        with self.lock:
            loan = self.by_storage.get(storage._cdata)
            if loan is None:
                loan = self.by_storage[storage._cdata] = next(self.numbers)
                self.loans[loan] = _Loan(storage)
            message = next(self.numbers)
            self.loans[loan].messages[message] = done
        return loan, message

    def _accept(self):
        while True:
            try:
                connection = self.listener.accept()
            except Exception:  # of a stranger, of one that is gone already, or no descriptor is left
                time.sleep(0.01)
                continue
            threading.Thread(target=self._serve, args=(connection,), name="reprise lends", daemon=True).start()

    def _serve(self, connection):
        held = []
        with contextlib.suppress(OSError, EOFError), connection:
            while True:
                what, *rest = connection.recv()
                if what == "back":
                    for loan in rest[0]:
                        held.remove(loan)
                        self._end(loan)
                else:
                    self._give(connection, *rest, held)
        for loan in held:
            self._end(loan)

    def _give(self, connection, number, message, maps, held):
        """Answers one that has a message, and has the memory mapped unless it `maps` it now."""
        with self.lock:
            loan = self.loans.get(number)
            done = loan and loan.messages.pop(message, None)
            if done and maps:
                loan.borrowers += 1
                held.append(number)
        if not done:
            connection.send("it was received before, or its sender has let go of it")
            return
        files = []
        try:
            _C.exchange_mode(loan.storage.device.index, RELAXED)  # of this thread, for good
            done.synchronize()
            answer = None
            if maps:
                *answer, files = _C.share_memory(loan.storage.data_ptr(), loan.storage.nbytes(), True)
            connection.send(answer)
            with socket.socket(fileno=os.dup(connection.fileno())) as way:
                for at in range(0, len(files), BATCH):
                    socket.send_fds(way, [b"f"], files[at:at + BATCH])
        except RuntimeError as error:
            if maps:
                held.remove(number)
                self._end(number)
            connection.send(str(error))
        finally:
            for file in files:
                os.close(file)
            if not maps:
                self._end(number, borrowed=False)

    def _end(self, number, borrowed=True):
        """A borrower less, or a message."""
        with self.lock:
            loan = self.loans[number]
            loan.borrowers -= borrowed
            if loan.borrowers or loan.messages:
                return
            del self.loans[number], self.by_storage[loan.storage._cdata]
        del loan  # frees the storage, with no lock held


def lender():
    """This process's; a process that was forked has one of its own."""
    global _lender
    with _making:
        if _lender is None or _lender.process != os.getpid():
            _lender = Lender()
        return _lender


def loans():
    """How many storages others use, or have messages of."""
    return 0 if _lender is None else len(_lender.loans)
