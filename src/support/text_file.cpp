#include "support/text_file.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "support/error.h"

namespace dspark {
namespace {

std::string read_bounded(std::FILE* file, const std::string& name, std::size_t max_bytes,
                         const std::string& what) {
  std::string text;
  std::array<char, 65536> block;
  while (text.size() <= max_bytes) {
    const std::size_t count = std::fread(block.data(), 1, block.size(), file);
    text.append(block.data(), count);
    if (count < block.size()) {
      if (std::ferror(file) != 0) {
        throw policy_error(name, std::string("cannot be read: ") + std::strerror(errno),
                           "give a readable " + what);
      }
      break;
    }
  }
  return text;
}

}  // namespace

std::string text_file_name(const std::string& path) { return path == "-" ? "<stdin>" : path; }

std::string read_text_file(const std::string& path, std::size_t max_bytes,
                           const std::string& what) {
  if (path == "-") return read_bounded(stdin, text_file_name(path), max_bytes, what);
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw policy_error(path, "is a directory", "give a " + what);
  }
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) {
    throw policy_error(path, std::string("cannot be opened: ") + std::strerror(errno),
                       "give a readable " + what);
  }
  return read_bounded(file.get(), path, max_bytes, what);
}

}  // namespace dspark
