#!/usr/bin/env python3
"""Gangs over several hosts beside PyTorch's Gloo and Open MPI. The hosts are network namespaces of this machine (root).

  usage: tests/bench/hosts/hosts.py BUILD [--torch PYTHON] [--mbit 1000] [--rounds 5] [--only all_reduce|train]

BUILD was configured with GANGWAY_BENCH=ON. PYTHON has torch (tests/bench/peers/install.sh train FOLDER makes one); Open MPI is
measured where mpirun and mpicc are. --mbit limits what each host sends, with tc. All sides live at the same time and are asked
in turn, round by round. A row is printed when it is measured: the median of the rounds of the slowest rank's time, and of the
processor time, the mean of the ranks; a ratio is the median of the rounds' own ratios, ours over theirs.
"""
import argparse
import contextlib
import os
import pathlib
import secrets
import shutil
import socket
import statistics
import subprocess
import tempfile

TOP = pathlib.Path(__file__).resolve().parents[3]
HOSTS = str(TOP / "tests/gang/mpi/hosts.sh")
PEERS = TOP / "tests/bench/peers"
LAYOUTS = {"2x1": [1, 2], "2x2": [1, 1, 2, 2]}
SIZES = [(64, 100), (4096, 10), (65536, 2)]  # KiB, calls a round
PATIENCE_S = 300


class Side:
    """The ranks of one side. They connect to a socket of the driver, and wait there for its commands."""

    def __init__(self, name, size, starts):
        """starts(path): starts the ranks, and returns their processes."""
        self.name, self.folder = name, tempfile.mkdtemp(prefix="gangway-hosts-")
        path = self.folder + "/socket"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(size)
            listener.settimeout(1)
            self.processes = starts(path)
            self.ranks = []
            while len(self.ranks) < size:
                with contextlib.suppress(TimeoutError):
                    rank = listener.accept()[0]
                    rank.settimeout(PATIENCE_S)
                    self.ranks.append((rank, rank.makefile("r")))
                if any(process.poll() is not None for process in self.processes):
                    raise SystemExit(f"a rank of {name} ended before it was asked")
        for _, lines in self.ranks:
            lines.readline()

    def ask(self, command):
        """Returns the numbers that each rank answers."""
        for rank, _ in self.ranks:
            rank.sendall((command + "\n").encode())
        replies = [lines.readline() for _, lines in self.ranks]
        lost = [reply for reply in replies if not reply or reply.startswith("error")]
        if lost:
            raise SystemExit(f"{self.name} was lost in \"{command}\": {lost}")
        return [[float(word) for word in reply.split()] for reply in replies if reply[0].isdigit()]

    def stop(self):
        for rank, _ in self.ranks:
            with contextlib.suppress(OSError):
                rank.sendall(b"quit\n")
                rank.close()
        for process in self.processes:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Namespaces:
    """The hosts, while this lives."""

    def __init__(self, mbit):
        self.prefix = f"gwb{os.getpid()}h"
        subprocess.run(["bash", HOSTS, "up", "2", self.prefix], check=True)
        if mbit:
            for host in (1, 2):
                subprocess.run(["tc", "-n", f"{self.prefix}{host}", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate",
                                f"{mbit}mbit", "burst", "256kb", "latency", "50ms"], check=True)
        self.port = 29700
        self.secret = tempfile.NamedTemporaryFile()
        self.secret.write(secrets.token_bytes(32))
        self.secret.flush()

    def close(self):
        subprocess.run(["bash", HOSTS, "down", self.prefix], check=False)

    def each(self, hosts, command, more=lambda rank: []):
        """Starts a command on the host of each rank; returns what Side takes."""
        self.port += 1
        port = self.port

        def starts(path):
            processes = []
            for rank, host in enumerate(hosts):
                variables = {"RANK": rank, "WORLD_SIZE": len(hosts), "MASTER_ADDR": "10.77.0.1", "MASTER_PORT": port,
                             "GANGWAY_SECRET_FILE": self.secret.name, "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": 1,
                             "GANGWAY_NUM_THREADS": 1}
                environment = dict(os.environ, **{name: str(value) for name, value in variables.items()})
                words = ["ip", "netns", "exec", f"{self.prefix}{host}", *command, path, *more(rank)]
                processes.append(subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL))
            return processes

        return starts

    def mpirun(self, hosts, program):
        def starts(path):
            where = ",".join(f"{self.prefix}{host}:{hosts.count(host)}" for host in sorted(set(hosts)))
            words = ["ip", "netns", "exec", f"{self.prefix}1", "unshare", "--uts", "bash", "-c",
                     f"hostname {self.prefix}1; exec mpirun --allow-run-as-root --mca plm_rsh_agent 'bash {HOSTS} agent' "
                     f"--mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 -np {len(hosts)} --host {where} "
                     f"{program} {path}"]
            return [subprocess.Popen(words, stdout=subprocess.DEVNULL)]

        return starts


