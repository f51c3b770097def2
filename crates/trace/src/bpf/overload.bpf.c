// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fast expansion: while a workload is consolidated on few vCPUs, report at once
 * when more threads queue up there than those vCPUs can run.
 *
 * A timer samples the active vCPUs' run queues. While they are short, a sample
 * is two memory reads per vCPU. Only on long queues are threads examined one by
 * one, since not all of them count. Nothing is attached to the scheduler's
 * events: at half a million switches a second even an empty program there costs
 * a few per cent. The timer runs on another vCPU: a thousand interrupts a
 * second slow down a chain of requests on one vCPU by 3 %.
 *
 * An overload must last, since even closed loops have a thread or two waiting.
 * After one event nothing is reported until the program is armed again.
 */
#include "kernel_types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "overload.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct list_head {
	struct list_head *next;
};

/* The suffix after ___ is local: kernel_types.h has other fields of the same structure. */
struct sched_entity___queued {
	struct list_head group_node;
	struct cfs_rq *cfs_rq;
};

struct cfs_rq {
	struct rq *rq;
};

struct rq {
	int cpu;
	unsigned int nr_running;
	/* Fair threads, including the running one. */
	struct list_head cfs_tasks;
};

#pragma clang attribute pop

/* User space writes these while disarmed. */
volatile u64 active[OVERLOAD_CPU_WORDS];
/* The highest active vCPU + 1. */
volatile u32 active_end;
/* Overload: at least this many runnable threads, for at least persistence_ns. */
volatile u32 at_least;
volatile u64 persistence_ns;
/* Sampling interval. */
volatile u64 period_ns;
/* Number of the current arming; 0: disarmed, or an event was reported since. */
volatile u32 armed;
/* Whether the timer runs. It goes on for a while after disarming, so that arming again is cheap. */
volatile u32 ticking;
/* Run queue addresses by vCPU; 0: unknown. Most kernels do not export per-CPU variables. */
volatile u64 queues[OVERLOAD_CPUS];

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

struct clock {
	struct bpf_timer timer;
	/* The arming that the fields below belong to. */
	u32 of;
	/* Consecutive samples while disarmed, and consecutive samples that found no thread. */
	u32 unarmed;
	u32 idle;
	/* Start of the overload; 0: none. */
	u64 since_ns;
	/* What is reported of it in the end. */
	struct overload overload;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct clock);
} clocks SEC(".maps");

#define SCHED_IDLE 5
/* Static priority of nice 19. */
#define LEAST_PRIO 139

/*
 * Longer queues are not walked to their end, which a list that changes in the
 * meantime might not reach.
 */
#define LONGEST_QUEUE 256
/* While nothing runs, the interval grows up to 1 << this times: samples would only wake a vCPU. */
#define MOST_IDLE 2
/* The timer stops after this many samples while disarmed. */
#define MOST_UNARMED 256
/* How many more samples must confirm an overload before it is reported. */
#define MORE_SAMPLES 3

/* Runnable, and neither a kernel thread nor one of the lowest priority (such as a yield thread). */
static __always_inline bool counts(struct task_struct *p)
{
	return !BPF_CORE_READ(p, __state) && !(BPF_CORE_READ(p, flags) & PF_KTHREAD) &&
	       BPF_CORE_READ(p, policy) != SCHED_IDLE && BPF_CORE_READ(p, static_prio) < LEAST_PRIO;
}

struct walk {
	u64 head;
	u64 at;
	u32 found;
};

static __always_inline u64 entity_of(u64 task)
{
	return task + bpf_core_field_offset(struct task_struct, se);
}

static long step(u32 i, struct walk *walk)
{
	u64 task, next;

	if (!walk->at || walk->at == walk->head)
		return 1;
	task = walk->at - entity_of(bpf_core_field_offset(struct sched_entity___queued, group_node));
	if (counts((struct task_struct *)task))
		walk->found++;
	if (bpf_probe_read_kernel(&next, sizeof(next), (void *)walk->at))
		return 1;
	/* A thread that has just left the queue points to itself. */
	walk->at = next == walk->at ? 0 : next;
	return 0;
}

/*
 * Counts the threads that matter in the run queue at this address. No lock is
 * held: a concurrent change can at worst falsify one sample. Like sample(), not
 * static, so that the verifier checks it once rather than along every path to
 * it, which takes a fifth of a second.
 */
__noinline u32 overload_of(u64 rq, u32 running)
{
	struct walk walk = {};

	walk.head = rq + bpf_core_field_offset(struct rq, cfs_tasks);
	if (bpf_probe_read_kernel(&walk.at, sizeof(walk.at), (void *)walk.head))
		return 0;
	bpf_loop(LONGEST_QUEUE, step, &walk, 0);
	return walk.found < running ? walk.found : running;
}

