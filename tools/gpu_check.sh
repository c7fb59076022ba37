#!/usr/bin/env bash
# tools/gpu_check.sh [options]
#
# Everything that needs a GPU, in one go: configure, build, the tests of label gpu, the whole suite,
# compute-sanitizer over the kernels, both backends over recorded traces, and the benchmark. A part
# that fails does not stop the later ones. Ends with a short table; the exit code is 0 only if no
# part failed.
#
#   --no-build         use the build folder as it is
#   --no-tests         leave out the tests of label gpu
#   --no-suite         leave out the whole suite
#   --no-sanitize      leave out compute-sanitizer
#   --no-bench         leave out the benchmark
#   --traces DIR       replay every trace (*.h5 but heads.h5) of DIR on both backends and compare
#   --golden DIR       right values of the whole recordings in DIR (DSPARK_GOLDEN_TRACES)
#   --random123 DIR    folder that holds Random123/philox.h, where it is not installed
#   --xxhash DIR       folder that holds xxhash.h, where it is not installed
#   --build DIR        build folder (default: build/gpu)
#   --architecture A   CUDA architecture (default: 90)
#   --commit TEXT      commit that the benchmark names, where git cannot tell it
#   --sanitize-limit S seconds each sanitizer run may take (default: 200)
#
# Logs, one a part, go to $OUT (default: build/gpu_check).

# shellcheck disable=SC2317,SC2329  # the parts are called through part(), which shellcheck cannot see
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 2
}

build=build/gpu
architecture=90
random123=
xxhash=
commit=
golden=
traces=
sanitize_limit=200
do_build=1 do_tests=1 do_suite=1 do_sanitize=1 do_bench=1

need() { (($# >= 2)) || fail "$1 needs a value"; }
while (($#)); do
  case "$1" in
    --no-build) do_build=0 ;;
    --no-tests) do_tests=0 ;;
    --no-suite) do_suite=0 ;;
    --no-sanitize) do_sanitize=0 ;;
    --no-bench) do_bench=0 ;;
    --traces) need "$@"; traces=$2; shift ;;
    --golden) need "$@"; golden=$2; shift ;;
    --random123) need "$@"; random123=$2; shift ;;
    --xxhash) need "$@"; xxhash=$2; shift ;;
    --build) need "$@"; build=$2; shift ;;
    --commit) need "$@"; commit=$2; shift ;;
    --architecture) need "$@"; architecture=$2; shift ;;
    --sanitize-limit) need "$@"; sanitize_limit=$2; shift ;;
    -h | --help) sed -n '2,/^$/{/^#/!q;s/^# \{0,1\}//;p}' tools/gpu_check.sh; exit 0 ;;
    *) fail "unknown option $1; --help lists them" ;;
  esac
  shift
done
for folder in "$traces" "$golden" "$random123" "$xxhash"; do
  [[ -z $folder || -d $folder ]] || fail "$folder is not a folder"
done
[[ -z $golden ]] || export DSPARK_GOLDEN_TRACES
[[ -z $golden ]] || DSPARK_GOLDEN_TRACES=$(cd "$golden" && pwd)

out=${OUT:-build/gpu_check}
mkdir -p "$out" || fail "cannot make $out"
jobs=$(nproc)
table=()
failed=0

# part NAME LOG COMMAND...: runs the command with its output in LOG, and notes how it went.
part() {
  local name=$1 log=$2 begin=$SECONDS state=ok
  shift 2
  printf '== %s\n' "$name" >&2
  if ! "$@" >>"$out/$log" 2>&1; then
    state=FAILED
    failed=1
    printf -- '-- the end of %s\n' "$out/$log" >&2
    tail -n 25 "$out/$log" >&2
  fi
  table+=("$(printf '%-44s %-7s %5d s   %s' "$name" "$state" $((SECONDS - begin)) "$log")")
}

leave_out() { table+=("$(printf '%-44s %-7s' "$1" "left out: $2")"); }

