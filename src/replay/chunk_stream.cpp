#include "replay/chunk_stream.h"

#include <algorithm>
#include <utility>

namespace dspark {
namespace {

/// Bytes of one block of a dataset.
std::uint64_t block_bytes(const RowDataInfo& info) {
  return static_cast<std::uint64_t>(info.rows_per_block) * static_cast<std::uint64_t>(info.width) *
         size_of(info.type);
}

/// Blocks of a source that a chunk needs at most.
std::int64_t most_blocks(const ChunkSource& source, std::int64_t chunk, std::int64_t blocks) {
  return std::min(chunk + source.beyond, blocks);
}

}  // namespace

ChunkReader::ChunkReader(Backend& backend, TraceFile& trace, std::vector<ChunkSource> sources,
                         std::int64_t chunk, int slots)
    : trace_(trace), sources_(std::move(sources)), blocks_(trace.blocks()), chunk_(chunk) {
  for (int slot = 0; slot < slots; ++slot) {
    std::vector<HostBuffer>& buffers = slots_.emplace_back();
    for (const ChunkSource& source : sources_) {
      const auto most = static_cast<std::uint64_t>(most_blocks(source, chunk_, blocks_));
      buffers.push_back(
          backend.allocate_host(most * block_bytes(trace.row_data(source.data).value())));
    }
  }
  thread_ = std::thread([this] { run(); });
}

ChunkReader::~ChunkReader() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ChunkReader::read(std::int64_t first, const std::vector<HostBuffer>& into) {
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    const std::int64_t count = most_blocks(sources_[i], chunk_, blocks_ - first);
    trace_.read(sources_[i].data, first, count, into[i].data());
  }
}

void ChunkReader::run() {
  std::unique_lock lock(mutex_);
  for (std::int64_t first = 0; first < blocks_; first += chunk_) {
    changed_.wait(lock, [&] { return stop_ || read_ - released_ < slots_.size(); });
    if (stop_) return;
    const std::vector<HostBuffer>& slot = slots_[read_ % slots_.size()];
    lock.unlock();
    std::exception_ptr failure;
    try {
      read(first, slot);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure) {
      failure_ = failure;
      changed_.notify_all();
      return;
    }
    ++read_;
    changed_.notify_all();
  }
}

bool ChunkReader::ready() {
  const std::lock_guard lock(mutex_);
  return read_ > taken_;
}

const std::vector<HostBuffer>& ChunkReader::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return read_ > taken_ || failure_; });
  if (read_ <= taken_) std::rethrow_exception(failure_);
  return slots_[taken_++ % slots_.size()];
}

void ChunkReader::release() {
  {
    const std::lock_guard lock(mutex_);
    ++released_;
  }
  changed_.notify_all();
}

ChunkStream::ChunkStream(Backend& backend, TraceFile& trace,
                         const std::vector<ChunkSource>& sources, std::int64_t chunk)
    : backend_(backend),
      sources_(sources),
      blocks_(trace.blocks()),
      chunk_(chunk),
      shared_(backend.shares_host_memory()),
      reader_(backend, trace, sources, chunk, host_buffers(backend)) {
  for (const ChunkSource& source : sources_) infos_.push_back(trace.row_data(source.data).value());
  for (Slot& slot : slots_) {
    slot.copied = backend_.make_fence();
    slot.used = backend_.make_fence();
    for (std::size_t i = 0; i < sources_.size() && !shared_; ++i) {
      const auto most = static_cast<std::uint64_t>(most_blocks(sources_[i], chunk_, blocks_));
      slot.buffers.push_back(backend_.allocate(most * block_bytes(infos_[i])));
    }
    // Memory is there in the order of the operations.
    backend_.mark(Queue::operations, *slot.used);
  }
}

std::uint64_t ChunkStream::bytes_per_block(const TraceFile& trace,
                                           const std::vector<ChunkSource>& sources) {
  std::uint64_t bytes = 0;
  for (const ChunkSource& source : sources) {
    bytes += block_bytes(trace.row_data(source.data).value());
  }
  return bytes;
}

// One that is used or on its way, one that is ready, and one that is being read.
int ChunkStream::host_buffers(const Backend& backend) {
  return backend.shares_host_memory() ? 2 : 3;
}
int ChunkStream::device_buffers(const Backend& backend) {
  return backend.shares_host_memory() ? 0 : 2;
}

ChunkStream::~ChunkStream() {
  for (Slot& slot : slots_) {
    try {
      backend_.wait(*slot.copied);
    } catch (...) {
      // Whoever waited for the operations has been told; nothing runs any more.
    }
  }
}

void ChunkStream::release_copied() {
  if (shared_ || taken_ == 0) return;
  backend_.wait(*slots_[static_cast<std::size_t>((taken_ - 1) % 2)].copied);
  reader_.release();
}

void ChunkStream::take() {
  // Where it is shared, the host's memory is used until the chunk is done: advance() releases it.
  const std::vector<HostBuffer>& host = reader_.next();
  const auto at = static_cast<std::size_t>(taken_ % 2);
  host_[at] = &host;
  const std::int64_t first = taken_ * chunk_;
  ++taken_;
  if (shared_) return;
  Slot& slot = slots_[at];
  backend_.hold(Queue::copies, *slot.used);
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    const auto count =
        static_cast<std::uint64_t>(most_blocks(sources_[i], chunk_, blocks_ - first));
    backend_.enqueue_upload(Queue::copies, slot.buffers[i].data(), host[i].data(),
                            count * block_bytes(infos_[i]));
  }
  backend_.mark(Queue::copies, *slot.copied);
}

void ChunkStream::advance() {
  if (current_ >= 0) {
    Slot& done = slots_[static_cast<std::size_t>(current_ % 2)];
    if (shared_) {
      reader_.release();
    } else {
      backend_.mark(Queue::operations, *done.used);
    }
  }
  if (taken_ <= current_ + 1) {
    release_copied();
    take();
  }
  ++current_;
  if (!shared_)
    backend_.hold(Queue::operations, *slots_[static_cast<std::size_t>(current_ % 2)].copied);
}

void ChunkStream::prefetch() {
  const bool last = (current_ + 1) * chunk_ >= blocks_;
  if (last || taken_ > current_ + 1 || !reader_.ready()) return;
  release_copied();
  take();
}

Matrix ChunkStream::stored(std::size_t source) const {
  const auto at = static_cast<std::size_t>(current_ % 2);
  const RowDataInfo& info = infos_[source];
  const std::int64_t rows =
      most_blocks(sources_[source], chunk_, blocks_ - current_ * chunk_) * info.rows_per_block;
  const void* data = shared_ ? (*host_[at])[source].data() : slots_[at].buffers[source].data();
  return {data, info.type, rows, info.width, info.width};
}

}  // namespace dspark
