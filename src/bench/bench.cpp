#include "bench/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "support/error.h"
#include "support/text.h"

namespace dspark {
namespace {

constexpr std::int64_t kMostSets = 256;
constexpr int kFewestSamples = 5;
/// Length of a sample where a call is short: events and clocks then do not show.
constexpr double kSampleMilliseconds = 1;
/// Time a case runs before it is timed, or more calls than that where its clock stands still.
constexpr double kWarmUpMilliseconds = 20;
constexpr int kMostCalls = 1 << 17;

// --- correctness ---

template <class T>
T read(const std::vector<std::byte>& bytes, std::size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

double as_probability(std::uint64_t units) { return static_cast<double>(units) * 0x1p-61; }

bool close(double got, double expected, double bound) {
  // Written so that a NaN is never close, and infinities only to themselves.
  return got == expected || std::abs(got - expected) <= bound;
}

bool close_probability(double got, double expected, double boundary) {
  return close(got, expected,
               kProbabilityBound * std::max(std::abs(got), std::abs(expected)) + boundary);
}

bool close_pair(const PairOutcome& got, const PairOutcome& expected) {
  constexpr double kLeast = 0x1p-40;  // a mass below this is rounded to none
  return got.valid == expected.valid &&
         close(as_probability(got.alpha), as_probability(expected.alpha), kProbabilityBound) &&
         close_probability(as_probability(got.target_token), as_probability(expected.target_token),
                           kLeast) &&
         close_probability(as_probability(got.draft_token), as_probability(expected.draft_token),
                           kLeast) &&
         close(got.target_logit, expected.target_logit, kLogitBound);
}

using Bytes = std::vector<std::byte>;

// The first element at which the outputs are too far from each other.
std::optional<std::size_t> first_difference(Compare compare, const Bytes& got,
                                            const Bytes& expected) {
  const auto search = [&](std::size_t size, const auto& agree) -> std::optional<std::size_t> {
    for (std::size_t i = 0; i < got.size() / size; ++i) {
      if (!agree(i)) return i;
    }
    return std::nullopt;
  };
  switch (compare) {
    case Compare::bits:
      if (got == expected) return std::nullopt;
      return search(1, [&](std::size_t i) { return got[i] == expected[i]; });
    case Compare::logits:
      return search(sizeof(float), [&](std::size_t i) {
        return close(read<float>(got, i), read<float>(expected, i), kLogitBound);
      });
    case Compare::probabilities:
    case Compare::filtered_probabilities: {
      constexpr double kLeast = 0x1p-40;
      const double boundary = compare == Compare::probabilities ? kLeast : kBoundaryBound;
      return search(sizeof(float), [&](std::size_t i) {
        return close_probability(read<float>(got, i), read<float>(expected, i), boundary);
      });
    }
    case Compare::pairs:
      return search(sizeof(PairOutcome), [&](std::size_t i) {
        return close_pair(read<PairOutcome>(got, i), read<PairOutcome>(expected, i));
      });
  }
  throw internal_error("first_difference", "unknown comparison");
}

const char* element_word(Compare compare) { return compare == Compare::bits ? "byte" : "element"; }

bool is_exact(const BenchCase& what) { return what.products == Products::exact; }

std::string bounds_text(const BenchCase& what, const std::vector<BenchOutput>& outputs) {
  if (is_exact(what)) return "bits";
  const auto has = [&](Compare compare) {
    return std::any_of(outputs.begin(), outputs.end(),
                       [&](const BenchOutput& output) { return output.compare == compare; });
  };
  if (has(Compare::logits)) return fmt::format("within {:.2g}", kLogitBound);
  if (has(Compare::probabilities)) return fmt::format("within {:.2g} of each", kProbabilityBound);
  if (has(Compare::filtered_probabilities)) {
    return fmt::format("within {:.2g} of each and {:.2g}", kProbabilityBound, kBoundaryBound);
  }
  if (has(Compare::pairs)) return fmt::format("within {:.2g}", kProbabilityBound);
  return "decisions";  // tokens and lengths, which rounding changes in near ties alone
}

Bytes downloaded(Backend& backend, const void* data, std::size_t bytes) {
  Bytes out(bytes);
  backend.download(out.data(), data, bytes);
  return out;
}

void check_status(Backend& backend, const PreparedCase& prepared, const BenchCase& what) {
  if (prepared.status == nullptr) return;
  std::uint32_t status = 0;
  backend.download(&status, prepared.status, sizeof status);
  if (status == kOpOk) return;
  throw device_error(case_text(what),
                     fmt::format("the {} backend reports status {}", backend.name(), status),
                     "the device or this build is broken; please report it");
}

/// What the reference writes for the first entries, an element for each output.
std::vector<Bytes> expected_outputs(const BenchCase& what, Workbench& reference) {
  BenchCase small = what;
  if (!what.family->whole_batch) {
    std::int32_t& entries = small.anchors > 0 ? small.anchors : small.batch;
    entries = std::min(entries, what.family->reference_entries);
  }
  Arena arena(reference, 0);
  const PreparedCase prepared = what.family->prepare(small, arena);
  prepared.enqueue();
  check_status(reference.backend(), prepared, what);
  std::vector<Bytes> out;
  for (const BenchOutput& output : prepared.outputs) {
    out.push_back(downloaded(reference.backend(), output.data, output.bytes()));
  }
  return out;
}

/// The first entries of what the device wrote must be what the reference writes for them alone.
void check_outputs(const BenchCase& what, Backend& device, const PreparedCase& prepared,
                   const std::vector<Bytes>& expected) {
  check_status(device, prepared, what);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const BenchOutput& output = prepared.outputs[i];
    const Compare compare = is_exact(what) ? Compare::bits : output.compare;
    const auto difference =
        first_difference(compare, downloaded(device, output.data, expected[i].size()), expected[i]);
    if (!difference) continue;
    throw device_error(case_text(what),
                       fmt::format("{} of the {} backend differs from the reference's at {} {}",
                                   output.name, device.name(), element_word(compare), *difference),
                       "the device or this build is broken; please report it");
  }
}

// --- time ---

/// Median of the bytes per second, read and written, of copies within the device.
double copy_bandwidth(Backend& device, std::size_t bytes) {
  constexpr int kCopies = 11;
  const Buffer source = device.allocate(bytes);
  const Buffer target = device.allocate(bytes);
  device.fill(source.data(), 1, bytes);
  device.fill(target.data(), 2, bytes);
  const auto copy = [&] { device.copy(target.data(), source.data(), bytes); };
  const int warm_up = device.shares_host_memory() ? 1 : 200;  // a device that was idle runs slowly
  for (int i = 0; i < warm_up; ++i) copy();
  std::vector<double> milliseconds;
  for (int i = 0; i < kCopies; ++i) milliseconds.push_back(device.measure(copy));
  const double least = 1e-6;  // a clock that stands still
  return 2e3 * static_cast<double>(bytes) / std::max(spread_of(milliseconds).median, least);
}

/// Replays of a case, one input set after the other.
class Rotation {
 public:
  explicit Rotation(std::vector<std::unique_ptr<Recording>> recordings)
      : recordings_(std::move(recordings)) {}
  void replay(std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      recordings_[next_]->replay();
      next_ = (next_ + 1) % recordings_.size();
    }
  }

