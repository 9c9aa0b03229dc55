#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the pictures of docs/images anew: the demo's chart, a drawing of a plan, and screenshots of the page of
reprise.advise and of that of reprise.report. Look at each before you commit it.

Chromium takes the screenshots. The report comes from a PyTorch on the host driver; without PYTHON it is left out.

usage: docs_pictures.py BUILD [PYTHON]
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs/images"
WIDTH = 1000  # of a screenshot
PROGRAM = '''
import torch, reprise
reprise.install()

class Block(torch.nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(),
                                       torch.nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        x = x + self.out(torch.softmax(q @ k.transpose(-1, -2) / 16, -1) @ v)
        return x + self.mlp(self.norm(x))

model = reprise.graphed(Block().cuda())
with torch.no_grad():
    for batch in (16, 8, 4) * 3:
        model(torch.randn(batch, 128, 256, device="cuda"))
reprise.report("report.html")
'''


def browser():
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    return found or sys.exit("docs_pictures: screenshots need Chromium")


def screenshot(page, picture, height):
    subprocess.run([browser(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                    f"--window-size={WIDTH},{height}", f"--screenshot={picture}", page.as_uri()],
                   check=True, capture_output=True, timeout=120)
    print(f"docs_pictures: {picture.relative_to(ROOT)}, {picture.stat().st_size >> 10} KiB")


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1]).resolve()
    reprise = build / "reprise"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)

        def quietly(*command, **given):
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **given)

        quietly(reprise, "demo", "--out", folder)
        shutil.copy(folder / "demo.svg", IMAGES / "demo.svg")
        quietly(reprise, "plan", "--draw", IMAGES / "plan.svg", ROOT / "examples/captures/towers4.json.gz")
        shutil.copy(ROOT / "tests/data/traces/item_each_step.stack.json.gz", folder / "trace.json.gz")
        quietly(reprise, "advise", "trace.json.gz", "--html", "advise.html", cwd=folder)
        screenshot(folder / "advise.html", IMAGES / "advise.png", 880)
        if len(sys.argv) == 3:
            (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
            # A small workspace of cuBLAS: it would dwarf all other blocks.
            environment = {**os.environ, "BUILD": str(build), "QUIET": "1", "CUBLAS_WORKSPACE_CONFIG": ":16:8"}
            quietly(ROOT / "scripts/torch_on_host.sh", sys.argv[2], "program.py", cwd=folder,
                    stderr=subprocess.DEVNULL, env=environment)
            screenshot(folder / "report.html", IMAGES / "report.png", 1000)


if __name__ == "__main__":
    main()
