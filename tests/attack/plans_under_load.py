#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Plans each file again and again, niced, while other processes keep every core busy: all answers
to one file must be equal, and equal to that of a run without the load.

    plans_under_load.py REPRISE [--runs N] [--burners N] [--stops] [--json FILE] FILE...

--stops has the planner itself stopped most of the time, which the clock sees like a load and no
processor does.
--json writes the answers, and what each file took on the quiet machine and under load, as medians
of the processor's time and of the clock's, in milliseconds.
"""

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time

NEW = {"ms"}  # of an answer: what may differ from run to run


def stop_often(process):
    """Until it ends: runs for two milliseconds, and stands still for ten."""
    while process.poll() is None:
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.01)
        process.send_signal(signal.SIGCONT)
        time.sleep(0.002)


def plan(reprise, path, niceness, stops=False):
    """The answer, without its times, and (processor's ms, clock's ms) of the planning alone and of
    the whole process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen([reprise, "plan", "--json", path], stdout=out,
                                   preexec_fn=lambda: os.nice(niceness))
        if stops:
            stop_often(process)
        if process.wait():
            sys.exit(f"{path}: the planner ended with {process.returncode}")
        out.seek(0)
        said = out.read()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    (answer,) = json.loads(said)
    times = 1e3 * cpu, answer["ms"]
    return {key: value for key, value in answer.items() if key not in NEW}, times


def median(times, index):
    return round(statistics.median(t[index] for t in times), 2)


def replay(reprise, path, runs, burners, stops):
    quiet, quiet_times = plan(reprise, path, 0)
    load = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(burners)]
    try:
        busy = [plan(reprise, path, 19, stops) for _ in range(runs)]
    finally:
        for process in load:
            process.kill()
            process.wait()
    others = [answer for answer, _ in busy if answer != quiet]
    for other in others[:1]:
        print(f"{path}: {other['pool_bytes']} bytes under load, {quiet['pool_bytes']} without",
              file=sys.stderr)
    times = [t for _, t in busy]
    return {"file": os.path.basename(path), "runs": runs, "others": len(others),
            "pool_bytes": quiet["pool_bytes"], "lower_bound_bytes": quiet["lower_bound_bytes"],
            "proof": quiet["proof"], "stopped": quiet["stopped"], "steps": quiet["steps"],
            "quiet_process_cpu_ms": round(quiet_times[0], 2), "quiet_ms": quiet_times[1],
            "busy_process_cpu_ms": median(times, 0), "busy_ms": median(times, 1)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("reprise")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--burners", type=int, default=6 * (os.cpu_count() or 1))
    parser.add_argument("--stops", action="store_true")
    parser.add_argument("--json")
    options = parser.parse_args()
    load = [os.getloadavg()[1]]
    results = [replay(options.reprise, path, options.runs, options.burners, options.stops)
               for path in options.files]
    load.append(os.getloadavg()[1])
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"date": time.strftime("%Y-%m-%d"), "cores": os.cpu_count(),
                       "burners": options.burners, "niceness": 19,
                       "load_average_5_minutes": load, "results": results}, file, indent=1)
            file.write("\n")
    differ = sum(result["others"] for result in results)
    print(f"{len(results)} files, {options.runs} runs each under {options.burners} processes"
          f"{', stopped often' if options.stops else ''}: {differ} answers differ")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