 private:
  std::vector<std::unique_ptr<Recording>> recordings_;
  std::size_t next_ = 0;
};

/// Fills in the times of `result`.
void time_case(Backend& device, Rotation& rotation, std::int64_t sets, const BenchOptions& options,
               CaseResult& result) {
  const auto sample = [&](std::int64_t calls) {
    return device.measure([&] { rotation.replay(calls); });
  };
  // A graph's first launch costs more than the others, and a device that was idle runs slowly. The
  // last round tells how long a call takes.
  std::int64_t calls = sets;
  double round = sample(calls);
  for (double spent = round; spent < kWarmUpMilliseconds && calls < kMostCalls; spent += round) {
    calls *= 2;
    round = sample(calls);
  }
  const double once = round / static_cast<double>(calls);
  const double wanted = kSampleMilliseconds / std::max(once, 1e-6);
  result.repeats = static_cast<std::int64_t>(std::clamp(wanted, 1.0, double{kMostCalls}));

  std::vector<double> microseconds;
  double spent = 0;
  while (static_cast<int>(microseconds.size()) < options.samples) {
    const bool enough = static_cast<int>(microseconds.size()) >= kFewestSamples;
    if (enough && spent > options.case_milliseconds) break;
    const double milliseconds = sample(result.repeats);
    spent += milliseconds;
    microseconds.push_back(1e3 * milliseconds / static_cast<double>(result.repeats));
  }
  result.samples = static_cast<int>(microseconds.size());
  result.time = spread_of(std::move(microseconds));
}

/// Input sets of `bytes` each that are together more than twice the cache.
std::int64_t sets_beyond(std::size_t cache, std::size_t bytes) {
  if (bytes == 0) return 1;
  const std::size_t sets = 2 * cache / bytes + 1;
  return std::min(static_cast<std::int64_t>(sets), kMostSets);
}

CaseResult run_case(const BenchCase& what, Workbench& bench, Workbench& reference,
                    const DeviceFacts& facts, const BenchOptions& options) {
  Backend& device = bench.backend();
  CaseResult result;
  result.what = what;
  result.bytes = what.family->bytes(what);
  result.flops = what.family->flops != nullptr ? what.family->flops(what) : 0;

  std::vector<Arena> arenas;
  std::vector<PreparedCase> prepared;
  const auto prepare = [&](std::uint32_t set) {
    arenas.emplace_back(bench, set);
    prepared.push_back(what.family->prepare(what, arenas.back()));
    prepared.back().enqueue();  // also gives the backend's workspace its size
  };
  prepare(0);
  const std::vector<Bytes> expected = expected_outputs(what, reference);
  check_outputs(what, device, prepared.front(), expected);
  result.checked = bounds_text(what, prepared.front().outputs);

  // As many sets as the budget holds, what one has taken, each will take; and no more than a call
  // on each takes the time of a case. (Long calls fill the cache anew by themselves.)
  const std::size_t each = std::max<std::size_t>(arenas.front().bytes(), 1);
  const std::size_t room = (bench.budget() - std::min(bench.used(), bench.budget())) / each;
  // Of its memory a call may look at a part only: one row of a block, where the block is rejected.
  const std::size_t touched = std::min(each, static_cast<std::size_t>(std::max(result.bytes, 1.0)));
  const double call = std::max(device.measure(prepared.front().enqueue), 1e-6);
  const double affordable = std::min(options.case_milliseconds / call, 1e6);
  result.sets =
      std::min({sets_beyond(facts.cache_bytes, touched), static_cast<std::int64_t>(room) + 1,
                static_cast<std::int64_t>(affordable) + 1});
  for (std::int64_t set = 1; set < result.sets; ++set) {
    try {
      prepare(static_cast<std::uint32_t>(set));
    } catch (const NoRoom&) {
      arenas.pop_back();  // the device has less to give than the budget
      result.sets = set;
    }
  }
  result.cold = static_cast<std::size_t>(result.sets) * touched > 2 * facts.cache_bytes;

  std::vector<std::unique_ptr<Recording>> recordings;
  for (const PreparedCase& one : prepared) {
    recordings.push_back(device.record(one.enqueue));
    check_status(device, one, what);
  }
  result.graph = device.name() == "cuda";
  Rotation rotation(std::move(recordings));
  // Replays must write it all again.
  for (const BenchOutput& output : prepared.front().outputs) {
    device.fill(output.data, 0, output.bytes());
  }
  time_case(device, rotation, result.sets, options, result);
  check_outputs(what, device, prepared.front(), expected);
  return result;
}

std::int32_t longest_row(const BenchAxes& axes) {
  std::int32_t longest = 1;
  for (const auto* values : {&axes.vocab, &axes.rank, &axes.hidden}) {
    longest = std::max(longest, *std::max_element(values->begin(), values->end()));
  }
  return longest;
}

/// Why a case cannot be what it is called; empty where it can.
std::string why_refused(const BenchCase& what, const Backend& device) {
  if (what.family->refuses != nullptr) {
    if (const char* const why = what.family->refuses(what); why != nullptr) return why;
  }
  return why_not_tensor(what, device);
}

/// The sizes of the weights that are kept from case to case.
class KeptWeights {
 public:
  KeptWeights(Workbench& bench, Workbench& reference) : bench_(bench), reference_(reference) {}