def mpi_program(folder):
    """The rank of an MPI, or None where there is none."""
    if not shutil.which("mpicc") or not shutil.which("mpirun"):
        return None
    program = folder + "/mpi_sum"
    subprocess.run(["mpicc", "-O2", str(PEERS / "mpi_sum.c"), "-o", program], check=True)
    return program


def median(values):
    return statistics.median(values)


def compare(sides, command, rounds):
    """Asks all sides in turn. Returns for each the wall and processor times of its rounds."""
    times = {side.name: ([], []) for side in sides}
    for _ in range(rounds):
        for side in sides:
            replies = side.ask(command)
            times[side.name][0].append(max(reply[0] for reply in replies))
            times[side.name][1].append(statistics.mean(reply[-1] for reply in replies))
    return times


def row(title, times):
    ours = times["gangway"]
    text = f"{title:18}"
    for name, (wall, cpu) in times.items():
        text += f"  {name} {1e3 * median(wall):9.2f} {1e3 * median(cpu):9.2f}"
        if name != "gangway":
            text += f" ({median(a / b for a, b in zip(ours[0], wall)):.2f} {median(a / b for a, b in zip(ours[1], cpu)):.2f})"
    print(text, flush=True)


def sums(hosts, layout, build, python, mpi, rounds):
    ranks = LAYOUTS[layout]
    sides = [Side("gangway", len(ranks), hosts.each(ranks, [build + "/tests/bench/hosts_rank"]))]
    if python:
        sides.append(Side("Gloo", len(ranks), hosts.each(ranks, [python, str(PEERS / "torch_sum.py")])))
    if mpi:
        sides.append(Side("Open MPI", len(ranks), hosts.mpirun(ranks, mpi)))
    for kib, repeats in SIZES:
        row(f"{layout} {kib} KiB", compare(sides, f"sum {kib} {repeats}", rounds))
    for side in sides:
        side.stop()


def train(hosts, layout, build, python, rounds):
    ranks = LAYOUTS[layout]
    folder = tempfile.mkdtemp(prefix="gangway-hosts-")
    sides = [Side("gangway", len(ranks), hosts.each(ranks, [build + "/tests/bench/train_rank"], lambda rank: ["f32", "-1"]))]
    if python:
        more = lambda rank: [str(rank), str(len(ranks)), folder]
        sides.append(Side("FSDP2", len(ranks), hosts.each(ranks, [python, str(PEERS / "torch_train.py")], more)))
    for side in sides:
        side.ask("setup")
        side.ask("step 1")
    row(f"{layout} S32 step", compare(sides, "step 1", rounds))
    for side in sides:
        side.stop()
    shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--torch", help="a Python that has torch")
    parser.add_argument("--mbit", type=int, default=0, help="of each host's interface; 0: no limit")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=["all_reduce", "train"])
    given = parser.parse_args()
    build = os.path.abspath(given.build)
    folder = tempfile.mkdtemp(prefix="gangway-hosts-")
    mpi = mpi_program(folder)
    for name, is_there in (("Gloo and FSDP2", given.torch), ("Open MPI", mpi)):
        if not is_there:
            print(f"{name} ABSENT: not installed")
    print(f"load {os.getloadavg()[0]:.1f}; each side: ms a call, processor ms of a rank (ours over it, the same two)", flush=True)
    hosts = Namespaces(given.mbit)
    try:
        for layout in LAYOUTS:
            if given.only != "train":
                sums(hosts, layout, build, given.torch, mpi, given.rounds)
        if given.only != "all_reduce":
            train(hosts, "2x2", build, given.torch, given.rounds)
    finally:
        hosts.close()
        shutil.rmtree(folder, ignore_errors=True)


main()
