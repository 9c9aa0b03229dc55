# SPDX-License-Identifier: MIT
"""The command as a good command: version, completion, colour, near words, where the demo writes.

    attack_command.py REPRISE SOURCE_DIR
"""
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import unittest

from arena import REPRISE, SOURCE, Arena, main, run

COMMANDS = ["advise", "bench", "check", "completion", "demo", "doctor", "explain", "inspect", "plan"]
OF_PACKAGE = ["estimate", "run"]  # which the C library's command only names


def on_terminal(*arguments, **environment):
    """What the command writes when both its outputs are a terminal."""
    master, slave = pty.openpty()
    with subprocess.Popen([REPRISE, *arguments], stdin=subprocess.DEVNULL, stdout=slave, stderr=slave,
                          env={"PATH": os.environ["PATH"], "TERM": "xterm"} | environment) as program:
        os.close(slave)
        text = b""
        while select.select([master], [], [], 60)[0]:
            try:
                got = os.read(master, 65536)
            except OSError:
                break
            if not got:
                break
            text += got
        program.wait(60)
    os.close(master)
    return text.decode()


class Command(Arena):
    def test_version(self):
        long, short = run("--version"), run("-V")
        self.assertRegex(long.stdout.decode(), r"^reprise \d+\.\d+\.\d+\n$")
        self.assertEqual((short.returncode, short.stdout), (0, long.stdout))

    def test_near_words(self):
        for wrong, right in (("plna", "plan"), ("advice", "advise"), ("doctr", "doctor"),
                             ("PLAN", "plan"), ("benhc", "bench")):
            self.refused(run(wrong), f"no command '{wrong}'", f"did you mean '{right}'?")
            self.refused(run("help", wrong), f"did you mean '{right}'?")
        self.assertNotIn("did you mean", self.refused(run("xylophone"), "no command"))
        for wrong, right in (("hlep", "help"), ("--hepl", "--help"), ("--verison", "--version")):
            self.refused(run(wrong), f"'{wrong}'", f"did you mean '{right}'?")
        self.refused(run("--verison"), "no option")
        for command, wrong, right in (("plan", "--capcity", "--capacity"), ("plan", "--jsno", "--json"),
                                      ("advise", "--htm1", "--html"), ("demo", "--driverr", "--driver"),
                                      ("explain", "--jsno", "--json"), ("explain", "--lsit", "--list"),
                                      ("check", "--pyton", None)):
            text = self.refused(run(command, wrong, "x"), f"no option '{wrong}'")
            self.assertEqual(f"did you mean '{right}'?" in text, right is not None, text)

    def test_completion_of_bash(self):
        script = run("completion", "bash").stdout.decode()
        with open(self.path("c.bash"), "w", encoding="utf-8") as file:
            file.write(script)

        def complete(*words):
            line = (f'source {self.path("c.bash")}; PATH={os.path.dirname(REPRISE)}:$PATH; '
                    f'COMP_WORDS=({" ".join(words) or ""}); COMP_CWORD={len(words) - 1}; '
                    "_reprise; printf '%s\\n' \"${COMPREPLY[@]}\"")
            return subprocess.run(["bash", "--norc", "-c", line], capture_output=True, text=True,
                                  check=True, cwd=self.folder).stdout.split()
        self.assertEqual(complete("reprise", "''"), COMMANDS + ["help"])
        self.assertEqual(complete("reprise", "ad"), ["advise"])
        self.assertEqual(complete("reprise", "--v"), ["--version"])
        self.assertEqual(complete("reprise", "plan", "--c"), ["--capacity"])
        self.assertEqual(complete("reprise", "advise", "--"),
                         ["--eager-us", "--help", "--html", "--json"])
        self.assertEqual(complete("reprise", "bench", "re"), ["replay"])
        self.assertEqual(complete("reprise", "help", "ch"), ["check"])
        self.assertEqual(complete("reprise", "completion", "z"), ["zsh"])
        self.recording("file.json")
        self.assertEqual(complete("reprise", "plan", "fi"), ["file.json"])

    def test_completion_offers_what_help_tells(self):
        """Every option in a command's help is one that the command knows. Another that it does not
        know keeps it from going to work."""
        for command in COMMANDS:
            text = run("help", command).stdout.decode()
            for option in set(re.findall(r"^ +(?:-\w, )?(--[a-z][a-z-]+)", text, re.MULTILINE)):
                result = run(command, option, "x", "--nonesuch")
                self.assertNotIn(f"no option '{option}'", result.stderr.decode(), command)

    def test_completion_of_zsh(self):
        script = run("completion", "zsh").stdout.decode()
        self.assertTrue(script.startswith("#compdef reprise\n"))
        self.refused(run("completion", "fish"), "bash or zsh")
        self.refused(run("completion"), "bash or zsh")

    @unittest.skipUnless(shutil.which("zsh"), "there is no zsh")
    def test_zsh_completes(self):
        """A shell on a terminal, to which each line is typed up to the tabulator."""
        with open(self.path("_reprise"), "wb") as file:
            file.write(run("completion", "zsh").stdout)
        self.recording("file.json")
        self.write(".zshrc", f"fpath=({self.folder} $fpath); PATH={os.path.dirname(REPRISE)}:$PATH\n"
                             "PROMPT='ready> '; LISTMAX=0; zstyle ':completion:*' list-colors ''\n"
                             "autoload -Uz compinit; compinit -u\n")
        lines = {"reprise ad": "reprise advise ", "reprise --v": "reprise --version ",
                 "reprise plan --c": "reprise plan --capacity ", "reprise bench re": "reprise bench replay ",
                 "reprise help ch": "reprise help check ", "reprise completion z": "reprise completion zsh ",
                 "reprise plan fi": "reprise plan file.json "}
        shell, master = pty.fork()
        if shell == 0:
            os.chdir(self.folder)
            os.execvpe("zsh", ["zsh", "-i"], {"HOME": self.folder, "ZDOTDIR": self.folder, "TERM": "dumb",
                                              "PATH": os.environ["PATH"]})
        try:
            self.until(master, "ready> ")
            for typed, whole in lines.items():
                os.write(master, typed.encode() + b"\t")
                self.until(master, whole)
                os.write(master, b"\x15")  # the line is given up
            os.write(master, b"reprise \t")
            listed = self.until(master, "what recorded captures need")
            self.assertEqual(re.findall(r"^([a-z]+) +-- ", re.sub("\x1b.*?[mK]", "", listed), re.MULTILINE),
                             sorted(COMMANDS + ["help"]))
        finally:
            os.kill(shell, signal.SIGKILL)
            os.waitpid(shell, 0)
            os.close(master)

    def until(self, master, words):
        """What the terminal shows up to the words."""
        text = ""
        while words not in text:
            self.assertTrue(select.select([master], [], [], 60)[0], text)
            text += os.read(master, 65536).decode().replace("\r", "")
        return text

    def test_installed_completions_are_the_printed_ones(self):
        for shell, name in (("bash", "reprise.bash"), ("zsh", "_reprise")):
            with open(os.path.join(SOURCE, "packaging", "completion", name), "rb") as file:
                self.assertEqual(run("completion", shell).stdout, file.read())

    def test_colour(self):
        source = self.recording()
        coloured = on_terminal("plan", source)
        self.assertIn("\x1b[", coloured)
        for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            plain = on_terminal("plan", source, **environment)
            self.assertNotIn("\x1b[", plain.replace("\r\x1b[K", ""))
            # but for the time the same words
            words = re.sub(r"\x1b\[[0-9;]*[mK]|\r", "", coloured)
            self.assertEqual(re.sub(r"\d+ ms", "", words), re.sub(r"\d+ ms|\x1b\[K|\r", "", plain))
        self.assertIn("\x1b[", on_terminal("plan", source, NO_COLOR=""))
        trace = self.trace()
        self.assertTrue(on_terminal("advise", trace).startswith("\x1b[1;32m"))
        self.assertNotIn("\x1b", on_terminal("advise", trace, NO_COLOR="1"))
        self.assertNotIn("\x1b[1", on_terminal("advise", "--json", trace))
        self.assertNotIn(b"\x1b", run("plan", source).stdout)
        self.assertIn("\x1b[", on_terminal("plan", "--no-such"))
        self.assertNotIn(b"\x1b", run("plan", "--no-such").stderr)

    def test_progress_of_long_work(self):
        big = self.write("big.json", b"[" + b" " * (64 << 20) + b"]")
        self.assertIn("reading", on_terminal("advise", big))
        self.assertNotIn(b"reading", run("advise", big).stderr)

    def test_where_the_demo_writes(self):
        recordings = self.path("recordings")
        os.mkdir(recordings)
        os.mkdir(self.path("home"))
        home, tmp, cache = (self.path(name) for name in ("home", "tmp", "cache"))
        os.mkdir(tmp)
        options = ("demo", "--driver", "host", "--batches", "2,1", "--recordings", recordings)
        for environment, there in (({"XDG_CACHE_HOME": cache, "HOME": home}, cache + "/reprise/demo"),
                                   ({"HOME": home}, home + "/.cache/reprise/demo"),
                                   ({"XDG_CACHE_HOME": "relative", "HOME": home},
                                    home + "/.cache/reprise/demo"),
                                   ({"TMPDIR": tmp}, tmp + f"/reprise-{os.getuid()}/demo")):
            result = run(*options, cwd=self.path("tmp"), env={"PATH": os.environ["PATH"]} | environment)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertTrue(os.path.exists(there + "/demo.svg"), there)
            self.assertIn(there + "/demo.svg", result.stdout.decode())
            self.assertFalse(os.path.exists(os.path.join(tmp, "build")))

    def test_a_temporary_folder_of_somebody_else(self):
        """A link that another user put there is not written through."""
        tmp = self.path("tmp")
        os.mkdir(tmp)
        os.mkdir(self.path("victim"))
        os.symlink(self.path("victim"), tmp + f"/reprise-{os.getuid()}")
        result = run("demo", "--driver", "host", "--batches", "2,1", "--recordings", self.folder,
                     env={"PATH": os.environ["PATH"], "TMPDIR": tmp})
        self.refused(result, "is not a folder of yours")
        self.assertEqual(os.listdir(self.path("victim")), [])

    def test_the_usage_names_everything(self):
        text = run().stderr.decode()
        self.assertEqual(text, run("--help").stdout.decode())
        self.assertEqual(re.findall(r"^  ([a-z]+) ", text, re.MULTILINE), COMMANDS)
        self.assertIn("-V", text)
        listed = subprocess.run(["reprise of Python", "--help"], executable=REPRISE, check=True,
                                capture_output=True).stdout.decode()
        self.assertEqual(re.findall(r"^  ([a-z]+) ", listed, re.MULTILINE), sorted(COMMANDS + OF_PACKAGE))
        for command in OF_PACKAGE:
            self.refused(run(command), f"python -m reprise {command}")


if __name__ == "__main__":
    unittest.TestCase.maxDiff = None
    main()
