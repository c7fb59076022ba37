#include <functional>
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

// The CPU backend keeps the calls it records, so only here is there something to refuse.
TEST_F(BackendParity, RefusesToRecordMemoryAndWaitingAndGoesOn) {
  Buffer buffer = cuda_backend()->allocate(16);
  float host[4] = {};
  const std::vector<std::function<void()>> forbidden = {
      [&] { cuda_backend()->upload(buffer.data(), host, sizeof host); },
      [&] { cuda_backend()->download(host, buffer.data(), sizeof host); },
      [&] { cuda_backend()->synchronize(); },
      [&] { static_cast<void>(cuda_backend()->allocate(64)); },
      [&] { static_cast<void>(cuda_backend()->record([] {})); },
      [&] { static_cast<void>(cuda_backend()->measure([] {})); },
  };
  for (const auto& work : forbidden) {
    try {
      static_cast<void>(cuda_backend()->record(work));
      ADD_FAILURE() << "was recorded";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::internal);
    }
    cuda_backend()->fill(buffer.data(), 0x5A, 16);
    std::vector<unsigned char> got(16);
    cuda_backend()->download(got.data(), buffer.data(), got.size());
    EXPECT_EQ(got, std::vector<unsigned char>(16, 0x5A));
  }
}

TEST_F(BackendParity, RefusesToRecordWhatNeedsALargerWorkspace) {
  constexpr std::int32_t kVocab = 4096;
  constexpr std::int64_t kRows = 100;
  const auto fresh = make_cuda_backend();  // its workspace is empty
  const Buffer logits = fresh->allocate(kRows * kVocab * sizeof(float));
  const Buffer laws = fresh->allocate(kRows * sizeof(RowLaw));
  fresh->fill(logits.data(), 0, logits.bytes());
  const RowLawsArgs args = {
      .logits = {logits.as<float>().data, kRows, kVocab, kVocab},
      .rule = make_sampling_rule(1, 20, 0.9, TopPRule::water_filling, kVocab),
      .laws = laws.as<RowLaw>(),
  };
  EXPECT_THROW(static_cast<void>(fresh->record([&] { fresh->row_laws(args); })), Error);
  fresh->row_laws(args);
  fresh->synchronize();
  const auto recording = fresh->record([&] { fresh->row_laws(args); });
  recording->replay();
  fresh->synchronize();
}

}  // namespace
}  // namespace dspark::parity
