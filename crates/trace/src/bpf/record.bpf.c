// SPDX-License-Identifier: GPL-2.0-only
/*
 * Records the pattern of a workload, event by event: which thread runs where,
 * how it leaves the vCPU, which thread wakes which, and which vCPUs are idle.
 *
 * Switches between two threads outside the scope are left out: to the reader
 * both are "other". Events go to user space through a ring buffer without
 * wake-ups, since a wake-up per event would be a pattern of its own. Events
 * that do not fit are counted.
 */
#include "kernel_types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#include "trace.h"
#include "record.h"
#include "task.bpf.h"

/* Number of events that did not fit; user space reads it. */
volatile u64 lost;

/* Unused: puts the type, which no map or other variable has, in the BTF for user space. */
struct record_name unused;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RECORD_RING_BYTES);
} events SEC(".maps");

/* Freed with the thread, so that a reused TID starts afresh. */
struct recorded {
	/* The name that user space knows. */
	u64 comm[2];
	/* Whether the thread is in the scope, if that is a process tree. */
	u32 member;
	u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct recorded);
} recorded SEC(".maps");

static __always_inline struct recorded *state_of(struct task_struct *p, u64 flags)
{
	return bpf_task_storage_get(&recorded, p, 0, flags);
}

static __always_inline bool is_recorded(struct task_struct *p)
{
	struct recorded *r;

	if (!p->pid)
		return false;
	if (scope_kind == SCOPE_SYSTEM)
		return true;
	if (scope_kind == SCOPE_CGROUP)
		return in_group(p);
	r = state_of(p, 0);
	return r && r->member;
}

static __always_inline void send(void *event, u64 size)
{
	if (bpf_ringbuf_output(&events, event, size, BPF_RB_NO_WAKEUP))
		__sync_fetch_and_add(&lost, 1);
}

/* Sends the thread's name if user space does not know it: the thread is new or was renamed. */
static __always_inline void introduce(struct task_struct *p, u64 now)
{
	struct record_name name = { .record = { .at_ns = now, .kind = RECORD_NAME } };
	struct recorded *r = state_of(p, BPF_LOCAL_STORAGE_GET_F_CREATE);
	u64 comm[2];

	__builtin_memcpy(comm, p->comm, sizeof(comm));
	if (!r || (r->comm[0] == comm[0] && r->comm[1] == comm[1]))
		return;
	r->comm[0] = comm[0];
	r->comm[1] = comm[1];
	name.record.from = p->pid;
	name.record.to = p->tgid;
	__builtin_memcpy(name.comm, comm, sizeof(name.comm));
	send(&name, sizeof(name));
}

/* The thread's TID, once user space knows its name. */
static __always_inline u32 number_of(struct task_struct *p, bool in_scope, u64 now)
{
	if (!p->pid)
		return TID_NOBODY;
	if (!in_scope)
		return TID_OTHER;
	introduce(p, now);
	return p->pid;
}

static __always_inline enum record_kind how_it_left(struct task_struct *task, bool preempt)
{
	if (preempt || task->__state == TASK_RUNNING)
		return SWITCH_RUNNABLE;
	if (task->__state & TASK_DEAD)
		return SWITCH_EXITED;
	return BPF_CORE_READ_BITFIELD(task, in_iowait) ? SWITCH_BLOCKED_IO : SWITCH_BLOCKED;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct record event = {};
	bool leaves = is_recorded(prev), comes = is_recorded(next);

	if (!leaves && !comes && prev->pid && next->pid)
		return 0;
	event.at_ns = bpf_ktime_get_ns();
	event.kind = how_it_left(prev, preempt);
	event.cpu = bpf_get_smp_processor_id();
	event.from = number_of(prev, leaves, event.at_ns);
	event.to = number_of(next, comes, event.at_ns);
	send(&event, sizeof(event));
	return 0;
}

static __always_inline int wake(struct task_struct *p)
{
	struct record event = { .kind = RECORD_WAKE };
	struct task_struct *waker = bpf_get_current_task_btf();

	if (!is_recorded(p))
		return 0;
	event.at_ns = bpf_ktime_get_ns();
	event.cpu = bpf_get_smp_processor_id();
	event.from = number_of(waker, is_recorded(waker), event.at_ns);
	event.to = number_of(p, true, event.at_ns);
	send(&event, sizeof(event));
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *p)
{
	return never_left(p) ? 0 : wake(p);
}

/* A thread starts with a wake-up by its creator. */
SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_wakeup_new, struct task_struct *p)
{
	return wake(p);
}

/* A new thread inherits its parent's scope. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	struct recorded *p, *c;

	if (scope_kind != SCOPE_TREE && scope_kind != SCOPE_CHILDREN)
		return 0;
	p = state_of(parent, 0);
	if (!(p && p->member) &&
	    !(scope_kind == SCOPE_CHILDREN && parent->tgid == scope_pid && child->tgid != scope_pid))
		return 0;
	c = state_of(child, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (c)
		c->member = 1;
	else
		__sync_fetch_and_add(&lost, 1);
	return 0;
}

/* Run once at the start, for threads that exist already. */
SEC("iter/task")
int first_pass(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;
	struct recorded *r;

	if (!p)
		return 0;
	if (scope_kind == SCOPE_TREE && descends(p)) {
		r = bpf_task_storage_get(&recorded, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (r)
			r->member = 1;
	}
	if (is_recorded(p))
		introduce(p, bpf_ktime_get_ns());
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
