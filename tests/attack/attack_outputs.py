# SPDX-License-Identifier: MIT
"""Files that the command writes: whole or not at all, nobody else's lost, no input replaced.

    attack_outputs.py REPRISE SOURCE_DIR
"""
import os
import resource
import shutil
import signal
import stat
import subprocess
import unittest

from arena import REPRISE, Arena, main, run

WRITERS = ("plan --out", "plan --draw", "advise --html")


def each_writer(test):
    """Runs a test for each writer, in an empty folder."""
    def run_all(self):
        for writer in WRITERS:
            with self.subTest(writer):
                for name in os.listdir(self.folder):
                    path = self.path(name)
                    shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
                test(self, writer)
    return run_all


class Outputs(Arena):
    def start(self, writer, out, **options):
        command, option = writer.split()
        source = self.recording() if command == "plan" else self.trace()
        return run(command, option, out, source, **options)

    def wrote(self, result):
        self.assertIn(result.returncode, (0, 1), result.stderr)

    @each_writer
    def test_a_part_of_somebody_else(self, writer):
        self.write("out.part", "mine")
        self.wrote(self.start(writer, self.path("out")))
        self.assertEqual(self.read("out.part"), b"mine")

    @each_writer
    def test_a_link_where_the_part_was(self, writer):
        victim = self.write("victim", "mine")
        os.symlink(victim, self.path("out.part"))
        self.wrote(self.start(writer, self.path("out")))
        self.assertEqual(self.read("victim"), b"mine")

    @each_writer
    def test_mode_is_kept(self, writer):
        os.chmod(self.write("out", "old"), 0o600)
        self.wrote(self.start(writer, self.path("out")))
        self.assertEqual(stat.S_IMODE(os.stat(self.path("out")).st_mode), 0o600)
        self.assertNotEqual(self.read("out"), b"old")

    @each_writer
    def test_mode_of_a_new_file_is_of_the_umask(self, writer):
        self.wrote(self.start(writer, self.path("out"), umask=0o027))
        self.assertEqual(stat.S_IMODE(os.stat(self.path("out")).st_mode), 0o640)

    @each_writer
    def test_a_link_is_followed(self, writer):
        os.mkdir(self.path("there"))
        for target, old in (("there/old", True), ("there/new", False)):
            if old:
                self.write(target, "old")
            link = self.path("link-" + str(old))
            os.symlink(target, link)
            self.wrote(self.start(writer, link))
            self.assertTrue(os.path.islink(link))
            self.assertGreater(len(self.read(target)), 20)
            os.unlink(self.path(target))
        os.rmdir(self.path("there"))

    @each_writer
    def test_a_link_in_a_circle(self, writer):
        os.symlink("b", self.path("a"))
        os.symlink("a", self.path("b"))
        self.refused(self.start(writer, self.path("a")), "cannot be written")

    @each_writer
    def test_nothing_is_left_on_a_full_disk(self, writer):
        """A limit on the size of files stands for the full disk."""
        self.write("out", "old")
        before = sorted(os.listdir(self.folder))

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
        result = self.start(writer, self.path("out"), preexec_fn=limit)
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"File too large", result.stderr)
        self.assertEqual(self.read("out"), b"old")
        self.assertEqual(len(os.listdir(self.folder)), len(before) + 1)  # the input

    @each_writer
    def test_an_output_that_is_the_input(self, writer):
        command, option = writer.split()
        source = self.recording() if command == "plan" else self.trace()
        before = self.read(os.path.basename(source))
        os.symlink(source, self.path("link"))
        os.link(source, self.path("hard"))
        dotted = os.path.join(self.folder, ".", os.path.basename(source))
        for out in (source, dotted, self.path("link"), self.path("hard")):
            self.refused(run(command, option, out, source), "is an input")
            self.assertEqual(self.read(os.path.basename(source)), before)

    def test_two_outputs_that_are_one(self):
        source = self.recording()
        os.symlink("one", self.path("two"))
        for other in (self.path("one"), self.path("two"), self.folder + "/./one"):
            self.refused(run("plan", "--out", self.path("one"), "--draw", other, source),
                         "are one file")
        self.assertFalse(os.path.exists(self.path("one")))

    def test_refused_before_anything_is_read(self):
        """A FIFO nobody writes to would hang, were it read."""
        fifo = self.path("fifo")
        os.mkfifo(fifo)
        for command, option in (writer.split() for writer in WRITERS):
            self.refused(run(command, option, fifo, fifo, timeout=10), "is an input")

    @each_writer
    def test_devices_and_descriptors(self, writer):
        """Links of our own again."""
        for device in ("null", "full"):
            os.symlink("/dev/" + device, self.path(device))
        self.wrote(self.start(writer, self.path("null")))
        self.assertTrue(stat.S_ISCHR(os.stat(self.path("null")).st_mode))
        result = self.start(writer, self.path("full"))
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"No space left", result.stderr)

    def test_standard_output_in_a_file(self):
        """A link of our own stands for /dev/stdout, which a wrong program run by root would replace."""
        source = self.recording()
        os.symlink("/proc/self/fd/1", self.path("stdout"))
        with open(self.path("all"), "wb") as file:
            subprocess.run([REPRISE, "plan", "--out", self.path("stdout"), source], stdout=file, check=True)
        text = self.read("all").decode()
        self.assertIn("reprise-layout/1", text)
        self.assertIn("proved optimal", text)

    def test_two_at_once(self):
        """Writers of one file do not meet in a temporary one."""
        source = self.recording()
        several = [subprocess.Popen([REPRISE, "plan", "--out", self.path("out"), source],
                                    stdout=subprocess.DEVNULL) for _ in range(8)]
        self.assertEqual([one.wait(60) for one in several], [0] * 8)
        self.assertIn(b"reprise-layout/1", self.read("out"))
        self.assertEqual(sorted(os.listdir(self.folder)), ["in.json", "out"])

    def test_the_chart_of_the_demo(self):
        os.mkdir(self.path("charts"))
        os.chmod(self.write("kept", "old"), 0o600)
        os.symlink("../kept", self.path("charts/demo.svg"))
        result = run("demo", "--driver", "host", "--batches", "2,1", "--recordings", self.folder,
                     "--out", self.path("charts"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(self.read("kept").endswith(b"</svg>\n"))
        self.assertEqual(stat.S_IMODE(os.stat(self.path("kept")).st_mode), 0o600)
        self.assertEqual(os.listdir(self.path("charts")), ["demo.svg"])


if __name__ == "__main__":
    unittest.TestCase.maxDiff = None
    main()
