// A pass over a trace, chunk by chunk, that keeps the file, the copies and the operations busy at
// once: a thread reads ahead, and what it has read is copied beside the operations.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "replay/backend.h"
#include "trace/trace.h"

namespace dspark {

/// A dataset that a pass reads, and how many blocks behind each chunk it needs too (as far as the
/// trace has them).
struct ChunkSource {
  RowData data = RowData::draft_hidden;
  std::int64_t beyond = 0;
};

/// Reads the chunks of a pass one after another on a thread of its own, a few ahead of the caller.
/// While this object lives nobody else may read the trace.
class ChunkReader {
 public:
  /// `slots`: chunks that are held at a time, at least 2. Allocates all memory and starts to read.
  ChunkReader(Backend& backend, TraceFile& trace, std::vector<ChunkSource> sources,
              std::int64_t chunk, int slots);
  /// Waits for what is being read and ends the thread. No copy may use the memory any more.
  ~ChunkReader();
  ChunkReader(const ChunkReader&) = delete;
  ChunkReader& operator=(const ChunkReader&) = delete;

  /// True if next() would return at once.
  [[nodiscard]] bool ready();
  /// The next chunk, one buffer per source; they stay as they are until the chunk is released.
  /// Waits until it has been read. Throws what reading it threw.
  [[nodiscard]] const std::vector<HostBuffer>& next();
  /// Gives the oldest chunk that next() returned back to the thread.
  void release();

 private:
  void run();
  void read(std::int64_t first, const std::vector<HostBuffer>& into);

  TraceFile& trace_;
  std::vector<ChunkSource> sources_;
  std::int64_t blocks_, chunk_;
  std::vector<std::vector<HostBuffer>> slots_;
  std::size_t taken_ = 0;  // by next()

  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t read_ = 0, released_ = 0;  // chunks so far
  bool stop_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

/// The chunks of a pass in backend memory. While one is used, the next one is on its way.
class ChunkStream {
 public:
  ChunkStream(Backend& backend, TraceFile& trace, const std::vector<ChunkSource>& sources,
              std::int64_t chunk);
  /// Waits for copies that are under way.
  ~ChunkStream();
  ChunkStream(const ChunkStream&) = delete;
  ChunkStream& operator=(const ChunkStream&) = delete;

  /// Makes the next chunk the current one: the operations enqueued from now on may use it, and
  /// those enqueued so far are the last to use the one before. Waits for the file at most. Throws
  /// what reading the chunk threw.
  void advance();
  /// Starts to copy the chunk behind the current one if it has been read; waits for no more than
  /// the copy of the current one. To be called once the operations on the current chunk are
  /// enqueued.
  void prefetch();

  /// The current chunk's rows of source `source` as they are stored, in backend memory.
  [[nodiscard]] Matrix stored(std::size_t source) const;

  /// Bytes per block of the chunk that `sources` of `trace` take in each buffer.
  [[nodiscard]] static std::uint64_t bytes_per_block(const TraceFile& trace,
                                                     const std::vector<ChunkSource>& sources);
  /// How many such buffers there are: on the host, and in memory that only the backend has.
  [[nodiscard]] static int host_buffers(const Backend& backend);
  [[nodiscard]] static int device_buffers(const Backend& backend);

 private:
  /// A chunk in backend memory; empty buffers where that is the host's.
  struct Slot {
    std::vector<Buffer> buffers;
    std::unique_ptr<Fence> copied, used;
  };
  [[nodiscard]] std::int64_t rows_of(std::size_t source) const;
  /// Gives the memory of the chunk that was taken last back to the reader once it is copied.
  void release_copied();
  void take();

  Backend& backend_;
  std::vector<ChunkSource> sources_;
  std::vector<RowDataInfo> infos_;
  std::int64_t blocks_, chunk_;
  bool shared_;
  std::array<Slot, 2> slots_;
  ChunkReader reader_;
  const std::vector<HostBuffer>* host_[2] = {nullptr, nullptr};
  std::int64_t current_ = -1;  // index of the current chunk
  std::int64_t taken_ = 0;     // chunks that were copied, or are being copied
};

}  // namespace dspark
