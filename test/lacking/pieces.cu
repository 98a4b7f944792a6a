// SPDX-License-Identifier: MIT
// One kernel for each function that needs an instruction of later architectures, named after the
// first one that has it (from_800_..., and from_901_... for 90a). In code for an earlier one it has
// to trap: cmake/expect_traps.cmake reads that from the PTX.
#include <attile/arch/async_copy.cuh>
#include <attile/arch/bulk_tensor.cuh>
#include <attile/arch/fp8.cuh>
#include <attile/arch/launch.cuh>
#include <attile/arch/matrix.cuh>
#include <attile/arch/mbarrier.cuh>
#include <attile/arch/warpgroup.cuh>
#include <attile/arch/wgmma.cuh>

namespace arch = attile::arch;

#define ATTILE_FROM(architecture, name, call)                                                    \
  extern "C" ATTILE_KERNEL void from_##architecture##_##name(                                    \
      std::uint32_t* words, const ATTILE_GRID_CONSTANT arch::TensorMap map) {                    \
    [[maybe_unused]] const std::uint32_t shared = words[0];                                      \
    [[maybe_unused]] auto* const bar = reinterpret_cast<arch::Mbarrier*>(words + shared);        \
    std::uint32_t a[4] = {words[1], words[2], words[3], words[4]};                               \
    [[maybe_unused]] std::uint32_t(&pair)[2] = reinterpret_cast<std::uint32_t(&)[2]>(a);         \
    [[maybe_unused]] float d[2][4] = {};                                                         \
    call;                                                                                        \
    for (int i = 0; i < 4; ++i) words[i] = a[i] + static_cast<std::uint32_t>(d[0][i] + d[1][i]); \
  }

ATTILE_FROM(800, async_copy_16, arch::async_copy_16(shared, words, true))
ATTILE_FROM(800, async_copy_4, arch::async_copy_4(shared, words, true))
ATTILE_FROM(800, async_copy_commit, arch::async_copy_commit())
ATTILE_FROM(800, async_copy_wait, arch::async_copy_wait<0>())
ATTILE_FROM(800, load_matrices, arch::load_matrices(a, shared))
ATTILE_FROM(800, load_matrices_transposed, arch::load_matrices_transposed(a, shared))
ATTILE_FROM(800, load_two_matrices, arch::load_matrices(pair, shared))
ATTILE_FROM(800, load_two_transposed, arch::load_matrices_transposed(pair, shared))
ATTILE_FROM(800, mma_fp16,
            arch::mma_m16n8k16<__half>(d[0][0], d[0][1], d[0][2], d[0][3], a, shared, shared))
ATTILE_FROM(800, mma_bf16,
            arch::mma_m16n8k16<__nv_bfloat16>(d[0][0], d[0][1], d[0][2], d[0][3], a, shared,
                                              shared))
ATTILE_FROM(800, mma_tf32,
            arch::mma_m16n8k8_tf32(d[0][0], d[0][1], d[0][2], d[0][3], a, shared, shared))
ATTILE_FROM(800, mma_fp8,
            (arch::mma_m16n8k32<__nv_fp8_e4m3, __nv_fp8_e5m2>(d[0][0], d[0][1], d[0][2], d[0][3], a,
                                                              shared, shared)))

ATTILE_FROM(900, store_matrices, arch::store_matrices(shared, a))
ATTILE_FROM(900, mbarrier_init, arch::mbarrier_init(bar, 1))
ATTILE_FROM(900, mbarrier_publish, arch::mbarrier_publish())
ATTILE_FROM(900, mbarrier_arrive, arch::mbarrier_arrive(bar))
ATTILE_FROM(900, mbarrier_arrive_remote, arch::mbarrier_arrive(bar, 1))
ATTILE_FROM(900, mbarrier_arrive_expect, arch::mbarrier_arrive_expect(bar, 16))
ATTILE_FROM(900, mbarrier_wait, arch::mbarrier_wait(bar, 0))
ATTILE_FROM(900, bulk_load_box, arch::bulk_load(shared, map, {0, 0, 0, 0, 0}, bar))
ATTILE_FROM(900, bulk_load_multicast,
            arch::bulk_load_multicast(shared, map, {0, 0, 0, 0, 0}, bar, 3))
ATTILE_FROM(900, bulk_load_bytes, arch::bulk_load(shared, words, 16, bar))
ATTILE_FROM(900, prefetch_map, arch::prefetch_map(map))
ATTILE_FROM(900, bulk_store_box, arch::bulk_store(map, {0, 0, 0, 0, 0}, shared))
ATTILE_FROM(900, bulk_store_bytes, arch::bulk_store(&d[0][0], shared, 16))
ATTILE_FROM(900, bulk_add, arch::bulk_add(&d[0][0], shared, 16))
ATTILE_FROM(900, bulk_commit, arch::bulk_commit())
ATTILE_FROM(900, bulk_wait_read, arch::bulk_wait_read<0>())
ATTILE_FROM(900, bulk_wait, arch::bulk_wait<0>())
ATTILE_FROM(900, fence_async_proxy, arch::fence_async_proxy())
ATTILE_FROM(900, fence_async_proxy_global, arch::fence_async_proxy_global())

ATTILE_FROM(901, reg_dealloc, arch::reg_dealloc<24>())
ATTILE_FROM(901, reg_alloc, arch::reg_alloc<240>())
ATTILE_FROM(901, wgmma_fence, arch::wgmma_fence())
ATTILE_FROM(901, wgmma_commit, arch::wgmma_commit())
ATTILE_FROM(901, wgmma_wait, arch::wgmma_wait<0>())
ATTILE_FROM(901, wgmma_shared,
            (arch::wgmma_m64k16<__half, 16, false>(d, std::uint64_t{shared}, std::uint64_t{shared},
                                                   true)))
ATTILE_FROM(901, wgmma_registers,
            (arch::wgmma_m64k16<__nv_bfloat16, 16, true>(d, a, std::uint64_t{shared}, true)))
ATTILE_FROM(901, wgmma_fp8_shared,
            (arch::wgmma_m64k32<__nv_fp8_e4m3, __nv_fp8_e5m2, 16>(d, std::uint64_t{shared},
                                                                  std::uint64_t{shared}, true)))
ATTILE_FROM(901, wgmma_fp8_registers,
            (arch::wgmma_m64k32<__nv_fp8_e4m3, __nv_fp8_e5m2, 16>(d, a, std::uint64_t{shared},
                                                                  true)))
