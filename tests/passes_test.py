#!/usr/bin/env python3
"""What passes.py takes for the same test, and what failed.py says of a failed one, tried on very small programs."""
import os
import pathlib
import subprocess
import tempfile
import unittest
import unittest.mock

import failed
import inputs
import passes
import results

LIBRARY = "int answer(void) { return 42; }\n"
PROGRAM = 'int answer(void);\nconst char* data = "@source@/tests/data";\nint main(void) { return answer() != 42; }\n'


class Clone:
    """Sources and a build of a program that is linked with a library and opens a folder of data."""

    compiled = {}  # the bytes of each text

    def __init__(self, folder, library=LIBRARY, program=PROGRAM, fresh=False):
        self.source, self.build = folder, folder / "build"
        if fresh:
            self.compiled.clear()
        for name in ("tests/data", "tests/tools", "build/capi", "build/tests/unit", "build/impl/tools"):
            (folder / name).mkdir(parents=True)
        self.write("tests/data/row.json", "[1]")
        self.write("tests/tools/run_test.sh", 'exec "$1"\n')
        self.write("build/CMakeCache.txt", f"CMAKE_HOME_DIRECTORY:INTERNAL={folder}\nGANGWAY_SANITIZE:STRING=\n")
        self.compile(library, "build/capi/libgangway.so", "-shared")
        self.compile(program, "build/tests/unit/one_test", "-Lbuild/capi", "-lgangway", "-Wl,-rpath,$ORIGIN/../../capi")
        self.compile("int main(void) { return 0; }\n", "build/impl/tools/gangrun")

    def write(self, name, text):
        (self.source / name).write_text(text)

    def compile(self, text, output, *options):
        if text in self.compiled:
            (self.source / output).write_bytes(self.compiled[text])
            (self.source / output).chmod(0o755)
            return
        self.write("code.c", text)
        command = ["cc", "-g", "-fPIC", f"-ffile-prefix-map={self.source}=.", f"{self.source}/code.c", "-o", output]
        subprocess.run([*command, *options], cwd=self.source, check=True)
        self.compiled[text] = (self.source / output).read_bytes()

    def key(self, name="one_test", command=("{build}/tests/unit/one_test",), **properties):
        words = [word.format(build=self.build, source=self.source) for word in command]
        rows = [{"name": k.upper(), "value": v} for k, v in properties.items()]
        return passes.key_of(inputs.Inputs(self.build), {"name": name, "command": words, "properties": rows})


