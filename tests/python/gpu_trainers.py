# SPDX-License-Identifier: MIT
"""Training loops of others, with the lines that docs/migration/trainers.md shows: Hugging Face's Trainer,
Accelerate and Lightning, each where it is installed. Usage: gpu_trainers.py [--install] ..."""

import gc
import logging
import sys
import tempfile
import unittest
import warnings

import torch

import reprise
from training_steps import need_transformers

INSTALL = "--install" in sys.argv
if INSTALL:
    sys.argv.remove("--install")
    reprise.install()

WIDTH = 32


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(),
                                                              torch.nn.Dropout(0.1)) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x


class Rows(torch.utils.data.Dataset):
    def __init__(self, make):
        self.rows = [make() for _ in range(32)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def pairs_of_numbers():
    torch.manual_seed(4)
    return Rows(lambda: (torch.randn(WIDTH), torch.randn(WIDTH)))


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    def tearDown(self):
        gc.collect()

    def compare(self, train):
        """train(graphed) gives losses and the LayerGraphs; with graphs the losses are those without."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.filterwarnings("error", message="reprise")
            want, _ = train(False)
            got, graphs = train(True)
        self.assertGreater(len(want), 3)
        self.assertEqual(got, want)
        self.assertEqual({f["way"] for f in graphs.layers()}, {"graph"})
        self.assertIn("graph", reprise.report())


class HuggingFace(Case):
    def model(self, transformers):
        torch.manual_seed(1)
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=64, n_positions=16, n_embd=WIDTH, n_layer=2, n_head=2, attn_implementation="eager",
            use_cache=False))

    def rows(self):
        torch.manual_seed(4)

        def row():
            tokens = torch.randint(64, (16,))
            return {"input_ids": tokens, "labels": tokens}
        return Rows(row)

    def need(self):
        transformers = need_transformers(self)
        try:
            import accelerate  # noqa: F401
        except ImportError as error:
            self.skipTest(f"Trainer needs Accelerate: {error}")
        return transformers

    def train(self, graphed, microbatches=1):
        transformers = self.need()

        class Graphs(transformers.TrainerCallback):
            def on_train_begin(self, args, state, control, model=None, **more):
                self.layers = reprise.capture_layers(model)

        graphs = Graphs()
        trainer = transformers.Trainer(
            model=self.model(transformers), train_dataset=self.rows(), callbacks=[graphs] if graphed else [],
            args=transformers.TrainingArguments(
                output_dir=self.folder, max_steps=6, per_device_train_batch_size=2, logging_steps=1, report_to=[],
                save_strategy="no", disable_tqdm=True, seed=3, gradient_accumulation_steps=microbatches,
                dataloader_pin_memory=False))
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        sums = [p.detach().double().sum().item() for p in trainer.model.parameters()]
        return [*losses, *sums], getattr(graphs, "layers", None)

    def test_trainer(self):
        self.compare(self.train)

    def test_trainer_with_gradient_accumulation(self):
        self.compare(lambda graphed: self.train(graphed, 2))


class Accelerate(Case):
    def train(self, graphed):
        try:
            import accelerate
        except ImportError as error:
            self.skipTest(f"no Accelerate: {error}")
        torch.manual_seed(2)
        accelerator = accelerate.Accelerator(gradient_accumulation_steps=2)
        net = Net()
        net, optimizer, loader = accelerator.prepare(
            net, torch.optim.AdamW(net.parameters(), lr=1e-2),
            torch.utils.data.DataLoader(pairs_of_numbers(), batch_size=4))
        graphs = reprise.capture_layers(accelerator.unwrap_model(net)) if graphed else None
        torch.manual_seed(5)
        seen = []
        for x, y in loader:
            with accelerator.accumulate(net):
                loss = torch.nn.functional.mse_loss(net(x), y)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            seen.append(loss.item())
        return seen, graphs

    def test_loop(self):
        self.compare(self.train)


class Lightning(Case):
    def train(self, graphed):
        try:
            import pytorch_lightning as lightning
        except ImportError as error:
            self.skipTest(f"no Lightning: {error}")
        seen = []

        class Task(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.net = Net()

            def training_step(self, batch, index):
                x, y = batch
                loss = torch.nn.functional.mse_loss(self.net(x), y)
                seen.append(loss.detach())
                return loss

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.1)

        class Graphs(lightning.Callback):
            def on_fit_start(self, trainer, module):
                self.layers = reprise.capture_layers(module.net)

        torch.manual_seed(2)
        graphs, task = Graphs(), Task()
        trainer = lightning.Trainer(
            max_epochs=1, accelerator="gpu", devices=1, callbacks=[graphs] if graphed else [], logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
            default_root_dir=self.folder)
        torch.manual_seed(5)
        trainer.fit(task, torch.utils.data.DataLoader(pairs_of_numbers(), batch_size=4))
        return [loss.item() for loss in seen], getattr(graphs, "layers", None)

    def test_trainer(self):
        self.compare(self.train)


if __name__ == "__main__":
    unittest.main()
