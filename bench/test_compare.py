# SPDX-License-Identifier: MIT
"""Tests of chart.py, and of the parts of compare.py that need neither PyTorch nor a GPU.
ATTILE_C_LIBRARY, where it is set, is a library of attile_c.cu, forward, D = 64, fp16, Causal, whose
interface is tried."""
import argparse
import contextlib
import ctypes
import dataclasses
import io
import itertools
import json
import os
import pathlib
import re
import sys
import tempfile
import types
import unittest
import unittest.mock
import xml.etree.ElementTree

sys.dont_write_bytecode = True  # no __pycache__ in the source tree
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import chart  # noqa: E402
import compare  # noqa: E402
import compare_build  # noqa: E402
import compare_cached  # noqa: E402
import compare_cached_contenders  # noqa: E402
import compare_cells  # noqa: E402
import compare_contenders  # noqa: E402
import compare_fp8_contenders  # noqa: E402
import compare_policies  # noqa: E402
import compare_report  # noqa: E402
from compare_cells import Cell  # noqa: E402

# bf16, batch * length = 16384, heads * d = 2048: every one of these has to be there.
PUBLISHED = {(d, mask, length) for d in (64, 128, 256) for mask in ("full", "causal")
             for length in (1024, 4096, 16384)}


def counted(length, sees):
    return sum(sees(row, column) for row in range(length) for column in range(length))


def counted_between(rows, columns, sees):
    return sum(sees(row, column) for row in range(rows) for column in range(columns))


def small(mask, length, window=0, **more):
    return Cell("test", 1, 1, 1, length, 4, 4, "fp32", mask, window, **more)


def ok(tflops, **more):
    return {**compare_report.summarise([1.0, 1.1, 0.9], tflops * 1e9), **more}


def run_of(gpu="Some GPU"):
    return {"gpu": gpu, "driver": "1.2", "versions": {"PyTorch": "2", "cuDNN": 91900},
            "date": "2026-01-02", "rounds": 3, "round_ms": 70, "command": "compare.py --quick"}


def results_of(*contenders, group="peers"):
    """A row for each {name: result}, all of one run."""
    cells = compare_cells.select([group])
    return {"runs": [run_of()], "compile": [],
            "cells": [{"cell": cell.name, "group": group, "direction": direction, "run": 0,
                       "contenders": found}
                      for direction in compare_cells.DIRECTIONS
                      for cell, found in zip(cells, contenders)]}


