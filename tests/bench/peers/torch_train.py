"""The reference model in plain PyTorch, eager f32: torch_train.py SOCKET RANK SIZE FOLDER [NAME=VALUE...].

Speaks the protocol of common/rank.h: "setup", "step N" -> seconds a step, 0, loss, processor time; "profile" -> seconds of one step and
of its matrix products. With SIZE over 1: over Gloo, FSDP2 (fully_shard), or the mesh that the last arguments describe
(torch_parallel.py). With family=qwen3 they describe a model of that family instead: norms of q and k, and head_dim.
"""
import os
import socket
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DIM, LAYERS, HEADS, KV_HEADS, FFN, VOCAB, SEQUENCE, BATCH = 512, 8, 8, 4, 1408, 8192, 256, 4
HEAD_DIM, QK_NORM = 0, False  # 0: DIM / HEADS
PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::linear", "aten::matmul")


def head_dim():
    return HEAD_DIM or DIM // HEADS


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        width = HEADS * head_dim()
        self.q, self.o = nn.Linear(DIM, width, bias=False), nn.Linear(width, DIM, bias=False)
        self.k, self.v = (nn.Linear(DIM, KV_HEADS * head_dim(), bias=False) for _ in range(2))
        self.q_norm, self.k_norm = (nn.RMSNorm(head_dim(), eps=1e-6) if QK_NORM else nn.Identity() for _ in range(2))

    def forward(self, h, cos, sin):
        batch, length, _ = h.shape
        q, k, v = (p(h).view(batch, length, -1, head_dim()) for p in (self.q, self.k, self.v))
        q, k, v = (t.transpose(1, 2) for t in (self.q_norm(q), self.k_norm(k), v))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, dim=1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up = nn.Linear(DIM, FFN, bias=False), nn.Linear(DIM, FFN, bias=False)
        self.down = nn.Linear(FFN, DIM, bias=False)

    def forward(self, h):
        return self.down(F.silu(self.gate(h)) * self.up(h))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(DIM, eps=1e-5), nn.RMSNorm(DIM, eps=1e-5)
        self.attention, self.mlp = Attention(), Mlp()

    def forward(self, x, cos, sin):
        x = x + self.attention(self.norm1(x), cos, sin)
        return x + self.mlp(self.norm2(x))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(DIM, eps=1e-5)
        self.head = nn.Linear(DIM, VOCAB, bias=False)
        width = head_dim()
        angles = torch.outer(torch.arange(SEQUENCE), 10000.0 ** (-torch.arange(0, width, 2) / width))
        self.cos, self.sin = angles.cos(), angles.sin()
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, labels):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return F.cross_entropy(self.head(self.norm(x)).view(-1, VOCAB), labels.view(-1))


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.1, fused=True)


def batch_of(rows, seed):
    tokens = torch.randint(VOCAB, (rows, SEQUENCE), generator=torch.Generator().manual_seed(seed))
    return tokens, torch.roll(tokens, -1, dims=1)


class Training:
    """One rank, or FSDP2 over all."""

    def __init__(self, rank, size):
        torch.manual_seed(1)
        self.model = Llama()
        if size > 1:
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import fully_shard

            mesh = init_device_mesh("cpu", (size,))
            for block in self.model.blocks:
                fully_shard(block, mesh=mesh)
            fully_shard(self.model, mesh=mesh)
        self.optimizer = adamw(self.model.parameters())
        self.tokens, self.labels = batch_of(BATCH, rank)

    def step(self):
        loss = self.model(self.tokens, self.labels)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()


def training_of(rank, size, folder, mesh):
    if size > 1:
        torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/torch-{'-'.join(mesh)}", rank=rank,
                                             world_size=size)
    words = dict(word.split("=") for word in mesh)
    if words.get("family") == "qwen3":
        globals().update(QK_NORM=True, HEAD_DIM=int(words["head_dim"]), FFN=int(words["ffn"]))
    if not mesh or "family" in words:
        return Training(rank, size)
    import torch_parallel

    return torch_parallel.ParallelTraining(rank, size, words)


def main():
    path, rank, size, folder, mesh = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5:]
    torch.set_num_threads(1)
    blas = "MKL" if torch.backends.mkl.is_available() else "OpenBLAS or none"
    serve(path, rank, f"{blas}, eager f32, fused AdamW", lambda: training_of(rank, size, folder, mesh))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def serve(path, rank, words, make):
    """Does what the driver asks for until it says quit; make() gives the training."""
    driver = socket.socket(socket.AF_UNIX)
    driver.connect(path)
    lines = driver.makefile("r")

    def say(text):
        driver.sendall((str(text).replace("\n", " ")[:3000] + "\n").encode())

    say(f"hello {rank} {os.getpid()} PyTorch {torch.__version__}, {words}")
    training = None
    for line in lines:
        words = line.split()
        try:
            if words[0] == "quit":
                break
            if words[0] == "setup":
                training = make()
                say("ready")
            elif words[0] == "step":
                start, cpu = time.monotonic(), time.process_time()
                for _ in range(int(words[1])):
                    loss = training.step()
                count = int(words[1])
                say(f"{(time.monotonic() - start) / count} 0 {loss} {(time.process_time() - cpu) / count}")
            elif words[0] == "memory":
                say(training.memory())
            elif words[0] == "profile":
                with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
                    start = time.monotonic()
                    training.step()
                    seconds = time.monotonic() - start
                products = sum(e.self_cpu_time_total for e in profile.key_averages() if e.key in PRODUCTS)
                say(f"{seconds} {products * 1e-6}")
            else:
                say("error: " + line)
        except Exception as error:  # the driver prints it
            say(f"error: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
