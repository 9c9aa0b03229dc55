# SPDX-License-Identifier: MIT
"""Files that the package writes: whole or not at all, with the mode and by the link of what was there."""

import os
import resource
import signal
import stat
import tempfile
import unittest

import reprise
from reprise._base.outfile import write_file


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.realpath(folder.name)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, contents=b"old", mode=0o600):
        with open(self.path(name), "wb") as file:
            file.write(contents)
        os.chmod(self.path(name), mode)
        return self.path(name)

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def mode(self, name):
        return stat.S_IMODE(os.stat(self.path(name)).st_mode)

    def test_mode(self):
        path = self.write("a", mode=0o640)
        write_file(path, b"new")
        self.assertEqual((self.read("a"), self.mode("a")), (b"new", 0o640))
        mask = os.umask(0o027)
        try:
            write_file(self.path("b"), b"new")
        finally:
            os.umask(mask)
        self.assertEqual(self.mode("b"), 0o640)

    def test_links(self):
        os.mkdir(self.path("there"))
        for target in ("there/old", "there/new"):
            link = self.path("link")
            os.symlink(target, link)
            write_file(link, b"new")
            self.assertTrue(os.path.islink(link))
            self.assertEqual(self.read(target), b"new")
            os.unlink(link)

    def test_what_is_no_file(self):
        write_file("/dev/null", b"new")
        self.assertTrue(stat.S_ISCHR(os.stat("/dev/null").st_mode))
        with self.assertRaises(OSError):
            write_file("/dev/full", b"new")
        self.write("open", b"")
        with open(self.path("open"), "r+b") as file:
            write_file(f"/proc/self/fd/{file.fileno()}", b"new")
            self.assertEqual(file.read(), b"new")
        self.assertEqual(os.listdir(self.folder), ["open"])

    def test_a_full_disk(self):
        """A limit on the size of files stands for it."""
        path = self.write("page.html")
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))
        try:
            with self.assertRaises(OSError):
                reprise.report(path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, handler)
        self.assertEqual((self.read("page.html"), os.listdir(self.folder)), (b"old", ["page.html"]))

    @unittest.skipIf(os.geteuid() == 0, "nothing is forbidden to root")
    def test_what_may_not_be_written(self):
        path = self.write("a", mode=0o400)
        with self.assertRaises(PermissionError):
            write_file(path, b"new")
        self.assertEqual(self.read("a"), b"old")


if __name__ == "__main__":
    unittest.main()
