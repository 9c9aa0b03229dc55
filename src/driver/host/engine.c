/* SPDX-License-Identifier: MIT
 *
 * The engine: everything enqueued and not finished is one graph of tasks; a task whose predecessors
 * are done is ready, and threads take ready ones in an order drawn from the seed. So whatever order
 * streams, events and graph edges leave open is really taken, sooner or later, in every way.
 *
 * Markers need no thread: whoever finishes their last predecessor finishes them too. A host
 * function may block for as long as it likes (a test may hold a stream with one), so threads inside
 * host functions do not count towards the number of operations that run at once.
 *
 * Tasks, the ready list and all counters are guarded by the lock; ops are immutable and run without
 * it. What a task did is visible to its successors because the lock is taken in between.
 */
#include "base/clock.h"
#include "driver/host/state.h"

#include <assert.h>

#define MOST_THREADS 256

static uint64_t next_random(void)
{
    /* splitmix64 (Steele, Lea and Flood 2014) */
    uint64_t x = rpi_host.engine.random += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static void free_task(struct rpi_host_task *task)
{
    rpi_host_op_drop(task->op);
    rpi_vec_finish(&task->successors);
    rpi_free(task);
}

void rpi_host_task_drop(struct rpi_host_task *task)
{
    rpi_assert_held(&rpi_host.lock);
    if (task && --task->references == 0)
        free_task(task);
}

void rpi_host_task_set(struct rpi_host_task **slot, struct rpi_host_task *task)
{
    rpi_assert_held(&rpi_host.lock);
    if (task)
        task->references++;
    rpi_host_task_drop(*slot);
    *slot = task;
}

/* Marks a task done and with it every marker that this makes ready. */
static void finish_task(struct rpi_host_task *task)
{
    struct rpi_host_engine *engine = &rpi_host.engine;
    uint64_t now = rpi_clock_ns();
    struct rpi_host_task *finished = task;
    task->next = NULL;
    while (finished) {
        struct rpi_host_task *t = finished;
        finished = t->next;
        t->done = true;
        t->done_ns = now;
        engine->unfinished--;
        for (size_t i = 0; i < t->successors.count; i++) {
            struct rpi_host_task *successor = t->successors.data[i];
            if (--successor->waiting > 0)
                continue;
            if (successor->op) {
                engine->ready.data[engine->ready.count++] = successor;
            } else {
                successor->next = finished;
                finished = successor;
            }
        }
        rpi_vec_finish(&t->successors);
        rpi_host_task_drop(t);
    }
    pthread_cond_broadcast(&rpi_host.progress);
}

static void run_task(struct rpi_host_task *task)
{
    struct rpi_host_engine *engine = &rpi_host.engine;
    bool may_block = task->op->type == CU_GRAPH_NODE_TYPE_HOST;
    engine->running++;
    engine->in_hosts += may_block;
    engine->operations++;
    struct rpi_host_thread *self = rpi_host_thread();
    self->in_callback = may_block;
    pthread_mutex_unlock(&rpi_host.lock);
    rpi_host_op_run(task->op);
    pthread_mutex_lock(&rpi_host.lock);
    self->in_callback = false;
    engine->running--;
    engine->in_hosts -= may_block;
    finish_task(task);
}

static bool may_run_more(void)
{
    const struct rpi_host_engine *engine = &rpi_host.engine;
    return engine->ready.count > 0 && engine->running - engine->in_hosts < rpi_host.options.threads;
}

static void wake_threads(void);

static void *thread_main(void *unused)
{
    (void)unused;
    struct rpi_host_engine *engine = &rpi_host.engine;
    pthread_mutex_lock(&rpi_host.lock);
    while (!engine->stopping) {
        if (!may_run_more()) {
            engine->idle++;
            pthread_cond_wait(&rpi_host.work, &rpi_host.lock);
            engine->idle--;
            continue;
        }
        size_t pick = (size_t)(next_random() % engine->ready.count);
        struct rpi_host_task *task = engine->ready.data[pick];
        engine->ready.data[pick] = engine->ready.data[--engine->ready.count];
        if (task->op->type == CU_GRAPH_NODE_TYPE_HOST || engine->ready.count > 0)
            wake_threads();
        run_task(task);
    }
    pthread_mutex_unlock(&rpi_host.lock);
    return NULL;
}

static bool start_thread(void)
{
    struct rpi_host_engine *engine = &rpi_host.engine;
    pthread_t thread;
    if (!rpi_vec_reserve(&engine->threads, engine->threads.count + 1) ||
        pthread_create(&thread, NULL, thread_main, NULL) != 0)
        return false;
    engine->threads.data[engine->threads.count++] = thread;
    return true;
}

/* Sees to it that ready work finds a thread. A thread that cannot be started is no failure: those
 * that exist do the work later. */
static void wake_threads(void)
{
    struct rpi_host_engine *engine = &rpi_host.engine;
    if (engine->ready.count == 0)
        return;
    size_t working = engine->threads.count - engine->in_hosts;
    if (engine->idle > 0)
        pthread_cond_signal(&rpi_host.work); /* who wakes and leaves work wakes the next */
    else if (working < (size_t)rpi_host.options.threads + 1 && engine->threads.count < MOST_THREADS)
        start_thread();
}

struct rpi_host_task *rpi_host_task_create(struct rpi_host_op *op)
{
    rpi_assert_held(&rpi_host.lock);
    struct rpi_host_engine *engine = &rpi_host.engine;
    /* Room for every unfinished task, so that becoming ready cannot fail. */
    if (!rpi_vec_reserve(&engine->ready, engine->unfinished + 1) ||
        (engine->threads.count == 0 && !start_thread()))
        return NULL;
    struct rpi_host_task *task = rpi_calloc(1, sizeof *task);
    if (!task)
        return NULL;
    task->references = 2; /* the engine's and the caller's */
    task->waiting = 1;
    task->op = op ? rpi_host_op_hold(op) : NULL;
    engine->unfinished++;
    return task;
}

bool rpi_host_task_after(struct rpi_host_task *task, struct rpi_host_task *before)
{
    rpi_assert_held(&rpi_host.lock);
    if (!before || before->done)
        return true;
    if (!rpi_vec_push(&before->successors, task))
        return false;
    task->waiting++;
    return true;
}

void rpi_host_task_submit(struct rpi_host_task *task)
{
    rpi_assert_held(&rpi_host.lock);
    assert(!task->done && task->waiting > 0);
    if (--task->waiting > 0)
        return;
    if (!task->op) {
        finish_task(task);
        wake_threads();
        return;
    }
    struct rpi_host_engine *engine = &rpi_host.engine;
    engine->ready.data[engine->ready.count++] = task;
    wake_threads();
}

void rpi_host_task_cancel(struct rpi_host_task *task)
{
    rpi_assert_held(&rpi_host.lock);
    rpi_host_op_drop(task->op);
    task->op = NULL;
    rpi_host_task_submit(task);
}

void rpi_host_task_wait(struct rpi_host_task *task)
{
    rpi_assert_held(&rpi_host.lock);
    if (!task)
        return;
    task->references++;
    while (!task->done)
        pthread_cond_wait(&rpi_host.progress, &rpi_host.lock);
    rpi_host_task_drop(task);
}

void rpi_host_engine_drain(void)
{
    rpi_assert_held(&rpi_host.lock);
    while (rpi_host.engine.unfinished > 0)
        pthread_cond_wait(&rpi_host.progress, &rpi_host.lock);
}

void rpi_host_engine_stop(void)
{
    rpi_assert_held(&rpi_host.lock);
    struct rpi_host_engine *engine = &rpi_host.engine;
    assert(engine->unfinished == 0);
    engine->stopping = true;
    pthread_cond_broadcast(&rpi_host.work);
    rpi_host_unlock();
    for (size_t i = 0; i < engine->threads.count; i++)
        pthread_join(engine->threads.data[i], NULL);
    rpi_host_lock();
    rpi_vec_finish(&engine->threads);
    rpi_vec_finish(&engine->ready);
    engine->stopping = false;
}
