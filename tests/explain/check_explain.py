#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What `reprise explain` prints: explanations, what is near, its use.

usage: check_explain.py REPRISE
"""

import json
import subprocess
import sys

# What people paste, or ask about, and the entry for it.
PASTED = {
    "CUDA error: invalid argument": "CUDA_ERROR_INVALID_VALUE",
    "invalid argument": "CUDA_ERROR_INVALID_VALUE",
    "torch.AcceleratorError: CUDA error: invalid argument\nSearch for `cudaErrorInvalidValue' in "
    "https://docs.nvidia.com": "CUDA_ERROR_INVALID_VALUE",
    "CUDA error: operation not supported": "CUDA_ERROR_NOT_SUPPORTED",
    "operation not supported": "CUDA_ERROR_NOT_SUPPORTED",
    "operation not supported on global/shared address space": "CUDA_ERROR_INVALID_ADDRESS_SPACE",
    "operation not permitted": "CUDA_ERROR_NOT_PERMITTED",
    "operation not permitted when stream is capturing": "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
    "illegal memory access": "CUDA_ERROR_ILLEGAL_ADDRESS",
    "Illegal Memory Access": "CUDA_ERROR_ILLEGAL_ADDRESS",
    "RuntimeError: Error: accessing tensor output of CUDAGraphs that has been overwritten by a "
    "subsequent run. Stack trace: File \"a.py\", line 7": "compiled-output-overwritten",
    "skipping cudagraphs due to mutated inputs (1 instances). Found from : \n  File \"a.py\"":
        "compiled-mutates-inputs",
    "skipping cudagraphs due to cpu device (arg0_1)": "compiled-region-on-cpu",
    "skipping cudagraphs due to multiple devices: cuda:0, cuda:1": "compiled-region-on-cpu",
    "skipping cudagraphs due to disabling cudagraphs due to incompatible op aten.nonzero.default":
        "compiled-without-graphs",
    "The CUDA Graph is empty. This usually means that the graph was attempted to be captured on "
    "wrong device or stream.": "empty-graph",
    "CUBLAS_STATUS_NOT_INITIALIZED": "CUBLAS_STATUS_NOT_INITIALIZED",
    "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`":
        "CUBLAS_STATUS_NOT_INITIALIZED",
    "CUDNN_STATUS_NOT_INITIALIZED": "CUBLAS_STATUS_NOT_INITIALIZED",
    "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(..)`":
        "CUBLAS_STATUS_EXECUTION_FAILED",
    "RNG op during graph capture": "random-generator",
    "cudnn.benchmark": "autotuning",
    "torch.backends.cudnn.benchmark = True": "autotuning",
    "nccl": "collectives",
    "why does NCCL hang?": "collectives",
    "dropout": "wrong-result-random",
    "nn.Dropout(0.1)": "wrong-result-random",
    "error 918": "CUDA_ERROR_GRAPH_RECAPTURE_FAILURE",
    "x" * 9000 + " CUDA error: invalid argument": "CUDA_ERROR_INVALID_VALUE",
}
# What is not the driver's, or may be of several entries.
UNKNOWN = ("[Errno 22] Invalid argument", "during CUDA graph capture", "everything is fine",
           "dropouts", "ncclx", "an argument")


def explain(*words):
    done = subprocess.run([sys.argv[1], "explain", *words], capture_output=True, text=True,
                          check=False)
    return done.returncode, done.stdout, done.stderr


def check_found():
    code, out, err = explain("901")
    assert (code, err) == (0, ""), (code, err)
    assert out.startswith("901 CUDA_ERROR_STREAM_CAPTURE_INVALIDATED: "), out
    assert "reprise.check(fn, *args)" in out, out
    assert max(map(len, out.splitlines()[1:])) <= 78, out
    assert explain("CUDA", "error:", "operation not permitted when stream is capturing")[1] \
        == explain("900")[1]
    code, out, err = explain("RuntimeError: RNG op during graph capture but could not find the "
                             "CUDAGraph object. This should not happen.")
    assert code == 0 and out.startswith("random-in-unknown-capture: "), out
    assert "begin the capture with reprise.graphed" in " ".join(out.split()), out
    code, out, err = explain("Generator", "not", "registered", "with", "the", "capturing", "graph.")
    assert code == 0 and out.startswith("random-generator: ") and "generators=[g]" in out, out
    code, out, err = explain("901", "904")
    assert code == 0 and out.index("\n904 ") > out.index("901 "), out


def check_pasted():
    for text, key in PASTED.items():
        code, out, err = explain(text)
        first = out.split(":")[0].split()[-1] if out else err
        assert (code, first) == (0, key), (text, first)
    for text in UNKNOWN:
        assert explain(text)[0] == 1, text


def near(*query):
    code, out, err = explain(*query)
    assert (code, out) == (1, ""), (code, out)
    first, *entries = err.splitlines()
    assert first.startswith("reprise explain: nothing is known of "), err
    assert ("nearest are:" in first) == bool(entries), err
    data = answers(*query, exit_code=1)
    names = [line.split()[1 if line[3].isdigit() else 0] for line in entries]
    assert data[0]["explanation"] is None and data[0]["near"] == names, (data, names)
    return names


def check_near():
    assert near("item") == ["aten::item"]
    assert len(near("memory")) == 8  # of many
    for typed, meant in (("CUDA_ERROR_ILEGAL_ADDRESS", "CUDA_ERROR_ILLEGAL_ADDRESS"),
                         ("host raed", "host-read"), ("cuStreamSynchronise", "cuStreamSynchronize"),
                         ("what is a stale output", "wrong-result-stale-output"),
                         ("STREAM_CAPTURE_MERGED", "CUDA_ERROR_STREAM_CAPTURE_MERGE")):
        names = near(typed)
        assert names[0] == meant, (typed, names)
    # names that people ask by, which no key or title has
    for typed, meant in (("cudnn", "autotuning"), ("cudnn benchmrk", "autotuning"),
                         ("dropuot", "wrong-result-random"), ("ncclAllReduce", "collectives"),
                         ("ncl", "collectives")):
        names = near(typed)
        assert names[:1] == [meant], (typed, names)
    for nothing in ("frobnicate", "a b", "x" * 100, "x" * 5000, "\u00e4\u00f6"):
        assert near(nothing) == []


def answers(*words, exit_code=0):
    code, out, err = explain("--json", *words)
    assert (code, err) == (exit_code, ""), (code, err)
    data = json.loads(out)
    assert data["format"] == "reprise-explain/1", data
    return data["answers"]


def check_json():
    (answer,) = answers("CUDA", "error:", "invalid argument")
    assert answer["query"] == "CUDA error: invalid argument", answer
    found = answer["explanation"]
    assert (found["key"], found["code"]) == ("CUDA_ERROR_INVALID_VALUE", 1), found
    assert found["title"] and found["meaning"] and found["causes"] and found["mends"], found
    text = " ".join(explain("1")[1].split())
    for sentence in [found["title"], found["meaning"], *found["causes"], *found["mends"]]:
        assert sentence in text, sentence
    assert [a["explanation"]["code"] for a in answers("901", "904")] == [901, 904]
    assert answers('a "quote\\', exit_code=1)[0]["query"] == 'a "quote\\'
    code, out, _ = explain("--json", "--list")
    known = json.loads(out)["known"]
    listed = [line[6:].split()[0] for line in explain("--list")[1].splitlines()]
    assert code == 0 and [e["key"] for e in known] == listed, (code, listed)
    assert explain("901", "--json") == explain("--json", "901")
    assert explain("--list", "--json") == explain("--json", "--list")
    assert explain("--json")[0] == 2 and explain("--json", "--nonsense")[0] == 2


def check_use():
    assert explain()[0] == 2
    assert explain("--nonsense")[0] == 2
    code, out, err = explain("--help")
    assert (code, err) == (0, "") and out.startswith("usage: reprise explain"), out
    for line in out.splitlines():  # each example is known
        if line.startswith("    reprise explain "):
            words = line.split()[2:]
            assert explain(*(word.strip("'") for word in words))[0] == 0, line


def main():
    check_found()
    check_pasted()
    check_near()
    check_json()
    check_use()
    print("explain: codes, messages and names are explained, and what is near is listed")


if __name__ == "__main__":
    main()
