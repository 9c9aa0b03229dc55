# SPDX-License-Identifier: MIT
"""The Python that the README and the pages about PyTorch show, run on a GPU as it stands. Each block
has a process of its own, and what it takes for granted is made before.

usage: gpu_documents.py
"""

import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BEFORE = """
import torch, reprise

class MyModel(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))

class Batches:
    def __iter__(self):
        return (torch.randn(n, 64, device="cuda") for n in (4, 2, 1, 4, 2, 1))

batches = Batches()
loss_of = torch.nn.functional.mse_loss
"""
# Not where the block calls install(), which comes before CUDA.
OBJECTS = """
model = MyModel().cuda()
optimizer = torch.optim.Adam(model.parameters(), capturable=True)
static_input, batch, inputs = (torch.randn(4, 64, device="cuda") for _ in range(3))
batch64, batch1 = torch.randn(64, 64, device="cuda"), batch[:1]
targets = torch.randn(4, 8, device="cuda")

model(static_input)  # what PyTorch wants before a capture

def step(inputs, targets):
    with torch.no_grad():
        return loss_of(model(inputs), targets)
"""
AFTER = """
if "step" in globals():
    for _ in range(3):
        step(inputs, targets)
torch.cuda.synchronize()
text = reprise.report()
print(text)
assert "without a graph" not in text
"""


class Documents(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_python(self, *arguments):
        """Standard output of the interpreter, in the folder of this test."""
        done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True,
                              check=False, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def run_blocks(self, name, graphs):
        """graphs: of each block whether anything is captured in it; None: it is run elsewhere."""
        blocks = BLOCK.findall((ROOT / name).read_text(encoding="utf-8"))
        self.assertEqual(len(blocks), len(graphs))
        for block, captured in zip(blocks, graphs):
            if captured is not None:
                self.run_block(block, captured)
        return blocks

    def run_block(self, block, captured):
        ahead = BEFORE if "install()" in block else BEFORE + OBJECTS
        with self.subTest(block=block):
            out = self.run_python("-c", ahead + block + AFTER)
            self.assertEqual("nothing was captured yet" in out, not captured, out)

    def test_readme(self):
        self.run_blocks("README.md", [True])

    def test_migrate(self):
        self.run_blocks("docs/migrate.md", [True, False, False])

    def test_pytorch(self):
        # reprise.graph is PyTorch's own without install(): nothing is known of it.
        self.run_blocks("docs/pytorch.md", [True, True, True, False, False, True, None, False])

    def test_advise(self):
        self.run_block(BLOCK.findall((ROOT / "docs/pytorch.md").read_text(encoding="utf-8"))[6], False)
        # Small as the step is, nothing but launches is in it.
        self.assertIn("CUDA graphs are worth it here",
                      self.run_python("-m", "reprise", "advise", "trace.json.gz"))


if __name__ == "__main__":
    unittest.main()
