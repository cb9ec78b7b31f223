/* model_region.c - random operations on regions, append buffers and scratch against a reference
 * model, in several threads that hand regions to each other, under each policy.
 *
 * SPDX-License-Identifier: MIT
 */
#include "support.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

#if defined(SLATE_TRACK_ADDRESS)
#define ENDED(address) (__asan_address_is_poisoned(address) != 0)
#else
#define ENDED(address) ((void)(address), true)
#endif

enum { OBJECTS = 400, MARKS = 8, THREADS = 4, FRAMES = 6, BUFFERS = 4 };

/* ---- contents that follow from a seed */

static unsigned char byte_of(uint64_t seed, size_t at)
{
    return (unsigned char)(seed * 31 + at * 7);
}

static void write_bytes(void *block, size_t size, uint64_t seed)
{
    unsigned char *bytes = block;
    size_t step = size < 4096 ? 1 : 61;
    for (size_t i = 0; i < size; i += step)
        bytes[i] = byte_of(seed, i);
}

static void check_bytes(const char *what, const void *block, size_t kept, size_t size,
                        uint64_t seed)
{
    const unsigned char *bytes = block;
    size_t step = size < 4096 ? 1 : 61;
    for (size_t i = 0; i < kept; i += step)
        REQUIRE(bytes[i] == byte_of(seed, i), "%s at %p of %zu bytes: byte %zu changed", what,
                block, size, i);
}

static size_t some_size(uint64_t *random)
{
    size_t kind = random_below(random, 200);
    if (kind == 0)
        return random_doubling(random, 17, 21);
    return kind < 20 ? random_doubling(random, 9, 15) : random_below(random, 300);
}

/* ---- regions */

struct object {
    char *address;
    size_t size;
    uint64_t seed;
    uint64_t changed; /* the operation that made or resized it */
};

struct open_mark {
    struct slate_region_mark mark;
    uint64_t operation;
    unsigned deferred;
};

struct model {
    struct slate_region *region;
    struct object objects[OBJECTS]; /* the oldest first */
    unsigned count;
    struct open_mark marks[MARKS];
    unsigned mark_count;
    unsigned deferred, called; /* calls that wait; that ran */
    uint64_t operation;
    bool exact; /* nothing older than a mark was resized: the statistics can be foretold */
};

static void count_call(void *argument)
{
    struct model *model = argument;
    model->called++;
}

static void check_object(const struct object *object)
{
    check_bytes("a block of a region", object->address, object->size, object->size, object->seed);
}

static void check_stats(const struct model *model)
{
    struct slate_region_stats stats;
    size_t asked = 0;
    for (unsigned i = 0; i < model->count; i++)
        asked += model->objects[i].size;
    REQUIRE(slate_region_stats(model->region, &stats, sizeof stats) == 0, "slate_region_stats");
    REQUIRE(!model->exact || stats.asked == asked, "a region has %zu bytes asked, not %zu",
            stats.asked, asked);
    REQUIRE(stats.kept >= stats.carved || !model->exact, "a region carved %zu bytes and keeps %zu",
            stats.carved, stats.kept);
    REQUIRE(stats.marks == model->mark_count, "a region has %zu marks, not %u", stats.marks,
            model->mark_count);
}

static void add_object(struct model *model, uint64_t *random)
{
    size_t size = some_size(random), alignment = 8;
    if (model->count == OBJECTS)
        return;
    struct object *object = &model->objects[model->count];
    char *made;
    switch (random_below(random, 6)) {
    case 0:
        alignment = (size_t)1 << random_below(random, 10);
        made = slate_region_aligned(model->region, alignment, size);
        break;
    case 1:
        made = slate_region_zalloc(model->region, size);
        for (size_t i = 0; made != NULL && i < size; i += size < 4096 ? 1 : 61)
            REQUIRE(made[i] == 0, "slate_region_zalloc(%zu): byte %zu is not zero", size, i);
        break;
    case 2:
        size = 48;
        made = slate_region_alloc(model->region, 48);
        break;
    case 3: {
        int number = (int)random_below(random, 100000);
        made = slate_region_printf(model->region, "%d and %d", number, -number);
        REQUIRE(made != NULL && atoi(made) == number, "slate_region_printf");
        size = strlen(made) + 1;
        break;
    }
    default:
        made = slate_region_alloc(model->region, size);
    }
    REQUIRE(made != NULL, "a region has no %zu bytes: %s", size, strerror(errno));
    REQUIRE((uintptr_t)made % alignment == 0, "%p is not aligned to %zu", (void *)made, alignment);
    *object = (struct object){made, size, next_random(random), model->operation};
    write_bytes(made, size, object->seed);
    model->count++;
}

