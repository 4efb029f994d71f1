"""Runs the legs of legs.tsv beside each other, as far as they wait for each other and the processors suffice, and
prints a table of them: results, time and processor time.

  usage: bash .ci/run [--record LEG]...    the legs of every change; --record also notes the sums of these legs' inputs
         bash .ci/full [WORD]...           everything, some hours long; or the legs whose names have one of the words

A leg whose inputs have the sum with which it passed last (sums.tsv) is skipped, and counted as skipped. A test that
failed is run again alone, three times, when all legs have ended: if it passes each time it is FLAKY, said in the last
lines, and not a failure. That is never so for sanitizers, equal bits and kills, nor twice for the same test, nor in
.ci/full.
"""
import hashlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

here = pathlib.Path(__file__).resolve().parent
top = here.parent
sys.path.insert(0, str(here))
import flaky  # noqa: E402
import times  # noqa: E402

COUNTS = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped", re.M)
BEFORE = re.compile(r"^\d+ passed, of them (\d+) before$", re.M)
MOST_SECONDS = {"run": 80 * 60, "full": 8 * 3600}  # of a leg, which then has failed
MOST_RED = 40  # lines about failures that are said again at the end, from which a long log is read
MOST_MEMORY_KIB = 12 << 20  # while more is in use, no further leg starts


class Leg:
    def __init__(self, row):
        self.name, self.when, after, slots, inputs, self.command = row.split("\t", 5)
        after = [] if after == "-" else after.split(";")
        self.after = [name.rstrip("?") for name in after]
        self.needs = [name for name in after if not name.endswith("?")]
        self.slots = int(slots)
        self.inputs = [] if inputs == "-" else inputs.split()
        self.slug = re.sub(r"\W+", "-", self.name)
        self.state = "waits"  # then runs, then ended
        self.passed = self.failed = self.skipped = self.before = 0
        self.wall = self.processor = 0.0
        self.log = self.rows = None  # of a leg that has run
        self.sum = self.sum_of_inputs() if self.inputs else ""  # before anything runs

    def sum_of_inputs(self):
        """The checksum of the leg's command and of the files that git knows among its inputs; "" without git."""
        listed = subprocess.run(["git", "ls-files", "-z", "--", *self.inputs], cwd=top, capture_output=True).stdout
        if not listed:
            return ""
        digest = hashlib.sha256(self.command.encode())
        for name in sorted(listed.decode().split("\0")[:-1]):
            path = top / name
            digest.update(name.encode() + b"\0" + (path.read_bytes() if path.is_file() else b""))
        return digest.hexdigest()

    def run(self, logs):
        """Runs the command, with its output in a file and its failed tests in another one."""
        self.log, self.rows = logs / f"{self.slug}.log", logs / f"{self.slug}.failed.tsv"
        self.rows.unlink(missing_ok=True)
        started = time.monotonic()
        with open(self.log, "wb") as out:
            child = subprocess.Popen(["bash", "-c", self.command], cwd=top, stdin=subprocess.DEVNULL, stdout=out,
                                     stderr=subprocess.STDOUT, env={**os.environ, "GANGWAY_FAILED_LIST": str(self.rows)},
                                     start_new_session=True)
            deadline = threading.Timer(MOST_SECONDS[self.when], os.killpg, (child.pid, signal.SIGKILL))
            deadline.start()
            _, status, usage = os.wait4(child.pid, 0)
            deadline.cancel()
            child.returncode = os.waitstatus_to_exitcode(status)
        self.wall, self.processor = time.monotonic() - started, usage.ru_utime + usage.ru_stime
        text = self.log.read_text(errors="replace")
        found = COUNTS.findall(text)
        self.passed, self.failed, self.skipped = map(int, found[-1]) if found else (int(child.returncode == 0), 0, 0)
        self.before = sum(map(int, BEFORE.findall(text)))
        if child.returncode != 0 and self.failed == 0:
            self.failed = 1

    def line(self):
        return (f"{self.name:<44} {self.passed:5d} passed {self.failed:4d} failed {self.skipped:4d} skipped "
                f"{self.wall:6.0f} s, of processors {self.processor:6.0f} s")


def read_legs(when):
    rows = [line for line in (here / "legs.tsv").read_text().splitlines() if line and not line.startswith("#")]
    return [leg for leg in map(Leg, rows) if leg.when == when]


def recorded_sums():
    path = here / "sums.tsv"
    return dict(line.split("\t") for line in path.read_text().splitlines()) if path.exists() else {}


def used_kib():
    memory = dict(re.findall(r"^(\w+): +(\d+)", pathlib.Path("/proc/meminfo").read_text(), re.M))
    return int(memory["MemTotal"]) - int(memory["MemAvailable"])


def say(text):
    print(text, flush=True)


