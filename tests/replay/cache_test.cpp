// Tables that are kept: the same bytes, no second pass, and no trust in a file that is not whole.
#include "replay/cache.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utime.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include "backends/cpu/cpu_backend.h"
#include "replay/replay.h"
#include "report/render.h"
#include "support/error.h"
#include "tests/replay/idle_backend.h"
#include "tests/replay/same_bits.h"
#include "tests/replay/tiny_trace.h"
#include "tests/support/temporary_folder.h"

namespace dspark {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

/// A tiny trace, and a folder to keep its tables in.
class Cache : public testing::Test {
 protected:
  Cache() { open(TinyTrace(3)); }

  void open(const TinyTrace& tiny) {
    trace_.reset();
    std::filesystem::remove(path_);
    tiny.write(path_);
    trace_ = TraceFile::open(path_);
    heads_ = load_heads(*trace_, "", 0);
    request_.sampling = {tiny.temperature, tiny.top_k, tiny.top_p, "water_filling"};
    options_.note = options_.notice = [this](const std::string& line) { notices_.push_back(line); };
  }

  OutcomeTable reduce() {
    ++made_;
    return reduce_anchors(*cpu_, *trace_, heads_, request_, options_);
  }
  OutcomeTable ask(TableCache& cache) {
    return cache.outcomes(*cpu_, *trace_, heads_, request_, options_, [this] { return reduce(); });
  }
  OutcomeTable ask() {
    TableCache cache(folder_);
    return ask(cache);
  }
  /// Whether the table has to be made.
  bool has_to_make() {
    const int before = made_;
    static_cast<void>(ask());
    return made_ > before;
  }
  /// The one file of the folder.
  [[nodiscard]] std::string entry() const {
    const std::vector<std::string> names = names_in(folder_);
    EXPECT_EQ(names.size(), 1u);
    return names.empty() ? "" : folder_ + "/" + names.front();
  }

  test::TemporaryFolder files_;
  std::string path_ = files_.file("trace.h5");
  std::string folder_ = files_.file("cache");
  std::unique_ptr<Backend> cpu_ = make_cpu_backend(1);
  std::unique_ptr<TraceFile> trace_;
  Heads heads_;
  ReduceRequest request_{
      .sampling = {}, .verification = Verification::probabilistic, .worlds = true};
  ReplayOptions options_;
  std::vector<std::string> notices_;
  int made_ = 0;
};

bool same_table(const OutcomeTable& a, const OutcomeTable& b) {
  return a.block_size == b.block_size && a.repeats == b.repeats && a.greedy == b.greedy &&
         a.has_confidence == b.has_confidence && a.sequence_offsets == b.sequence_offsets &&
         a.slots == b.slots && same_bits(a.beta, b.beta) && same_bits(a.alpha, b.alpha) &&
         same_bits(a.confidence, b.confidence) && a.agreement == b.agreement &&
         same_bits(a.world_confidence, b.world_confidence) &&
         same_bits(a.top_probability, b.top_probability) &&
         same_bits(a.world_top_probability, b.world_top_probability) &&
         a.invalid_rows == b.invalid_rows && a.impossible_tokens == b.impossible_tokens &&
         a.near_ties == b.near_ties && a.first_problem == b.first_problem;
}

/// A replay as bytes, but for what may differ between runs.
std::string replay(Backend& backend, TraceFile& trace, const Heads& heads,
                   const ReduceRequest& request, const std::vector<Policy>& policies,
                   const ReplayOptions& options) {
  ReplayResult result;
  TraceSummary summary;
  replay_trace(backend, {trace, heads, request.verification, request.sampling, policies, {}},
               options, summary, result);
  result.traces.push_back(summary);
  return render(result, OutputFormat::json);
}

TEST_F(Cache, ASecondReplayWithOtherPoliciesUsesNoBackendAndGivesTheSameBytes) {
  const std::vector<Policy> first = {FixedLength{2}};
  const std::vector<Policy> second = {NoSpeculation{}, FixedLength{3}, Threshold{.threshold = 0.3}};
  const std::string expected = replay(*cpu_, *trace_, heads_, request_, second, options_);
  IdleBackend idle;
  EXPECT_THROW(replay(idle, *trace_, heads_, request_, second, options_), std::logic_error);

  TableCache cache(folder_);
  options_.cache = &cache;
  static_cast<void>(replay(*cpu_, *trace_, heads_, request_, first, options_));
  EXPECT_EQ(cache.made(), 1);
  TableCache later(folder_);
  options_.cache = &later;
  options_.threads = 2;
  options_.chunk = 5;
  EXPECT_EQ(replay(idle, *trace_, heads_, request_, second, options_), expected);
  EXPECT_EQ(later.made(), 0);
  for (const std::string& notice : notices_) {
    EXPECT_NE(notice.find("below 200 even the intervals are rough"), std::string::npos) << notice;
  }
}

TEST_F(Cache, ATableWithoutTopProbabilitiesDoesNotServeARuleThatNeedsThem) {
  const std::vector<Policy> plain = {FixedLength{2}};
  const std::vector<Policy> rules = {FixedLength{2}, SoftmaxMin{0.5, 0}};
  const std::string expected = replay(*cpu_, *trace_, heads_, request_, rules, options_);
  TableCache cache(folder_);
  options_.cache = &cache;
  static_cast<void>(replay(*cpu_, *trace_, heads_, request_, plain, options_));
  EXPECT_EQ(replay(*cpu_, *trace_, heads_, request_, rules, options_), expected);
  EXPECT_EQ(cache.made(), 2);
  IdleBackend idle;
  EXPECT_EQ(replay(idle, *trace_, heads_, request_, rules, options_), expected);
  EXPECT_EQ(cache.made(), 2);
}

TEST_F(Cache, ATableWithTopProbabilitiesIsKeptWhole) {
  request_.top_probability = true;
  const OutcomeTable expected = reduce();
  ASSERT_FALSE(expected.world_top_probability.empty());
  EXPECT_TRUE(same_table(ask(), expected));
  EXPECT_TRUE(same_table(ask(), expected));
  EXPECT_EQ(made_, 2) << "once for itself, once for the cache";
}

TEST_F(Cache, ARoundsTraceIsKeptToo) {
  trace_ = TraceFile::open(std::string(DSPARK_TRACES) + "/rounds_code_t1.h5");
  heads_ = load_heads(*trace_, "", 0);
  const TraceHeader& header = trace_->header();
  request_.sampling = {header.temperature, header.top_k, header.top_p, "water_filling"};
  const std::vector<Policy> policies = {FixedLength{4}, Threshold{.threshold = 0.3},
                                        SoftmaxMin{0.4, 0}};
  TableCache cache(folder_);
  options_.cache = &cache;
  const std::string expected = replay(*cpu_, *trace_, heads_, request_, policies, options_);
  options_.cache = nullptr;
  EXPECT_EQ(replay(*cpu_, *trace_, heads_, request_, policies, options_), expected);
  options_.cache = &cache;
  IdleBackend idle;
  EXPECT_EQ(replay(idle, *trace_, heads_, request_, policies, options_), expected);
  EXPECT_EQ(cache.made(), 1);

  const std::string bytes = read_file(entry());
  for (std::size_t i = 0; i < bytes.size(); i += 97) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    write_file(entry(), damaged);
    EXPECT_THROW(replay(idle, *trace_, heads_, request_, policies, options_), std::logic_error)
        << "byte " << i;
  }
}

