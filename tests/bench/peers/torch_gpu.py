"""The models of train/gpu.cpp in PyTorch on GPUs: torch_gpu.py SOCKET RANK SIZE FOLDER NAME=VALUE...

Compiled, with PyTorch's fused attention and fused AdamW. Parameters and moments are f32 and products bf16 (autocast; with SIZE
over 1: FSDP2's mixed precision, over NCCL); with bf16_moments=1 all are bf16. The protocol is torch_train.py's.
"""
import contextlib
import sys

import torch

import torch_train as shapes


class GpuTraining:
    def __init__(self, rank, size, given):
        for name in ("dim", "layers", "heads", "kv_heads", "ffn", "vocab", "sequence", "batch"):
            setattr(shapes, name.upper(), int(given[name]))
        self.device = torch.device(given["device"], rank if given["device"] == "cuda" else None)
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        all_bf16 = given.get("bf16_moments") == "1"
        torch.manual_seed(1)
        with self.device:
            self.model = shapes.Llama()
        if all_bf16:
            self.model.to(torch.bfloat16)
            self.model.cos, self.model.sin = self.model.cos.bfloat16(), self.model.sin.bfloat16()
        self.autocast = contextlib.nullcontext()
        if size > 1:
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

            policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
            options = {"mesh": init_device_mesh(self.device.type, (size,)), "mp_policy": policy}
            for block in self.model.blocks:
                fully_shard(block, **options)
            fully_shard(self.model, **options)
        elif not all_bf16:
            self.autocast = torch.autocast(self.device.type, torch.bfloat16)
        self.optimizer = shapes.adamw(self.model.parameters())
        self.forward = torch.compile(self.model)
        tokens, labels = (t.to(self.device) for t in shapes.batch_of(shapes.BATCH, rank))
        count = int(given["microbatches"])
        self.microbatches = list(zip(tokens.chunk(count), labels.chunk(count), strict=True))

    def step(self):
        total = 0
        for tokens, labels in self.microbatches:
            with self.autocast:
                loss = self.forward(tokens, labels) / len(self.microbatches)
            loss.backward()
            total += loss.detach()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return total.item()

    def memory(self):
        return torch.cuda.max_memory_allocated(self.device) if self.device.type == "cuda" else 0


def main():
    path, rank, size, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    given = dict(word.split("=") for word in sys.argv[5:])
    if given["device"] == "cuda" and not torch.cuda.is_available():
        sys.exit("PyTorch finds no GPU here")
    if size > 1:
        torch.distributed.init_process_group("nccl", init_method=f"file://{folder}/torch-gpu-{given['dim']}", rank=rank,
                                             world_size=size)
    shapes.serve(path, rank, "compiled, fused AdamW", lambda: GpuTraining(rank, size, given))
    if size > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
