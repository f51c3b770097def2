// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fast unfold: while a workload is packed on few vCPUs, say at once when one
 * of its threads waits too long for one of them.
 *
 * Each active vCPU has a few places for threads that wait. A thread takes one
 * when it becomes runnable there, and leaves it when it runs. Whether one has
 * waited too long is looked at when threads are switched, and by a timer on an
 * active vCPU, since a thread that never gets to run causes no event at all.
 * After one event nothing more is said until it is armed anew.
 */
#include "kernel_types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#include "unfold.h"

/* User space writes these while nothing is armed. */
volatile u64 active[UNFOLD_CPU_WORDS];
volatile u64 threshold_ns;
/* One more than the highest of them. */
volatile u32 active_end;
/* 1: armed; 0: not, or an event was raised since. */
volatile u32 armed;

/* A thread that waits, and since when; 0: the place is free. */
struct waiter {
	u64 since_ns;
	u32 pid;
	u32 pad;
};

struct waiters {
	struct waiter of[UNFOLD_PLACES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, UNFOLD_CPUS);
	__type(key, u32);
	__type(value, struct waiters);
} waiting SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

struct clock {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct clock);
} clocks SEC(".maps");

#define PF_KTHREAD 0x00200000
#define SCHED_IDLE 5
/* The static priority of nice 19. */
#define LEAST_PRIO 139

/* Kernel threads, and those that take only what is left over (yield threads among them), do not count. */
static __always_inline bool matters(struct task_struct *p)
{
	return p->pid && !(p->flags & PF_KTHREAD) && p->policy != SCHED_IDLE && p->static_prio < LEAST_PRIO;
}

static __always_inline bool is_active(u32 cpu)
{
	return cpu < UNFOLD_CPUS && (active[(cpu >> 6) & (UNFOLD_CPU_WORDS - 1)] & (1ULL << (cpu & 63)));
}

static __always_inline void raise(u32 cpu, u32 pid, u64 waited, u64 now)
{
	struct overdue event = { .at_ns = now, .waited_ns = waited, .cpu = cpu, .pid = pid };

	if (__sync_val_compare_and_swap(&armed, 1, 0) != 1)
		return;
	/* There is room: one event per arming, and it is read before the next. */
	bpf_ringbuf_output(&events, &event, sizeof(event), 0);
}

static __always_inline void check(struct waiters *w, u32 cpu, u64 now)
{
	int i;

	for (i = 0; i < UNFOLD_PLACES; i++) {
		u64 since = w->of[i].since_ns;

		if (since && now > since && now - since > threshold_ns) {
			raise(cpu, w->of[i].pid, now - since, now);
			return;
		}
	}
}

/* Two threads may share a place; then the one that came first is watched. */
static __always_inline void begin_waiting(struct waiters *w, struct task_struct *p, u64 now)
{
	struct waiter *place = &w->of[p->pid & (UNFOLD_PLACES - 1)];

	if (place->since_ns)
		return;
	place->pid = p->pid;
	place->since_ns = now;
}

static __always_inline void end_waiting(struct waiters *w, struct task_struct *p)
{
	struct waiter *place = &w->of[p->pid & (UNFOLD_PLACES - 1)];

	if (place->pid == p->pid)
		place->since_ns = 0;
}

static __always_inline u32 cpu_of(struct task_struct *p)
{
	return p->thread_info.cpu;
}

static __always_inline struct waiters *waiters_of(u32 cpu)
{
	return bpf_map_lookup_elem(&waiting, &cpu);
}

/* The thread has been put on a run queue. */
static __always_inline int queued(struct task_struct *p)
{
	struct waiters *w;
	u32 cpu;

	if (!armed || !matters(p))
		return 0;
	cpu = cpu_of(p);
	if (!is_active(cpu))
		return 0;
	w = waiters_of(cpu);
	if (w)
		begin_waiting(w, p, bpf_ktime_get_ns());
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *p)
{
	return queued(p);
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_wakeup_new, struct task_struct *p)
{
	return queued(p);
}

/* It waits elsewhere from now on. */
SEC("tp_btf/sched_migrate_task")
int BPF_PROG(on_migrate, struct task_struct *p)
{
	struct waiters *w;
	u32 cpu;

	if (!armed)
		return 0;
	cpu = cpu_of(p);
	w = is_active(cpu) ? waiters_of(cpu) : NULL;
	if (w)
		end_waiting(w, p);
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct waiters *w;
	u64 now;

	if (!armed || !is_active(cpu))
		return 0;
	w = waiters_of(cpu);
	if (!w)
		return 0;
	now = bpf_ktime_get_ns();
	if (matters(prev) && (preempt || !prev->__state))
		begin_waiting(w, prev, now);
	check(w, cpu, now);
	end_waiting(w, next);
	return 0;
}

struct look {
	u64 now;
};

static long look_at(u32 cpu, struct look *look)
{
	struct waiters *w;

	if (!is_active(cpu))
		return 0;
	w = waiters_of(cpu);
	if (w)
		check(w, cpu, look->now);
	return 0;
}

/* Half the threshold apart, so that a wait is noticed when it is half as long again at the latest. */
static __always_inline long start(struct clock *clock)
{
	long err = bpf_timer_start(&clock->timer, threshold_ns / 2, BPF_F_TIMER_CPU_PIN);

	/* Before Linux 6.7 there is no such flag. */
	return err == -EINVAL ? bpf_timer_start(&clock->timer, threshold_ns / 2, 0) : err;
}

static int on_timer(void *map, int *key, struct clock *clock)
{
	struct look look = { .now = bpf_ktime_get_ns() };

	if (!armed)
		return 0;
	bpf_loop(active_end, look_at, &look, 0);
	if (armed)
		start(clock);
	return 0;
}

/* User space runs this on an active vCPU, where the timer then stays. */
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
	return start(clock);
}

char LICENSE[] SEC("license") = "GPL";
