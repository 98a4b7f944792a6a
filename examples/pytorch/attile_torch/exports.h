// SPDX-License-Identifier: MIT
#pragma once

// The functions of a variant's library, the last header of each. The header before it has
//   Call                             the struct of a call, whose first member is `device`
//   kCallBytes                       how much of it a call of this variant has
//   args_of(call)                    its arguments
//   check(args), size_of(args)       a Check, and a WorkspaceSize
//   run(call, args, memory, bytes)   a cudaError_t

// The library is built with hidden visibility: many are loaded into one process.
#pragma GCC visibility push(default)
extern "C" {

/// The size of a call. Units: bytes.
std::int64_t attile_torch_call_bytes() { return kCallBytes; }

/// Why `attile_torch_run` would refuse the call, in one sentence; empty when it would not.
const char* attile_torch_check(const Call* call) {
  if (const cudaError_t error = use_device(call->device)) return name_of(error);
  return check(args_of(*call)).why;
}

/// The bytes of scratch memory that `attile_torch_run` needs; below 0 where it would refuse.
std::int64_t attile_torch_workspace(const Call* call) {
  if (use_device(call->device) != cudaSuccess) return -1;
  const attile::WorkspaceSize size = size_of(args_of(*call));
  return size ? static_cast<std::int64_t>(size.bytes) : -1;
}

/// Runs the call: on a GPU asynchronously on its stream. Errors: a cudaError_t, or 0.
int attile_torch_run(const Call* call, void* workspace, std::int64_t bytes) {
  if (const cudaError_t error = use_device(call->device)) return error;
  return run(*call, args_of(*call), workspace, static_cast<std::size_t>(bytes));
}

/// Which capture a stream is in: a number that no other one of the process has, or 0.
std::uint64_t attile_torch_capture(std::int64_t stream) { return capture_of(stream); }

/// What a number that `attile_torch_run` returned means.
const char* attile_torch_error(int error) { return name_of(static_cast<cudaError_t>(error)); }

}  // extern "C"
#pragma GCC visibility pop