struct sample {
	/* Examine threads one by one. */
	u32 closely;
	u32 runnable;
	u32 waiting;
};

static long sample_cpu(u32 cpu, struct sample *sample)
{
	struct rq *rq;
	u32 n;

	if (cpu >= OVERLOAD_CPUS || !(active[(cpu >> 6) & (OVERLOAD_CPU_WORDS - 1)] & (1ULL << (cpu & 63))))
		return 0;
	rq = (struct rq *)queues[cpu];
	if (!rq)
		return 0;
	n = BPF_CORE_READ(rq, nr_running);
	if (sample->closely)
		n = overload_of((u64)rq, n);
	sample->runnable += n;
	if (n > 1)
		sample->waiting += n - 1;
	return 0;
}

/* Runnable threads on the active vCPUs; in the upper half how many of them wait. */
__noinline u64 sample(u32 closely)
{
	struct sample sample = { .closely = closely };

	bpf_loop(active_end, sample_cpu, &sample, 0);
	return sample.runnable | (u64)sample.waiting << 32;
}

static __always_inline void raise(struct clock *clock, u32 arming, u32 runnable, u64 now)
{
	struct overload *overload = &clock->overload;

	if (__sync_val_compare_and_swap(&armed, arming, 0) != arming)
		return;
	overload->at_ns = now;
	overload->lasted_ns = now - clock->since_ns;
	overload->runnable = runnable;
	/* There is room: one event per arming, and it is read before the next. */
	bpf_ringbuf_output(&events, overload, sizeof(*overload), 0);
}

/* Takes one sample. Returns the time until the next. */
static __always_inline u64 watch(struct clock *clock, u32 arming)
{
	u32 runnable;
	u64 now, seen;

	if (clock->of != arming) {
		clock->of = arming;
		clock->since_ns = 0;
	}
	runnable = sample(0);
	clock->idle = runnable ? 0 : clock->idle < MOST_IDLE ? clock->idle + 1 : MOST_IDLE;
	if (runnable < at_least || (u32)(seen = sample(1)) < at_least) {
		clock->since_ns = 0;
		return period_ns << clock->idle;
	}
	now = bpf_ktime_get_ns();
	if (!clock->since_ns) {
		clock->since_ns = now;
		clock->overload.samples = 0;
		clock->overload.waiting = 0;
	}
	clock->overload.samples++;
	clock->overload.waiting += seen >> 32;
	if (clock->overload.samples > MORE_SAMPLES && now - clock->since_ns >= persistence_ns)
		raise(clock, arming, seen, now);
	return persistence_ns / MORE_SAMPLES;
}

static __always_inline long start(struct clock *clock, u64 in_ns)
{
	long err = bpf_timer_start(&clock->timer, in_ns, BPF_F_TIMER_CPU_PIN);

	/* Linux before 6.7 has no such flag. */
	return err == -EINVAL ? bpf_timer_start(&clock->timer, in_ns, 0) : err;
}

static int on_timer(void *map, int *key, struct clock *clock)
{
	u32 arming = armed;
	u64 next = period_ns;

	if (arming) {
		clock->unarmed = 0;
		next = watch(clock, arming);
	} else if (++clock->unarmed > MOST_UNARMED) {
		__sync_lock_test_and_set(&ticking, 0);
		/* It could have been armed just now, by user space that saw the timer running. */
		if (!__sync_fetch_and_add(&armed, 0))
			return 0;
		ticking = 1;
	}
	start(clock, next);
	return 0;
}

/*
 * User space reads this to its end before first arming. Each vCPU has a kernel
 * thread of its own, which leads to its run queue.
 */
SEC("iter/task")
int find_queues(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct sched_entity___queued *entity;
	struct rq *rq;
	u32 cpu;

	if (!task)
		return 0;
	entity = (struct sched_entity___queued *)entity_of((u64)task);
	rq = BPF_CORE_READ(entity, cfs_rq, rq);
	cpu = BPF_CORE_READ(rq, cpu);
	if (rq && cpu < OVERLOAD_CPUS)
		queues[cpu] = (u64)rq;
	return 0;
}

/* User space runs this on the vCPU where the timer should run. */
SEC("syscall")
int start_clock(void *ctx)
{
	struct clock *clock;
	u32 zero = 0;
	long err;

	clock = bpf_map_lookup_elem(&clocks, &zero);
	if (!clock)
		return -1;
	err = bpf_timer_init(&clock->timer, &clocks, CLOCK_MONOTONIC);
	if (err && err != -EBUSY)
		return err;
	err = bpf_timer_set_callback(&clock->timer, on_timer);
	if (err)
		return err;
	clock->unarmed = 0;
	ticking = 1;
	return start(clock, period_ns);
}

char LICENSE[] SEC("license") = "GPL";
