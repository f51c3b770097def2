/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who wakes whom, how long the wakee takes to run, how long it then computes,
 * and what it waits in.
 *
 * A stretch lasts from a wake-up until the thread blocks again. Only lengths
 * that start and end in the same window are counted; CPU time is counted for
 * the part inside. Nothing is sent to user space.
 */
#ifndef GLEANER_SCHED_H
#define GLEANER_SCHED_H

#if defined(__TARGET_ARCH_x86)
#define SYSCALL_NR(regs) ((long)(regs)->orig_ax)
#define SECOND_ARGUMENT(regs) ((long)(regs)->si)
#elif defined(__TARGET_ARCH_arm64)
#define SYSCALL_NR(regs) ((long)(regs)->syscallno)
#define SECOND_ARGUMENT(regs) ((long)(regs)->user_regs.regs[1])
#endif

static __always_inline struct pt_regs *regs_of(struct task_struct *p)
{
	return (struct pt_regs *)bpf_task_pt_regs(p);
}

/* The system call that a blocked or waking thread is in. */
static __always_inline long syscall_of(struct task_struct *p)
{
	return SYSCALL_NR(regs_of(p));
}

static __always_inline u32 wait_of(struct task_struct *task)
{
	if (BPF_CORE_READ_BITFIELD(task, in_iowait))
		return HIST_WAIT_IO;
	if (task->flags & PF_KTHREAD)
		return HIST_WAIT_OTHER;
	switch (syscall_of(task)) {
	case NR_FUTEX:
	case NR_FUTEX_WAIT:
	case NR_FUTEX_WAITV:
		return HIST_WAIT_FUTEX;
	case NR_READ:
	case NR_WRITE:
	case NR_READV:
	case NR_WRITEV:
	case NR_SENDTO:
	case NR_RECVFROM:
	case NR_SENDMSG:
	case NR_RECVMSG:
	case NR_ACCEPT:
	case NR_ACCEPT4:
		return HIST_WAIT_SOCKET;
	case NR_POLL:
	case NR_SELECT:
	case NR_PSELECT6:
	case NR_PPOLL:
	case NR_EPOLL_WAIT:
	case NR_EPOLL_PWAIT:
	case NR_EPOLL_PWAIT2:
		return HIST_WAIT_POLL;
	case NR_NANOSLEEP:
	case NR_CLOCK_NANOSLEEP:
		return HIST_WAIT_SLEEP;
	default:
		return HIST_WAIT_OTHER;
	}
}

/* Operations of include/uapi/linux/futex.h. */
static __always_inline u32 futex_kind(long op)
{
	switch (op & 127) {
	case 3: /* FUTEX_REQUEUE */
	case 4: /* FUTEX_CMP_REQUEUE */
	case 12: /* FUTEX_CMP_REQUEUE_PI */
		return COUNT_FUTEX_REQUEUE;
	case 7: /* FUTEX_UNLOCK_PI */
		return COUNT_FUTEX_PI;
	default:
		return COUNT_FUTEX_WAKE;
	}
}

static __always_inline void start_stretch(struct task_state *t, u64 now)
{
	t->stretch_ns = now;
	t->segment_ns = 0;
}

/* The waker's name, as a number. Also counts the futex operation that wakes. */
static __always_inline u32 waker_of(struct task_struct *waker, u64 weight)
{
	struct task_state *w;
	long call;

	if (!waker->pid)
		return NAME_INTERRUPT;
	w = new_state_of(waker);
	if (!w)
		return NAME_OTHER;
	update_name(waker, w);
	if (waker->flags & PF_KTHREAD)
		return w->name;
	call = syscall_of(waker);
	if (call == NR_FUTEX)
		count_scope(futex_kind(SECOND_ARGUMENT(regs_of(waker))), weight);
	else if (call == NR_FUTEX_WAKE)
		count_scope(COUNT_FUTEX_WAKE, weight);
	else if (call == NR_FUTEX_REQUEUE)
		count_scope(COUNT_FUTEX_REQUEUE, weight);
	return w->name;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *p)
{
	u64 weight = window.weight;
	struct task_state *t;
	u64 now;

	if (!weight || never_left(p))
		return 0;
	t = new_state_of(p);
	if (!t)
		return 0;
	t->followed = FOLLOWED_UNKNOWN;
	if (!is_followed(p, t))
		return 0;
	now = bpf_ktime_get_ns();
	t->woken_ns = now;
	t->waker_cpu = bpf_get_smp_processor_id();
	if (within(t->blocked_ns))
		add_length(t->wait, now - t->blocked_ns, weight);
	t->blocked_ns = 0;
	t->waker = waker_of(bpf_get_current_task_btf(), weight);
	return 0;
}

/* Whether idle periods are traced; user space writes it. */
const volatile bool idle_followed = false;

