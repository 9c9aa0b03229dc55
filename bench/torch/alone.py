# SPDX-License-Identifier: MIT
"""A Llama's step by one token at three batch sizes, by a process that has the GPU to itself.

In the other groups the processes of all sides are there side by side, and a context that one makes
lets the graphs of all run at full pace (pace.py). Here each side's process is alone from its beginning
to its end, as a server's is: what it does on other streams, a warm-up say, slows its graphs down.
"""

import common
import decode

SIDES = {"llama": ["graph", "graph-current", "reprise", "reprise-install", "reprise-install-tuned"]}
FRESH = True
IMPORTS = decode.IMPORTS
COLUMNS = decode.COLUMNS[4:]
LIMITS = {path: limit for path, limit in decode.LIMITS.items() if path.startswith("b")}
MOST_ROUNDS = 5


def prepare(torch, side, workload):
    import workloads
    del workload
    torch.manual_seed(0)
    decoder = workloads.Decoder(decode.MOST)
    decoder.step.requires_grad_(False)
    sizes = sorted(decode.LOOKED_AT, reverse=True)
    with torch.no_grad():
        inputs = {rows: [decoder.arguments(rows, 100 + i) for i in range(8)] for rows in sizes}
        calls = decode.made_ready(torch, side, decoder, sizes)
        for given in inputs.values():
            common.call_for(torch, calls.call, given, decode.WARM_S)
        return {f"b{rows}": decode.measured(torch, calls, rows, common.turns(given))
                for rows, given in inputs.items()}, None