static void resize_object(struct model *model, uint64_t *random)
{
    if (model->count == 0)
        return;
    bool newest = random_below(random, 3) != 0;
    unsigned index = newest ? model->count - 1 : (unsigned)random_below(random, model->count);
    struct object *object = &model->objects[index];
    size_t size = random_below(random, 4) == 0 ? some_size(random) : object->size * 3 / 2 + 1;
    if (size > MIB * 4)
        size = 100;
    if (model->mark_count != 0 && object->changed <= model->marks[model->mark_count - 1].operation)
        model->exact = false;
    char *moved = slate_region_realloc(model->region, object->address, object->size, size);
    REQUIRE(moved != NULL, "slate_region_realloc from %zu to %zu", object->size, size);
    check_bytes("a resized block", moved, object->size < size ? object->size : size, object->size,
                object->seed);
    *object = (struct object){moved, size, next_random(random), model->operation};
    write_bytes(moved, size, object->seed);
}

static void rewind_region(struct model *model, uint64_t *random)
{
    if (model->mark_count == 0)
        return;
    unsigned index = (unsigned)random_below(random, model->mark_count);
    struct open_mark to = model->marks[index];
    for (unsigned i = 0; i < model->count; i++)
        check_object(&model->objects[i]);
    unsigned called = model->called + model->deferred - to.deferred;
    slate_region_rewind(model->region, to.mark);
    REQUIRE(model->called == called, "%u deferred calls ran, not %u", model->called, called);
    model->deferred = to.deferred;
    unsigned kept = 0;
    for (unsigned i = 0; i < model->count; i++) {
        if (model->objects[i].changed <= to.operation)
            model->objects[kept++] = model->objects[i];
        else if (model->exact && model->objects[i].size > 16)
            REQUIRE(ENDED(model->objects[i].address + 16), "an ended block is not poisoned");
    }
    model->count = kept;
    model->mark_count = index;
    for (unsigned i = 0; i < model->count; i++)
        check_object(&model->objects[i]);
}

static void reset_region(struct model *model, size_t keep)
{
    unsigned called = model->called + model->deferred;
    slate_region_reset(model->region, keep);
    REQUIRE(model->called == called, "a reset ran %u calls, not %u", model->called, called);
    struct slate_region_stats stats;
    slate_region_stats(model->region, &stats, sizeof stats);
    REQUIRE(stats.kept <= keep && stats.asked == 0, "a reset kept %zu bytes of %zu", stats.kept,
            keep);
    model->count = model->mark_count = model->deferred = 0;
    model->exact = true;
}

/* A limit refuses, harms nothing, and is lifted again. */
static void limit_region(struct model *model)
{
    struct slate_region_stats before, after;
    slate_region_stats(model->region, &before, sizeof before);
    slate_region_limit(model->region, before.kept);
    errno = 0;
    REQUIRE(slate_region_alloc(model->region, 3 * MIB) == NULL && errno == ENOMEM,
            "a limit did not hold");
    slate_region_limit(model->region, SIZE_MAX);
    slate_region_stats(model->region, &after, sizeof after);
    REQUIRE(before.asked == after.asked && before.kept == after.kept,
            "a refused allocation changed the region");
}

static struct model *new_model(void)
{
    struct model *model = calloc(1, sizeof *model);
    REQUIRE(model != NULL, "the model has no memory");
    model->region = slate_region_create();
    REQUIRE(model->region != NULL, "slate_region_create");
    model->exact = true;
    return model;
}

static void end_model(struct model *model)
{
    for (unsigned i = 0; i < model->count; i++)
        check_object(&model->objects[i]);
    unsigned called = model->called + model->deferred;
    slate_region_destroy(model->region);
    REQUIRE(model->called == called, "the end ran %u calls, not %u", model->called, called);
    free(model);
}

static void use_region(struct model *model, uint64_t *random)
{
    size_t choice = random_below(random, 1000);
    model->operation++;
    if (choice < 700) {
        add_object(model, random);
    } else if (choice < 880) {
        resize_object(model, random);
    } else if (choice < 930 && model->mark_count < MARKS) {
        struct slate_region_mark mark = slate_region_mark(model->region);
        model->marks[model->mark_count++] =
            (struct open_mark){mark, model->operation, model->deferred};
    } else if (choice < 950) {
        rewind_region(model, random);
    } else if (choice < 960) {
        REQUIRE(slate_region_defer(model->region, count_call, model) == 0, "slate_region_defer");
        model->deferred++;
    } else if (choice < 965) {
        reset_region(model, random_below(random, 3) * random_below(random, MIB));
    } else if (choice < 975) {
        limit_region(model);
    } else {
        check_stats(model);
    }
}

