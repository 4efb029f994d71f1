"""Compares the processor time of legs and of programs with what times.tsv allows.

times.tsv has rows "NAME<tab>SECONDS" of a run on a machine that took the "calibration" row's seconds for the work of
calibration(); other machines' times are scaled by theirs. What exceeds its row by half is said in the last lines of a
run, and fails .ci/full. .ci/run leaves build-ci/times.tsv, to be copied where a change is meant.
"""
import pathlib
import resource
import subprocess

DEAREST = 10
FLOOR = 5.0  # seconds; cheaper programs have no row
PROGRAM = """
#include <algorithm>
#include <map>
#include <string>
#include <vector>
std::map<std::string, std::vector<int>> f(const std::vector<std::string>& v) {
  std::map<std::string, std::vector<int>> m;
  for (const auto& s : v) m[s].push_back(static_cast<int>(s.size()));
  for (auto& [k, w] : m) std::sort(w.begin(), w.end());
  return m;
}
"""


def calibration():
    """The least processor time, of three, that this machine's compiler takes for a small file."""
    least = 0.0
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(["g++", "-std=c++20", "-O2", "-x", "c++", "-c", "-o", "/dev/null", "-"], input=PROGRAM, text=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        least = min(least or spent, spent)
    return least


def rows_of(path):
    return {name: float(seconds) for name, seconds in
            (line.split("\t") for line in path.read_text().splitlines() if line and line[0] != "#")} if path.exists() else {}


def print_dearest(what, seconds):
    rows = sorted(seconds.items(), key=lambda row: -row[1])[:DEAREST]
    if rows:
        print(f"=== the dearest {what}")
        for name, spent in rows:
            print(f"{spent:7.1f} s  {name}")


def compiled(log):
    """Seconds of each object in ninja's log, in which it may have waited for a processor."""
    rows = (line.split("\t") for line in log.read_text().splitlines()[1:])
    return {row[3]: (int(row[1]) - int(row[0])) / 1000 for row in rows if row[3].endswith((".o", ".gch"))}


def report(top, legs, began):
    """Prints the dearest programs and files of what ran since then; returns a line for each leg or program that exceeds
    its row by half. What is wrong with a log of times is said, and no more."""
    try:
        return compared(top, legs, began)
    except (OSError, ValueError, IndexError, subprocess.CalledProcessError) as error:
        print(f"times could not be compared: {error!r}")
        return []


def compared(top, legs, began):
    ran = [leg for leg in legs if leg.processor > 0]
    programs = {}
    for path in (path for path in sorted(top.glob("build-*/program_times.tsv")) if path.stat().st_mtime >= began):
        build = path.parent.name.removeprefix("build-")
        programs.update({name if build == "test" else f"{build}: {name}": spent for name, spent in rows_of(path).items()})
    print_dearest("programs, in processor time", programs)
    for log in (log for log in sorted(top.glob("build-*/.ninja_log")) if log.stat().st_mtime >= began):
        print_dearest(f"files of {log.parent.name}", compiled(log))
    now = {"calibration": calibration(), **{leg.name if leg.when == "run" else f"full: {leg.name}": leg.processor for leg in ran},
           **{name: spent for name, spent in programs.items() if spent >= FLOOR}}
    (top / "build-ci" / "times.tsv").write_text("".join(f"{name}\t{spent:.1f}\n" if name != "calibration" else
                                                        f"{name}\t{spent:.3f}\n" for name, spent in now.items()))
    allowed = rows_of(pathlib.Path(__file__).with_name("times.tsv"))
    scale = now["calibration"] / allowed.get("calibration", now["calibration"])
    return [f"LATE: {name} took {spent:.0f} s of processors, {spent / scale:.0f} on the machine of .ci/times.tsv, which has {allowed[name]:.0f}"
            for name, spent in now.items() if name != "calibration" and name in allowed and spent / scale > 1.5 * max(allowed[name], FLOOR)]
