# SPDX-License-Identifier: MIT
"""Lightning: a callback makes the layers graphs; the loop stays the Trainer's.

Run:      python examples/torch/lightning_trainer.py
Expected: Lightning: 16 steps with 3 layers as graphs gave eager's losses to the bit
"""

import sys
import tempfile

import torch

import reprise

try:
    import lightning.pytorch as lightning
except ImportError:
    try:
        import pytorch_lightning as lightning
    except ImportError as error:
        print(f"skipped: lightning is not installed ({error})")
        sys.exit(77)

STEPS, BATCH, WIDTH, LAYERS = 16, 8, 64, 3


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(), torch.nn.Dropout(0.1))
            for _ in range(LAYERS))

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x


class Task(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net, self.losses = Net(), []

    def training_step(self, batch, index):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.net(x), y)
        self.losses.append(loss.detach())
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Graphs(lightning.Callback):
    def on_fit_start(self, trainer, module):
        self.layers = reprise.capture_layers(module.net)


def train(callbacks):
    """The losses of all steps."""
    torch.manual_seed(2)
    rows = torch.utils.data.TensorDataset(*(torch.randn(STEPS * BATCH, WIDTH) for _ in range(2)))
    task = Task()
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            max_epochs=1, accelerator="gpu", devices=1, callbacks=callbacks, logger=False, default_root_dir=folder,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
        trainer.fit(task, torch.utils.data.DataLoader(rows, batch_size=BATCH))
    return [loss.item() for loss in task.losses]


def main():
    graphs = Graphs()
    wanted = train([])
    losses = train([graphs])
    print(reprise.report())
    ways = [layer["way"] for layer in graphs.layers.layers()]
    if losses != wanted or len(losses) != STEPS or ways != ["graph"] * LAYERS:
        sys.exit(f"not as expected: layers {ways}, losses {losses}, eager's {wanted}")
    print(f"Lightning: {STEPS} steps with {LAYERS} layers as graphs gave eager's losses to the bit")


if __name__ == "__main__":
    main()