TEST_F(Cache, AGreedyTableIsKept) {
  TinyTrace tiny(5);
  tiny.temperature = 0;
  for (std::size_t n = 0; n < tiny.tokens.size(); ++n) {  // every row's best token is the next one
    const bool last = n + 1 == 7 || n + 1 == tiny.tokens.size();
    const std::int32_t next = last ? tiny.last_tokens[n + 1 == 7 ? 0 : 2] : tiny.tokens[n + 1];
    tiny.target_logits[n * static_cast<std::size_t>(tiny.vocab) + static_cast<std::size_t>(next)] =
        9;
  }
  open(tiny);
  request_.verification = Verification::greedy;
  const OutcomeTable expected = reduce();
  EXPECT_TRUE(same_table(ask(), expected));
  EXPECT_TRUE(same_table(ask(), expected));
  EXPECT_EQ(made_, 2) << "once for itself, once for the cache";
}

TEST_F(Cache, AnEntryWithAnyByteChangedIsMadeAnew) {
  const OutcomeTable expected = ask();
  const std::string path = entry();
  const std::string bytes = read_file(path);
  for (std::size_t i = 0; i < bytes.size(); i += i < 64 || i + 20 > bytes.size() ? 1 : 31) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
    write_file(path, damaged);
    const int before = made_;
    notices_.clear();
    EXPECT_TRUE(same_table(ask(), expected)) << "byte " << i;
    EXPECT_EQ(made_, before + 1) << "byte " << i;
    ASSERT_EQ(notices_.size(), 1u) << "byte " << i;
    EXPECT_NE(notices_[0].find(path), std::string::npos) << notices_[0];
    EXPECT_EQ(read_file(path), bytes) << "byte " << i;
  }
  EXPECT_FALSE(has_to_make());
}

