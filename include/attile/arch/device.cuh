// SPDX-License-Identifier: MIT
#pragma once

#include <attile/core/shared_word.h>
#include <attile/core/status.h>

#include <cuda_runtime.h>

#include <climits>
#include <cstddef>
#include <cstdint>

// What the current device is, and what it makes of a kernel. The runtime library is asked once for
// each device and each kernel on it: an answer takes it as long as a fifth of a launch.

namespace attile::arch {

/// Numbers of a device. Architectures are numbered as __CUDA_ARCH__ does: 100 * major + 10 * minor
/// of a compute capability.
struct DeviceNumbers {
  int architecture;          ///< 0 without a device
  int multiprocessors;       ///< 1 without a device
  std::size_t shared_bytes;  ///< that a block can have; 0 without a device
};

/// The current device. `check`: why it cannot be used.
struct DeviceInfo : DeviceNumbers {
  Check check;
  int ordinal;
};

/// Numbers of a kernel's code that a device would run.
struct KernelNumbers {
  int code_architecture;  ///< for which it was compiled
  int registers;          ///< of a thread
};

/// A kernel on the current device. `check`: why it cannot be launched there, without its numbers.
struct KernelInfo : KernelNumbers {
  Check check;

  /// See the functions of these names.
  bool lacks(int least) const { return check && code_architecture < least; }
  bool is_empty() const {
    constexpr int kFew = 16;  // registers; the tiles of a kernel take more
    return check && registers <= kFew;
  }
};

namespace detail {

/// Answers by a key, of fixed size: a full table asks again each time. An answer is written once
/// and stays. Scope    any threads at the same time, without a lock.
template <class Key, class Answer, unsigned kEntries>
class AnswerTable {
 public:
  /// Null where there is none yet.
  Answer* find(const Key& key) {
    for (unsigned i = 0; i < kProbes; ++i) {
      Entry& entry = entries_[(key.hash() + i) % kEntries];
      const int state = entry.state.load();
      if (state == kFree) return nullptr;
      if (state == kThere && entry.key == key) return &entry.answer;
    }
    return nullptr;
  }
  /// Null where there is no place.
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
    SharedWord<int> state;  // kFree at first
    Key key;
    Answer answer;
  };
  Entry entries_[kEntries];
};

struct DeviceKey {
  int device = 0;

  unsigned hash() const { return static_cast<unsigned>(device); }
  bool operator==(const DeviceKey&) const = default;
};

struct KernelKey {
  const void* kernel = nullptr;
  int device = 0;

  unsigned hash() const {
    return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(kernel) / 16) * 31 +
           static_cast<unsigned>(device);
  }
  bool operator==(const KernelKey&) const = default;
};

/// What is known of a kernel on a device, and what has been asked of the runtime for it.
struct KernelAnswers {
  KernelNumbers numbers;
  SharedWord<std::size_t> shared_bytes;  ///< that it is allowed; 0: not asked
};

// Zeros at first, so that a program's file does not grow by them.
inline AnswerTable<DeviceKey, DeviceNumbers, 64> device_table;
inline AnswerTable<KernelKey, KernelAnswers, 1024> kernel_table;

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

template <class Kernel>
Check ask_kernel(KernelNumbers& numbers, Kernel kernel) {
  cudaFuncAttributes attributes{};
  if (const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel)) {
    if (error != cudaErrorInvalidDeviceFunction && error != cudaErrorNoKernelImageForDevice) {
      return {error, "the CUDA runtime cannot load the kernel, or reports an earlier error"};
    }
    static_cast<void>(cudaGetLastError());  // said here; not to be found by the caller's next look
    return {error, "the kernel was not compiled for the architecture of this device"};
  }
  numbers = {attributes.ptxVersion * 10, attributes.numRegs};
  return {};
}

}  // namespace detail

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

/// What is known of a kernel on a device, the current one, and its numbers; null where the runtime
/// refuses to say (`info.check`), or there is no room to keep them.
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

/// The same on the current device.
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

/// `device`: the current one.
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

/// Multiprocessors of the current device; 1 without a device.
inline int multiprocessors() { return device_info().multiprocessors; }

/// Compute capability of the current device; 0 without a device.
inline int device_architecture() { return device_info().architecture; }

/// The shared memory that a block of the current device can have; 0 without a device. Units: KB.
inline int device_shared_kb() { return static_cast<int>(device_info().shared_bytes / 1024); }

/// Whether the code of `kernel` that the current device would run was compiled for an architecture
/// before `least`, so that it lacks what came with it. Not where there is no code at all.
template <class... Params>
bool lacks(void (*kernel)(Params...), int least) {
  return kernel_info(kernel).lacks(least);
}

/// Whether there is nothing in the code of `kernel` that the current device would run: it was not
/// compiled for an architecture with the family's own instructions ("90a", and not "90"). By its
/// registers, so not in code for a debugger (nvcc -G).
template <class... Params>
bool is_empty(void (*kernel)(Params...)) {
  return kernel_info(kernel).is_empty();
}

/// Whether the current device is of an architecture, and has code of `kernel` with its own
/// instructions.
template <class... Params>
bool has_own_code(void (*kernel)(Params...), int architecture) {
  const DeviceInfo device = device_info();
  return device.architecture == architecture && !kernel_info(kernel, device).is_empty();
}

/// Whether a grid of `blocks` blocks with `shared_bytes` of dynamic shared memory each could be
/// launched on the current device; a sentence that says why not. Launches nothing. `least`: the
/// architecture that the kernel is for, and what comes after it; 900 is for itself alone.
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
