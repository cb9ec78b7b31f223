# shellcheck shell=bash
# The part that tests/run, bench/run and .ci/run share: installs what is missing, bootstraps,
# configures and builds. To be sourced; `top` is the top of the tree then, `build` the build
# directory.
# SPDX-License-Identifier: MIT
export LC_ALL=C DEBIAN_FRONTEND=noninteractive
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P) || exit 1
logs=$top/build/logs
# A tree that is configured itself cannot be built from elsewhere as well.
build=$top/build
[ -f "$top/config.status" ] && build=$top
jobs=$(nproc)

# ---- progress: a bar on a terminal, a line a step elsewhere --------------------------------------

plan_titles=()
plan_commands=()
steps_planned=0
steps_later=0 # how many steps follow what is planned now; for the bar alone
step_done=0
step_process=

# plan TITLE COMMAND: adds a step; COMMAND is one word, a function's name.
plan() {
    plan_titles+=("$1")
    plan_commands+=("$2")
}

draw_bar() {
    local width=24 total=$((steps_planned + steps_later)) filled text
    [ "$total" -gt "$step_done" ] || total=$((step_done + 1))
    filled=$((step_done * width / total))
    printf -v text '%*s' "$filled" ''
    printf -v text '%-*s' "$width" "${text// /#}"
    printf '\r\033[K[%s] %d/%d %s (%d s)' "${text// /-}" $((step_done + 1)) "$total" "$1" "$2"
}

# step TITLE COMMAND...: runs the command with its output in a log; shows the last `tail_lines` of
# it if it fails.
tail_lines=40
step() {
    local title=$1 log started=$SECONDS status=0
    shift
    mkdir -p "$logs"
    log=$logs/$(basename "$0")-${title//[ \/]/-}.log
    if [ -t 1 ]; then
        "$@" > "$log" 2>&1 < /dev/null &
        step_process=$!
        while kill -0 $step_process 2>/dev/null; do
            draw_bar "$title" $((SECONDS - started))
            sleep 0.2
        done
        wait $step_process || status=$?
        step_process=
        printf '\r\033[K'
    else
        printf 'slate: %s ... ' "$title"
        "$@" > "$log" 2>&1 < /dev/null || status=$?
        case $status in
        0) printf 'done (%d s)\n' $((SECONDS - started)) ;;
        77) printf 'skipped\n' ;;
        *) printf 'FAILED (%d s)\n' $((SECONDS - started)) ;;
        esac
    fi
    # shellcheck disable=SC2034 # .ci/run looks into it
    step_log=$log
    step_done=$((step_done + 1))
    if [ $status != 0 ] && [ $status != 77 ] && [ $tail_lines != 0 ]; then
        echo "slate: $title failed; the end of ${log#"$top"/}:" >&2
        tail -n $tail_lines "$log" >&2
    fi
    return $status
}