/* ---- append buffers */

struct reference {
    struct slate_buffer buffer;
    struct slate_region *region; /* or NULL */
    unsigned char *bytes;        /* what the buffer must hold */
    size_t length, room;
};

static unsigned char *expect(struct reference *reference, size_t size)
{
    if (reference->length + size > reference->room) {
        reference->room = (reference->length + size) * 2;
        reference->bytes = realloc(reference->bytes, reference->room);
        REQUIRE(reference->bytes != NULL, "the model has no memory");
    }
    reference->length += size;
    return reference->bytes + reference->length - size;
}

static void drop_front(struct reference *reference, size_t size)
{
    reference->length -= size;
    if (reference->length != 0)
        memmove(reference->bytes, reference->bytes + size, reference->length);
}

static void check_buffer(const struct reference *reference)
{
    REQUIRE(slate_buffer_length(&reference->buffer) == reference->length,
            "a buffer holds %zu bytes, not %zu", slate_buffer_length(&reference->buffer),
            reference->length);
    REQUIRE(reference->length == 0 || memcmp(slate_buffer_data(&reference->buffer),
                                             reference->bytes, reference->length) == 0,
            "a buffer of %zu bytes does not hold what was appended", reference->length);
}

static void clear_buffer(struct reference *reference)
{
    reference->length = 0;
    /* What its region was used for goes with it. */
    if (reference->region != NULL)
        slate_region_reset(reference->region, 64 << 10);
    slate_buffer_init(&reference->buffer, reference->region);
}

static void use_buffer(struct reference *reference, uint64_t *random)
{
    static const unsigned char latin1[] = "plain \xe9t\xe9 text";
    static const char latin1_as_utf8[] = "plain \xc3\xa9t\xc3\xa9 text";
    static const uint16_t units[] = {'a', 0xe9, 0x20ac, 0xd83d, 0xde00, 0xd800, 'z'};
    static const char units_as_utf8[] = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xef\xbf\xbdz";
    struct slate_buffer *buffer = &reference->buffer;
    size_t choice = random_below(random, 100), size = some_size(random);
    int error = 0;
    if (choice < 50) {
        unsigned char *bytes = expect(reference, size);
        memset(bytes, (int)next_random(random), size);
        error = slate_buffer_append(buffer, bytes, size);
    } else if (choice < 60) {
        unsigned char byte = *expect(reference, 1) = (unsigned char)next_random(random);
        error = slate_buffer_append_byte(buffer, byte);
    } else if (choice < 65) {
        memcpy(expect(reference, sizeof latin1_as_utf8 - 1), latin1_as_utf8,
               sizeof latin1_as_utf8 - 1);
        error = slate_buffer_append_latin1(buffer, latin1, sizeof latin1 - 1);
    } else if (choice < 70) {
        memcpy(expect(reference, sizeof units_as_utf8 - 1), units_as_utf8,
               sizeof units_as_utf8 - 1);
        error = slate_buffer_append_utf16(buffer, units, sizeof units / sizeof *units);
    } else if (choice < 75) {
        char text[64];
        int length = snprintf(text, sizeof text, "<%zu>", size);
        memcpy(expect(reference, (size_t)length), text, (size_t)length);
        error = slate_buffer_printf(buffer, "<%zu>", size);
    } else if (choice < 78) {
        error = slate_buffer_reserve(buffer, size);
    } else if (choice < 94) {
        size_t taken = random_below(random, 8) == 0 ? SIZE_MAX : 2 * size;
        slate_buffer_consume(buffer, taken);
        drop_front(reference, taken < reference->length ? taken : reference->length);
    } else if (choice < 96) {
        slate_buffer_truncate(buffer, size);
        reference->length = size < reference->length ? size : reference->length;
    } else if (choice < 98) {
        size_t length = reference->length + 1;
        char *block = slate_buffer_finish(buffer, &length);
        REQUIRE(block != NULL && length == reference->length, "slate_buffer_finish gives %zu bytes",
                length);
        REQUIRE(length == 0 || memcmp(block, reference->bytes, length) == 0,
                "slate_buffer_finish gives other bytes");
        if (reference->region == NULL)
            slate_free(block);
        clear_buffer(reference);
    } else if (choice < 99) {
        slate_buffer_free(buffer);
        clear_buffer(reference);
    }
    REQUIRE(error == 0, "a buffer of %zu bytes: %s", reference->length, strerror(error));
    if (reference->length > 6 * MIB) {
        slate_buffer_consume(buffer, 5 * MIB);
        drop_front(reference, 5 * MIB);
    }
    if (choice % 8 == 0 || reference->length < 4096)
        check_buffer(reference);
}

