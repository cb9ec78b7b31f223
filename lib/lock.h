/* lib/lock.h - the library's locks: mutexes that the thread that forks walks through.
 *
 * SPDX-License-Identifier: MIT
 *
 * Around a fork that thread holds all of them.  Other libraries' fork handlers run meanwhile, in
 * the child too, and allocate.
 */
#ifndef SLATEI_LOCK_H
#define SLATEI_LOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The thread that holds all locks around its fork; 0 none.  Written by that thread alone; any other
 * finds another's number there or none, so relaxed does. */
extern atomic_uintptr_t slatei_forking;

static inline bool slatei_lock_is_open(void)
{
    uintptr_t forking = atomic_load_explicit(&slatei_forking, memory_order_relaxed);
    return __builtin_expect(forking != 0, 0) && forking == (uintptr_t)pthread_self();
}

static inline void slatei_lock(pthread_mutex_t *mutex)
{
    if (!slatei_lock_is_open())
        pthread_mutex_lock(mutex);
}

static inline void slatei_unlock(pthread_mutex_t *mutex)
{
    if (!slatei_lock_is_open())
        pthread_mutex_unlock(mutex);
}

#endif
