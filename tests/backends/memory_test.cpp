// Memory of the CPU backend: allocation, copies, ownership.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "support/error.h"

namespace dspark {
namespace {

TEST(Memory, NothingIsAnEmptyBuffer) {
  const auto backend = make_cpu_backend(1);
  const Buffer buffer = backend->allocate(0);
  EXPECT_EQ(buffer.data(), nullptr);
  EXPECT_EQ(buffer.bytes(), 0u);
  EXPECT_EQ(buffer.as<float>().size, 0);
  backend->upload(buffer.data(), nullptr, 0);
  backend->download(nullptr, buffer.data(), 0);
  backend->fill(buffer.data(), 1, 0);
}

TEST(Memory, BuffersAreAlignedAndTyped) {
  const auto backend = make_cpu_backend(1);
  for (const std::size_t bytes : {1u, 4u, 255u, 256u, 257u, 100000u}) {
    const Buffer buffer = backend->allocate(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 256, 0u);
    EXPECT_EQ(buffer.bytes(), bytes);
    EXPECT_EQ(buffer.as<double>().size, static_cast<std::int64_t>(bytes / sizeof(double)));
    EXPECT_EQ(buffer.as<double>(0).size, 0);
  }
}

TEST(Memory, WhatIsTooLargeIsADeviceErrorThatNamesTheSize) {
  const auto backend = make_cpu_backend(1);
  for (const std::size_t bytes : {std::size_t{1} << 50, std::numeric_limits<std::size_t>::max(),
                                  std::numeric_limits<std::size_t>::max() - 255}) {
    try {
      const Buffer buffer = backend->allocate(bytes);
      FAIL() << bytes << " bytes were given";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::device);
      const std::string what = error.what();
      EXPECT_NE(what.find("cannot allocate"), std::string::npos) << what;
      EXPECT_NE(what.find('B'), std::string::npos) << what;
    }
  }
}

TEST(Memory, CopiesAndFillsArriveWhole) {
  const auto backend = make_cpu_backend(1);
  const std::vector<std::uint8_t> sent = {1, 2, 3, 4, 5};
  const Buffer buffer = backend->allocate(sent.size());
  backend->upload(buffer.data(), sent.data(), sent.size());
  std::vector<std::uint8_t> got(sent.size());
  backend->download(got.data(), buffer.data(), got.size());
  EXPECT_EQ(got, sent);
  backend->fill(buffer.as<std::uint8_t>().data + 1, 0xAB, 2);
  backend->synchronize();
  backend->download(got.data(), buffer.data(), got.size());
  EXPECT_EQ(got, (std::vector<std::uint8_t>{1, 0xAB, 0xAB, 4, 5}));
}

TEST(Memory, BuffersMove) {
  const auto backend = make_cpu_backend(1);
  Buffer first = backend->allocate(64);
  void* const data = first.data();
  Buffer second = std::move(first);
  EXPECT_EQ(second.data(), data);
  first = backend->allocate(32);
  second = std::move(first);
  EXPECT_EQ(second.bytes(), 32u);
  second = Buffer();
  EXPECT_EQ(second.data(), nullptr);
}

TEST(CpuBackend, SaysWhatItIs) {
  const auto backend = make_cpu_backend(3);
  EXPECT_EQ(backend->name(), "cpu");
  EXPECT_FALSE(backend->device().empty());
  EXPECT_GT(backend->free_memory(), std::size_t{1} << 20);
}

TEST(CpuBackend, RefusesImpossibleThreadCounts) {
  for (const int threads : {0, -1, 1 << 20}) {
    try {
      static_cast<void>(make_cpu_backend(threads));
      FAIL() << threads;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::internal);
    }
  }
}

}  // namespace
}  // namespace dspark
