#include "replay/cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "replay/products.h"
#include "replay/table_entry.h"
#include "support/error.h"
#include "support/version.h"
#include "trace/memory.h"

namespace dspark {
namespace {

/// To be raised whenever the same input gives other bits in a table.
constexpr std::uint32_t kTableVersion = 2;

constexpr std::string_view kTemporaryPrefix = ".dspark-table.";
constexpr std::int64_t kLeftoverSeconds = 24 * 60 * 60;

/// Closes on every way out; close() is called by hand where its error matters.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  [[nodiscard]] int number() const { return number_; }
  [[nodiscard]] int close() { return ::close(std::exchange(number_, -1)); }

 private:
  int number_;
};

int create(const std::string& path) {
  return open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
}

// --- the key ---

void add_matrix(Digester& digester, const HostMatrix& matrix) {
  digester.add(static_cast<std::uint8_t>(matrix.type));
  digester.add(matrix.rows);
  digester.add(matrix.cols);
  digester.add(matrix.bytes.data(), matrix.bytes.size());
}

/// The weights themselves: the file that they came from may be closed, or be another one by now.
void add_heads(Digester& digester, const Heads& heads) {
  const auto& [file, markov_w1, markov_w2, confidence_weight, confidence_bias,
               confidence_with_markov, lm_head, draft_lm_head] = heads;
  static_cast<void>(file);
  add_matrix(digester, markov_w1);
  add_matrix(digester, markov_w2);
  digester.add(std::uint64_t{confidence_weight.size()});
  digester.add(confidence_weight.data(), confidence_weight.size() * sizeof(float));
  digester.add(confidence_bias);
  digester.add(confidence_with_markov);
  add_matrix(digester, lm_head);
  add_matrix(digester, draft_lm_head);
}

/// Structured bindings again, so that a field that is added is not forgotten here.
void add_request(Digester& digester, const ReduceRequest& request) {
  const auto& [sampling, verification, worlds, top_probability, off_policy] = request;
  const auto& [temperature, top_k, top_p, top_p_rule, drafts] = sampling;
  digester.add(temperature);
  digester.add(top_k);
  digester.add(top_p);
  digester.add_text(top_p_rule);
  digester.add_text(drafts);
  digester.add_text(verification_name(verification));
  digester.add(worlds);
  digester.add(top_probability);
  digester.add(off_policy);
}

// --- the folder ---

Error unusable(const std::string& folder, const char* what, const std::string& why) {
  return usage_error("--cache " + folder, std::string(what) + ": " + why,
                     "give a folder that you may write to");
}

std::string temporary_name() {
  // Unlike any other process's, also one of the same id in another container.
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return fmt::format("{}{}.{:x}", kTemporaryPrefix, getpid(),
                     std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

/// Removes temporary files that are older than a day at `now`. What cannot be removed stays.
void remove_leftovers(const std::string& folder, std::int64_t now) {
  std::error_code error;
  for (auto it = std::filesystem::directory_iterator(folder, error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    const std::filesystem::path& path = it->path();
    struct stat status {};
    if (path.filename().native().starts_with(kTemporaryPrefix) &&
        lstat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
        now - status.st_mtime > kLeftoverSeconds) {
      unlink(path.c_str());
    }
  }
}

TableShape shape_of(const TraceFile& trace, const ReduceRequest& request,
                    const ReplayOptions& options) {
  return {
      .blocks = trace.blocks(),
      .block_size = trace.header().block_size,
      .repeats = options.repeats,
      .greedy = request.verification == Verification::greedy || request.sampling.drafts == "greedy",
      .off_policy = request.off_policy,
      .top_probability = request.top_probability,
      .memory_budget = resolve_memory_budget(options.memory_budget)};
}

/// The kept table at `path`; nothing, and the reason in `why`, if there is none that can be used.
template <class Table>
std::optional<Table> load(const std::string& path, const Digest& key, const TableShape& shape,
                          std::string& why) {
  // Not to wait for a pipe that stands there.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (file.number() < 0) {
    if (errno != ENOENT) why = std::string("cannot be opened: ") + std::strerror(errno);
    return std::nullopt;
  }
  try {
    Table table;
    read_entry(file.number(), key, shape, table);
    return table;
  } catch (const EntryError& error) {
    why = error.what();
    return std::nullopt;
  }
}

void tell(const ReplayOptions& options, const std::string& notice) {
  if (options.notice) options.notice(notice);
}

}  // namespace

TableCache::TableCache(const std::string& folder) : folder_(folder) {
  if (folder.empty()) throw usage_error("--cache", "the path is empty", "give a folder");
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw unusable(folder, "cannot be created", error.message());
  temporary_ = (std::filesystem::path(folder) / temporary_name()).string();
  probe();
}

void TableCache::probe() const {
  const Descriptor file(create(temporary_));
  struct stat status {};
  if (file.number() < 0 || fstat(file.number(), &status) != 0) {
    const int error = errno;
    throw unusable(folder_, "cannot be written to", std::strerror(error));
  }
  unlink(temporary_.c_str());
  // By the clock that dates the files, which may be another machine's.
  remove_leftovers(folder_, status.st_mtime);
}

TableCache::Stamp TableCache::stamp_of(const TraceFile& trace) {
  struct stat status {};
  if (fstat(trace.descriptor(), &status) != 0) {
    throw trace_error(trace.header().file, std::strerror(errno), "check the file");
  }
  return {.device = status.st_dev,
          .inode = status.st_ino,
          .bytes = static_cast<std::uint64_t>(status.st_size),
          .seconds = status.st_mtim.tv_sec,
          .nanoseconds = status.st_mtim.tv_nsec};
}

const TableCache::TraceContent& TableCache::content_of(const TraceFile& trace) {
  // Before the bytes are read: a change meanwhile is then seen when the table is kept.
  const Stamp stamp = stamp_of(trace);
  if (!latest_ || !(latest_->stamp == stamp)) {
    TraceContent content{.stamp = stamp, .digest = {}};
    if (const int error = digest_file(trace.descriptor(), content.digest); error != 0) {
      throw trace_error(trace.header().file, std::string("cannot be read: ") + std::strerror(error),
                        "check the file");
    }
    latest_ = content;
  }
  return *latest_;
}

template <class Table>
Table TableCache::serve(const Backend& backend, const TraceFile& trace, const Heads& heads,
                        const ReduceRequest& request, const ReplayOptions& options,
                        const Make<Table>& make) {
  const TraceContent content = content_of(trace);
  Digester digester;
  digester.add_text("dspark-replay table");
  digester.add_text(version());
  digester.add(kTableVersion);
  digester.add(content.digest.bytes.data(), content.digest.bytes.size());
  add_heads(digester, heads);
  add_request(digester, request);
  digester.add(options.seed);
  digester.add(options.repeats);
  const Products products = products_of(backend, trace, heads, options.products);
  if (products == Products::tensor) {  // the order of its sums is the device's own
    digester.add_text(products_name(products));
    digester.add_text(backend.device());
  }
  const Digest key = digester.digest();
  const std::string path = (std::filesystem::path(folder_) / (key.hex() + ".table")).string();

  std::string why;
  if (std::optional<Table> kept = load<Table>(path, key, shape_of(trace, request, options), why)) {
    const std::string note = invalid_rows_notice(trace.header().file, *kept);
    if (options.note && !note.empty()) options.note(note);
    return std::move(*kept);
  }
  if (!why.empty()) tell(options, fmt::format("{} {}; it is made anew", path, why));

  ++made_;
  Table table = make();
  if (!(stamp_of(trace) == content.stamp)) {
    latest_.reset();
    tell(options, fmt::format("{}: changed while it was replayed, so nothing is kept of it",
                              trace.header().file));
    return table;
  }
  try {
    keep(path, key, table);
  } catch (const EntryError& error) {
    unlink(temporary_.c_str());
    tell(options, fmt::format("{} cannot be written: {}; the next run replays {} again", path,
                              error.what(), trace.header().file));
  }
  return table;
}

template <class Table>
void TableCache::keep(const std::string& path, const Digest& key, const Table& table) {
  const auto require = [](bool done) {
    if (!done) throw EntryError(std::strerror(errno));
  };
  Descriptor file(create(temporary_));
  require(file.number() >= 0);
  write_entry(file.number(), key, table);
  // The name must not outlive the bytes where the machine goes down.
  require(fsync(file.number()) == 0);
  require(file.close() == 0);
  require(std::rename(temporary_.c_str(), path.c_str()) == 0);
}

OutcomeTable TableCache::outcomes(const Backend& backend, const TraceFile& trace,
                                  const Heads& heads, const ReduceRequest& request,
                                  const ReplayOptions& options, const Make<OutcomeTable>& make) {
  return serve<OutcomeTable>(backend, trace, heads, request, options, make);
}

RoundTable TableCache::rounds(const Backend& backend, const TraceFile& trace, const Heads& heads,
                              const ReduceRequest& request, const ReplayOptions& options,
                              const Make<RoundTable>& make) {
  return serve<RoundTable>(backend, trace, heads, request, options, make);
}

}  // namespace dspark
