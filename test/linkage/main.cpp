// SPDX-License-Identifier: MIT
// The program's point is that it links: see attile_header_tests in cmake/compile_tests.cmake.
int main() { return 0; }
