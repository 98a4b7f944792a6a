// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/shared_word.h>
#include <attile/core/status.h>

#include <cuda_runtime.h>

#include <climits>
#include <cstddef>
#include <cstdint>

// Properties of the current device, and of the code of a kernel on it. The runtime library is
// queried once for each device and for each kernel on it, because a query takes a fifth of the time
// of a launch.

namespace attile::arch {

/// Holds the numbers of a device. Architectures are numbered as in __CUDA_ARCH__: 100 * major +
/// 10 * minor of a compute capability.
struct DeviceNumbers {
  int architecture;          ///< 0 without a device
  int multiprocessors;       ///< 1 without a device
  std::size_t shared_bytes;  ///< the most for a block; 0 without a device
};

/// Describes the current device. `check` says why it cannot be used.
struct DeviceInfo : DeviceNumbers {
  Check check;
  int ordinal;
};

/// Holds the numbers of the code of a kernel that a device would run.
struct KernelNumbers {
  int code_architecture;  ///< the architecture for which it was compiled
  int registers;          ///< the registers of a thread
};

/// Describes a kernel on the current device. `check` says why it cannot be launched there; the
/// numbers are then not known.
struct KernelInfo : KernelNumbers {
  Check check;

  /// Return what the functions of these names return (below).
  bool lacks(int least) const { return check && code_architecture < least; }
  bool is_empty() const {
    constexpr int kFew = 16;  // registers; the tiles of a kernel take more
    return check && registers <= kFew;
  }
};

namespace detail {

/// Caches answers by a key, in a table of fixed size: what no longer fits is queried each time. An
/// answer is written once and stays. Scope    any threads at the same time, without a lock.
template <class Key, class Answer, unsigned kEntries>
class AnswerTable {
 public:
  /// Returns the answer for a key, or null where there is none yet.
  Answer* find(const Key& key) {
    for (unsigned i = 0; i < kProbes; ++i) {
      Entry& entry = entries_[(key.hash() + i) % kEntries];
      const int state = entry.state.load();
      if (state == kFree) return nullptr;
      if (state == kThere && entry.key == key) return &entry.answer;
    }
    return nullptr;
  }
  /// Adds the answer that `fill` writes, and returns it, or null where there is no free entry. The
  /// state is stored last, so that no thread reads an answer before it is complete.
  template <class Fill>
  Answer* insert(const Key& key, const Fill& fill) {
    for (unsigned i = 0; i < kProbes; ++i) {
      Entry& entry = entries_[(key.hash() + i) % kEntries];
      if (entry.state.exchange_if(kFree, kWriting)) {
        entry.key = key;
        fill(entry.answer);
        entry.state.store(kThere);
        return &entry.answer;
      }
    }
    return nullptr;
  }

 private:
  static constexpr unsigned kProbes = 16;
  enum State { kFree, kWriting, kThere };
  struct Entry {
    SharedWord<int> state;  // kFree initially
    Key key;
    Answer answer;
  };
  Entry entries_[kEntries];
};

/// Is the key of a device.
struct DeviceKey {
  int device = 0;

  unsigned hash() const { return static_cast<unsigned>(device); }
  bool operator==(const DeviceKey&) const = default;
};

/// Is the key of a kernel on a device.
struct KernelKey {
  const void* kernel = nullptr;
  int device = 0;

  unsigned hash() const {
    return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(kernel) / 16) * 31 +
           static_cast<unsigned>(device);
  }
  bool operator==(const KernelKey&) const = default;
};

/// Holds the numbers of a kernel on a device, and the shared memory that it has been allowed.
struct KernelAnswers {
  KernelNumbers numbers;
  SharedWord<std::size_t> shared_bytes;  ///< what the runtime has allowed; 0: not asked
};

// The tables are zero initially, so that a program's file does not grow by them.
inline AnswerTable<DeviceKey, DeviceNumbers, 64> device_table;
inline AnswerTable<KernelKey, KernelAnswers, 1024> kernel_table;

/// Queries the numbers of a device.
inline cudaError_t ask_device(DeviceNumbers& numbers, int device) {
  int major = 0, minor = 0, shared = 0;
  cudaError_t error = cudaSuccess;
  const auto ask = [&](int& answer, cudaDeviceAttr what) {
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&answer, what, device);
  };
  ask(major, cudaDevAttrComputeCapabilityMajor);
  ask(minor, cudaDevAttrComputeCapabilityMinor);
  ask(shared, cudaDevAttrMaxSharedMemoryPerBlockOptin);
  ask(numbers.multiprocessors, cudaDevAttrMultiProcessorCount);
  numbers.architecture = 100 * major + 10 * minor;
  numbers.shared_bytes = static_cast<std::size_t>(shared);
  return error;
}

/// Queries the numbers of a kernel on the current device.
template <class Kernel>
Check ask_kernel(KernelNumbers& numbers, Kernel kernel) {
  cudaFuncAttributes attributes{};
  if (const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel)) {
    if (error != cudaErrorInvalidDeviceFunction && error != cudaErrorNoKernelImageForDevice) {
      return {error, "the CUDA runtime cannot load the kernel, or reports an earlier error"};
    }
    static_cast<void>(cudaGetLastError());  // reported here, not to the caller's next query
    return {error, "the kernel was not compiled for the architecture of this device"};
  }
  numbers = {attributes.ptxVersion * 10, attributes.numRegs};
  return {};
}

}  // namespace detail