class Passes(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())).resolve()
        self.enterContext(unittest.mock.patch.object(passes, "STORE", self.folder / "store"))
        self.enterContext(unittest.mock.patch.dict(os.environ, GANGWAY_FAILED_LIST=str(self.folder / "failed.tsv")))

    def clone(self, name, **options):
        return Clone(self.folder / name, **options)

    def test_a_clone_in_a_folder_of_another_length_has_the_same_key(self):
        self.assertEqual(self.clone("one", fresh=True).key(), self.clone("another/place", fresh=True).key())

    def test_a_comment_changes_no_key_but_code_does(self):
        key = self.clone("one").key()
        self.assertEqual(self.clone("two", program="/* Moved\n * down. */\n" + PROGRAM).key(), key)
        self.assertNotEqual(self.clone("three", program=PROGRAM.replace("!= 42", "!= 43")).key(), key)

    def test_a_library_that_the_program_is_linked_with_counts(self):
        other = self.clone("two", library=LIBRARY.replace("42", "43"))
        self.assertNotEqual(self.clone("one").key(), other.key())

    def test_data_that_the_program_names_count(self):
        clone = self.clone("one")
        key = clone.key()
        clone.write("tests/data/row.json", "[2]")
        self.assertNotEqual(clone.key(), key)

    def test_the_id_of_a_build_does_not_count(self):
        keys = set()
        for name, build in (("one", "0123456789abcdef"), ("two", "fedcba9876543210")):
            clone = self.clone(name, program=PROGRAM + f'const char* library_build(void) {{ return "{build}"; }}\n')
            (clone.build / "impl/base").mkdir()
            clone.write("build/impl/base/library_build.cpp", f'return "{build}";')
            keys.add(clone.key())
        self.assertEqual(len(keys), 1)

    def test_variables_filters_and_helpers_of_a_script_count(self):
        clone = self.clone("one")
        script = ("bash", "{source}/tests/tools/run_test.sh", "{build}/impl/tools/gangrun")
        keys = [clone.key(), clone.key(environment=["GTEST_FILTER=One.*"]), clone.key(command=script)]
        clone.write("tests/tools/helper.sh", "true\n")
        keys.append(clone.key(command=script))
        self.assertEqual(len(set(keys)), len(keys))
        self.assertEqual(clone.key(environment=["GTEST_OUTPUT=xml:x"]), clone.key(environment=[]))

    def test_what_kills_has_no_key(self):
        clone = self.clone("one")
        for key in (clone.key("save_kill_test"), clone.key("hosts_storm_test"), clone.key(labels=["kills"])):
            self.assertEqual(key, "-")

    def test_a_sanitizer_has_no_key(self):
        clone = self.clone("one")
        cache = clone.build / "CMakeCache.txt"
        cache.write_text(cache.read_text().replace("SANITIZE:STRING=", "SANITIZE:STRING=thread"))
        self.assertEqual(clone.key(), "-")

    def test_a_stored_pass_comes_back_and_the_oldest_are_forgotten(self):
        pass_ = results.Result(passed=3, skipped=1, lines=["skipped: One.Two: no GPU"])
        for number in range(4):
            passes.put(f"key{number}", pass_)
            os.utime(passes.STORE / f"key{number}", (number, number))
        with unittest.mock.patch.object(passes, "MOST", 2):
            passes.forget_the_oldest()
        self.assertEqual([passes.stored(f"key{number}") for number in range(4)], [None, None, pass_, pass_])

    def test_a_run_is_stored_told_and_counted_as_ctest_left_it(self):
        clone = Clone(self.folder / "a")
        rows = "".join(f'add_test({name} "{program}")\n' for name, program in
                       (("one_test", clone.build / "tests/unit/one_test"), ("two_test", "/bin/false")))
        clone.write("build/CTestTestfile.cmake", rows)
        here = pathlib.Path(__file__).parent
        environment = {**os.environ, "GANGWAY_PASSES": str(passes.STORE)}

        def said(*words):
            return subprocess.run(words, env=environment, capture_output=True, text=True).stdout

        self.assertEqual(said("python3", here / "passes.py", "select", clone.build).split(), ["one_test", "two_test"])
        said("ctest", "--test-dir", clone.build)
        said("python3", here / "passes.py", "store", clone.build)
        said("python3", here / "failed.py", "ctest", clone.build)
        self.assertEqual(said("python3", here / "count_results.py", clone.build).split(), ["1", "1", "0", "0"])
        self.assertIn("two_test\t", (self.folder / "failed.tsv").read_text())
        self.assertEqual(said("python3", here / "passes.py", "select", clone.build).split(), ["two_test"])

    def test_failed_cases_run_again_alone(self):
        rows = [{"name": "ENVIRONMENT", "value": ["A=1", "GTEST_FILTER=-X"]}]
        test = {"name": "one_test", "command": ["/b/one_test"], "properties": rows}
        words = failed.again(pathlib.Path("/b"), test, ["One.Two/0", "One.Three"])
        self.assertEqual(words[-4:], ["GTEST_FILTER=One.Two/0:One.Three", "timeout", "1500", "/b/one_test"])
        self.assertIn("A=1", words)
        self.assertIn("^one_test$", failed.again(pathlib.Path("/b"), test, []))

    def test_a_failure_of_bits_or_kills_is_never_forgiven(self):
        for name in ("Step.ThreadsDoNotChangeBits", "HostKill.KillsAtRandomPoints", "mixed", "kill_storm_test"):
            self.assertTrue(failed.STRICT.search(name), name)
        for name in ("Step.TrainsTwoBlocks", "Gang.ArbitrarySizes", "python"):
            self.assertFalse(failed.STRICT.search(name), name)


if __name__ == "__main__":
    unittest.main()