  /// Gives back what cases of other sizes left behind.
  void expect(const BenchCase& what) {
    const auto changes = [](std::int32_t& kept, std::int32_t now) {
      if (now == 0 || now == kept) return false;
      return std::exchange(kept, now) != 0;
    };
    const bool vocab = changes(vocab_, what.vocab);
    const bool rank = changes(rank_, what.rank);
    const bool hidden = changes(hidden_, what.hidden);
    if (vocab || rank || hidden) drop();
  }
  void drop() {
    bench_.drop_weights();
    reference_.drop_weights();
  }

 private:
  Workbench& bench_;
  Workbench& reference_;
  std::int32_t vocab_ = 0;
  std::int32_t rank_ = 0;
  std::int32_t hidden_ = 0;
};

}  // namespace

BenchResult run_bench(Backend& device, Backend& reference, const BenchOptions& options,
                      const BenchProgress& progress) {
  std::vector<BenchCase> cases = make_cases(options.only, options.axes);
  if (options.tensor_where_possible) {
    std::erase_if(cases,
                  [&](const BenchCase& what) { return !why_not_tensor(what, device).empty(); });
  }
  BenchResult result;
  result.backend = device.name();
  result.device = device.device();
  result.reference = reference.name() + " backend";
  result.facts = device.facts();
  const std::size_t copied = std::size_t{device.shares_host_memory() ? 256u : 1024u} << 20;
  progress("copy bandwidth", 0, static_cast<std::int64_t>(cases.size()) + 1);
  result.copy_bytes = 2 * static_cast<double>(copied);
  result.copy_bytes_per_second = copy_bandwidth(device, copied);

  const Pools pools =
      make_pools(options.seed, pool_size(longest_row(options.axes)), options.threads);
  Workbench bench(device, pools, options.budget);
  Workbench check(reference, pools, std::numeric_limits<std::size_t>::max());
  KeptWeights weights(bench, check);
  const auto run = [&](const BenchCase& what) {
    try {
      return run_case(what, bench, check, result.facts, options);
    } catch (const NoRoom&) {
      throw;
    } catch (const Error& error) {
      const std::string text = error.what();
      const std::string name = case_text(what);
      if (error.code() != ExitCode::device || text.starts_with(name)) throw;
      throw device_error(name, text);
    }
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const BenchCase& what = cases[i];
    progress(case_text(what), static_cast<std::int64_t>(i) + 1,
             static_cast<std::int64_t>(cases.size()) + 1);
    if (const std::string why = why_refused(what, device); !why.empty()) {
      result.refused.push_back({what, why});
      continue;
    }
    weights.expect(what);
    for (const bool last_try : {false, true}) {
      try {
        result.cases.push_back(run(what));
        break;
      } catch (const NoRoom& no_room) {
        if (last_try) result.refused.push_back({what, no_room.what()});
        weights.drop();  // those of other families may be what is in the way
      }
    }
  }
  return result;
}

}  // namespace dspark
