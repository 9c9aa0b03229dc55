# SPDX-License-Identifier: MIT
"""Hugging Face Trainer: a callback makes the layers graphs; the loop stays the Trainer's.

Run:      python examples/torch/hf_trainer.py
Expected: Trainer: 8 steps with 4 layers as graphs gave eager's losses to the bit
"""

import sys
import tempfile

import torch

import reprise

try:
    import accelerate  # noqa: F401  (the Trainer needs it)
    import transformers
except ImportError as error:
    print(f"skipped: transformers and accelerate are not both installed ({error})")
    sys.exit(77)

STEPS, LAYERS, VOCAB, LENGTH = 8, 4, 256, 32


class Graphs(transformers.TrainerCallback):
    def on_train_begin(self, args, state, control, model=None, **more):
        self.layers = reprise.capture_layers(model)


def rows():
    torch.manual_seed(4)
    ids = torch.randint(VOCAB, (64, LENGTH))
    return [{"input_ids": row, "labels": row} for row in ids]


def train(callbacks, folder):
    """The losses that the Trainer logged."""
    torch.manual_seed(1)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=VOCAB, n_positions=LENGTH, n_embd=64, n_layer=LAYERS, n_head=4, attn_implementation="eager",
        use_cache=False))
    trainer = transformers.Trainer(
        model=model, train_dataset=rows(), callbacks=callbacks,
        args=transformers.TrainingArguments(
            output_dir=folder, max_steps=STEPS, per_device_train_batch_size=4, logging_steps=1, report_to=[],
            save_strategy="no", disable_tqdm=True, seed=3))
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def main():
    graphs = Graphs()
    with tempfile.TemporaryDirectory() as folder:
        wanted = train([], folder)
        losses = train([graphs], folder)
    print(reprise.report())
    ways = [layer["way"] for layer in graphs.layers.layers()]
    if losses != wanted or len(losses) != STEPS or ways != ["graph"] * LAYERS:
        sys.exit(f"not as expected: layers {ways}, losses {losses}, eager's {wanted}")
    print(f"Trainer: {STEPS} steps with {LAYERS} layers as graphs gave eager's losses to the bit")


if __name__ == "__main__":
    main()