# run_plan: runs the planned steps and stops with exit 1 at the first that fails.
run_plan() {
    local i
    steps_planned=$((step_done + ${#plan_titles[@]}))
    for ((i = 0; i < ${#plan_titles[@]}; i++)); do
        step "${plan_titles[i]}" "${plan_commands[i]}" || exit 1
    done
    plan_titles=()
    plan_commands=()
}

trap '[ -z "$step_process" ] || kill "$step_process" 2>/dev/null; exit 130' INT TERM

# ---- what is missing -----------------------------------------------------------------------------

missing_names=()
missing_packages=()

missing() {
    missing_names+=("$1")
    [[ " ${missing_packages[*]} " = *" $2 "* ]] || missing_packages+=("$2")
}

# need_command COMMAND PACKAGE
need_command() {
    command -v "$1" > /dev/null || missing "$1" "$2"
}

# need_header HEADER PACKAGE
need_header() {
    local folder
    for folder in ${CPATH:+${CPATH//:/ }} /usr/local/include /usr/include "/usr/include/$(uname -m)-linux-gnu"; do
        [ -e "$folder/$1" ] && return
    done
    missing "$1" "$2"
}

# need_library FILE PACKAGE
need_library() {
    local file
    for file in /usr/local/lib*/$1 /usr/lib*/$1 /usr/lib/"$(uname -m)"-linux-gnu/$1; do
        [ -e "$file" ] && return
    done
    missing "$1" "$2"
}

need_for_build() {
    need_command gcc gcc
    need_header stdio.h libc6-dev
    need_command make make
    need_command pkg-config pkgconf
    need_command nm binutils
    need_header zstd.h libzstd-dev
    need_header jansson.h libjansson-dev
    if must_bootstrap; then
        need_command autoconf autoconf
        need_command automake automake
        need_command libtoolize libtool
    fi
}

need_for_tests() {
    need_command g++ g++
    need_header check.h check
    need_command strace strace
    need_command ps procps
    # Programs that are run on libslate-malloc.
    need_command python3 python3
    need_command perl perl
    need_command git git
    need_command sqlite3 sqlite3
    need_command cmake cmake
    need_command gdb gdb
    need_command node nodejs
    need_command clang clang
}

need_for_ci() {
    need_command clang clang
    need_command valgrind valgrind
    need_command clang-format clang-format
    need_command xz xz-utils
}

need_for_peers() {
    need_library 'libmimalloc.so.*' libmimalloc2.0
    need_library 'libjemalloc.so.*' libjemalloc2
    need_library 'libtcmalloc_minimal.so.*' libtcmalloc-minimal4
}

as_root=()

may_install() {
    command -v apt-get > /dev/null || return 1
    [ "$(id -u)" = 0 ] && return 0
    as_root=(sudo -n)
    sudo -n true 2>/dev/null
}

apt_install() {
    # A source that cannot be reached may not matter: whether the packages can be had is what
    # counts.
    "${as_root[@]}" apt-get update -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 || true
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "${missing_packages[@]}"
}

# install_missing WHAT FUNCTION...: installs what the functions find missing, or names it and stops
# with exit 1.
install_missing() {
    local what=$1 need
    shift
    for need; do $need; done
    [ ${#missing_names[@]} = 0 ] && return
    if ! may_install; then
        {
            echo "slate: missing for $what: ${missing_names[*]}"
            echo "slate: install these packages (Debian's names), then run this again: ${missing_packages[*]}"
        } >&2
        exit 1
    fi
    plan "installing ${#missing_packages[@]} packages" apt_install
    run_plan
    missing_names=()
    missing_packages=()
    hash -r
    for need; do $need; done
    if [ ${#missing_names[@]} != 0 ]; then
        echo "slate: still missing after installing: ${missing_names[*]} (packages: ${missing_packages[*]})" >&2
        exit 1
    fi
}

# ---- bootstrap, configure, make: what is done already is not done again --------------------------

# newer FILE THAN...: whether one of the files is newer than FILE, or FILE is not there.
newer() {
    local file=$1 than
    shift
    [ -e "$file" ] || return 0
    for than; do
        [ "$than" -nt "$file" ] && return 0
    done
    return 1
}

must_bootstrap() {
    local version
    newer "$top/configure" "$top/configure.ac" "$top"/m4/slate_*.m4 && return 0
    newer "$top/Makefile.in" "$top/configure.ac" "$top/Makefile.am" && return 0
    version=$(sed -n 's/^#define SLATE_VERSION "\(.*\)"$/\1/p' "$top/include/slate.h")
    ! grep -qF "PACKAGE_VERSION='$version'" "$top/configure"
}

must_configure() {
    newer "$build/config.status" "$top/configure" && return 0
    # A copied tree: what was configured elsewhere is of no use here.
    ! grep -qxF "abs_top_builddir = $build" "$build/Makefile"
}

do_bootstrap() {
    "$top/bootstrap"
}

do_configure() {
    mkdir -p "$build" && cd "$build" && "$top/configure"
}

do_make() {
    make -C "$build" -j"$jobs"
}

# set_up WHAT FUNCTION...: everything up to a finished build, given what FUNCTIONs need.
set_up() {
    install_missing "$@"
    if must_bootstrap; then
        plan bootstrapping do_bootstrap
        plan configuring do_configure
    elif must_configure; then
        plan configuring do_configure
    fi
    plan building do_make
    run_plan
}

# ---- counting ------------------------------------------------------------------------------------

passed=0
failed=0
skipped=0

# count_results DIRECTORY: adds up what the tests below the build DIRECTORY came to: each test of a
# program that uses Check, and each other program or script as one.
count_results() {
    local result counts
    counts=$(find "$1/tests" -name '*.trs' | sort | while read -r result; do
        awk '
            FNR == NR { if ($1 == ":test-result:") result = $2; next }
            /^[0-9]+%: Checks: [0-9]+, Failures: [0-9]+, Errors: [0-9]+$/ {
                gsub(/[,:]/, "")
                checks += $3
                wrong += $5 + $7
            }
            /^[a-z0-9_]+: skipped: / { skipped++ }
            END {
                if (result == "SKIP") { print 0, 0, 1; exit }
                if (checks == 0) { checks = 1; wrong = 0; skipped = 0; if (result != "PASS") wrong = 1 }
                else if (result != "PASS" && wrong == 0) { checks++; wrong = 1 }
                print checks - wrong - skipped, wrong, skipped + 0
            }' "$result" "${result%.trs}.log"
    done | awk '{ p += $1; f += $2; s += $3 } END { print p + 0, f + 0, s + 0 }')
    # shellcheck disable=SC2086
    set -- $counts
    passed=$((passed + $1))
    failed=$((failed + $2))
    skipped=$((skipped + $3))
}

# list_results DIRECTORY: names the tests that failed, and those skipped with their reasons.
list_results() {
    local result name
    find "$1/tests" -name '*.trs' | sort | while read -r result; do
        name=${result#"$1"/}
        case $(sed -n 's/^:test-result: //p' "$result") in
        PASS) sed -n "s,^[a-z0-9_]*: skipped: ,skipped: ${name%.trs}: &,p" "${result%.trs}.log" ;;
        SKIP) echo "skipped: ${name%.trs}: $(grep -v '^SKIP ' "${result%.trs}.log" | head -n 1)" ;;
        *)
            echo "FAILED: ${name%.trs}; from its log:"
            # A sanitizer says at its start what is wrong, and much else after it.
            grep -m 1 -A 12 -E 'ERROR: [A-Za-z]*Sanitizer|WARNING: ThreadSanitizer|runtime error:' \
                "${result%.trs}.log" | sed 's/^/    /'
            tail -n 15 "${result%.trs}.log" | sed 's/^/    /'
            ;;
        esac
    done
}

closing_line() {
    echo "$passed passed, $failed failed, $skipped skipped"
}
