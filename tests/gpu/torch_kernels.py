"""Attention and products of an 8B Llama's block in PyTorch, for comparison with gpu_kernels: torch_kernels.py [DIVIDE]."""
import sys

import torch
import torch.nn.functional as F

divide = int(sys.argv[1]) if len(sys.argv) > 1 else 1
device = "cuda" if torch.cuda.is_available() else "cpu"
tokens, dim, ffn, heads, groups, width = 4096 // divide, 4096 // divide, 14336 // divide, 32, 8, 128
if divide > 1:
    heads, groups, width = 4, 1, 32


def seconds(call):
    import time

    def wait():
        if device == "cuda":
            torch.cuda.synchronize()

    for _ in range(3):
        call()
    rounds = []
    for _ in range(5):
        wait()
        start = time.perf_counter()
        for _ in range(20):
            call()
        wait()
        rounds.append((time.perf_counter() - start) / 20)
    return sorted(rounds)[2]


def show(name, time, flops):
    print(f"{name:<28} {time * 1e6:12.1f} us {flops / time / 1e12:10.1f} TFLOP/s", flush=True)


print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name() if device == 'cuda' else 'cpu'}")
q = torch.randn(1, heads, tokens, width, device=device, dtype=torch.bfloat16, requires_grad=True)
k, v = (torch.randn(1, groups, tokens, width, device=device, dtype=torch.bfloat16, requires_grad=True) for _ in range(2))
forward = 2 * tokens * tokens * heads * width


def attend():
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


with torch.no_grad():
    show("attention, causal", seconds(attend), forward)
out, grad = attend(), torch.randn_like(q)
show("attention_backward, causal", seconds(lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True)), 2.5 * forward)
for name, inputs, outputs in (("q, o", dim, heads * width), ("k, v", dim, groups * width), ("gate, up", dim, ffn), ("down", ffn, dim)):
    x = torch.randn(tokens, inputs, device=device, dtype=torch.bfloat16)
    w = torch.randn(outputs, inputs, device=device, dtype=torch.bfloat16)
    show(f"product {name}: y", seconds(lambda: x @ w.T), 2 * tokens * inputs * outputs)
