#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs a command whose standard output is JSON and keeps it with what is needed to judge it.

usage: scripts/record_result.py OUT.json COMMAND [ARGUMENT...]

Writes {"date", "machine", "versions", "command", "exit", "seconds", "result"}: result is the
command's own JSON, or, where an argument is '@', what it wrote to the file whose name is put in
that argument's place. Exits as the command does, 2 when its output was no JSON.
"""

import datetime
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time


def first_line(*command):
    """The first line that a command prints, or None where it cannot be run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    lines = done.stdout.strip().splitlines()
    return lines[0].strip() if lines else None


def processor():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
            for line in cpuinfo:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()


def machine():
    facts = {"processor": processor(), "cores": os.cpu_count()}
    gpu = first_line("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader")
    if gpu:
        facts["gpu"] = gpu
    return facts


def versions(program):
    facts = {}
    try:
        facts["system"] = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        facts["system"] = platform.system()
    driver = first_line("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    reprise = first_line(os.path.join(os.path.dirname(program), "reprise"), "--version")
    if driver:
        facts["driver"] = driver
    if reprise:
        facts["reprise"] = reprise.removeprefix("reprise ")
    return facts


def main():
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    out, command = sys.argv[1], sys.argv[2:]
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "result.json")
        started = time.monotonic()
        done = subprocess.run([file if a == "@" else a for a in command], text=True,
                              stdout=sys.stderr if "@" in command else subprocess.PIPE, check=False)
        seconds = time.monotonic() - started
        try:
            if "@" in command:
                with open(file, encoding="utf-8") as written:
                    result = json.load(written)
            else:
                result = json.loads(done.stdout)
        except (OSError, ValueError) as error:
            print(f"record_result: no JSON came of it (exit {done.returncode}): {error}",
                  file=sys.stderr)
            return done.returncode or 2
    script = command[0].endswith(".py")
    shown = [command[0] if script else os.path.join("build", os.path.basename(command[0])),
             *command[1:]]
    record = {
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "versions": versions(command[0]),
        "command": shlex.join("FILE" if a == "@" else a for a in shown),
        "exit": done.returncode,
        "seconds": round(seconds, 2),
        "result": result,
    }
    with open(out, "w", encoding="utf-8") as target:
        json.dump(record, target, indent=1)
        target.write("\n")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
