# SPDX-License-Identifier: MIT
"""Tests of the parts of bytes.py that need neither Nsight Compute nor a GPU."""
import contextlib
import io
import os
import pathlib
import stat
import sys
import tempfile
import unittest
import unittest.mock

sys.dont_write_bytecode = True  # no __pycache__ in the source tree
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import bytes as counter  # noqa: E402

HEADER = ('"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream",'
          '"Block Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit",'
          '"Metric Value"')


def line(kernel, metric, value, unit="byte"):
    return (f'"{kernel}","42","07_algorithms","127.0.0.1","void k<1, 2>(P<float, ""x"">)","1","7",'
            f'"(128, 1, 1)","(8, 1, 1)","0","9.0","Command line profiler metrics","{metric}",'
            f'"{unit}","{value}"')


def log(*lines):
    return "\n".join(("==PROF== Connected to process 42 (/a/07_algorithms)",
                      '==PROF== Profiling "k" - 0: 0%....50%....100% - 1 pass',
                      "==PROF== Disconnected from process 42", HEADER, *lines)) + "\n"


def kernel(number, read, write, l2):
    return [line(number, *both) for both in zip(counter.METRICS, (read, write, l2))]


def problem(**more):
    return {"batch": 64, "heads": 16, "len": 1024, "head_dim": 64, "type": "fp16", "causal": False,
            "bytes": 3e9, **more}


def row(algorithm, direction, dram):
    return {"algorithm": algorithm, "direction": direction, "problem": problem(), "kernels": 2,
            "formula": 3e9, "dram": dram, "l2": 5e9}


class Csv(unittest.TestCase):
    def test_sums_over_kernels(self):
        text = log(*kernel(0, "1,000", "20", "300"), *kernel(1, "4", "5", "6,000,000"))
        sums, kernels = counter.parse(text)
        self.assertEqual(kernels, 2)
        self.assertEqual(sums, dict(zip(counter.METRICS, (1004, 25, 6000300))))

    def test_other_metrics_and_lines_are_passed_over(self):
        text = log(line(0, "gpu__time_duration.sum", "12.5", "ns"), *kernel(0, "1", "2", "3"),
                   "==WARNING== a word at the end")
        sums, kernels = counter.parse(text)
        self.assertEqual((sum(sums.values()), kernels), (6, 1))

    def test_units(self):
        for unit, factor in (("byte", 1), ("Kbyte", 1e3), ("Mbyte", 1e6), ("Gbyte", 1e9)):
            self.assertAlmostEqual(counter.amount("1,234.5", unit), 1234.5 * factor)
        with self.assertRaisesRegex(counter.Failure, "'sector'"):
            counter.amount("1", "sector")
        for wrong in ("n/a", "", "nan", "inf"):
            with self.assertRaises(counter.Failure):
                counter.amount(wrong, "byte")

    def test_a_missing_or_doubled_metric_is_an_error(self):
        whole = kernel(0, "1", "2", "3")
        with self.assertRaisesRegex(counter.Failure, "left out"):
            counter.parse(log(*whole, *kernel(1, "1", "2", "3")[:2]))
        with self.assertRaisesRegex(counter.Failure, "twice"):
            counter.parse(log(*whole, whole[0]))

    def test_no_kernel_is_an_error_that_says_why(self):
        refused = "==ERROR== ERR_NVGPUCTRPERM - no permission"
        with self.assertRaisesRegex(counter.Failure, "^ERR_NVGPUCTRPERM - no permission$"):
            counter.parse(f"==PROF== Connected\n{refused}\n")
        for text in ("", log(), "==WARNING== No kernels were profiled.\n"):
            with self.assertRaisesRegex(counter.Failure, "profiled no kernel"):
                counter.parse(text)


class Table(unittest.TestCase):
    def test_ratio_and_sums(self):
        text = counter.markdown([row("standard", "forward", 8e9), row("standard", "backward", 12e9),
                                 row("flash2", "forward", 2e9), row("flash2", "backward", 3e9)])
        self.assertIn("| forward | flash2 | 2 | 3.000 | 2.000 | 5.000 | 25.0 % |", text)
        self.assertIn("| both | flash2 | 4 | 6.000 | 5.000 | 10.000 | 25.0 % |", text)
        self.assertIn("| both | standard | 4 | 6.000 | 20.000 | 10.000 | 100.0 % |", text)
        table = [line for line in text.splitlines() if line.startswith("|")]
        self.assertEqual({line.count("|") for line in table}, {8})

    def test_without_standard_there_is_no_ratio(self):
        text = counter.markdown([row("flash1", "forward", 2e9)])
        self.assertIn("| forward | flash1 | 2 | 3.000 | 2.000 | 5.000 |  |", text)
        self.assertNotIn("both", text)


