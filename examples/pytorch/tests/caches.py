# SPDX-License-Identifier: MIT
"""Sequences whose keys lie in a cache, and attention to them by the formula."""
import torch
from reference import attention, clone, close

CACHES = ("cached", "cached_packed", "paged", "paged_packed")


def int32(values, device):
    return torch.tensor(values, dtype=torch.int32, device=device)


class Problem:
    """Queries and keys of sequences: `q`, `k_cache`, `v_cache`, and the arguments `where` that say
    where both are; `rows` and `columns` have the lengths."""

    def __init__(self, device, dtype, cache, rows, columns, heads=(4, 2), dim=64, dim_v=None,
                 page_size=16, leftpad=None, shuffled=False):
        self.device, self.cache, self.rows, self.columns = device, cache, rows, columns
        self.page_size, batch = page_size, len(rows)
        self.leftpad = leftpad or [0] * batch
        ends = [a + b for a, b in zip(columns, self.leftpad, strict=True)]
        self.where = {"seqused_k": int32(ends, device)}
        if leftpad:
            self.where["leftpad_k"] = int32(leftpad, device)
        # The line of the table, or the piece of the cache, of each sequence.
        self.lines = torch.randperm(batch).tolist() if shuffled else list(range(batch))
        if shuffled:
            self.where["cache_batch_idx"] = int32(self.lines, device)
        longest = max([1, *ends])
        if cache.startswith("paged"):
            entries = -(-longest // page_size)
            table = torch.full((batch, entries), -1, dtype=torch.int32)
            free = torch.randperm(batch * entries + 1).tolist()
            for line, end in zip(self.lines, ends, strict=True):
                for i in range(-(-end // page_size)):
                    table[line, i] = free.pop()
            self.where["page_table"] = table.to(device)
            shape = (batch * entries + 1, page_size)
        else:
            shape = (batch, longest)
        # What no sequence has is NaN, and would show.
        self.k_cache = torch.full((*shape, heads[1], dim), torch.nan, dtype=dtype, device=device)
        self.v_cache = self.k_cache.new_full((*shape, heads[1], dim_v or dim), torch.nan)

        def random(length, count, width):
            return torch.randn(length, count, width, device=device).to(dtype)

        self.queries = [random(n, heads[0], dim) for n in rows]
        self.keys = [random(n, heads[1], dim) for n in columns]
        self.values = [random(n, heads[1], dim_v or dim) for n in columns]
        for b, length in enumerate(columns):
            if length > 0:
                at = self.places(b, range(self.leftpad[b], ends[b]))
                self.k_cache[at], self.v_cache[at] = self.keys[b], self.values[b]
        self.where |= self.of_queries()
        self.q = self.lay_out(self.queries)

    def of_queries(self):
        """The arguments that say where queries are."""
        if self.cache.endswith("packed"):
            return {"cu_seqlens_q": int32([0, *torch.tensor(self.rows).cumsum(0)], self.device),
                    "max_seqlen_q": max(self.rows)}
        alike = len(set(self.rows)) == 1
        return {} if alike else {"seqused_q": int32(self.rows, self.device)}

    def places(self, b, positions):
        """The index in the cache of positions of a sequence."""
        at = torch.tensor(list(positions), dtype=torch.long, device=self.device)
        if "page_table" not in self.where:
            return torch.full_like(at, self.lines[b]), at
        line = self.where["page_table"][self.lines[b]].long()
        return line[at // self.page_size], at % self.page_size

    def lay_out(self, parts):
        """One tensor of the rows of all sequences: packed, or padded with NaN."""
        if self.cache.endswith("packed"):
            return torch.cat(parts)
        whole = parts[0].new_full((len(parts), max(self.rows), *parts[0].shape[1:]), torch.nan)
        for b, part in enumerate(parts):
            whole[b, :len(part)] = part
        return whole

    def split(self, tensor, lse=False):
        """The rows of each sequence of such a tensor, or of LSE with heads ahead of rows."""
        if self.cache.endswith("packed"):
            return tensor.split(self.rows, -1 if lse else 0)
        return [x[:, :n] if lse else x[:n] for x, n in zip(tensor, self.rows, strict=True)]

    def expected(self, dtype, options):
        """(out, lse) of each sequence by the formula."""
        results = []
        for q, k, v in zip(self.queries, self.keys, self.values, strict=True):
            q, k, v = (clone(x, dtype)[None] for x in (q, k, v))
            out, lse = attention(q, k, v, **options)
            results.append((out[0], lse[0]))
        return results

    def compare(self, out, lse, options):
        """Compares results to the formula's."""
        dtype = self.q.dtype
        exact, plain = self.expected(torch.float64, options), self.expected(dtype, options)
        for name, got, i in (("out", self.split(out), 0), ("lse", self.split(lse, lse=True), 1)):
            def flat(parts):
                return torch.cat([part.flatten() for part in parts])
            close(name, flat(got), flat([x[i] for x in exact]), flat([x[i] for x in plain]))