class Cells(unittest.TestCase):
    def test_flops_of_every_mask_against_counting(self):
        for length in (1, 2, 6, 16):
            everything = counted(length, lambda i, j: True)
            self.assertEqual(small("full", length).visible_scores(), everything)
            self.assertEqual(small("causal", length).visible_scores(), everything // 2)
            for window in (1, 2, 5, 16, 40):
                self.assertEqual(small("window", length, window).visible_scores(),
                                 counted(length, lambda i, j: j <= i and i - j < window))

    def test_flops_count_query_heads_both_dims_and_backward(self):
        cell = Cell("test", 3, 8, 2, 16, 6, 4, "bf16", "full")
        self.assertEqual(cell.flops("forward"), 2 * 3 * 8 * 16 * 16 * (6 + 4))
        self.assertEqual(cell.flops("backward"), 2.5 * cell.flops("forward"))

    def test_the_published_grid_is_covered(self):
        cells = compare_cells.select(["peers"])
        self.assertEqual({(c.d, c.mask, c.length) for c in cells}, PUBLISHED)
        for cell in cells:
            self.assertEqual((cell.dtype, cell.dv, cell.kv_heads),
                             ("bf16", cell.d, cell.q_heads))
            self.assertEqual((cell.batch * cell.length, cell.q_heads * cell.d), (16384, 2048))

    def test_the_other_groups(self):
        def shapes(group, *fields):
            return [tuple(getattr(c, f) for f in fields) for c in compare_cells.select([group])]

        self.assertEqual(shapes("grid", "batch", "q_heads", "d", "dtype", "mask", "length"),
                         [(4, 48, 64, "fp16", "causal", 1024 << i) for i in range(5)])
        self.assertLessEqual({(96, 96), (192, 192), (192, 128)}, set(shapes("shapes", "d", "dv")))
        self.assertIn((512,), shapes("shapes", "length"))
        self.assertTrue(all(q == 8 * kv for q, kv in shapes("gqa", "q_heads", "kv_heads")))
        self.assertEqual(shapes("window", "window", "length"), [(1024, 16384)])
        sinks = compare_cells.select(["sink"])
        earlier = sinks.pop()
        self.assertEqual([c.policy for c in sinks], ["", "sink"] * (len(sinks) // 2))
        self.assertEqual([dataclasses.replace(c, policy="") for c in sinks[1::2]], sinks[::2])
        self.assertEqual((earlier.policy, earlier.directions), ("earlier", ("forward",)))
        self.assertIn(dataclasses.replace(earlier, policy=""), sinks)
        self.assertEqual(set(shapes("fp32", "d", "length", "dtype")),
                         {(d, s, "fp32") for d in (64, 128) for s in (1024, 4096)})

    def test_flops_of_documents_against_counting(self):
        for length in (699, 701, 1450):
            for policy, rows in (("documents_one", length), ("documents_700", 700),
                                 ("documents_700_packed", 700)):
                full, causal = (small(mask, length, policy=policy) for mask in ("full", "causal"))
                ids = [n for n, rows_ in enumerate(full.document_lengths()) for _ in range(rows_)]
                self.assertEqual(ids, [i // rows for i in range(length)])
                self.assertEqual(full.visible_scores(),
                                 counted(length, lambda i, j: ids[i] == ids[j]))
                self.assertEqual(causal.visible_scores(),
                                 counted(length, lambda i, j: ids[i] == ids[j] and j <= i))

    def test_flops_of_other_policies_are_those_of_the_mask(self):
        for policy in compare_cells.POLICIES:
            if not policy.startswith(("documents", "blocks")):
                for mask in ("full", "causal"):
                    self.assertEqual(small(mask, 16, policy=policy).visible_scores(),
                                     small(mask, 16).visible_scores())

    def test_rows_of_blocks_list_the_diagonal_and_as_many_blocks(self):
        for policy, length, count in (("blocks_50", 8192, 32), ("blocks_10", 32768, 26)):
            cell = small("full", length, policy=policy)
            listed = cell.listed_blocks()
            self.assertEqual(listed, cell.listed_blocks())
            self.assertEqual(len(listed), length // 128)
            for row, columns in enumerate(listed):
                self.assertIn(row, columns)
                self.assertEqual(columns, sorted(set(columns)))
                self.assertEqual(len(columns), count)
            self.assertGreater(len({tuple(columns) for columns in listed}), length // 128 - 2)
            self.assertEqual(cell.visible_scores(), length * count * 128)

    def test_key_lengths_go_from_half_to_all(self):
        for batch in (1, 2, 4, 64):
            cell = Cell("test", batch, 1, 1, 1024, 4, 4, "fp16", "full", policy="key_padding")
            lengths = cell.key_lengths()
            self.assertEqual((len(lengths), lengths), (batch, sorted(lengths)))
            self.assertTrue(512 <= lengths[0] and lengths[-1] <= 1024)
            if batch > 1:
                self.assertEqual((lengths[0], lengths[-1]), (512, 1024))

    def test_every_policy_has_its_plain_cell(self):
        def shape(cell):
            return dataclasses.replace(cell, policy="")

        cells = compare_cells.select(["policies"])
        plain = [cell for cell in cells if not cell.policy]
        self.assertEqual(
            {(c.batch, c.q_heads, c.length, c.d, c.mask, c.flex) for c in plain},
            {(*shape_, mask, flex) for mask in ("full", "causal")
             for *shape_, flex in ((64, 12, 1024, 64, True), (4, 16, 4096, 128, True),
                                   (4, 32, 4096, 64, False), (16, 16, 1024, 128, False))}
            | {(batch, 2048 // d, length, d, "full", True) for d in (64, 128)
               for batch, length in ((2, 8192), (1, 32768))})
        for first in plain:
            found = [cell.policy for cell in cells if shape(cell) == first]
            if first.length > 4096:
                self.assertEqual(found, ["", {8192: "blocks_50"}.get(first.length, "blocks_10")])
                continue
            left_out = (*(compare_cells.CAUSAL_POLICIES if first.mask == "full" else ()),
                        *compare_cells.OWN_CELLS)
            self.assertEqual(found, [p for p in compare_cells.POLICIES if p not in left_out])

    def test_packed_sequences_count_their_own_scores(self):
        lengths = (1, 5, 0, 16)
        for mask in ("full", "causal"):
            packed = Cell("test", 4, 6, 2, 16, 3, 5, "fp16", mask, lengths=lengths)
            alone = [Cell("test", 1, 6, 2, length, 3, 5, "fp16", mask) for length in lengths]
            for direction in compare_cells.DIRECTIONS:
                self.assertEqual(packed.flops(direction), sum(c.flops(direction) for c in alone))
        self.assertEqual(packed.rows, 22)
        self.assertEqual(packed.kernel("forward").policy, "packed")
        self.assertEqual(packed.length_text, "4 x 0 to 16, packed")

    def test_policies_are_measured_beside_the_plain_kernel(self):
        for group in ("policies", "sink"):
            for cell in compare_cells.select([group]):
                plain = cell.policy not in ("", *compare_cells.BLOCK_PERCENT)
                self.assertEqual("plain" in cell.modes("forward", False), plain)
                if plain:
                    self.assertEqual(cell.as_beside("plain").policy, "")
                    self.assertIn(cell.as_beside("plain").kernel("forward"),
                                  cell.kernels("forward"))

    def test_equal_packed_sequences_are_measured_beside_a_dense_tensor(self):
        cells = compare_cells.select(["varlen"])
        packed = [cell for cell in cells if cell.lengths]
        self.assertEqual([(c.batch, c.length) for c in cells if not c.lengths], [(8192, 64)])
        for cell in packed:
            self.assertEqual((len(cell.lengths), max(cell.lengths)), (cell.batch, cell.length))
            equal = min(cell.lengths) == cell.length
            self.assertEqual("dense" in cell.modes("backward", True), equal)
            policies = {kernel.policy for kernel in cell.kernels("backward")}
            own = {"packed_bias", "packed"} if cell.policy else {"packed"}
            self.assertEqual(policies, own | ({"bias" if cell.policy else ""} if equal else set()))
            dense = cell.as_beside("dense")
            self.assertEqual(dense.flops("forward") == cell.flops("forward"), equal)
        equal = [cell for cell in packed if "dense" in cell.beside and cell.bound == 1]
        self.assertEqual({(cell.batch, cell.length) for cell in equal},
                         {(16, 1024), (4, 4096), (1, 16384), (512, 128), (8192, 34)})
        mixed, = (cell for cell in packed if cell not in equal and cell.bound == 1
                  and cell.q_heads == cell.kv_heads and not cell.policy)
        self.assertEqual(mixed.batch, 34)
        self.assertTrue(128 <= min(mixed.lengths) and mixed.length <= 8192)
        self.assertNotEqual(list(mixed.lengths), sorted(mixed.lengths))

    def test_bounds_that_are_too_large_stand_beside_the_right_ones(self):
        packed = [cell for cell in compare_cells.select(["varlen"]) if cell.lengths]
        loose = [cell for cell in packed if cell.bound > 1]
        self.assertEqual({(cell.q_heads, cell.kv_heads) for cell in loose},
                         {(16, 16), (14, 2), (16, 2)})
        for cell in loose:
            self.assertEqual(cell.longest, 4 * max(cell.lengths))
            self.assertIn(f"bound {cell.longest}", cell.name)
            exact = dataclasses.replace(cell, bound=1)
            self.assertIn(exact, packed)
            for direction in compare_cells.DIRECTIONS:
                self.assertEqual(cell.flops(direction), exact.flops(direction))
                self.assertEqual(cell.kernel(direction), exact.kernel(direction))

    def test_names_are_unique_and_selectable(self):
        names = [(c.group, c.name) for c in compare_cells.all_cells()]
        self.assertEqual(len(names), len(set(names)))
        picked = compare_cells.select(["peers"], pattern="*D 128 causal*S 4k")
        self.assertEqual([c.name for c in picked], ["bf16 D 128 causal, S 4k"])
        quick = compare_cells.select(compare_cells.GROUPS, quick=True)
        self.assertEqual([c.group for c in quick],
                         [g for g in compare_cells.GROUPS if g != "compile"])

    def test_backward_needs_both_kernels(self):
        cell = small("causal", 16)
        self.assertEqual([k.direction for k in cell.kernels("backward")], ["forward", "backward"])
        self.assertEqual([k.direction for k in cell.kernels("forward")], ["forward"])


class CachedCells(unittest.TestCase):
    """Cells whose keys lie in a cache."""

    GROUPS = ("decode", "paged", "prefill", "mixed")

    def cells(self, *groups):
        return compare_cells.select(groups or self.GROUPS)

    def test_groups_have_what_they_are_for(self):
        self.assertTrue(all(isinstance(cell, compare_cells.CachedCell) for cell in self.cells()))
        decode = self.cells("decode")
        shapes = {(c.batch, c.q_heads, c.kv_heads, c.longest) for c in decode if c.rows == 1}
        self.assertLessEqual({(1, 32, 8, 65536), (16, 32, 8, 8192), (64, 64, 8, 8192),
                              (128, 32, 32, 2048), (1, 32, 4, 1024)}, shapes)
        self.assertEqual([c.batch for c in decode if c.q_heads == 40],
                         list(range(10, 51, 5)))
        for heads in (32, 64):
            rows = {(c.rows, c.tree) for c in decode
                    if (c.batch, c.q_heads, c.longest, c.dtype) == (16, heads, 8192, "bf16")}
            self.assertEqual(len([c for c in decode if c.kv_type and "wide" in c.variants]), 2)
            self.assertEqual(rows, {(1, False), (2, False), (4, False), (8, False), (8, True)})
        self.assertEqual({c.page for c in self.cells("paged")}, {0, 1, 16, 64, 256})
        self.assertEqual({(c.batch, c.page) for c in self.cells("prefill")},
                         {(batch, page) for batch in (1, 4) for page in (0, 16, 64, 256)})
        mixed, = self.cells("mixed")
        self.assertEqual(mixed.packed, (1,) * 32 + (512,) * 2)
        for cell in self.cells():
            self.assertEqual((len(cell.keys), len(cell.query_lengths)), (cell.batch,) * 2)
            self.assertTrue(all(keys >= rows
                                for keys, rows in zip(cell.keys, cell.query_lengths)))

    def test_bytes_and_flops_are_those_of_the_keys_that_rows_see(self):
        cell = compare_cells.CachedCell("decode", 3, 8, 2, (100, 7, 9), rows=4)
        self.assertEqual(cell.kv_bytes, 2 * (100 + 7 + 9) * 2 * 128 * 2)
        seen = sum(counted_between(4, keys, lambda i, j, keys=keys: j <= i + keys - 4)
                   for keys in cell.keys)
        self.assertEqual(cell.flops("forward"), 2 * 8 * seen * (128 + 128))
        fp8 = dataclasses.replace(cell, kv_type="e4m3")
        self.assertEqual(fp8.kv_bytes, cell.kv_bytes // 2)
        packed = compare_cells.CachedCell("mixed", 2, 8, 2, (50, 60), packed=(1, 5))
        self.assertEqual(packed.flops("forward"),
                         2 * 8 * (50 + 60 * 5 - 10) * (128 + 128))

    def test_small_caches_are_copied_unless_the_cell_says_that_it_is_warm(self):
        for cell in self.cells():
            warm = cell.chained
            self.assertEqual(warm, "warm" in cell.name)
            if not warm:
                self.assertGreaterEqual(cell.copies * cell.kv_bytes, compare_cached.ROTATED_BYTES)
            self.assertEqual(cell.calls % cell.copies, 0)
            self.assertGreaterEqual(cell.calls, 200 if warm else 10)

    def test_contenders_and_kernels(self):
        for cell in self.cells():
            self.assertEqual(next(iter(cell.modes())), compare_cells.OURS)
            self.assertLessEqual(set(cell.variants), set(compare_cells.VARIANTS))
            for name in cell.modes():
                parts = cell.parts(name)
                # Every sequence is computed once.
                self.assertEqual([i for _, first, last in parts for i in range(first, last)],
                                 list(range(cell.batch)))
                for variant, _, _ in parts:
                    self.assertTrue(variant.decode or variant.splits == 0)
                    self.assertTrue(variant.keys != "dense" or cell.is_equal)
                    self.assertIn(cell.kernel(variant), cell.kernels())
                    self.assertIn(cell.kernel(variant).policy, compare_build.POLICIES)
        kernels = {kernel for cell in self.cells() for kernel in cell.kernels()}
        self.assertEqual(len({kernel.name for kernel in kernels}), len(kernels))
        decode, = {kernel for kernel in kernels if kernel.name == "decode bf16 D 128 full, cached"}
        self.assertEqual(compare_build.kernel_macros(decode)[-1], "-DATTILE_DECODE")
        fp8, = {kernel for kernel in kernels if kernel.inputs}
        self.assertEqual(fp8, dataclasses.replace(decode, inputs=("bf16", "e4m3", "e4m3")))
        self.assertLessEqual({"-DATTILE_Q_TYPE=__nv_bfloat16", "-DATTILE_K_TYPE=__nv_fp8_e4m3",
                              "-DATTILE_V_TYPE=__nv_fp8_e4m3"},
                             set(compare_build.kernel_macros(fp8)))
        self.assertEqual(compare_cached_contenders.PEERS.keys() - compare_cells.PEERS.keys(),
                         set())

    def test_a_table_has_rates_of_bytes_and_microseconds(self):
        cells = self.cells("decode")
        cell = cells[0]
        timed = compare_report.summarise([0.1, 0.1, 0.1], cell.flops("forward"), cell.kv_bytes)
        row = {"cell": cell.name, "group": "decode", "direction": "forward", "run": 0,
               "shape": dataclasses.asdict(cell), "kv_bytes": cell.kv_bytes,
               "contenders": {"attile": timed, "unsplit": timed, "cudnn": timed,
                              "fa2": {"status": "refused", "why": "it has none"}}}
        text = compare_report.markdown({"runs": [run_of()], "compile": [], "cells": [row]})
        self.assertIn("**decode, forward** (GB/s of K and V, microseconds)", text)
        entry = f"{cell.kv_bytes / 1e5:.0f} (100)"
        self.assertIn(f"| {cell.name} | {entry} | {entry} | {entry} | refused | 1.00 (cuDNN) | 0 %",
                      text)
        self.assertIn("| cell | attile | attile, no splits | cuDNN |", text)
        self.assertIn("FlashAttention-2 refused: it has none", text)
        xml.etree.ElementTree.fromstring(
            compare_report.svg({"runs": [run_of()], "compile": [], "cells": [row]}))

    def test_what_time_falls_by_from_a_batch_to_a_larger_one(self):
        cells = [c for c in self.cells("decode") if c.q_heads == 40]

        def lines(*times):
            return compare_report.batch_steps([
                {"cell": c.name, "group": c.group, "run": 0, "shape": dataclasses.asdict(c),
                 "kv_bytes": c.kv_bytes,
                 "contenders": {"attile": compare_report.summarise([ms], 1, c.kv_bytes)}}
                for c, ms in zip(cells, times)])

        self.assertIn("its time never falls", lines(1, 2, 3, 4)[0])
        self.assertIn("its time falls by 20.0 % from batch 15 to 25", lines(1, 2, 1.8, 1.6)[0])
        self.assertEqual(lines(1, 2, 3), [])

    def test_they_have_no_backward_pass(self):
        options = compare.parse_arguments(["--groups", "decode", "--direction", "backward"])
        with self.assertRaisesRegex(compare_report.Unusable, "^the chosen cells have no backward"):
            compare.select(options)


class Fp8Cells(unittest.TestCase):
    """Cells with Q and K in fp8."""

    def test_the_group_has_what_it_is_for(self):
        cells = compare_cells.select(["fp8"])
        self.assertEqual({(c.d, c.mask, c.length) for c in cells if c.is_all_fp8},
                         {shape for shape in PUBLISHED if shape[2] > 1024})
        for cell in cells:
            self.assertEqual(cell.directions, ("forward",))
            if cell.is_all_fp8:
                self.assertEqual((cell.batch * cell.length, cell.q_heads * cell.d), (16384, 2048))
                plain = Cell(*(getattr(cell, field.name) for field in dataclasses.fields(Cell)))
                self.assertEqual(cell.flops("forward"), plain.flops("forward"))
                self.assertEqual(cell.name, f"e4m3 to {plain.name}")
        mix = [c for c in cells if not c.is_all_fp8]
        self.assertEqual([(c.batch, c.q_heads, c.d, c.mask, c.length, c.scale, c.has_scales)
                          for c in mix], [(4, 48, 64, "causal", 1024 << i, 1.3, False)
                                          for i in range(5)])
        self.assertEqual({(c.inputs, c.dtype) for c in mix},
                         {(("e5m2", "e5m2", "fp16"), "fp16")})

    def test_contenders_and_kernels(self):
        for cell in compare_cells.select(["fp8"]):
            kernels = cell.kernels("forward")
            self.assertEqual(len(kernels), len(set(kernels)))
            self.assertEqual(kernels[0].inputs, cell.inputs)
            self.assertEqual(kernels[-1], cell.kernel("forward"))
            self.assertLessEqual(set(cell.modes()) - {compare_cells.OURS},
                                 set(compare_cells.VARIANTS))
            self.assertEqual("unpromoted" in cell.modes(), cell.is_all_fp8)
            macros = [compare_build.kernel_macros(kernel) for kernel in kernels]
            self.assertEqual([any("kUnpromoted" in m for m in of_kernel) for of_kernel in macros],
                             [name == "unpromoted" for name in cell.modes()])
        self.assertEqual(compare_fp8_contenders.PEERS.keys() - compare_cells.PEERS.keys(), set())

    def test_flash_attention_3_gets_a_scale_for_each_sequence_and_kv_head(self):
        calls = []

        def flash_attn_func(q, k, v, *, return_attn_probs=False, **named):
            calls.append(((q, k, v), named))
            return Strided("o", "brhd"), Strided("lse", "bhr") if return_attn_probs else None

        def run_of(cell):
            inputs = types.SimpleNamespace(
                cell=cell, scale=0.25, causal=True, stored=[Strided(n, "bhrd") for n in "qkv"],
                scales=FakeScales([0.5, 2.0, 4.0]))
            torch = types.SimpleNamespace(full=lambda shape, x, device: (shape, x))
            package = types.SimpleNamespace(flash_attn_func=flash_attn_func)
            with unittest.mock.patch.dict(sys.modules, flash_attn_interface=package, torch=torch):
                run = compare_fp8_contenders.fa3(inputs, "forward")
                return run, run.outputs(run.call())

        class FakeScales(list):
            device = "gpu"

            def __getitem__(self, index):
                return types.SimpleNamespace(item=lambda: list.__getitem__(self, index))

        cell = compare_cells.Fp8Cell("fp8", 3, 8, 2, 64, 64, 64, "bf16", "causal")
        run, found = run_of(cell)
        self.assertEqual({name: t.axes for name, t in found.items()},
                         {"o": "bhrd", "lse": "bhr"})
        tensors, named = calls[-1]
        self.assertEqual([t.name + t.axes for t in tensors], ["qbrhd", "kbrhd", "vbrhd"])
        self.assertEqual(named, {"softmax_scale": 0.25, "causal": True, "q_descale": ((3, 2), 0.5),
                                 "k_descale": ((3, 2), 2.0), "v_descale": ((3, 2), 4.0)})
        self.assertEqual(run.judged_by(types.SimpleNamespace(unpromoted="more")), "more")
        mix = dataclasses.replace(cell, inputs=("e5m2", "e5m2", "fp16"))
        with self.assertRaisesRegex(compare_contenders.Refused, "e4m3"):
            run_of(mix)

    def test_a_table_has_errors_against_what_was_quantised(self):
        cell = compare_cells.select(["fp8"])[0]
        row = {"cell": cell.name, "group": "fp8", "direction": "forward", "run": 0,
               "shape": dataclasses.asdict(cell),
               "contenders": {"attile": ok(800, quantised_error=0.0251),
                              "in_16_bits": ok(600, quantised_error=0.0016)}}
        text = compare_report.markdown({"runs": [run_of()], "compile": [], "cells": [row]})
        self.assertIn("(TFLOP/s, relative error against what was quantised)", text)
        self.assertIn("| 800 (0.025) | 600 (0.0016) |", text)
        self.assertIn("| cell | attile | attile in 16 bits |", text)


class Dropout(unittest.TestCase):
    def test_philox_gives_the_known_answers(self):
        """Of Random123's kat_vectors, philox4x32 with 7 and with 10 rounds."""
        ones, pi = 0xFFFFFFFF, (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
        for rounds, counter, key, answer in (
                (7, (0,) * 4, (0, 0), "5f6fb709 0d893f64 4f121f81 4f730a48"),
                (7, (ones,) * 4, (ones, ones), "5207ddc2 45165e59 4d8ee751 8c52f662"),
                (7, pi, (0xA4093822, 0x299F31D0), "4dfccaba 190a87f0 c47362ba b6b5242a"),
                (10, (0,) * 4, (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8")):
            words = compare_policies.philox4x32(counter, key, rounds)
            self.assertEqual(" ".join(f"{word:08x}" for word in words), answer)
        self.assertEqual(compare_policies.ROUNDS, 7)

    def kept(self, row, column, slice_=5, seed=compare_policies.SEED,
             offset=compare_policies.OFFSET):
        threshold = compare_policies.dropout_threshold(0.1)
        return compare_policies.is_kept(slice_, row, column, threshold, seed, offset)

    def test_the_rounded_probability_is_dropped(self):
        self.assertEqual(compare_policies.dropout_threshold(0.1), 6554)
        self.assertEqual(compare_policies.dropout_threshold(0.0), 0)
        kept = sum(self.kept(row, column) for row in range(128) for column in range(128))
        expected, deviation = 0.9 * 128 ** 2, (0.09 * 128 ** 2) ** 0.5
        self.assertLess(abs(kept - expected), 4 * deviation)

    def test_every_argument_counts(self):
        def decisions(**changed):
            return [self.kept(row, column, **changed) for row in range(16) for column in range(16)]

        seed, offset = compare_policies.SEED, compare_policies.OFFSET
        drawn = [decisions(), decisions(slice_=6), decisions(seed=seed ^ 1),
                 decisions(seed=seed ^ 1 << 32), decisions(offset=offset ^ 1),
                 decisions(offset=offset ^ 2 << 32)]
        self.assertEqual(len({tuple(one) for one in drawn}), len(drawn))

    def test_a_call_serves_eight_scores(self):
        """(r, r + 8) x (c, c + 1, c + 8, c + 9), each with 16 bits of its own."""
        words = compare_policies.philox4x32(
            (2 * 4 + 3, 1 * 8 + 5, 5, compare_policies.OFFSET & 0xFFFFFFFF),
            (compare_policies.SEED & 0xFFFFFFFF,
             compare_policies.SEED >> 32 ^ compare_policies.OFFSET >> 32))
        for row in (0, 1):
            for column in (0, 1):
                word = words[2 * row + column]
                for odd, bits in enumerate((word & 0xFFFF, word >> 16)):
                    at = 5, 16 + 5 + 8 * row, 32 + 6 + 8 * column + odd
                    for threshold in (bits, bits + 1):
                        self.assertEqual(
                            compare_policies.is_kept(*at, threshold, compare_policies.SEED,
                                                     compare_policies.OFFSET), threshold == bits)


class Statistics(unittest.TestCase):
    def test_median_spread_and_rate(self):
        found = compare_report.summarise([4.0, 1.0, 2.0], 6e9)
        self.assertEqual((found["median_ms"], found["min_ms"], found["max_ms"]), (2.0, 1.0, 4.0))
        self.assertAlmostEqual(found["tflops"], 3.0)  # 6e9 in 2 ms

    def test_ratios_and_best_peer_leave_out_what_did_not_run(self):
        row = {"contenders": {"attile": ok(100), "cudnn": ok(200), "fa2": ok(50),
                              "flex": {"status": "wrong", "why": "x", "tflops": 900}}}
        self.assertEqual(compare_report.best_peer(row), "cudnn")
        self.assertEqual(compare_report.ratios(row), {"cudnn": 0.5, "fa2": 2.0})
        self.assertAlmostEqual(compare_report.spread_percent(row), 20.0)

    def test_all_peers_refused(self):
        refused = {"status": "refused", "why": "no"}
        row = {"contenders": {"attile": ok(100), "cudnn": refused, "fa2": refused}}
        self.assertIsNone(compare_report.best_peer(row))
        self.assertEqual(compare_report.ratios(row), {})

    def test_rounding(self):
        self.assertEqual(compare_contenders.rounding(1.0, "bf16"), 2.0 ** -8)
        self.assertEqual(compare_contenders.rounding(1.99, "fp16"), 2.0 ** -11)
        self.assertEqual(compare_contenders.rounding(2.0, "fp32"), 2.0 ** -22)

    def test_sampled_heads_are_inside(self):
        self.assertEqual(compare_contenders.sampled_heads(small("full", 8)), [(0, 0)])
        cell = Cell("test", 4, 16, 2, 8, 4, 4, "bf16", "full")
        self.assertEqual(compare_contenders.sampled_heads(cell), [(0, 0), (2, 0), (3, 1)])


class FakeTensor:
    """A tensor of one number."""

    def __init__(self, value):
        self.value = value

    def fill_(self, value):
        self.value = value


class FakeEvent:
    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        pass

    synchronize = record

    def elapsed_time(self, _):
        return 1.0


class FakeReference:
    """The right output is 1."""

    tolerance = {"o": 0.5}

    def __init__(self, *_):
        pass

    def errors(self, outputs):
        return {name: abs(tensor.value - 1.0) for name, tensor in outputs.items()}

    details = compare_contenders.Reference.details
    wrong = compare_contenders.Reference.wrong


class Measuring(unittest.TestCase):
    """measure() with contenders whose call number n writes write(n), or nothing where that is
    None, to an output that lives as long as they do."""

    def measure(self, **writes):
        def maker(write):
            def make(*_):
                output, calls = FakeTensor(None), itertools.count()

                def call():
                    if (value := write(next(calls))) is not None:
                        output.value = value

                return compare_contenders.Run(call, lambda _: {"o": output})
            return make

        attile = maker(writes.pop("attile"))
        torch = types.SimpleNamespace(
            cuda=types.SimpleNamespace(Event=FakeEvent, synchronize=lambda: None),
            full_like=lambda *_: None)
        contenders = types.SimpleNamespace(
            Inputs=lambda _: types.SimpleNamespace(q=0, k=0, v=0, dout=0), attile=attile,
            Reference=FakeReference, Refused=compare_contenders.Refused,
            PEERS={name: maker(write) for name, write in writes.items()})
        options = types.SimpleNamespace(peers=list(writes), in_order=False, rounds=2,
                                        round_ms=3)
        return compare.measure(torch, contenders, small("full", 8), "forward", options,
                               {})["contenders"]

    def test_who_is_right_first_and_last_has_a_rate(self):
        found = self.measure(attile=lambda n: 1.0, cudnn=lambda n: 1.25)
        for name, error in (("attile", 0.0), ("cudnn", 0.25)):
            self.assertEqual(found[name]["status"], "ok")
            self.assertEqual(len(found[name]["rounds_ms"]), 2)
            self.assertGreater(found[name]["tflops"], 0)
            self.assertEqual([found[name][key] for key in ("errors", "last_errors")],
                             [{"o": error}] * 2)

    def test_who_becomes_wrong_in_the_race_has_no_rate(self):
        found = self.measure(attile=lambda n: 1.0 if n == 0 else None,
                             cudnn=lambda n: 1.0 if n < 5 else 3.0, fa2=lambda n: 1.0)
        self.assertEqual(found["attile"]["status"], "wrong")
        self.assertEqual(found["attile"]["errors"], {"o": "nan"})
        self.assertEqual(found["attile"]["why"], "after the timed rounds: relative error of o nan "
                         "(allowed 0.5)")
        self.assertEqual(found["cudnn"]["why"], "after the timed rounds: relative error of o 2 "
                         "(allowed 0.5)")
        self.assertEqual(found["fa2"]["status"], "ok")
        for name in ("attile", "cudnn"):
            self.assertNotIn("tflops", found[name])
        json.dumps(found, allow_nan=False)

    def test_each_contender_runs_behind_each_other_one_equally_often(self):
        for names, times in (("a", {0}), ("ab", {4}), ("abc", {4}), ("abcd", {4, 8}),
                             ("abcde", {4}), ("abcdef", {4, 8})):
            places = {4: 5, 6: 7}.get(len(names), len(names))
            rounds = 4 * max(places - 1, 1)
            taken = list(itertools.islice(compare.orders(names), rounds + 1))
            for order in taken:
                self.assertEqual(sorted(order), list(names))
            row = "".join("".join(order) for order in taken)[:rounds * len(names) + 1]
            behind = [sum(pair == (a, b) for pair in itertools.pairwise(row))
                      for a, b in itertools.permutations(names, 2)]
            self.assertEqual(set(behind) or {0}, times)

    def test_who_is_wrong_at_first_is_not_timed(self):
        calls = []
        found = self.measure(attile=lambda n: calls.append(n) or 2.0, cudnn=lambda n: 1.0)
        self.assertEqual(found["attile"]["why"], "relative error of o 1 (allowed 0.5)")
        self.assertEqual((len(calls), found["cudnn"]["status"]), (1, "ok"))

    def judged(self, dropped, undropped):
        """What judge_run says of a contender that draws its own decisions."""
        run = compare_contenders.Run(lambda: dropped, lambda value: {"o": FakeTensor(value)},
                                     lambda: undropped)
        with_dropout = types.SimpleNamespace(undropped=FakeReference())
        return compare.judge_run(with_dropout, run, run.outputs(run.call()))

    def test_own_dropout_is_judged_without_and_has_to_be_finite(self):
        self.assertEqual(self.judged(7.0, 1.25), {"status": "ok", "errors": {"o": 0.25}})
        self.assertEqual(self.judged(1.0, 2.0)["why"], "relative error of o 1 (allowed 0.5)")
        self.assertEqual(self.judged(float("nan"), 1.0)["why"],
                         "relative error of o nan (allowed 0.5)")

    def test_an_error_and_its_bound_are_told_apart(self):
        for past, said in ((5e-3, "0.505 (allowed 0.5)"), (1e-5, "0.50001 (allowed 0.5)")):
            found = self.measure(attile=lambda n, past=past: 1.5 + past)
            self.assertEqual(found["attile"]["why"], f"relative error of o {said}")

    def test_a_last_call_that_fails_is_an_error(self):
        def fails():
            raise RuntimeError("lost")

        runs = {"fa2": compare_contenders.Run(fails, None)}
        self.assertEqual(compare.check_again(runs, FakeReference()),
                         {"fa2": {"status": "error", "why": "RuntimeError: lost"}})


@dataclasses.dataclass(frozen=True)
class Strided:
    """A tensor's name with its axes, as far as contenders turn them."""

    name: str
    axes: str
    has_gradient: bool = False

    def transpose(self, a, b):
        axes = list(self.axes)
        axes[a], axes[b] = axes[b], axes[a]
        return dataclasses.replace(self, axes="".join(axes))

    def __getitem__(self, index):
        axes = "1" + self.axes if index is None else self.axes[1:]
        return dataclasses.replace(self, axes=axes)

    def detach(self):
        return self

    def requires_grad_(self):
        return dataclasses.replace(self, has_gradient=True)


class FlashAttention3(unittest.TestCase):
    """A package that notes how it is called."""

    def setUp(self):
        self.calls = []

    def half(self, mask, window=0, **more):
        return dataclasses.replace(small(mask, 8, window, **more), dtype="bf16")

    def package(self, old=False):
        def answer(name, axes, of_lse, q, k, v, with_lse, **named):
            self.calls.append((name, q, k, v, named))
            o = Strided("o", axes, q.has_gradient)
            return (o, Strided("lse", of_lse)) if with_lse else o

        def flash_attn_func(q, k, v, *, return_attn_probs=False, **named):
            return answer("dense", "brhd", "bhr", q, k, v, return_attn_probs, **named)

        def flash_attn_varlen_func(q, k, v, *, return_attn_probs=False, **named):
            return answer("varlen", "rhd", "hr", q, k, v, return_attn_probs, **named)

        def old_func(q, k, v, **named):
            return answer("dense", "brhd", "bhr", q, k, v, True, **named)

        return types.SimpleNamespace(flash_attn_func=old_func if old else flash_attn_func,
                                     flash_attn_varlen_func=flash_attn_varlen_func)

    def run_of(self, cell, direction, package):
        inputs = types.SimpleNamespace(cell=cell, scale=0.25, causal=cell.mask == "causal",
                                       cu_seqlens="offsets")
        for name in ("q", "k", "v", "dout"):
            setattr(inputs, name, Strided(name, "1hrd" if cell.lengths else "bhrd"))

        def grad(o, leaves, dout, retain_graph):
            self.assertTrue(retain_graph and o.name == "o" and o.has_gradient)
            self.assertEqual((dout.name, dout.axes), ("dout", o.axes))
            self.assertTrue(all(leaf.has_gradient for leaf in leaves))
            return [Strided("d" + leaf.name, leaf.axes) for leaf in leaves]

        torch = types.SimpleNamespace(autograd=types.SimpleNamespace(grad=grad))
        with unittest.mock.patch.dict(sys.modules, flash_attn_interface=package, torch=torch):
            run = compare_contenders.fa3(inputs, direction)
            return run.outputs(run.call())

    def test_forward(self):
        for old in (False, True):
            found = self.run_of(self.half("causal"), "forward", self.package(old))
            self.assertEqual({name: t.axes for name, t in found.items()},
                             {"o": "bhrd", "lse": "bhr"})
            name, q, k, v, named = self.calls[-1]
            self.assertEqual((name, [t.name + t.axes for t in (q, k, v)]),
                             ("dense", ["qbrhd", "kbrhd", "vbrhd"]))
            self.assertEqual(named, {"softmax_scale": 0.25, "causal": True})

    def test_backward(self):
        for old in (False, True):
            found = self.run_of(self.half("full"), "backward", self.package(old))
            self.assertEqual({name: (t.name, t.axes) for name, t in found.items()},
                             {name: (name, "bhrd") for name in ("dq", "dk", "dv")})
            self.assertEqual(len(self.calls), 1 + old)  # the forward pass is not timed

    def test_packed_sequences(self):
        cell = Cell("test", 2, 1, 1, 16, 4, 4, "bf16", "causal", lengths=(16, 5), bound=4)
        found = self.run_of(cell, "forward", self.package())
        self.assertEqual({name: t.axes for name, t in found.items()}, {"o": "1hrd", "lse": "1hr"})
        name, q, _, _, named = self.calls[-1]
        self.assertEqual((name, q.axes), ("varlen", "rhd"))
        self.assertEqual(named, {"softmax_scale": 0.25, "causal": True, "max_seqlen_q": 64,
                                 "max_seqlen_k": 64, "cu_seqlens_q": "offsets",
                                 "cu_seqlens_k": "offsets"})
        found = self.run_of(cell, "backward", self.package())
        self.assertEqual({t.axes for t in found.values()}, {"1hrd"})

    def test_window_and_softcap(self):
        def named(cell):
            self.run_of(cell, "forward", self.package())
            return self.calls[-1][4]

        self.assertEqual(named(self.half("window", 3))["window_size"], (2, 0))
        softcap = self.half("causal", policy="softcap")
        self.assertEqual(named(softcap)["softcap"], compare_cells.SOFTCAP)

    def refusal(self, cell, package=None):
        with self.assertRaises(compare_contenders.Refused) as caught:
            self.run_of(cell, "forward", package)
        return str(caught.exception)

    def test_what_it_does_not_have_is_refused(self):
        for policy in compare_cells.POLICIES:
            if policy not in ("", "softcap"):
                cell = self.half("causal", policy=policy)
                self.assertIn("softcap alone", self.refusal(cell, self.package()))
        self.assertIn("16 bits", self.refusal(small("full", 8), self.package()))
        self.assertEqual(self.calls, [])
        half = self.half("full")
        self.assertIn("flash_attn_interface cannot be imported", self.refusal(half, None))

        def fails(*_, **__):
            raise RuntimeError("This build does not have it.")

        package = types.SimpleNamespace(flash_attn_func=fails)
        self.assertEqual(self.refusal(half, package), "This build does not have it.")


class Refusals(unittest.TestCase):
    MESSAGES = [
        "Memory efficient kernel not used because: (Triggered internally at /a/b.cpp:1.)",
        "Memory Efficient attention has been runtime disabled. (Triggered internally at /a:2.)",
        "Flash attention kernel not used because: (Triggered internally at /a/b.cpp:3.)",
        "Expected the same dtype. Got float. (Triggered internally at /a/b.cpp:4.)",
        "cuDNN attention kernel not used because: (Triggered internally at /a/b.cpp:5.)",
        "cuDNN attention has been runtime disabled. (Triggered internally at /a/b.cpp:6.)"]

    def test_reason_of_one_backend(self):
        self.assertEqual(
            compare_contenders.reason_in(self.MESSAGES, "Flash attention", "none"),
            "Expected the same dtype. Got float.")
        self.assertEqual(compare_contenders.reason_in(self.MESSAGES, "cuDNN attention", "none"),
                         "cuDNN attention has been runtime disabled.")
        self.assertEqual(compare_contenders.reason_in([], "cuDNN attention", "none"), "none")

    def test_error_becomes_one_short_sentence(self):
        self.assertEqual(compare.sentence(ValueError("a | b\nmore")), "a / b")
        self.assertEqual(compare.sentence(ValueError("it said:\nno\nmore")), "it said: no")
        self.assertEqual(compare.sentence(ValueError()), "ValueError")
        self.assertEqual(compare.sentence(ValueError("y" * 240)), "y" * 240)

    def test_a_long_sentence_is_cut_at_a_word(self):
        for words in ("word " * 60, "long-winded " * 30):
            said = compare.sentence(ValueError(words))
            self.assertRegex(said, rf"^({words.split()[0]} )+…$")
            self.assertTrue(220 <= len(said) <= 240, len(said))
        said = compare.sentence(ValueError("x" * 999))
        self.assertRegex(said, "^x{200,} …$")
        self.assertLessEqual(len(said), 240)


class Chart(unittest.TestCase):
    def test_is_drawn_from_its_figures(self):
        self.assertEqual(chart.main(["--check"]), 0)

    def test_ratios_are_those_of_the_rates(self):
        cells = json.loads(chart.DATA.read_text(encoding="utf-8"))["cells"]
        self.assertEqual(len({(c["direction"], c["D"], c["mask"], c["S"]) for c in cells}), 36)
        for c in cells:
            ratio = c["attile"] / max(c["fa3"], c["cudnn"])
            self.assertAlmostEqual(c["ratio"], ratio, delta=1.1 * ratio / c["attile"] + 5e-4)

    def test_compare_draws_the_same_from_its_results(self):
        three = [{"attile": ok(500), "fa3": ok(400), "cudnn": ok(300 + i)} for i in range(18)]
        data = chart.figures(results_of(*three))
        self.assertEqual(len(data["cells"]), 36)
        first = data["cells"][0]
        self.assertAlmostEqual(first.pop("ratio"), 1.25)
        self.assertEqual(first, {"direction": "forward", "D": 64, "mask": "full", "S": "1k",
                                 "attile": 500, "fa3": 400, "cudnn": 300})
        first["ratio"] = 1.25
        drawn = chart.chart(data)
        xml.etree.ElementTree.fromstring(drawn)
        self.assertIn("mean 1.250 forward, 1.250 backward", drawn)
        self.assertFalse(chart.figures(results_of({"attile": ok(500), "cudnn": ok(300)})))

    def test_bars_of_a_group(self):
        results = results_of({"attile": ok(50), "cudnn": ok(100)}, {"attile": ok(70)},
                             {"attile": {"status": "error", "why": "x"}}, group="policies")
        tree = xml.etree.ElementTree.fromstring(chart.bars(results, "policies"))
        labels = [e.text for e in tree.iter() if e.tag.endswith("}text")]
        self.assertIn("0.50", labels)
        self.assertEqual(labels.count("cuDNN"), 1)
        bars = [e for e in tree.iter() if e.tag.endswith("}rect") and len(e)]
        self.assertEqual(len(bars), 6)

    def test_charts_of_all_groups_are_written(self):
        results = results_of({"attile": ok(50), "cudnn": ok(100)})
        with tempfile.TemporaryDirectory() as folder:
            chart.write(results, folder)
            self.assertEqual(sorted(p.name for p in pathlib.Path(folder).iterdir()),
                             ["peers.svg"])


class Report(unittest.TestCase):
    def setUp(self):
        refused = {"status": "refused", "why": "no window"}
        wrong = {"status": "wrong", "why": "relative error of o nan"}
        self.results = results_of(
            {"attile": ok(50), "cudnn": ok(100), "fa2": refused},
            {"attile": ok(300, host_bound=True), "cudnn": wrong, "fa2": refused},
            {"attile": {"status": "error", "why": "RuntimeError: x"}})

    def test_markdown(self):
        text = compare_report.markdown(self.results)
        rows = [line for line in text.splitlines() if line.startswith("| bf16 D 64 full, S 1k")]
        self.assertEqual(rows, ["| bf16 D 64 full, S 1k | 50.0 | 100 | refused | 0.50 (cuDNN) "
                                "| 20 % |"] * 2)
        self.assertIn("| 300\\* | WRONG | refused |  | 20 % |", text)
        self.assertIn("- FlashAttention-2 refused: no window (bf16 D 64 full, S 1k, forward; ",
                      text)
        self.assertIn("and 1 more)", text)
        self.assertIn("Some GPU (driver 1.2), PyTorch 2, cuDNN 91900", text)
        widths = [[line.count("|") - line.count("\\|") for line in table.splitlines()]
                  for table in re.findall(r"(?:^\|.*\n)+", text, flags=re.M)]
        self.assertEqual(len(widths), 2)
        for counts in widths:
            self.assertEqual(len(set(counts)), 1)

    def test_other_headers_have_a_column_and_a_summary(self):
        rows = [{"attile": ok(99), "before": ok(100)},
                {"attile": ok(110), "before": ok(100), "in_order": ok(90),
                 "before_in_order": ok(100)}]
        text = compare_report.markdown(results_of(*rows))
        self.assertIn("| attile / best peer | attile / before | spread |", text)
        self.assertIn("| 0.990 |", text)
        self.assertIn("| 1.100, 0.900 |", text)
        self.assertRegex(text, r"attile / before, \w+: \d cells, least 0\.990 \(.*\), geometric")
        self.assertIn("attile in order / before", text)
        self.assertNotIn("before", compare_report.markdown(self.results))

    def policies(self, plain=(), **measured):
        """Forward and backward rows of the cells with these policies, at D 64, causal; `measured`
        maps a policy to the milliseconds of attile by direction, "" is none. Those of the plain
        kernel are `plain` in all of them."""
        cells = {cell.policy: cell for cell in compare_cells.select(["policies"])
                 if (cell.d, cell.mask, cell.length) == (64, "causal", 1024)}
        rows = []
        for policy, results in measured.items():
            cell = cells[policy.removeprefix("none")]
            for i, (direction, ms) in enumerate(zip(compare_cells.DIRECTIONS, results)):
                contenders = {"attile": compare_report.summarise([ms], 1e9),
                              "cudnn": {"status": "refused", "why": "no"}}
                if cell.policy and plain:
                    contenders["plain"] = compare_report.summarise([plain[i]], 1e9)
                rows.append({"cell": cell.name, "group": "policies", "direction": direction,
                             "run": 0, "shape": dataclasses.asdict(cell),
                             "contenders": contenders})
        return {"runs": [run_of()], "compile": [], "cells": rows}

    def test_policies_are_in_milliseconds_beside_plain(self):
        results = self.policies(plain=(0.25, 1.0), none=(0.26, 1.1), dropout=(0.5, 1.25),
                                softcap=(12.0, 0.0404))
        text = compare_report.markdown(results)
        self.assertIn("**policies, forward / backward** (milliseconds)", text)
        self.assertIn("| cell | attile | attile, plain | cuDNN | attile / best peer | of plain "
                      "| spread |", text)
        for line in (
                "| fp16 D 64 causal, S 1k | 0.260 / 1.10 |  | refused |  |  | 0 % |",
                "| fp16 D 64 causal, dropout 0.1, S 1k | 0.500 / 1.25 | 0.250 / 1.00 | refused |  "
                "| 2.00 / 1.25 | 0 % |",
                "| fp16 D 64 causal, softcap 30, S 1k | 12.0 / 0.040 | 0.250 / 1.00 | refused |  "
                "| 48.00 / 0.04 | 0 % |"):
            self.assertIn(line, text)
        results["cells"][2]["contenders"]["cudnn"] = ok(4.0)
        results["cells"][3]["contenders"]["attile"] = {"status": "wrong", "why": "o"}
        self.assertIn("| 0.500 / WRONG | 0.250 / 1.00 | 1.00 / refused | 0.50 (cuDNN) / - "
                      "| 2.00 / - | 20 % |", compare_report.markdown(results))
        xml.etree.ElementTree.fromstring(compare_report.svg(results))

    def test_policies_of_one_direction_or_without_the_plain_kernel(self):
        results = self.policies(dropout=(0.5, 1.25))
        self.assertIn("| 0.500 / 1.25 | refused |  |  | 0 % |", compare_report.markdown(results))
        results = self.policies(plain=(0.25,), dropout=(0.5,))
        text = compare_report.markdown(results)
        self.assertIn("**policies, forward** (milliseconds)", text)
        self.assertIn("| 0.500 | 0.250 | refused |  | 2.00 | 0 % |", text)
        other = self.policies(plain=(1.0, 1.0), dropout=(3.0, 3.0))["cells"][1:]
        results["cells"] += [{**row, "run": 1} for row in other]
        text = compare_report.markdown(results)  # of two runs, each with one direction
        self.assertIn("| 0.500 / - | 0.250 / - | refused / - |  | 2.00 / - | 0 % |", text)
        self.assertIn("| - / 3.00 | - / 1.00 | - / refused |  | - / 3.00 | 0 % |", text)

    def test_results_without_policies_are_shown_as_ever(self):
        for row in self.results["cells"]:
            row["shape"] = {"group": "peers", "d": 64}
        text = compare_report.markdown(self.results)
        self.assertNotIn("of plain", text)
        self.assertNotIn("milliseconds", text)

    def test_compile_table(self):
        self.results["compile"] = [
            {"kernel": "forward", "wall_s": 2.0, "cpu_s": 1.5, "peak_mb": 210.0,
             "object_bytes": 123456, "jobs": 4},
            {"kernel": "broken", "why": "nvcc failed: x"}]
        text = compare_report.markdown(self.results)
        self.assertIn("| forward | 2.0 | 1.5 | 210 | 123 | 4 |", text)
        self.assertIn("| broken | nvcc failed: x |", text)

    def test_nothing_measured(self):
        nothing = {"runs": [run_of()], "compile": [], "cells": []}
        self.assertIn("Some GPU", compare_report.markdown(nothing))
        xml.etree.ElementTree.fromstring(compare_report.svg(nothing))

    def test_svg_is_well_formed_and_to_scale(self):
        self.results["runs"][0]["gpu"] = "A & B <GPU>"
        tree = xml.etree.ElementTree.fromstring(compare_report.svg(self.results))
        space = "{http://www.w3.org/2000/svg}"
        bars = [r for r in tree.iter(f"{space}rect") if r.find(f"{space}title") is not None]
        self.assertEqual(len(bars), 2 * 3)  # three contenders ran in each direction
        heights = {bar.find(f"{space}title").text: float(bar.get("height")) for bar in bars}
        self.assertAlmostEqual(heights["attile: 300"] / heights["cuDNN: 100"], 3.0, places=1)
        texts = [text.text for text in tree.iter(f"{space}text")]
        self.assertIn("0.50×", texts)
        self.assertTrue(any("A & B <GPU>" in text for text in texts))
        width, height = float(tree.get("width")), float(tree.get("height"))
        for text in tree.iter(f"{space}text"):
            self.assertTrue(0 <= float(text.get("x")) <= width)
            self.assertTrue(0 <= float(text.get("y")) <= height)

    def test_axis_steps(self):
        for largest in (0.5, 3, 37, 99.9, 101, 452, 760):
            step = compare_report.axis_step(largest)
            self.assertLessEqual(largest / step, 5)
            self.assertIn(f"{step:e}"[0], "125")

    def test_json_round_trip_and_merge(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "deep" / "a.json"
            compare_report.write_json(path, self.results)
            self.assertEqual(json.loads(path.read_text(encoding="utf-8")), self.results)
            self.assertEqual([p.name for p in path.parent.iterdir()], ["a.json"])
            merged = compare_report.read_json([path, path])
        self.assertEqual(len(merged["runs"]), 2)
        self.assertEqual([row["run"] for row in merged["cells"]], [0] * 6 + [1] * 6)

    def test_earlier_results_are_shown_again(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "a.json"
            compare_report.write_json(path, self.results)
            shown = io.StringIO()
            with contextlib.redirect_stdout(shown):
                code = compare.main(["--from", str(path), "--svg", f"{folder}/a.svg",
                                     "--markdown", f"{folder}/a.md"])
            self.assertEqual(code, 0)
            self.assertEqual(shown.getvalue(), compare_report.markdown(self.results))
            self.assertEqual((pathlib.Path(folder) / "a.md").read_text(encoding="utf-8"),
                             shown.getvalue())
            xml.etree.ElementTree.parse(f"{folder}/a.svg")


class Unusable(unittest.TestCase):
    """What compare.py cannot do: one sentence, and an exit code that is no wrong result's."""

    def said(self, *arguments):
        out, error = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            self.assertEqual(compare.main(arguments), 2)
        self.assertEqual(out.getvalue(), "")
        return error.getvalue()

    def test_a_file_that_cannot_be_read(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(self.said("--from", f"{folder}/nope.json"),
                             f"compare.py: {folder}/nope.json: no such file or directory\n")
            self.assertEqual(self.said("--from", folder), f"compare.py: {folder}: is a directory\n")

    def test_a_file_that_holds_something_else(self):
        cells = results_of({"attile": ok(50)})
        without = {**cells, "cells": [{**row, "contenders": {"attile": {"status": "ok"}}}
                                      for row in cells["cells"]]}
        for held in (b"", b"| a | table |", b"\xff\xfe", b"[]", b"{}", b"3", b'"runs"',
                     b'{"runs": [{}], "compile": [], "cells": []}',
                     b'{"runs": {}, "compile": {}, "cells": {}}',
                     b'{"runs": [], "compile": [{"kernel": "k"}], "cells": []}',
                     b'{"runs": [], "compile": [], "cells": [3]}', json.dumps(without).encode()):
            with self.subTest(held), tempfile.TemporaryDirectory() as folder:
                path, good = (pathlib.Path(folder) / name for name in ("a.json", "good.json"))
                path.write_bytes(held)
                compare_report.write_json(good, cells)
                self.assertEqual(self.said("--from", str(good), str(path)),
                                 f"compare.py: {path} is no result of compare.py\n")

    def test_no_cell(self):
        why = "compare.py: no cell matches "
        for arguments, selected in (
                (["--cells", "nope"], "--cells nope"),
                (["--list", "--cells", "nope"], "--cells nope"),
                (["--groups", "gqa", "--cells", "*fp32*"], "--groups gqa --cells '*fp32*'"),
                (["--groups", "compile", "--cells", "nope"], "--groups compile --cells nope"),
                (["--groups", "compile", "--list"], "--groups compile --cells '*'"),
                (["--groups", ""], "--groups '' --cells '*'")):
            with self.subTest(arguments):
                self.assertEqual(self.said(*arguments), f"{why}{selected}; see --list\n")

    def test_the_compiler_alone_can_be_measured(self):
        options = compare.parse_arguments(["--groups", "compile"])
        self.assertEqual(compare.select(options), [])


class Options(unittest.TestCase):
    def test_names(self):
        parse = compare.names_in(("a", "b"))
        self.assertEqual(parse("b,a"), ["b", "a"])
        self.assertEqual(parse(""), [])
        with self.assertRaisesRegex(argparse.ArgumentTypeError, "no c among a, b"):
            parse("a,c")

    def test_a_wrong_or_missing_result_of_ours_fails_the_run(self):
        def verdict(status, built=()):
            return compare.ours_are_right({
                "cells": [{"contenders": {"attile": {"status": status}}}], "compile": list(built)})

        self.assertTrue(verdict("ok"))
        for status in ("wrong", "refused", "error"):
            self.assertFalse(verdict(status))
        self.assertFalse(verdict("ok", [{"kernel": "k", "why": "nvcc failed"}]))


class Building(unittest.TestCase):
    def test_cache_key_follows_everything_that_shapes_a_library(self):
        flags = ["-std=c++20", "-DATTILE_D=64", "-I/here/include"]
        key = compare_build.cache_key("sources", "13.0", flags)
        self.assertEqual(key, compare_build.cache_key("sources", "13.0",
                                                      flags[:2] + ["-I/there/include"]))
        others = [("other", "13.0", flags), ("sources", "12.4", flags),
                  ("sources", "13.0", ["-std=c++20", "-DATTILE_D=128", "-I/here/include"])]
        keys = {compare_build.cache_key(*other) for other in others}
        self.assertEqual(len(keys | {key}), 4)

    def test_source_hash_follows_names_and_contents(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "include").mkdir()
            (root / "bench").mkdir()
            (root / "bench" / "attile_c.cu").write_text("a", encoding="utf-8")
            seen = {compare_build.source_hash(root)}
            for name, text in (("x.h", "1"), ("x.h", "2"), ("y.h", "2")):
                (root / "include" / name).write_text(text, encoding="utf-8")
                seen.add(compare_build.source_hash(root))
            (root / "bench" / "attile_c.cu").write_text("b", encoding="utf-8")
            seen.add(compare_build.source_hash(root))
        self.assertEqual(len(seen), 5)

    def test_code_of_a_device_and_of_an_earlier_one(self):
        self.assertIn("-gencode=arch=compute_90a,code=sm_90a",
                      compare_build.compile_flags("90a", "90a"))
        self.assertIn("-gencode=arch=compute_80,code=sm_90a",
                      compare_build.compile_flags(80, "90a"))

    def test_macros_and_architecture(self):
        cell = Cell("test", 1, 1, 1, 16, 192, 128, "fp16", "window", 4)
        for in_order, mode in ((False, "kAccumulate"), (True, "kInOrder")):
            self.assertEqual(compare_build.kernel_macros(cell.kernel("backward", in_order)),
                             ["-DATTILE_D=192", "-DATTILE_DV=128", "-DATTILE_TYPE=__half",
                              "-DATTILE_MASK=SlidingWindow", "-DATTILE_POLICY=Plain",
                              "-DATTILE_DIRECTION=kBackward", f"-DATTILE_DQ_MODE={mode}"])
        self.assertEqual([kernel.name for kernel in cell.kernels("backward", True)],
                         ["forward fp16 D 192/128 window", "backward fp16 D 192/128 window",
                          "backward in order fp16 D 192/128 window"])
        self.assertEqual(cell.kernels("forward", True), cell.kernels("forward"))
        self.assertEqual([compare_build.architecture(*c) for c in ((8, 0), (9, 0), (12, 0))],
                         ["80", "90a", "120a"])

    def test_every_policy_is_a_name_of_the_source(self):
        source = compare_build.SOURCE.read_text(encoding="utf-8")
        bundles = re.search(r"namespace bundle {(.*?)}  // namespace", source, flags=re.S).group(1)
        named = set(re.findall(r"using (\w+) =", bundles)) - {"Mask", "Masked"}
        self.assertEqual(set(compare_build.POLICIES.values()), named)
        for policy in compare_cells.POLICIES:
            kernel = small("causal", 16, policy=policy).kernel("forward")
            self.assertIn(compare_build.POLICIES[kernel.policy], named)

    def test_policies_that_differ_in_memory_alone_have_one_kernel(self):
        for pair in (("documents_one", "documents_700"), ("bias_hrc", "bias_bc"),
                     ("dbias_hrc", "dbias_hc", "dbias_distance")):
            kernels = {small("full", 16, policy=name).kernel("forward") for name in pair}
            self.assertEqual(len(kernels), 1)
        cells = compare_cells.select(["policies"])
        kernels = {kernel for cell in cells for kernel in cell.kernels("backward")}
        # Nobody builds two libraries in one folder at a time.
        self.assertEqual(len({tuple(compare_build.kernel_macros(k)) for k in kernels}),
                         len(kernels))

    def test_the_structures_have_the_fields_of_the_source(self):
        source = compare_build.SOURCE.read_text(encoding="utf-8")
        for name, mirror in (("AttileTensor", compare_build.Tensor),
                             ("AttilePolicies", compare_build.Policies),
                             ("AttileCache", compare_build.Cache),
                             ("AttileProblem", compare_build.Problem)):
            body = re.search(rf"struct {name} {{(.*?)}};", source, flags=re.S).group(1)
            declared = [field.strip().split()[-1].lstrip("*") for field in re.split("[,;]", body)
                        if field.strip()]
            self.assertEqual(declared, [field[0] for field in mirror._fields_])

    def test_a_compiler_is_measured_and_its_error_is_said(self):
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "log.txt"
            work = "import time; x = bytearray(50 << 20); time.sleep(0.2)"
            row = compare_build.run_measured([sys.executable, "-c", work], log)
            self.assertGreaterEqual(row["wall_s"], 0.2)
            self.assertGreater(row["peak_mb"], 50)
            self.assertLess(row["peak_mb"], 2000)
            place = str(compare_build.ROOT / "a.cu")
            fail = f"print('warning: x'); print({place!r} + '(1): error: no'); raise SystemExit(2)"
            with self.assertRaisesRegex(compare_build.BuildError,
                                        r"^nvcc failed: a\.cu\(1\): error: no$"):
                compare_build.run_measured([sys.executable, "-c", fail], log)


@unittest.skipUnless("ATTILE_C_LIBRARY" in os.environ, "ATTILE_C_LIBRARY is not set")
class Interface(unittest.TestCase):
    """What attile_c.cu and its ctypes mirror say of each other; no kernel runs."""

    def setUp(self):
        self.library = compare_build.Library(os.environ["ATTILE_C_LIBRARY"])
        self.memory = (ctypes.c_char * 4096)()
        base = ctypes.addressof(self.memory)
        self.problem = compare_build.Problem(
            lse=base + 2048, batch=1, q_heads=2, kv_heads=1, q_len=3, kv_len=3, scale=0.125)
        for i, name in enumerate(("q", "k", "v", "o")):
            setattr(self.problem, name,
                    compare_build.Tensor(base + 16 * i, 2 * 3 * 64, 64, 2 * 64))

    def refused(self, name, value, why):
        setattr(self.problem, name, value)
        self.assertEqual(self.library.check(self.problem), why)

    def test_every_scalar_is_where_it_belongs(self):
        for name, value, why in (
                ("batch", -1, "batch is negative"), ("q_heads", 0, "q_heads must be at least 1"),
                ("kv_heads", 3, "q_heads must be a multiple of kv_heads"),
                ("q_len", -1, "q_len is negative"), ("kv_len", -1, "kv_len is negative"),
                ("scale", -1.0, "scale must be 2^-100 to 2^100"),
                ("lse", 2, "lse is not aligned to 4 bytes")):
            with self.subTest(name):
                self.setUp()
                self.refused(name, value, why)

    def test_every_tensor_is_where_it_belongs(self):
        for name in ("q", "k", "v", "o"):
            with self.subTest(name):
                self.setUp()
                self.refused(name, compare_build.Tensor(), f"{name} is null")
        self.setUp()
        base = self.problem.o.data
        for strides in ((384, 0, 128), (384, 64, 0)):
            self.refused("o", compare_build.Tensor(base, *strides),
                         "o overlaps itself: two of its rows share memory (see its strides)")
        self.problem.batch = 2
        self.refused("o", compare_build.Tensor(base, 0, 64, 128),
                     "o overlaps itself: two of its rows share memory (see its strides)")

    def test_a_forward_kernel_asks_for_a_counter_and_errors_have_names(self):
        try:
            self.assertEqual(self.library.workspace_bytes(self.problem), 16)
        except RuntimeError as error:  # without a GPU no kernel can be chosen
            self.assertRegex(str(error), "^attile: .*(driver|device)")
        self.assertEqual(self.library.table_bytes(self.problem), 0)
        self.problem.scale = -1.0
        with self.assertRaisesRegex(RuntimeError, "^attile: "):
            self.library.runner(self.problem)()


class WithoutMachine(unittest.TestCase):
    def test_one_sentence(self):
        try:
            import torch
        except ImportError:
            torch = None
        if torch is not None and torch.cuda.is_available():
            self.skipTest("there is a GPU, and PyTorch")
        with self.assertRaisesRegex(SystemExit, r"^compare\.py needs [^\n]+$"):
            compare.main([])


if __name__ == "__main__":
    unittest.main()