configure() {
  local options=(-G Ninja -DDSPARK_ENABLE_CUDA=ON -DDSPARK_WERROR=OFF
    -DCMAKE_CUDA_ARCHITECTURES="$architecture")
  [[ -z $random123 ]] || options+=(-DDSPARK_RANDOM123_INCLUDE_DIR="$(cd "$random123" && pwd)")
  [[ -z $xxhash ]] || options+=(-DDSPARK_XXHASH_INCLUDE_DIR="$(cd "$xxhash" && pwd)")
  [[ -z $commit ]] || options+=(-DDSPARK_COMMIT="$commit")
  cmake -S . -B "$build" "${options[@]}"
}

compile() { cmake --build "$build" --parallel "$jobs"; }

# A skipped test has tested nothing: here that is a failure.
gpu_tests() {
  local status
  ctest --test-dir "$build" --label-regex '^gpu$' --no-tests=error --output-on-failure \
    --parallel 4 | tee "$work/ctest.txt"
  status=${PIPESTATUS[0]}
  if grep -F '***Skipped' "$work/ctest.txt"; then
    echo "error: tests were skipped although a GPU is here"
    status=1
  fi
  return "$status"
}

suite() { ctest --test-dir "$build" --no-tests=error --output-on-failure --parallel "$jobs"; }

# sanitize TOOL PROGRAM FILTER: the tests in shards side by side, as racecheck is slow and mostly on the host.
sanitize() {
  local shards=$((jobs > 14 ? 14 : jobs)) shard status=0 pids=()
  for ((shard = 0; shard < shards; ++shard)); do
    DSPARK_PARITY_FEW=1 GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard \
      timeout "$sanitize_limit" compute-sanitizer --tool "$1" --error-exitcode 9 --print-limit 20 \
      "$2" --gtest_brief=1 --gtest_filter="$3" >"$work/shard$shard.txt" 2>&1 &
    pids+=($!)
  done
  for ((shard = 0; shard < shards; ++shard)); do
    wait "${pids[shard]}" || status=1
    cat "$work/shard$shard.txt"
  done
  return "$status"
}

# Both backends must give the same result but for the lines that name backend, device and time.
compare_backends() {
  local trace status=0 backend
  for trace in "$traces"/*.h5; do
    [[ $(basename "$trace") != heads.h5 ]] || continue
    for backend in cpu cuda; do
      "$build/bin/dspark-replay" run "$trace" --backend "$backend" --format jsonl --quiet \
        -o "$work/$backend.json" || return 1
      sed -E 's/"(backend|device)": *"[^"]*"//g; s/"seconds": *[0-9.e+-]+//g' \
        "$work/$backend.json" >"$work/$backend.txt"
    done
    if cmp "$work/cpu.txt" "$work/cuda.txt"; then
      echo "$(basename "$trace"): the same"
    else
      echo "$(basename "$trace"): DIFFERENT"
      diff "$work/cpu.txt" "$work/cuda.txt" | cut -c 1-2000 | head -n 20
      status=1
    fi
  done
  return "$status"
}

nvidia-smi >"$out/summary.txt" 2>&1 || fail "nvidia-smi does not run: there is no usable GPU here"
rm -f "$out"/{build,tests,suite,sanitize,traces,bench}.log
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if ((do_build)); then
  part 'configure' build.log configure
  part 'build' build.log compile
fi
((do_tests)) && part 'tests of label gpu' tests.log gpu_tests
((do_suite)) && part 'whole suite' suite.log suite
if ((do_sanitize)); then
  if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck initcheck; do
      part "$tool, kernel tests" sanitize.log sanitize $tool "$build/tests/kernels_cuda" '*'
      # The large vocabularies add launches of the same kernels, not new paths.
      part "$tool, both backends" sanitize.log \
        sanitize $tool "$build/tests/parity_tests" '*-*LargeVocabulary*:*SaysWhatItCouldNot*'
    done
  else
    leave_out 'compute-sanitizer' 'not installed'
  fi
fi
[[ -z $traces ]] || part 'both backends over recorded traces' traces.log compare_backends
if ((do_bench)); then
  if "$build/bin/dspark-replay" bench --help >/dev/null 2>&1; then
    # The table in the log, the numbers as JSON beside it.
    part 'benchmark' bench.log \
      "$build/bin/dspark-replay" bench --backend cuda --json "$out/bench.json"
  else
    leave_out 'benchmark' 'this build has no bench command'
  fi
fi

printf '%s\n' "${table[@]}" | tee -a "$out/summary.txt"
exit $failed