/// Returns the current device, with `check` saying why it cannot be used.
inline DeviceInfo device_info() {
  DeviceInfo info{{0, 1, 0}, {}, 0};
  if (const cudaError_t error = cudaGetDevice(&info.ordinal)) {
    info.check = {error, "there is no usable CUDA device"};
    return info;
  }
  DeviceNumbers numbers{};
  if (const DeviceNumbers* const known = detail::device_table.find({info.ordinal})) {
    numbers = *known;
  } else if (const cudaError_t error = detail::ask_device(numbers, info.ordinal)) {
    info.check = {error, "the CUDA device does not tell its attributes"};
    return info;
  } else {
    detail::device_table.insert({info.ordinal}, [&](DeviceNumbers& to) { to = numbers; });
  }
  static_cast<DeviceNumbers&>(info) = numbers;
  return info;
}

namespace detail {

/// Returns the table's entry for a kernel on `device`, the current one, and writes the kernel's
/// numbers to `info`. Returns null where the runtime gives none (`info.check`), or the table is
/// full.
template <class... Params>
KernelAnswers* answers_of(void (*kernel)(Params...), int device, KernelInfo& info) {
  const KernelKey key{reinterpret_cast<const void*>(kernel), device};
  KernelNumbers& numbers = info;
  if (KernelAnswers* const known = kernel_table.find(key)) {
    numbers = known->numbers;
    return known;
  }
  info.check = ask_kernel(numbers, kernel);
  if (!info.check) return nullptr;
  return kernel_table.insert(key, [&](KernelAnswers& to) { to.numbers = numbers; });
}

/// Returns the same for the current device.
template <class... Params>
KernelAnswers* answers_of(void (*kernel)(Params...), KernelInfo& info) {
  int device = 0;
  if (const cudaError_t error = cudaGetDevice(&device)) {
    info.check = {error, "there is no usable CUDA device"};
    return nullptr;
  }
  return answers_of(kernel, device, info);
}

}  // namespace detail

/// Returns the description of a kernel on `device`, which is the current one.
template <class... Params>
KernelInfo kernel_info(void (*kernel)(Params...), const DeviceInfo& device) {
  KernelInfo info{};
  info.check = device.check;
  if (device.check) static_cast<void>(detail::answers_of(kernel, device.ordinal, info));
  return info;
}
template <class... Params>
KernelInfo kernel_info(void (*kernel)(Params...)) {
  return kernel_info(kernel, device_info());
}

/// Returns the number of multiprocessors of the current device; 1 without a device.
inline int multiprocessors() { return device_info().multiprocessors; }

/// Returns the architecture of the current device; 0 without a device.
inline int device_architecture() { return device_info().architecture; }

/// Returns the most shared memory of a block of the current device; 0 without a device. Units: KB.
inline int device_shared_kb() { return static_cast<int>(device_info().shared_bytes / 1024); }

/// Returns whether the code of `kernel` that the current device would run was compiled for an
/// architecture before `least`, and so lacks the instructions of that. False where there is no
/// code.
template <class... Params>
bool lacks(void (*kernel)(Params...), int least) {
  return kernel_info(kernel).lacks(least);
}

/// Returns whether the code of `kernel` that the current device would run has an empty body,
/// because it was compiled for an architecture without the family's own instructions ("90", not
/// "90a"). The number of its registers shows that, except in code for a debugger (nvcc -G).
template <class... Params>
bool is_empty(void (*kernel)(Params...)) {
  return kernel_info(kernel).is_empty();
}

/// Returns whether the current device has that architecture, and code of `kernel` with the
/// architecture's own instructions.
template <class... Params>
bool has_own_code(void (*kernel)(Params...), int architecture) {
  const DeviceInfo device = device_info();
  return device.architecture == architecture && !kernel_info(kernel, device).is_empty();
}

/// Returns whether a grid of `blocks` blocks with `shared_bytes` of dynamic shared memory each
/// could be launched on the current device, or a sentence that says why not. Launches nothing. The
/// kernel is for the architecture `least` and later ones; with 900 it is for that one alone.
template <class... Params>
Check check_launch(void (*kernel)(Params...), std::size_t shared_bytes, std::int64_t blocks,
                   int least = 0) {
  const DeviceInfo device = device_info();
  const KernelInfo code = kernel_info(kernel, device);
  const bool is_own = least < 900 || (device.architecture == least && !code.is_empty());
  if (device.check && !(is_own && !code.lacks(least))) {
    return {cudaErrorNoKernelImageForDevice,
            least >= 900
                ? "the kernel needs a device of compute capability 9.0, and to be compiled for its "
                  "own instructions: for sm_90a, not sm_90"
                : "the kernel needs compute capability 8.0 or later, of the device and among those "
                  "that it was compiled for"};
  }
  if (blocks > INT_MAX) return refuse("the problem has more than 2^31 - 1 tiles");
  if (!device.check) return device.check;
  if (shared_bytes > device.shared_bytes) {
    return {cudaErrorInvalidConfiguration,
            "the kernel's tiles need more shared memory than a block of this device can have"};
  }
  return code.check;
}

}  // namespace attile::arch