/* What the wakee's vCPU was doing when the waker called; HISTS: unknown. */
static __always_inline u32 wake_kind(struct task_state *t, bool was_idle)
{
	struct vcpu *v;

	if (t->waker_cpu == bpf_get_smp_processor_id())
		return HIST_WAKE_SAME;
	if (!was_idle || !idle_followed)
		return HIST_WAKE_AWAKE;
	v = this_vcpu();
	if (!v || !v->idle_since)
		return HISTS;
	if (t->woken_ns < v->idle_since || t->woken_ns >= v->idle_until)
		return HIST_WAKE_AWAKE;
	return v->idle_state == 0 ? HIST_WAKE_POLLING : HIST_WAKE_HALTED;
}

static __always_inline void add_edge(struct task_state *t, u32 kind, u64 ns, u64 weight)
{
	struct edge_key key = { .waker = t->waker, .wakee = t->name };
	struct edge *edge = bpf_map_lookup_elem(&edges, &key);

	if (!edge) {
		struct edge none = {};

		if (bpf_map_update_elem(&edges, &key, &none, BPF_ANY)) {
			count_all(COUNT_LOST_EDGE, 1);
			return;
		}
		edge = bpf_map_lookup_elem(&edges, &key);
		if (!edge)
			return;
	}
	edge->count += weight;
	edge->total_ns += ns * weight;
	if (kind == HIST_WAKE_HALTED)
		edge->halted += weight;
	else if (kind == HIST_WAKE_POLLING)
		edge->polling += weight;
}

static __always_inline struct thread *thread_of(struct task_state *t)
{
	u32 name = t->name;

	return bpf_map_lookup_elem(&threads, &name);
}

/* Two ticks further apart than this have an idle period between them. */
#define TICK_MAX_NS 10000000

/* Accounts what the running thread has computed so far. */
static __always_inline void account_run(struct task_state *t, struct thread *thread, u64 now, u64 weight)
{
	u64 since = t->running_ns, ran;
	struct vcpu *v;

	if (!within(since)) {
		/* It was running when the last window ended ... */
		if (since >= window.last_start_ns && since < window.last_end_ns)
			thread->cpu_ns += (window.last_end_ns - since) * window.last_weight;
		/*
		 * ... and when this one started, or its switch would have been
		 * seen. Threads that ran for longer were accounted by ticks.
		 */
		since = window.start_ns;
		if (now - since > TICK_MAX_NS)
			since = now - TICK_MAX_NS;
	}
	ran = now - since;
	t->running_ns = now;
	t->segment_ns += ran;
	thread->cpu_ns += ran * weight;
	/*
	 * In windows, ticks account the vCPU's time: a window's weight would
	 * put all of it in one place.
	 */
	v = weight == 1 ? this_vcpu() : NULL;
	if (v)
		v->scope_ns += ran;
}

/* A thread that is woken while it leaves its vCPU has left it within this time. */
#define LEAVING_NS 100000

static __always_inline void leave(struct task_struct *p, struct task_state *t, bool blocks, u64 now,
				  u64 weight)
{
	struct thread *thread;
	u32 bucket;

	update_name(p, t);
	if (t->woken_ns && now - t->woken_ns > LEAVING_NS)
		t->woken_ns = 0;
	if (blocks && !t->woken_ns) {
		t->blocked_ns = now;
		t->wait = wait_of(p);
	}
	thread = thread_of(t);
	if (thread) {
		account_run(t, thread, now, weight);
		if (!blocks) {
			thread->preempted += weight;
			if (!(p->flags & PF_KTHREAD) && syscall_of(p) == NR_SCHED_YIELD)
				thread->yielded += weight;
		} else if (within(t->stretch_ns)) {
			bucket = log2_of(t->segment_ns);
			thread->segments += weight;
			thread->segment_ns += t->segment_ns * weight;
			thread->runs[bucket < RUN_BUCKETS ? bucket : RUN_BUCKETS - 1] += weight;
		}
	}
	t->running_ns = 0;
	if (blocks)
		t->stretch_ns = 0;
	else
		t->preempted_ns = now;
}

static __always_inline void enter(struct task_struct *p, struct task_state *t, bool was_idle, u64 now,
				  u64 weight)
{
	struct thread *thread;
	u32 kind;
	u64 ns;

	update_name(p, t);
	if (within(t->woken_ns)) {
		start_stretch(t, now);
		ns = now - t->woken_ns;
		kind = wake_kind(t, was_idle);
		if (kind < HISTS) {
			add_length(kind, ns, weight);
			add_edge(t, kind, ns, weight);
			thread = thread_of(t);
			if (thread) {
				thread->woken += weight;
				thread->woken_ns += ns * weight;
			}
		}
	} else if (within(t->preempted_ns)) {
		add_length(HIST_PREEMPTED, now - t->preempted_ns, weight);
	}
	t->woken_ns = 0;
	t->running_ns = now;
	t->preempted_ns = 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	u64 weight = window.weight;
	struct task_state *from, *to;
	u64 now;

	if (!weight)
		return 0;
	from = prev->pid ? state_of(prev) : NULL;
	to = next->pid ? state_of(next) : NULL;
	now = bpf_ktime_get_ns();
	if (from && is_followed(prev, from))
		leave(prev, from, !preempt && prev->__state != TASK_RUNNING, now, weight);
	if (to && is_followed(next, to))
		enter(next, to, !prev->pid, now, weight);
	return 0;
}

#endif