class Programs(unittest.TestCase):
    """Two scripts stand for ncu and for 07_algorithms."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def script(self, name, body):
        path = self.folder / name
        path.write_text(f"#!{sys.executable}\nimport pathlib, sys\n{body}\n", encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    def main(self, ncu, program, *words):
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            code = counter.main(["--ncu", str(ncu), "--program", str(program), *words])
        return code, out.getvalue()

    def fake_ncu(self):
        text = log(*kernel(0, "1,000,000,000", "2", "3"))
        return self.script("ncu", f"log = sys.argv[sys.argv.index('--log-file') + 1]\n"
                           f"pathlib.Path(log).write_text({text!r})\n"
                           "print('==PROF== a word')\n"
                           "print('[{\"batch\": 1, \"heads\": 2, \"len\": 16, \"head_dim\": 64, "
                           "\"type\": \"fp16\", \"causal\": false, \"bytes\": 7}]')")

    def test_everything_but_the_gpu(self):
        program = self.script("07", "assert '--seqlen' in sys.argv, sys.argv")
        target = self.folder / "table.md"
        code, text = self.main(self.fake_ncu(), program, "--markdown", str(target), "--",
                               "--seqlen", "16")
        self.assertEqual(code, 0)
        self.assertIn("| both | flash2 | 2 | 0.000 | 2.000 |", text)
        self.assertEqual(target.read_text(encoding="utf-8"), text)

    def test_the_newest_program_is_taken_and_named(self):
        for age, build in ((2, "a"), (1, "b"), (3, "c")):
            (self.folder / "build" / build / "examples").mkdir(parents=True)
            program = self.script(f"build/{build}/examples/07_algorithms", "")
            os.utime(program, (1e9 - age, 1e9 - age))
        newest = self.folder / "build" / "b" / "examples" / "07_algorithms"
        said = io.StringIO()
        with unittest.mock.patch.object(counter, "ROOT", self.folder), \
                contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
            counter.main(["--ncu", str(self.fake_ncu())])
        self.assertIn(f"the program is {newest}\n", said.getvalue())

    def test_a_program_of_this_folder_is_not_looked_for_on_path(self):
        self.script("07", "")
        here = os.getcwd()
        self.addCleanup(os.chdir, here)
        os.chdir(self.folder)
        self.assertEqual(counter.find_program(pathlib.Path("./07")), self.folder.resolve() / "07")

    def test_what_is_missing_is_said_in_one_sentence(self):
        program = self.script("07", "raise SystemExit(77)")
        ncu = self.fake_ncu()
        wrong = self.script("wrong", "print('07: no such thing.', file=sys.stderr)\n"
                            "raise SystemExit(64)")
        plain = self.folder / "plain"
        plain.touch()
        none = self.folder / "none"
        for pair, why in (((none, program), f"there is no program {none}$"),
                          ((ncu, none), f"there is no file {none}$"),
                          ((ncu, plain), f"^{plain.resolve()}: permission denied$"),
                          ((ncu, program), "needs a CUDA GPU"),
                          ((ncu, wrong), "^07: no such thing.$")):
            with self.subTest(why), self.assertRaisesRegex(SystemExit, why) as said:
                self.main(*pair)
            self.assertNotIn("\n", str(said.exception))

    def test_without_ncu_or_a_program_it_says_what_to_give(self):
        with unittest.mock.patch.object(counter.shutil, "which", lambda _: None), \
                self.assertRaisesRegex(counter.Failure, "there is no ncu here"):
            counter.find_ncu(None)
        with unittest.mock.patch.object(counter, "ROOT", self.folder), \
                self.assertRaisesRegex(counter.Failure, "build the examples, or see --program"):
            counter.find_program(None)

    def usage(self, *words):
        said = io.StringIO()
        with contextlib.redirect_stderr(said), self.assertRaises(SystemExit) as end:
            counter.main(words)
        self.assertEqual(end.exception.code, 2)
        return said.getvalue().splitlines()[-1]

    def test_options_of_the_program_go_behind_two_dashes(self):
        for words in (("--seqlen", "16"), ("--paper",), ("--type", "fp32", "--", "--heads", "2")):
            with self.subTest(words):
                self.assertRegex(self.usage(*words), f"unrecognized arguments: {words[0]}; "
                                 "options of 07_algorithms go behind --$")

    def test_only_one_problem_is_taken(self):
        for words in (("--sweep",), ("--seqlen", "16,32"), ("--seqlen", "16", "--seqlen", "32")):
            with self.subTest(words):
                self.assertRegex(self.usage("--", *words), "only one problem is measured: no "
                                 "--sweep, and one length behind --seqlen$")

    def test_one_length_or_a_word_too_few_is_left_to_the_program(self):
        for shape in ([], ["--paper"], ["--seqlen", "16"], ["--causal", "--seqlen"]):
            self.assertFalse(counter.several_problems(shape))

    def test_a_profiler_that_fails_ends_it(self):
        ncu = self.script("ncu", "print('==ERROR== it broke')\nraise SystemExit(1)")
        with self.assertRaisesRegex(SystemExit, "standard forward failed under ncu: it broke"):
            self.main(ncu, self.script("07", ""))
        ncu = self.script("ncu", "print('==ERROR== The application returned an error code (1).')\n"
                          "print('flash1 forward: left out', file=sys.stderr)\n"
                          "raise SystemExit(1)")
        with self.assertRaisesRegex(SystemExit, "failed under ncu: flash1 forward: left out$"):
            self.main(ncu, self.script("07", ""))


if __name__ == "__main__":
    unittest.main()
