#include <vector>

#include "parity.h"
#include "support/error.h"

namespace dspark::parity {
namespace {

class BackendParity : public Parity {};

TEST_F(BackendParity, NamesItsDevice) {
  EXPECT_EQ(cuda_backend()->name(), "cuda");
  EXPECT_FALSE(cuda_backend()->device().empty());
  EXPECT_GT(cuda_backend()->free_memory(), 0u);
}

TEST_F(BackendParity, UploadsLargerThanTheStagingBuffersArriveWhole) {
  for (std::size_t count : {std::size_t{1}, std::size_t{3} << 20, std::size_t{17} << 20}) {
    std::vector<unsigned char> source(count);
    Numbers numbers(count);
    for (std::size_t i = 0; i < count; ++i)
      source[i] = static_cast<unsigned char>(i * 31 + i / 977);
    const std::vector<unsigned char> kept = source;
    Buffer buffer = cuda_backend()->allocate(count);
    cuda_backend()->upload(buffer.data(), source.data(), count);
    std::fill(source.begin(), source.end(), static_cast<unsigned char>(0));  // reusable on return
    std::vector<unsigned char> got(count);
    cuda_backend()->download(got.data(), buffer.data(), count);
    EXPECT_EQ(got, kept);
  }
}

TEST_F(BackendParity, FillsAndAlignsMemory) {
  Buffer odd = cuda_backend()->allocate(3);
  Buffer buffer = cuda_backend()->allocate(1000);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 256, 0u);
  cuda_backend()->fill(buffer.data(), 0x5A, 1000);
  std::vector<unsigned char> got(1000);
  cuda_backend()->download(got.data(), buffer.data(), got.size());
  EXPECT_EQ(got, std::vector<unsigned char>(1000, 0x5A));
}

TEST_F(BackendParity, SaysWhatItCouldNotAllocateAndGoesOn) {
  try {
    static_cast<void>(cuda_backend()->allocate(std::size_t{1} << 50));
    FAIL() << "a petabyte was allocated";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::device);
    EXPECT_NE(std::string(error.what()).find("cuda backend"), std::string::npos);
  }
  Buffer buffer = cuda_backend()->allocate(64);
  cuda_backend()->fill(buffer.data(), 0, 64);
  cuda_backend()->synchronize();
}

}  // namespace
}  // namespace dspark::parity
