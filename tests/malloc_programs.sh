#!/usr/bin/env bash
# Runs real programs on libslate-malloc and without it: exit code, output and the files they write
# must be the same. What is not installed is skipped by name.
# SPDX-License-Identifier: MIT
set -u
name=malloc_programs
# shellcheck source=tests/malloc_support.sh
. "$(dirname "$0")/malloc_support.sh"
need_shared
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null PYTHONDONTWRITEBYTECODE=1 TZ=UTC
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
export GIT_AUTHOR_DATE="2026-01-01T00:00:00Z" GIT_COMMITTER_DATE="2026-01-01T00:00:00Z"

# have COMMAND PACKAGE
have() {
    command -v "$1" > /dev/null && return
    echo "$1: skipped, it is missing (Debian: $2)"
    return 1
}

# once FOLDER COMMAND...: runs it in a new folder below $work with that name.
once() {
    local folder=$work/$1
    shift
    rm -rf "$folder"
    mkdir "$folder"
    (cd "$folder" && exec "$@" > "$work/out" 2> "$work/errors" < /dev/null)
    echo "exit $?" >> "$work/out"
}

# same WHAT COMMAND...: the command as it is, then on slate with the policies in $with.
few=shared
[ -n "${DEBUG:-}" ] && few="switch shared"
with=$few
same() {
    local what=$1 policy
    shift
    once run "$@"
    if ! grep -qx 'exit 0' "$work/out"; then
        echo "$what: skipped, it does not work here without slate either: $(tail -n 2 "$work/errors" | head -c 200)"
        return
    fi
    mv "$work/out" "$work/out-without"
    mv "$work/errors" "$work/errors-without"
    rm -rf "$work/without"
    mv "$work/run" "$work/without"
    for policy in $with; do
        done_tests=$((done_tests + 1))
        once run env SLATE_POLICY="$policy" LD_PRELOAD="$libslate" "$@"
        if ! cmp -s "$work/out-without" "$work/out"; then
            fail "$what, policy $policy: other output: $(diff "$work/out-without" "$work/out" | head -n 4) $(tail -n 3 "$work/errors")"
        elif grep -q '^slate: ' "$work/errors"; then
            fail "$what, policy $policy: $(grep -m 1 '^slate: ' "$work/errors")"
        elif ! diff -rq "$work/without" "$work/run" > "$work/log" 2>&1; then
            fail "$what, policy $policy: other files: $(head -n 2 "$work/log")"
        fi
    done
}

# ---- shells and small tools, with every policy

