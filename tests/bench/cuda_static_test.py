"""What cuda_static.py reads from a kernel's files, and that each of its figures is red when it gets worse.
usage: cuda_static_test.py"""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
NAME = "_Z11mini_kernelIfEvPf"  # mini_kernel<float>(float*)


def ptxas(registers=32, spills=0):
    return (f"ptxas info    : Compiling entry function '{NAME}' for 'sm_90a'\nptxas info    : Function properties for {NAME}\n"
            f"    {spills} bytes stack frame, {spills} bytes spill stores, {spills} bytes spill loads\n"
            f"ptxas info    : Used {registers} registers, used 1 barriers\n")


def ptx(divisions=0, wide=True):
    access = "ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];" if wide else "ld.global.f32 %f1, [%rd1];"
    return f".visible .entry {NAME}(\n)\n{{\n\t{access}\n" + "\tdiv.s64 %rd2, %rd3, %rd4;\n" * divisions + "\tret;\n}\n"


def code(*texts):
    lines = (f"        /*{16 * i:04x}*/    {text} ;    /* 0x0 */\n        /* 0x0 */\n" for i, text in enumerate(texts))
    return f"\t\tFunction : {NAME}\n" + "".join(lines) + "\t\t..........\n"


def copies(loads=2, bits=".128", waits=False):
    texts = []
    for i in range(loads):
        texts += [f"LDG.E{bits} R{4 * i + 8}, desc[UR4][R2.64]"] + [f"FADD R40, R40, R{4 * i + 8}"] * waits
    return code(*texts, *(f"STG.E{bits} desc[UR4][R4.64], R{4 * i + 8}" for i in range(loads)), "EXIT")


# A loop over tiles: masking of the rare tiles is jumped over, and an inner loop has a part of the products.
TILES = ["S2R R0, SR_TID.X", "HMMA.16816.F32 R4, R8, R12, R4", "IADD3 R1, R1, 0x1, RZ", "@P0 BRA 0x10", "HMMA.16816.F32 R4, R8, R12, R4",
         "@!P1 BRA 0x80", "FSEL R4, R4, R5, P2", "FSEL R6, R6, R5, P2", "MUFU.EX2 R4, R4", "@P3 BRA 0x10", "EXIT"]


def tiles(more=0):
    return code(*TILES[:8], *["FMUL R4, R4, R5"] * more, *TILES[8:])


class Gate(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.record = self.folder / "record.json"

    def run_on(self, *words, said=None, source=None, instructions=None):
        files = {"mini.o.txt": said or ptxas(), "mini.ptx": source or ptx(), "mini.sass": instructions or copies()}
        for name, text in files.items():
            (self.folder / name).write_text(text)
        command = [sys.executable, HERE / "cuda_static.py", "--record", self.record, *words, *(self.folder / name for name in files)]
        return subprocess.run(command, capture_output=True, text=True)

    def recorded(self, **files):
        done = self.run_on("--write", **files)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(self.record.read_text())["mini mini_kernel"]

    def expect_red(self, words, before=None, **now):
        self.recorded(**before or {})
        self.assertEqual(self.run_on(**before or {}).returncode, 0)
        done = self.run_on(**now)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn(words, done.stdout)

    def test_more_registers_leave_room_for_fewer_threads(self):
        self.assertEqual(self.recorded()["fewest"], 2048)
        self.expect_red("768 resident threads of the instance that has fewest, 2048 before", said=ptxas(registers=80))
        self.assertIn("768 resident threads to 1 kernels, 2048 to 1 before", self.run_on(said=ptxas(registers=80)).stdout)

    def test_spills(self):
        self.expect_red("1 instances that spill, 0 before", said=ptxas(spills=8))

    def test_64_bit_divisions(self):
        self.expect_red("3 64-bit divisions, 2 before", before={"source": ptx(divisions=2)}, source=ptx(divisions=3))

    def test_instances_without_128_bit_accesses(self):
        self.expect_red("0 instances with 128-bit accesses to 1 kernels, 1 to 1 before", source=ptx(wide=False))

    def test_a_smaller_share_of_128_bit_accesses(self):
        wide, narrow = copies(), copies().replace("STG.E.128", "STG.E.64", 1)
        self.expect_red("3 accesses of 128 bits to 4 accesses, 4 to 4 before", before={"instructions": wide}, instructions=narrow)

    def test_fewer_loads_in_flight(self):
        self.assertEqual(self.recorded(instructions=copies(4))["in_flight"], 64)
        self.expect_red("16 bytes in flight to 1 kernels, 64 to 1 before", before={"instructions": copies(4)},
                        instructions=copies(4, waits=True))

    def test_more_instructions_for_each_product_of_tensor_cores(self):
        # 2 products, and as few instructions as a pass can have: the inner loop once, and no masking.
        self.assertEqual(self.recorded(instructions=tiles())["hmma"], {"float": [3.5, 2048]})
        self.expect_red("mini_kernel<float>: 4.0 instructions a product, 3.5 before", before={"instructions": tiles()},
                        instructions=tiles(more=1))

    def test_an_instance_that_leaves_the_tensor_cores(self):
        self.expect_red("mini_kernel<float>: no instance with products of tensor cores, 3.5 instructions each before",
                        before={"instructions": tiles()}, instructions=tiles().replace("HMMA.16816.F32", "FFMA"))

    def test_a_kernel_that_is_not_in_the_record(self):
        self.record.write_text("{}\n")
        done = self.run_on()
        self.assertEqual(done.returncode, 1)
        self.assertIn("mini mini_kernel: not in the record, which --write changes", done.stdout)

    def test_instructions_that_are_missing(self):
        self.recorded()
        done = subprocess.run([sys.executable, HERE / "cuda_static.py", "--record", self.record, self.folder / "mini.o.txt",
                               self.folder / "mini.ptx"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("PTX or instructions are missing of: mini", done.stderr)

    def test_better_figures_are_green(self):
        self.recorded(said=ptxas(registers=80, spills=8), source=ptx(divisions=1), instructions=copies(2, waits=True))
        self.assertEqual(self.run_on().returncode, 0)

    def test_copies_into_shared_memory_are_in_flight_until_they_are_waited_for(self):
        start = ["LDGSTS.E.BYPASS.128 [R25], desc[UR10][R12.64], !P4"] * 3
        self.assertEqual(self.recorded(instructions=code(*start, "LDGDEPBAR", *start, "LDGDEPBAR", "DEPBAR.LE SB0, 0x1", *start,
                                                         "EXIT"))["in_flight"], 96)


if __name__ == "__main__":
    unittest.main()
