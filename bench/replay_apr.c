/* replay_apr.c - replays in pools of the Apache Portable Runtime.
 *
 * SPDX-License-Identifier: MIT
 */
#include <apr_general.h>
#include <apr_pools.h>

#define REPLAY_NAME replay_apr
#define REGION_ALLOCATE(size) apr_palloc(thread->region, size)
#define ALLOCATE_ZERO(size) apr_pcalloc(thread->region, size)
#define PHASE_BEGIN(thread) ((thread)->region = make_pool())
#define PHASE_END(thread) apr_pool_clear((thread)->region)
#define PHASES_OVER(thread) apr_pool_destroy((thread)->region)

static void *make_pool(void)
{
    apr_pool_t *pool = NULL;
    return apr_initialize() == APR_SUCCESS && apr_pool_create(&pool, NULL) == APR_SUCCESS ? pool
                                                                                          : NULL;
}

#include "replay_other_region.h"

#include "replay_loop.h"