with=$policies
cat > "$work/script.sh" << 'EOT'
declare -A words
for i in {1..300}; do words[key$i]=$(printf '%0*d' $((i % 50)) $i); done
for i in {1..40}; do (echo $i | sort | cat) & done
wait
printf '%s\n' "${words[@]}" | sort | md5sum
text=
for i in {1..2000}; do text+="$i "; done
echo ${#text} ${text//1/one} | md5sum
x=$(seq 20000 | tr '\n' ' '); set -- $x; echo $#
EOT
same "bash" bash -c "bash '$work/script.sh' | sort"
same "coreutils" bash -c 'seq 30000 | sort -R --random-source=/dev/zero | sort -n | tac | uniq | sha256sum'
with=$few

# ---- version control

if have git git; then
    cat > "$work/git.sh" << 'EOT'
set -e
git init -q -b main tree
cd tree
for i in $(seq 40); do
    seq $i $((i * 50)) > file$((i % 7))
    git add .
    git commit -q -m "commit $i"
done
git gc -q
git fsck --strict
git log --stat --format='%H %s'
git diff HEAD~20 HEAD | sha256sum
git rev-list --objects --all | sort | sha256sum
git blame file3 | tail -n 3
rm -rf .git/hooks .git/index .git/logs # times
cd .. && rm -rf tree
EOT
    same "git" bash "$work/git.sh"
fi

# ---- interpreters

if have python3 python3; then
    cat > "$work/program.py" << 'EOT'
import ctypes, gc, hashlib, json, random, re, sqlite3, threading, zlib, multiprocessing, subprocess
random.seed(1)
def work(seed):
    r = random.Random(seed)
    d = {}
    for i in range(20000):
        d[r.randrange(5000)] = [r.random() for _ in range(r.randrange(20))]
    return hashlib.sha256(json.dumps(sorted(d.items())).encode()).hexdigest()
results = {}
threads = [threading.Thread(target=lambda i=i: results.__setitem__(i, work(i))) for i in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
print(sorted(results.items()))
print(len(zlib.decompress(zlib.compress(bytes(range(256)) * 4000))), re.sub(r"(\d+)", r"<\1>", "a1b22")) 
db = sqlite3.connect(":memory:")
db.execute("create table t (a, b)")
db.executemany("insert into t values (?, ?)", [(i, str(i) * (i % 90)) for i in range(20000)])
print(db.execute("select count(*), sum(length(b)) from t").fetchall())
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(3) as pool:
        print(pool.map(work, range(4)))
    print(subprocess.check_output(["echo", "child"]))
gc.collect()
EOT
    same "python3" python3 "$work/program.py"
    # Without Python's own allocator everything goes through malloc.
    same "python3 on malloc alone" env PYTHONMALLOC=malloc python3 "$work/program.py"
    if python3 -c 'import test.test_list' 2> /dev/null; then
        with=shared same "python3 -m test" bash -c 'python3 -m test -q test_list test_dict test_deque test_zlib test_array 2>&1 | grep -vE "^(0:|Total|Result|==|\\[)|sec|MiB|seed" || true'
    else
        echo "python3 -m test: skipped, its tests are missing (Debian: libpython3-testsuite)"
    fi
fi
if have perl perl; then
    cat > "$work/program.pl" << 'EOT'
use strict;
my (%h, @a);
for my $i (1 .. 100000) { $h{"k" . $i % 7777} .= $i; push @a, $i * 7 % 1001 }
print join(",", map { length $h{$_} } sort keys %h) =~ tr/0-9//, "\n";
print join(" ", (sort { $a <=> $b } @a)[0 .. 20]), "\n";
my $t = "x" x 100000;
$t =~ s/(x{3})/uc($1)/ge for 1 .. 3;
print length $t, "\n";
for (1 .. 5) { my $pid = fork; if (!$pid) { my @b = map { "y" x $_ } 1 .. 2000; exit(@b == 2000 ? 0 : 1) } waitpid $pid, 0; print "child $?\n" }
eval { require threads; print join(",", map { $_->join } map { my $n = $_; threads->create(sub { my @c = map { "z" x $_ } 1 .. 500; scalar(@c) + $n }) } 1 .. 6), "\n" };
EOT
    same "perl" perl "$work/program.pl"
fi
if have node nodejs; then
    cat > "$work/program.js" << 'EOT'
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const crypto = require('crypto'), zlib = require('zlib');
function work(seed) {
  const map = new Map();
  let x = seed + 1;
  for (let i = 0; i < 60000; i++) { x = (x * 48271) % 2147483647; map.set(x % 5000, { id: i, text: 'v' + x, list: [x, i] }); }
  const text = JSON.stringify([...map]);
  const packed = zlib.gzipSync(Buffer.from(text));
  return crypto.createHash('sha256').update(zlib.gunzipSync(packed)).digest('hex');
}
if (isMainThread) {
  Promise.all([0, 1, 2, 3].map((i) => new Promise((resolve, reject) => {
    const worker = new Worker(__filename, { workerData: i });
    worker.on('message', resolve); worker.on('error', reject);
  }))).then((results) => { console.log(results.join('\n')); console.log(work(9)); });
} else parentPort.postMessage(work(workerData));
EOT
    same "node" node "$work/program.js"
fi
if have sqlite3 sqlite3; then
    cat > "$work/program.sql" << 'EOT'
create table t (a integer primary key, b text, c blob);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 60000)
  insert into t select i, hex(i * 7919) || substr('abcdefghijklmnop', 1, i % 16), zeroblob(i % 300) from n;
create index u on t (b, a);
select count(*), sum(length(b)), sum(length(c)) from t;
select x.b, count(*) from t x join t y on x.a = y.a + 1 group by substr(x.b, 1, 2) order by 1 limit 9;
delete from t where a % 3 = 0;
vacuum;
pragma integrity_check;
EOT
    same "sqlite3" bash -c "sqlite3 data < '$work/program.sql' && sha256sum data && rm data"
fi

# ---- compilers: the objects must be the same to the byte

cat > "$work/program.c" << 'EOT'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define F(n) int f##n(int a) { int s = 0; for (int i = 0; i < a; i++) s += i * n ^ (s >> 3); return s; }
#define G(n) F(n##0) F(n##1) F(n##2) F(n##3) F(n##4) F(n##5) F(n##6) F(n##7)
G(1) G(2) G(3) G(4) G(5) G(6) G(7) G(8)
int main(void) { return printf("%d\n", f10(9) + f87(11)) < 0; }
EOT
cat > "$work/program.cc" << 'EOT'
#include <algorithm>
#include <iostream>
#include <map>
#include <string>
#include <vector>
template <int N> struct s { std::map<std::string, std::vector<int>> m; int f() { for (int i = 0; i < N; i++) m[std::to_string(i)].push_back(i); return m.size() + s<N - 1>().f(); } };
template <> struct s<0> { int f() { return 0; } };
int main() { std::cout << s<10>().f() << "\n"; }
EOT
compiler() {
    have "$1" "$2" || return
    same "$1" bash -c "$1 -O2 -g -c '$work/program.$3' -o program.o && $1 -O1 '$work/program.$3' -o program && ./program"
}
compiler gcc gcc c
compiler g++ g++ cc
compiler clang clang c
compiler clang++ clang cc
if have rustc rustc; then
    cat > "$work/program.rs" << 'EOT'
use std::collections::HashMap;
fn main() {
    let mut map: HashMap<u64, Vec<String>> = HashMap::new();
    for i in 0..20000u64 { map.entry(i % 777).or_default().push(format!("{}", i * i)); }
    let handles: Vec<_> = (0..4).map(|n| std::thread::spawn(move || (0..1000).map(|i| vec![n; i].len()).sum::<usize>())).collect();
    let sum: usize = handles.into_iter().map(|h| h.join().unwrap()).sum();
    println!("{} {}", map.values().map(|v| v.len()).sum::<usize>(), sum);
}
EOT
    same "rustc" bash -c "rustc -O -C codegen-units=4 '$work/program.rs' -o program && ./program && rm program"
fi
if have cmake cmake; then
    cat > "$work/CMakeLists.txt" << 'EOT'
cmake_minimum_required(VERSION 3.10)
project(example C)
foreach(i RANGE 300)
  list(APPEND numbers ${i})
  string(REPEAT "${i}" 20 text)
  set(value_${i} "${text}")
endforeach()
list(LENGTH numbers count)
message(STATUS "numbers ${count}")
add_executable(example program.c)
EOT
    same "cmake" bash -c "cp '$work/CMakeLists.txt' '$work/program.c' . && cmake -S . -B build | grep -v '^-- Build files\|(.*s)$' &&
        cmake --build build > log && build/example && rm -rf build log"
fi
if have gdb gdb; then
    same "gdb --version" gdb --version
    cat > "$work/commands" << 'EOT'
set confirm off
set debuginfod enabled off
break f10
info functions f8
list f10
EOT
    if compile program -g "$work/program.c"; then
        same "gdb" gdb -nx -batch -x "$work/commands" "$work/program"
    fi
fi
finish