TEST_F(Cache, AnEntryOfAnotherLengthIsMadeAnew) {
  const OutcomeTable expected = ask();
  const std::string path = entry();
  const std::string bytes = read_file(path);
  std::vector<std::string> others = {bytes + 'x', bytes + bytes, "not a table at all", {}};
  for (std::size_t length = 1; length < bytes.size(); length += 37) {
    others.push_back(bytes.substr(0, length));
  }
  others.push_back(bytes.substr(0, bytes.size() - 1));
  for (const std::string& other : others) {
    write_file(path, other);
    const int before = made_;
    EXPECT_TRUE(same_table(ask(), expected)) << other.size();
    EXPECT_EQ(made_, before + 1) << other.size();
    EXPECT_EQ(read_file(path), bytes) << other.size();
  }
}

TEST_F(Cache, SizesThatAnEntryClaimsAreNotAllocated) {
  const OutcomeTable expected = ask();
  const std::string path = entry();
  const std::string bytes = read_file(path);
  const std::uint64_t huge = std::uint64_t{1} << 36;
  for (const std::size_t at : {32, 50}) {  // the payload's size, the number of sequences
    std::string damaged = bytes;
    std::memcpy(damaged.data() + 32, &huge, sizeof huge);
    std::memcpy(damaged.data() + at, &huge, sizeof huge);
    write_file(path, damaged);
    ASSERT_EQ(truncate(path.c_str(), static_cast<off_t>(huge + 56)), 0);
    const int before = made_;
    EXPECT_TRUE(same_table(ask(), expected));
    EXPECT_EQ(made_, before + 1);
  }
  options_.memory_budget = 64;
  EXPECT_THROW(static_cast<void>(ask()), Error) << "as without a cache";
}

TEST_F(Cache, ATableOfSomethingElseDoesNotServe) {
  static_cast<void>(ask());
  EXPECT_FALSE(has_to_make());
  options_.threads = 2;
  options_.chunk = 1;
  options_.tile_bytes = 1000;
  EXPECT_FALSE(has_to_make()) << "these change no bit";

  options_.seed = 1;
  EXPECT_TRUE(has_to_make());
  options_.seed = 0;
  options_.repeats = 5;
  EXPECT_TRUE(has_to_make());
  options_.repeats = 4;
  request_.sampling.top_p_rule = "include_crossing";
  EXPECT_TRUE(has_to_make());
  request_.sampling.top_p_rule = "water_filling";
  request_.sampling.top_k = 3;
  EXPECT_TRUE(has_to_make());
  request_.sampling.top_k = 0;
  request_.sampling.top_p = 0.9;
  EXPECT_TRUE(has_to_make());
  request_.sampling.top_p = 1;
  request_.sampling.temperature = 0.5;
  EXPECT_TRUE(has_to_make());
  request_.sampling.temperature = 1;
  request_.worlds = false;
  EXPECT_TRUE(has_to_make());
  request_.worlds = true;
  request_.top_probability = true;
  EXPECT_TRUE(has_to_make());
  request_.top_probability = false;
  heads_.confidence_bias += 1;
  EXPECT_TRUE(has_to_make());
  heads_.confidence_bias -= 1;
  heads_.markov_w1.bytes[3] ^= std::byte{1};
  EXPECT_TRUE(has_to_make());
  heads_.markov_w1.bytes[3] ^= std::byte{1};
  EXPECT_FALSE(has_to_make()) << "all as at first";

  TinyTrace other(3);
  other.target_logits[7] += 0.125f;
  open(other);
  EXPECT_TRUE(has_to_make());
  open(TinyTrace(3));
  EXPECT_FALSE(has_to_make()) << "the same bytes in another file";
}

/// Multiplies everything on tensor cores.
class TensorBackend : public IdleBackend {
 public:
  explicit TensorBackend(const std::string& device) : device_(device) {}
  [[nodiscard]] std::string device() const override { return device_; }
  [[nodiscard]] bool has_tensor_products(DType, DType, std::int64_t) const override { return true; }

 private:
  std::string device_;
};

TEST_F(Cache, ProductsOfTensorCoresBelongToTheirDevice) {
  const auto has_to_make_on = [&](const Backend& backend, Products products) {
    options_.products = products;
    TableCache cache(folder_);
    static_cast<void>(
        cache.outcomes(backend, *trace_, heads_, request_, options_, [this] { return reduce(); }));
    return cache.made() == 1;
  };
  const TensorBackend one("one"), other("other");
  EXPECT_TRUE(has_to_make_on(*cpu_, Products::exact));
  EXPECT_FALSE(has_to_make_on(one, Products::exact)) << "the same bits";
  EXPECT_FALSE(has_to_make_on(*cpu_, Products::tensor)) << "exact where there are no tensor cores";
  EXPECT_TRUE(has_to_make_on(one, Products::tensor));
  EXPECT_FALSE(has_to_make_on(one, Products::tensor));
  EXPECT_TRUE(has_to_make_on(other, Products::tensor));
  EXPECT_FALSE(has_to_make_on(*cpu_, Products::exact));
}

