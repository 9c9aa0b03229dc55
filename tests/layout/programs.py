# SPDX-License-Identifier: MIT
"""Seeded random recordings: small programs on a few streams, composed at random."""

import random


class Program:
    """A capture in the making, as a driver would see it."""

    def __init__(self, rng, name, streams):
        self.rng, self.name, self.streams = rng, name, streams
        self.nodes, self.edges, self.events = [], [], []
        self.terminals = [[] for _ in range(streams)]
        self.users = {}  # live block -> its stream and those that used it
        self.blocks = 0

    def launch(self, stream):
        node = len(self.nodes)
        self.nodes.append("kernel")
        kind = ["programmatic"] if self.rng.random() < 0.1 else []
        self.edges += [[t, node] + kind for t in self.terminals[stream]]
        self.terminals[stream] = [node]

    def wait(self, stream, other):
        self.terminals[stream] = sorted(set(self.terminals[stream] + self.terminals[other]))

    def alloc(self, stream):
        size = self.rng.choice([1, 511, 512, 513, 4096, 70000, 1 << 20, 3 << 20])
        self.events.append(["alloc", self.blocks, size, stream, self.terminals[stream]])
        self.users[self.blocks] = [stream]
        self.blocks += 1

    def use(self, block, stream):
        self.events.append(["use", block, stream])
        self.users[block].append(stream)

    def free(self, block):
        streams = self.users.pop(block)
        nodes = sorted({t for s in streams for t in self.terminals[s]})
        self.events.append(["free", block, streams[0], nodes])

    def step(self, most_blocks):
        stream, other = self.rng.randrange(self.streams), self.rng.randrange(self.streams)
        live = sorted(self.users)
        choice = self.rng.random()
        if choice < 0.35:
            self.launch(stream)
        elif choice < 0.6 and self.blocks < most_blocks:
            self.alloc(stream)
        elif choice < 0.7:
            self.wait(stream, other)
        elif choice < 0.75 and live:
            self.use(self.rng.choice(live), stream)
        elif live:
            self.free(self.rng.choice(live))

    def recorded(self):
        # Nodes under other numbers: a reader must not rely on their order.
        number = list(range(len(self.nodes)))
        if self.rng.random() < 0.5:
            self.rng.shuffle(number)
        renamed = lambda nodes: [number[n] for n in nodes]
        events = [e if e[0] == "use" else e[:-1] + [renamed(e[-1])] for e in self.events]
        edges = [renamed(e[:2]) + e[2:] for e in self.edges]
        return {
            "name": self.name,
            "nodes": self.nodes,
            "edges": edges,
            "streams": self.streams,
            "events": events,
        }


def capture(rng, name, steps, most_blocks):
    program = Program(rng, name, rng.randrange(1, 4))
    for _ in range(steps):
        program.step(most_blocks)
    return program.recorded()


def composition(rng, names):
    """The names in a random tree."""
    if len(names) == 1:
        return names[0]
    kind = rng.choice(["alternatives", "sequence", "sequence", "concurrent"])
    parts = []
    while names:
        count = rng.randrange(1, len(names) + 1)
        if not parts and count == len(names):
            count -= 1
        parts.append(composition(rng, names[:count]))
        names = names[count:]
    return {kind: parts}


def recording(seed, captures, steps, most_blocks):
    rng = random.Random(seed)
    names = [f"c{i}" for i in range(captures)]
    return {
        "format": "reprise-capture/1",
        "workload": "random",
        "source": f"seed {seed}",
        "captures": [capture(rng, name, steps, most_blocks) for name in names],
        "compose": composition(rng, rng.sample(names, captures)),
    }