def run_all(legs, logs, capacity):
    """Starts each leg when those that it waits for have ended and its slots are free, in the order of the table."""
    changed = threading.Condition()
    peak, told = 0, time.monotonic()

    def work(leg):
        try:
            leg.run(logs)
        except Exception as error:  # as no memory for a process: the others go on
            say(f"failed: {leg.name}: {error!r}")
            leg.failed = 1
        finally:
            with changed:
                leg.state = "ended"
                changed.notify()

    with changed:
        while any(leg.state != "ended" for leg in legs):
            running = [leg for leg in legs if leg.state == "runs"]
            for leg in legs:
                free = capacity - sum(other.slots for other in running)
                before = [other for other in legs if other.name in leg.after]
                due = all(other.state == "ended" for other in before)
                room = not running or (min(leg.slots, capacity) <= free and used_kib() < MOST_MEMORY_KIB)
                if leg.state == "waits" and any(other.failed and not other.passed for other in before if other.name in leg.needs):
                    leg.state, leg.failed = "ended", 1
                    say(f"failed: {leg.name}: not run, since what it needs failed")
                elif leg.state == "waits" and due and room:
                    leg.state = "runs"
                    running.append(leg)
                    say(f"=== {leg.name}: begins")
                    threading.Thread(target=work, args=(leg,)).start()
            changed.wait(timeout=5)
            peak = max(peak, used_kib())
            for leg in running:
                if leg.state == "ended" and leg.wall:
                    say(f"=== {leg.name}\n{leg.log.read_text(errors='replace')}=== {leg.line()}")
            if time.monotonic() - told > 60:
                told = time.monotonic()
                say("... " + ", ".join(leg.name for leg in legs if leg.state == "runs") + f"; {peak >> 20} GiB at most")
    return peak


def skip_unchanged(legs, record):
    """Skips what has its recorded sum, unless a leg that runs needs what it makes."""
    known = recorded_sums()
    runs = [leg for leg in legs if not leg.sum or leg.name in record or leg.sum != known.get(leg.name)]
    for leg in runs:  # which grows
        runs += [other for other in legs if other.name in leg.needs and other not in runs]
    for leg in legs:
        if leg not in runs:
            leg.state, leg.skipped = "ended", 1
            say(f"skipped: {leg.name}: its inputs are those with which it passed last")


def write_sums(legs, record):
    known = recorded_sums()
    known.update((leg.name, leg.sum) for leg in legs if leg.name in record and leg.passed and not leg.failed and not leg.rows.exists())
    if record:
        (here / "sums.tsv").write_text("".join(f"{name}\t{value}\n" for name, value in sorted(known.items())))


def arguments(words):
    """The words of .ci/full, or the legs to record of .ci/run."""
    if words[:1] == ["--full"]:
        return True, words[1:], []
    if len(words) % 2 or any(option != "--record" for option in words[::2]):
        sys.exit(__doc__)
    return False, [], words[1::2]


def main(words):
    full, wanted, record = arguments(words)
    legs = [leg for leg in read_legs("full" if full else "run") if not wanted or any(word in leg.name for word in wanted)]
    unknown = set(record) - {leg.name for leg in legs}
    if unknown or not legs:
        sys.exit(f"no leg {', '.join(sorted(unknown)) or ' '.join(wanted)}: .ci/legs.tsv has them all")
    logs = top / "build-ci"
    logs.mkdir(exist_ok=True)
    started, began = time.monotonic(), time.time()
    os.environ.pop("GANGWAY_USE_PASSES", None)
    if not full:
        skip_unchanged(legs, record)
        # One run in ten asks every test anew, whatever passed before.
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=top, capture_output=True, text=True).stdout.strip()
        if int(commit or "0", 16) % 10 != 0:
            os.environ["GANGWAY_USE_PASSES"] = "1"
    peak = run_all(legs, logs, 1 if full else 2 * (os.cpu_count() or 1))
    red = [line for leg in legs if leg.failed and leg.log for line in re.findall(r"^failed: .*", leg.log.read_text(errors="replace"), re.M)]
    told = [] if full else flaky.forgive(legs)
    say("\n".join(["=== what ran", *(leg.line() for leg in legs)]))
    say(f"{time.monotonic() - started:.0f} s; {peak >> 20} GiB of memory at most")
    write_sums(legs, record)
    late = times.report(top, legs, began)
    if red:
        say("\n".join(["=== what failed", *red[:MOST_RED], *(["..."] if len(red) > MOST_RED else [])]))
    for line in [*late, *told]:
        say(line)
    before = sum(leg.before for leg in legs)
    passed, failed, skipped = (sum(getattr(leg, field) for leg in legs) for field in ("passed", "failed", "skipped"))
    if before:
        say(f"{passed} passed, of them {before} before")
    say(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 0 if failed == 0 and passed > 0 and not (full and late) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
