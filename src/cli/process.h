// What the process as a whole promises: no temporary file survives a signal, and no file takes the
// place of a standard stream that was closed.
#pragma once

#include <mutex>
#include <string>
#include <vector>

namespace dspark {

/// Call first in main, before any thread exists (threads inherit the signal mask).
///
/// - Standard streams that are closed are opened such that using them fails, so that a file opened
/// later cannot get their
///   number and be written to by mistake.
/// - SIGPIPE is ignored: writing to a closed pipe is an error of write().
/// - SIGINT, SIGTERM and SIGHUP remove the temporary files and end the process
/// with 128 + signal. A signal
///   that is ignored when the process starts stays ignored.
void prepare_process();

/// The temporary files that a signal has to remove. Holding `mutex` keeps a signal out, so that
/// creating a file and registering it, or renaming it and forgetting it, is one step.
struct TemporaryFiles {
  std::mutex mutex;
  std::string path;                 ///< of Output; empty: none
  std::vector<std::string> others;  ///< of commands that write files of their own (synth)
};
[[nodiscard]] TemporaryFiles& temporary_files();

}  // namespace dspark
