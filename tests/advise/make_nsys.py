# SPDX-License-Identifier: MIT
"""Writes a made trace as Nsight Systems' SQLite export. No nsys ran for it: tables and columns are
those of NVIDIA's published "SQLite Schema Reference", as far as the reader looks at them, and the
events are those of make_trace.py."""
import sqlite3

SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE TARGET_INFO_GPU (vmId INTEGER, id INTEGER, name TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL,
    eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL,
    returnValue INTEGER NOT NULL, callchainId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL,
    deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, greenContextId INTEGER,
    streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
    demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, graphNodeId INTEGER,
    graphId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL,
    deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL,
    correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL,
    graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL,
    deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL,
    correlationId INTEGER, globalPid INTEGER, value INTEGER NOT NULL, bytes INTEGER NOT NULL);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL,
    rangeId INTEGER, category INTEGER, color INTEGER, text TEXT, globalTid INTEGER,
    endGlobalTid INTEGER, textId INTEGER, domainId INTEGER);
"""
NVTX_PUSH_POP = 59
COPY_KINDS = {"HtoD": 1, "DtoH": 2, "DtoD": 8}


class Export:
    def __init__(self, path):
        self.database = sqlite3.connect(path)
        self.database.executescript(SCHEMA)
        self.strings = {}

    def string(self, text):
        if text not in self.strings:
            self.strings[text] = len(self.strings) + 1
            self.insert("StringIds", self.strings[text], text)
        return self.strings[text]

    def insert(self, table, *values):
        marks = ", ".join("?" * len(values))
        self.database.execute(f"INSERT INTO {table} VALUES ({marks})", values)

    def event(self, event):
        start = round(event["ts"] * 1000)
        end = start + round(event["dur"] * 1000)
        args = event.get("args", {})
        tid = event["pid"] << 24 | event["tid"] if isinstance(event["tid"], int) else 0
        category, name = event["cat"], event["name"]
        if category == "cuda_runtime":
            self.insert("CUPTI_ACTIVITY_KIND_RUNTIME", start, end, 0, tid, args["correlation"],
                        self.string(name + "_v7000"), 0, None)
        elif category == "kernel":
            text = self.string(name)
            self.insert("CUPTI_ACTIVITY_KIND_KERNEL", start, end, args["device"], 1, None,
                        args["stream"], args["correlation"], tid, text, text,
                        args.get("graph node id"), args.get("graph id"))
        elif category == "gpu_memcpy":
            kind = next(k for text, k in COPY_KINDS.items() if text in name)
            self.insert("CUPTI_ACTIVITY_KIND_MEMCPY", start, end, args["device"], 1,
                        args["stream"], args["correlation"], tid, 4096, kind, None)
        elif category == "gpu_memset":
            self.insert("CUPTI_ACTIVITY_KIND_MEMSET", start, end, args["device"], 1,
                        args["stream"], args["correlation"], tid, 0, 4096)
        elif category in ("cpu_op", "user_annotation"):
            text = name + (", seq = 7" if category == "cpu_op" else "")
            by_id = len(self.strings) % 2  # both forms occur
            self.insert("NVTX_EVENTS", start, end, NVTX_PUSH_POP, None, None, None,
                        None if by_id else text, tid, None, self.string(text) if by_id else None,
                        0)


def write(trace, path):
    """trace: a make_trace.Trace."""
    export = Export(path)
    export.insert("TARGET_INFO_GPU", 0, 0, "NVIDIA H200")
    for event in trace.events:
        if event.get("ph") == "X":
            export.event(event)
    export.database.commit()
    export.database.close()
