#!/bin/sh
# Builds the kernels and every *_test.cpp here with the address and undefined-behaviour sanitizers, and runs each test
# on the highest instruction set this processor has. A first argument "thread" uses the thread sanitizer instead; a second,
# "every", runs all instruction sets, which takes more than twice as long.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
source=$here/../../csrc
cxx=${CXX:-c++}
case ${1:-address} in
    thread) sanitize=thread ;;
    *) sanitize=address,undefined ;;
esac
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
flags="-std=c++17 -O1 -g1 -Wall -Wextra -Wno-psabi -pthread -fno-math-errno -ffp-contract=fast -I$source"
flags="$flags -fno-omit-frame-pointer -fsanitize=$sanitize -fno-sanitize-recover=all"

case $(uname -m) in
    x86_64 | amd64) sets="baseline v3 v4" ;;  # all that the library is linked from
    aarch64 | arm64) sets=neon ;;
    *) sets=baseline ;;
esac
runs() {  # whether tests run on this instruction set
    case $1 in
        v4) grep -q avx512bw /proc/cpuinfo ;;
        v3) grep -q avx2 /proc/cpuinfo && { [ "${2:-}" = every ] || ! runs v4; } ;;
        baseline) [ "${2:-}" = every ] || ! grep -q avx2 /proc/cpuinfo ;;
    esac
}
for name in dispatch parallel scratch; do
    $cxx $flags -c "$source/$name.cpp" -o "$build/0-$name.o" &
done
number=1  # the linker takes the lowest instruction set first, as in setup.py
for set in $sets; do
    case $set in
        v3 | v4) march=-march=x86-64-$set ;;
        *) march= ;;
    esac
    if ! runs "$set" "${2:-}"; then  # it only has to be there
        printf '#include "table.h"\nconst wb::KernelTable* wb_table_%s() { return nullptr; }\n' "$set" > "$build/$set.cpp"
        $cxx $flags -c "$build/$set.cpp" -o "$build/$number-$set.o" &
    else
        for part in layers training; do
            $cxx $flags $march -DWB_ISA="$set" -c "$source/isa_$part.cpp" -o "$build/$number-$set-$part.o" &
        done
    fi
    number=$((number + 1))
done
wait

# As many tests at a time as there are processors; each shows what it said when it is done.
cat > "$build/run" <<'END'
set -eu
name=$(basename "$1" .cpp)
$cxx $flags "$1" "$build"/*.o -o "$build/$name"
for set in $sets; do
    if [ -e "$build/$set.cpp" ]; then continue; fi
    echo "== $name $set"
    WIREBOUND_ISA=$set "$build/$name"
done
END
export build cxx flags sets
printf '%s\n' "$here"/*_test.cpp | xargs -P "$(getconf _NPROCESSORS_ONLN)" -I '{}' \
    sh -c 'sh "$build/run" "$1" > "$build/$$.log" 2>&1; status=$?; cat "$build/$$.log"; rm -f "$build/$$.log"; exit $status' sh '{}'