TEST_F(Cache, WhatIsReadIsTheOpenFileNotWhatTookItsPath) {
  static_cast<void>(ask());
  std::filesystem::remove(path_);
  TinyTrace(4).write(path_);
  EXPECT_FALSE(has_to_make());
}

TEST_F(Cache, ATraceThatChangesMeanwhileIsNotKept) {
  const OutcomeTable expected = reduce();
  TableCache cache(folder_);
  const OutcomeTable table = cache.outcomes(*cpu_, *trace_, heads_, request_, options_, [this] {
    OutcomeTable made = reduce();
    std::ofstream(path_, std::ios::binary | std::ios::app) << 'x';
    return made;
  });
  EXPECT_TRUE(same_table(table, expected));
  ASSERT_EQ(notices_.size(), 1u);
  EXPECT_NE(notices_[0].find("changed while"), std::string::npos) << notices_[0];
  EXPECT_TRUE(names_in(folder_).empty());
}

TEST_F(Cache, InvalidRowsAreToldAgain) {
  TinyTrace tiny(7);
  tiny.draft_logits[7 * static_cast<std::size_t>(tiny.vocab)] =
      std::numeric_limits<float>::quiet_NaN();
  open(tiny);
  const OutcomeTable made = ask();
  ASSERT_EQ(notices_.size(), 1u);
  EXPECT_FALSE(made.first_problem.empty());
  EXPECT_TRUE(same_table(ask(), made));
  ASSERT_EQ(notices_.size(), 2u);
  EXPECT_EQ(notices_[0], notices_[1]);
  EXPECT_EQ(made_, 1);
}

TEST_F(Cache, AFullDiskCostsTheEntryAndNotTheRun) {
  const OutcomeTable expected = reduce();
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  rlimit small = old_limit;
  small.rlim_cur = 500;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const OutcomeTable table = ask();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old_limit), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_TRUE(same_table(table, expected));
  ASSERT_EQ(notices_.size(), 1u);
  EXPECT_NE(notices_[0].find("cannot be written"), std::string::npos) << notices_[0];
  EXPECT_TRUE(names_in(folder_).empty());
}

TEST_F(Cache, AForeignObjectInAnEntrysPlaceIsNoObstacle) {
  const OutcomeTable expected = ask();
  const std::string path = entry();
  std::filesystem::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_TRUE(same_table(ask(), expected)) << "a pipe must not be waited for";
  EXPECT_FALSE(has_to_make());
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  notices_.clear();
  EXPECT_TRUE(same_table(ask(), expected));
  EXPECT_EQ(notices_.size(), 2u) << "neither read nor replaced";
  EXPECT_EQ(names_in(folder_).size(), 1u);
}

TEST_F(Cache, EntriesHaveTheUsualPermissions) {
  const mode_t mask = umask(027);
  static_cast<void>(ask());
  umask(mask);
  struct stat status {};
  ASSERT_EQ(stat(entry().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0640u);
}

TEST_F(Cache, TheFolderIsMadeOrRefused) {
  const TableCache nested(files_.file("a/b/c"));
  EXPECT_TRUE(std::filesystem::is_directory(files_.file("a/b/c")));
  write_file(files_.file("file"), "x");
  // /proc takes no files from anyone, whoever runs the test.
  for (const std::string& bad : {std::string(), files_.file("file"), files_.file("file/below"),
                                 std::string("/proc"), std::string("/proc/no/such")}) {
    try {
      const TableCache cache(bad);
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage) << error.what();
      EXPECT_NE(std::string(error.what()).find("--cache"), std::string::npos) << error.what();
    }
  }
}

TEST_F(Cache, OldLeftoversGoAndEverythingElseStays) {
  std::filesystem::create_directory(folder_);
  const auto put = [&](const std::string& name, std::time_t age) {
    const std::string path = folder_ + "/" + name;
    write_file(path, "x");
    const std::time_t then = std::time(nullptr) - age;
    const utimbuf times{.actime = then, .modtime = then};
    ASSERT_EQ(utime(path.c_str(), &times), 0);
  };
  constexpr std::time_t kDay = 24 * 60 * 60;
  put(".dspark-table.1.aa", 2 * kDay);
  put(".dspark-table.2.bb", kDay / 2);
  put("0123.table", 2 * kDay);
  put("notes.txt", 200 * kDay);
  const TableCache cache(folder_);
  std::vector<std::string> names = names_in(folder_);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{".dspark-table.2.bb", "0123.table", "notes.txt"}));
}

}  // namespace
}  // namespace dspark
