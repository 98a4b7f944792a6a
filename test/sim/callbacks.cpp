// SPDX-License-Identifier: MIT
// Kernels are compiled with -fsanitize=thread, so that the compiler calls these at every load and
// store. They stand in for that sanitizer's run-time library, which is not linked.
#include <cstddef>
#include <cstdint>

#include "sim/machine.h"

using sim::Access;

#define ATTILE_SIM_SIZE(n)                                                                        \
  void __tsan_read##n(void* p) { sim::access(p, n, Access::kRead, __builtin_return_address(0)); } \
  void __tsan_write##n(void* p) {                                                                 \
    sim::access(p, n, Access::kWrite, __builtin_return_address(0));                               \
  }                                                                                               \
  void __tsan_unaligned_read##n(void* p) {                                                        \
    sim::access(p, n, Access::kRead, __builtin_return_address(0));                                \
  }                                                                                               \
  void __tsan_unaligned_write##n(void* p) {                                                       \
    sim::access(p, n, Access::kWrite, __builtin_return_address(0));                               \
  }

extern "C" {
ATTILE_SIM_SIZE(1)
ATTILE_SIM_SIZE(2)
ATTILE_SIM_SIZE(4)
ATTILE_SIM_SIZE(8)
ATTILE_SIM_SIZE(16)

void __tsan_read_range(void* p, std::size_t bytes) {
  sim::access(p, bytes, Access::kRead, __builtin_return_address(0));
}
void __tsan_write_range(void* p, std::size_t bytes) {
  sim::access(p, bytes, Access::kWrite, __builtin_return_address(0));
}

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
}

#undef ATTILE_SIM_SIZE

// The host's own atomics, which the tests around the kernels use.
#define ATTILE_SIM_ATOMIC(bits)                                                                    \
  using U##bits = std::uint##bits##_t;                                                             \
  U##bits __tsan_atomic##bits##_load(const volatile U##bits* p, int) {                             \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                   \
  }                                                                                                \
  void __tsan_atomic##bits##_store(volatile U##bits* p, U##bits x, int) {                          \
    __atomic_store_n(p, x, __ATOMIC_SEQ_CST);                                                      \
  }                                                                                                \
  U##bits __tsan_atomic##bits##_exchange(volatile U##bits* p, U##bits x, int) {                    \
    return __atomic_exchange_n(p, x, __ATOMIC_SEQ_CST);                                            \
  }                                                                                                \
  U##bits __tsan_atomic##bits##_fetch_add(volatile U##bits* p, U##bits x, int) {                   \
    return __atomic_fetch_add(p, x, __ATOMIC_SEQ_CST);                                             \
  }                                                                                                \
  U##bits __tsan_atomic##bits##_fetch_sub(volatile U##bits* p, U##bits x, int) {                   \
    return __atomic_fetch_sub(p, x, __ATOMIC_SEQ_CST);                                             \
  }                                                                                                \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile U##bits* p, U##bits* expected,        \
                                                    U##bits x, int, int) {                         \
    return __atomic_compare_exchange_n(p, expected, x, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }                                                                                                \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile U##bits* p, U##bits* expected,          \
                                                  U##bits x, int a, int b) {                       \
    return __tsan_atomic##bits##_compare_exchange_strong(p, expected, x, a, b);                    \
  }

extern "C" {
ATTILE_SIM_ATOMIC(8)
ATTILE_SIM_ATOMIC(32)
ATTILE_SIM_ATOMIC(64)
}

#undef ATTILE_SIM_ATOMIC
