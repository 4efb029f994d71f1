"""A rank of PyTorch's Gloo for hosts.py: all-reduces. Argument: socket path. "sum KIB REPEATS" -> seconds and processor
seconds a call. The environment describes the gang as torchrun does."""
import os
import socket
import sys
import time

import torch
import torch.distributed as dist


def measure(kib, repeats):
    x = torch.rand(kib * 256)
    dist.all_reduce(x)
    dist.barrier()
    start, cpu = time.monotonic(), time.process_time()
    for _ in range(repeats):
        dist.all_reduce(x)
    return (time.monotonic() - start) / repeats, (time.process_time() - cpu) / repeats


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    driver = socket.socket(socket.AF_UNIX)
    driver.connect(sys.argv[1])
    driver.sendall(f"hello {dist.get_rank()} {os.getpid()} PyTorch {torch.__version__}\n".encode())
    for line in driver.makefile("r"):
        if line.startswith("quit"):
            break
        _, kib, repeats = line.split()
        wall, cpu = measure(int(kib), int(repeats))
        driver.sendall(f"{wall:.9f} {cpu:.9f}\n".encode())
    dist.destroy_process_group()


main()
