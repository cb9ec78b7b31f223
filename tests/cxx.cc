// cxx.cc - the header from C++: cxx.sh compiles it for several standards without a warning, and
// runs it.
//
// SPDX-License-Identifier: MIT
#include <slate.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>
#include <vector>

namespace {

template <class T> struct Allocator {
    using value_type = T;

    Allocator() = default;
    template <class U> Allocator(const Allocator<U> &) {}

    T *allocate(std::size_t count)
    {
        void *block = slate_aligned_alloc(alignof(T), count * sizeof(T));
        if (block == nullptr)
            throw std::bad_alloc();
        return static_cast<T *>(block);
    }
    void deallocate(T *block, std::size_t count) { slate_free_sized(block, count * sizeof(T)); }
};

template <class T, class U> bool operator==(const Allocator<T> &, const Allocator<U> &)
{
    return true;
}
template <class T, class U> bool operator!=(const Allocator<T> &, const Allocator<U> &)
{
    return false;
}

struct alignas(64) Line {
    char bytes[64];
};

int wrong(const char *what)
{
    std::fprintf(stderr, "FAILED: %s\n", what);
    return 1;
}

} // namespace

int main()
{
    if (std::string(slate_version()) != SLATE_VERSION)
        return wrong("slate_version");

    // Before the first use: slate_tune works; afterwards it does not.
    if (slate_tune("SLATE_POLICY", "shared") != 0)
        return wrong("slate_tune before the first use");

    using Text = std::basic_string<char, std::char_traits<char>, Allocator<char>>;
    std::vector<Text, Allocator<Text>> texts;
    for (int i = 0; i < 10000; i++)
        texts.emplace_back(static_cast<std::size_t>(i % 300), static_cast<char>('a' + i % 26));
    for (int i = 0; i < 10000; i++)
        if (texts[static_cast<std::size_t>(i)] !=
            Text(static_cast<std::size_t>(i % 300), static_cast<char>('a' + i % 26)))
            return wrong("a text changed");
    struct slate_stats stats;
    if (slate_stats(&stats, sizeof stats) != 0 || stats.in_use == 0)
        return wrong("slate_stats");

    std::vector<Line, Allocator<Line>> lines(100);
    if (reinterpret_cast<std::uintptr_t>(lines.data()) % 64 != 0)
        return wrong("alignment");

    if (slate_tune("SLATE_POLICY", "never") != EBUSY)
        return wrong("slate_tune after the first use");

    char *zeroes = static_cast<char *>(slate_zalloc(100));
    if (zeroes == nullptr || std::memchr(zeroes, 0, 1) != zeroes)
        return wrong("slate_zalloc");
    void *moved = slate_realloc(zeroes, 1000);
    if (moved == nullptr || slate_usable_size(moved) < 1000)
        return wrong("slate_realloc");
    slate_free(moved);

    // The functions behind the inline ones.
    void *(*volatile alloc)(std::size_t) = slate_alloc;
    void (*volatile end)(void *) = slate_free;
    void *block = alloc(48);
    if (block == nullptr)
        return wrong("slate_alloc by its address");
    end(block);

    struct slate_region *region = slate_region_create();
    struct slate_region_mark mark = slate_region_mark(region);
    Line *line = slate_region_new(region, Line);
    char *text = slate_region_printf(region, "%d", 42);
    if (line == nullptr || reinterpret_cast<std::uintptr_t>(line) % 64 != 0 || text == nullptr ||
        std::string(text) != "42" || slate_region_alloc(region, 24) == nullptr)
        return wrong("regions");
    slate_region_rewind(region, mark);
    struct slate_buffer buffer;
    slate_buffer_init(&buffer, region);
    if (slate_buffer_append(&buffer, "abc", 3) != 0 || slate_buffer_append_byte(&buffer, 'd') != 0 ||
        std::string(slate_buffer_data(&buffer), slate_buffer_length(&buffer)) != "abcd")
        return wrong("buffers");
    slate_region_destroy(region);
    if (slate_scratch_begin() != 0 || slate_scratch_alloc(100) == nullptr)
        return wrong("scratch");
    slate_scratch_end();
    slate_thread_idle();

    texts = decltype(texts)();
    lines = decltype(lines)();
    slate_purge();
    std::size_t count;
    if (slate_tunables(&count) == nullptr || count == 0)
        return wrong("slate_tunables");
    if (slate_stats(&stats, sizeof stats) != 0 || stats.in_use != 0)
        return wrong("something lives at the end");
    return 0;
}