/* ---- scratch */

struct frames {
    struct object blocks[FRAMES][2];
    int depth;
};

static void use_scratch(struct frames *frames, uint64_t *random)
{
    if (frames->depth < FRAMES && random_below(random, 2) == 0) {
        REQUIRE(slate_scratch_begin() == 0, "slate_scratch_begin");
        for (unsigned i = 0; i < 2; i++) {
            struct object *block = &frames->blocks[frames->depth][i];
            block->size = some_size(random);
            block->address = slate_scratch_alloc(block->size);
            REQUIRE(block->address != NULL, "scratch has no %zu bytes", block->size);
            block->seed = next_random(random);
            write_bytes(block->address, block->size, block->seed);
        }
        frames->depth++;
    } else if (frames->depth != 0) {
        frames->depth--;
        for (int depth = frames->depth; depth >= 0; depth--)
            for (unsigned i = 0; i < 2; i++) {
                struct object *block = &frames->blocks[depth][i];
                check_bytes("scratch", block->address, block->size, block->size, block->seed);
            }
        slate_scratch_end();
        struct object *block = &frames->blocks[frames->depth][0];
        REQUIRE(block->size < 32 || ENDED(block->address + 16), "ended scratch is not poisoned");
    }
    if (random_below(random, 20) == 0)
        slate_thread_idle();
}

/* ---- threads */

/* Where threads lay their regions down and take others up; guarded by the lock, whose release and
 * acquire hand the regions over. */
static struct model *exchange[THREADS];
static pthread_mutex_t exchange_lock = PTHREAD_MUTEX_INITIALIZER;

struct job {
    uint64_t random;
    unsigned long operations;
};

static void *work(void *argument)
{
    struct job *job = argument;
    uint64_t *random = &job->random;
    struct model *models[2] = {new_model(), new_model()};
    struct reference references[BUFFERS] = {0};
    struct frames frames = {.depth = 0};
    for (unsigned i = 0; i < BUFFERS; i++) {
        references[i].region = i % 2 == 0 ? NULL : slate_region_create();
        clear_buffer(&references[i]);
    }
    for (unsigned long i = 0; i < job->operations; i++) {
        size_t choice = random_below(random, 100);
        if (choice < 60) {
            use_region(models[choice % 2], random);
        } else if (choice < 85) {
            use_buffer(&references[choice % BUFFERS], random);
        } else if (choice < 99) {
            use_scratch(&frames, random);
        } else {
            size_t place = random_below(random, THREADS);
            pthread_mutex_lock(&exchange_lock);
            struct model *other = exchange[place];
            exchange[place] = models[0];
            pthread_mutex_unlock(&exchange_lock);
            models[0] = other != NULL ? other : new_model();
        }
    }
    while (frames.depth != 0)
        use_scratch(&frames, random);
    slate_thread_idle();
    for (unsigned i = 0; i < BUFFERS; i++) {
        check_buffer(&references[i]);
        slate_buffer_free(&references[i].buffer);
        slate_region_destroy(references[i].region);
        free(references[i].bytes);
    }
    end_model(models[0]);
    end_model(models[1]);
    return NULL;
}

static void run(void *context)
{
    const struct job *given = context;
    pthread_t threads[THREADS];
    struct job jobs[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        jobs[i] = (struct job){given->random * THREADS + i, given->operations};
        REQUIRE(pthread_create(&threads[i], NULL, work, &jobs[i]) == 0, "pthread_create");
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < THREADS; i++)
        if (exchange[i] != NULL)
            end_model(exchange[i]);
    slate_purge();
    struct slate_stats stats = test_stats();
    REQUIRE(stats.in_use + stats.own_mappings == 0, "%zu bytes are in use at the end",
            stats.in_use + stats.own_mappings);
}

int main(void)
{
    /* Two seeds that stay, and one that changes. */
    uint64_t seeds[] = {1, 2, (uint64_t)time(NULL)};
    bool passed = true;
    for (unsigned policy = 0; policy < TEST_POLICIES; policy++)
        for (unsigned i = 0; i < sizeof seeds / sizeof *seeds; i++) {
            struct job given = {seeds[i], scaled(16000)};
            printf("model_region: policy %s, seed %llu\n", test_policies[policy],
                   (unsigned long long)seeds[i]);
            passed &= test_with_policy(test_policies[policy], run, &given);
        }
    return passed ? TEST_PASSED : TEST_FAILED;
}
