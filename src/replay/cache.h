// Tables kept between runs: the same trace under other policies or costs needs no second pass over
// its rows.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "replay/reduce.h"
#include "replay/rounds.h"
#include "support/digest.h"

namespace dspark {

/// A folder of tables. A table's file is named by the digest of all that its bits depend on: the
/// bytes of the trace, the head weights, the setting, the verification, the seed, the repeats, and
/// the version of the tool; where products run on tensor cores, also that and the device. Chunk,
/// threads and backend are not among them otherwise, as they change no bit.
///
/// Any number of processes may share a folder, without locks: a file's content follows from its
/// name, so it does not matter whose is there, and it appears whole, by being renamed to its name,
/// so nobody sees a part of one. Files may be deleted at any time.
///
/// A file that is damaged, truncated, foreign or of another version is noticed by its sizes and its
/// digest; there is a notice, and the table is made anew. The digests guard against accidents. Who
/// may write to the folder can put a table there that passes for the right one, and so choose what
/// the tool reports; no more than that, as sizes and indices are checked all the same. So share a
/// folder only with people whose results you would believe.
class TableCache {
 public:
  template <class Table>
  using Make = std::function<Table()>;

  /// Creates `folder`, and its parents, if it is not there, and removes what processes that were
  /// killed while writing left there more than a day ago. Throws Error(usage) if it cannot be
  /// created or written to.
  explicit TableCache(const std::string& folder);

  /// The only file that this object leaves unfinished, at times; for removal by a signal.
  [[nodiscard]] const std::string& temporary_file() const { return temporary_; }

  /// The table of `trace` under `request`: the one that is kept, or that of `make`, which is then
  /// kept. Reads the trace's bytes, once for all tables of a trace that follow each other, to know
  /// which one it is. `options` gives seed, repeats, products, memory budget, note and notice;
  /// `backend` is only asked what it is. What the user is told of invalid rows is the same whether
  /// the table was kept or made. That a table cannot be kept (disk full, or the trace changed
  /// meanwhile) is a notice, not an error. Throws what `make` throws, and Error(trace) if the trace
  /// cannot be read.
  [[nodiscard]] OutcomeTable outcomes(const Backend& backend, const TraceFile& trace,
                                      const Heads& heads, const ReduceRequest& request,
                                      const ReplayOptions& options, const Make<OutcomeTable>& make);
  /// The same for a rounds trace; `request.worlds` is not looked at.
  [[nodiscard]] RoundTable rounds(const Backend& backend, const TraceFile& trace,
                                  const Heads& heads, const ReduceRequest& request,
                                  const ReplayOptions& options, const Make<RoundTable>& make);

  /// How many tables had to be made so far.
  [[nodiscard]] std::int64_t made() const { return made_; }

 private:
  /// Which file, and whether it was written to since.
  struct Stamp {
    std::uint64_t device = 0, inode = 0, bytes = 0;
    std::int64_t seconds = 0, nanoseconds = 0;
    friend bool operator==(const Stamp&, const Stamp&) = default;
  };
  struct TraceContent {
    Stamp stamp;
    Digest digest;
  };
  [[nodiscard]] static Stamp stamp_of(const TraceFile& trace);
  [[nodiscard]] const TraceContent& content_of(const TraceFile& trace);
  template <class Table>
  [[nodiscard]] Table serve(const Backend& backend, const TraceFile& trace, const Heads& heads,
                            const ReduceRequest& request, const ReplayOptions& options,
                            const Make<Table>& make);
  template <class Table>
  void keep(const std::string& path, const Digest& key, const Table& table);
  void probe() const;

  std::string folder_;
  bool created_ = false;
  std::string temporary_;
  std::optional<TraceContent> latest_;  ///< of the trace that was asked for last
  std::int64_t made_ = 0;
};

}  // namespace dspark
