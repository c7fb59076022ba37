#include "cli/whole_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <mutex>

#include "cli/process.h"

namespace dspark {
namespace {

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// Creates a new file in the folder of `target`, registered for removal by a signal. Returns its
// descriptor, or -1 with errno.
int create_temporary(const std::string& target) {
  TemporaryFiles& temporary = temporary_files();
  const std::lock_guard lock(temporary.mutex);
  constexpr int kAttempts = 100;  // names left behind by killed processes of the same id
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    // A short name of its own: the target's name may be as long as names can be.
    const std::string path = folder_of(target) + "/.dspark-replay." + std::to_string(getpid()) +
                             "." + std::to_string(attempt);
    const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor >= 0) {
      temporary.path = path;
      return descriptor;
    }
    if (errno != EEXIST) return -1;
  }
  return -1;
}

void remove_temporary() {
  TemporaryFiles& temporary = temporary_files();
  const std::lock_guard lock(temporary.mutex);
  if (!temporary.path.empty()) unlink(temporary.path.c_str());
  temporary.path.clear();
}

// Moves the temporary file to `target`. Returns 0 or the error number.
int rename_temporary(const std::string& target) {
  TemporaryFiles& temporary = temporary_files();
  const std::lock_guard lock(temporary.mutex);
  if (rename(temporary.path.c_str(), target.c_str()) != 0) return errno;
  temporary.path.clear();
  return 0;
}

// Makes the rename durable where the file system can; the data itself is on the disk already.
void flush_folder(const std::string& target) {
  const Descriptor folder(open(folder_of(target).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.number() >= 0) [[maybe_unused]]
    const int ignored = fsync(folder.number());
}

}  // namespace

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

int Descriptor::close() {
  const int result = ::close(number_);
  number_ = -1;
  return result;
}

int write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

int probe_whole_file(const std::string& target) {
  const Descriptor probe(create_temporary(target));
  if (probe.number() < 0) return errno;
  remove_temporary();
  return 0;
}

int write_whole_file(const std::string& target, std::string_view text) {
  Descriptor file(create_temporary(target));
  if (file.number() < 0) return errno;
  int error = write_all(file.number(), text);
  struct stat existing {};
  if (error == 0 && stat(target.c_str(), &existing) == 0) {
    if (fchmod(file.number(), existing.st_mode & 07777) != 0) error = errno;
  }
  if (error == 0 && fsync(file.number()) != 0) error = errno;
  if (file.close() != 0 && error == 0) error = errno;
  if (error == 0) error = rename_temporary(target);
  if (error != 0) {
    remove_temporary();
    return error;
  }
  flush_folder(target);
  return 0;
}

}  // namespace dspark
