/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who wakes whom, how long the wakee takes to run, how long it then computes
 * and in what it waits.
 *
 * A thread is followed in stretches: from the wake-up until it blocks again.
 * Nothing is sent to user space; each stretch adds to counters.
 */
#ifndef GLEANER_SCHED_H
#define GLEANER_SCHED_H

#define TASK_RUNNING 0

/* The system call that a blocked or waking thread is in; -1 where that is not known. */
static __always_inline long syscall_of(struct task_struct *p)
{
#if defined(__TARGET_ARCH_x86)
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(p);

	return (long)regs->orig_ax;
#elif defined(__TARGET_ARCH_arm64)
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(p);

	return regs->syscallno;
#else
	return -1;
#endif
}

static __always_inline long second_argument(struct task_struct *p)
{
#if defined(__TARGET_ARCH_x86)
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(p);

	return (long)regs->si;
#elif defined(__TARGET_ARCH_arm64)
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(p);

	return regs->user_regs.regs[1];
#else
	return 0;
#endif
}

#define PF_KTHREAD 0x00200000

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

/* enum of include/uapi/linux/futex.h */
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

static __always_inline void begin_stretch(struct task_state *t, u32 weight)
{
	t->weight = weight;
	t->segment_ns = 0;
	t->running_ns = 0;
	t->preempted_ns = 0;
}

static __always_inline int waking(struct task_struct *p)
{
	struct task_struct *waker = bpf_get_current_task_btf();
	struct task_state *t, *w;
	u32 shift = sample_shift;
	long call;
	u64 now;

	if (shift && (bpf_get_prandom_u32() & ((1U << (shift & 31)) - 1)))
		return 0;
	t = new_state_of(p);
	if (!t || !in_scope(p, t))
		return 0;
	/* A second waker of a thread that is on its way already. */
	if (t->woken_ns)
		return 0;
	now = bpf_ktime_get_ns();
	begin_stretch(t, 1U << (shift & 31));
	t->woken_ns = now;
	t->waker_cpu = bpf_get_smp_processor_id();
	if (t->blocked_ns) {
		add_length(t->wait, now - t->blocked_ns, t->weight);
		t->blocked_ns = 0;
	}
	if (!waker->pid) {
		t->waker = NAME_INTERRUPT;
		return 0;
	}
	w = new_state_of(waker);
	if (!w)
		return 0;
	look_at_name(waker, w);
	t->waker = w->name;
	if (waker->flags & PF_KTHREAD)
		return 0;
	call = syscall_of(waker);
	if (call == NR_FUTEX || call == NR_FUTEX_WAKE || call == NR_FUTEX_REQUEUE) {
		u32 what = call == NR_FUTEX ? futex_kind(second_argument(waker)) :
			   call == NR_FUTEX_WAKE ? COUNT_FUTEX_WAKE :
						   COUNT_FUTEX_REQUEUE;

		count_for(WHO_SCOPE, what, t->weight);
	}
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *p)
{
	return waking(p);
}

/* What the vCPU that the wakee runs on was doing when the waker called. */
static __always_inline u32 wake_kind(struct task_state *t, u32 cpu)
{
	struct vcpu *v = this_vcpu();

	if (t->waker_cpu == cpu)
		return HIST_WAKE_SAME;
	if (!v || t->woken_ns < v->idle_since || t->woken_ns >= v->idle_until)
		return HIST_WAKE_AWAKE;
	return v->idle_state == 0 ? HIST_WAKE_POLLING : HIST_WAKE_HALTED;
}

static __always_inline void add_edge(struct task_state *t, u32 kind, u64 ns)
{
	u32 key = (t->waker << 16) | (t->name & 0xffff);
	struct edge *edge = bpf_map_lookup_elem(&edges, &key);

	if (!edge) {
		struct edge none = {};

		if (bpf_map_update_elem(&edges, &key, &none, BPF_ANY)) {
			count_for(WHO_ALL, COUNT_LOST_EDGE, 1);
			return;
		}
		edge = bpf_map_lookup_elem(&edges, &key);
		if (!edge)
			return;
	}
	edge->count += t->weight;
	edge->total_ns += ns * t->weight;
	if (kind == HIST_WAKE_HALTED)
		edge->halted += t->weight;
	else if (kind == HIST_WAKE_POLLING)
		edge->polling += t->weight;
}

static __always_inline struct thread *thread_of(struct task_state *t)
{
	u32 name = t->name;

	return bpf_map_lookup_elem(&threads, &name);
}

/* What the thread has computed up to now; it goes on. */
static __always_inline void account_run(struct task_state *t, struct thread *thread, u64 now)
{
	u64 ran = now - t->running_ns;

	if (!t->running_ns)
		return;
	t->running_ns = now;
	t->segment_ns += ran;
	thread->cpu_ns += ran * t->weight;
}

static __always_inline void leave(struct task_struct *p, bool blocks, u64 now)
{
	struct task_state *t = state_of(p);
	struct thread *thread;
	u32 bucket;

	if (!t)
		return;
	/* A wake-up that came before the thread had left its vCPU needed no switch. */
	t->woken_ns = 0;
	/*
	 * Also where this stretch is not followed: the next may be, and then
	 * wants to know how long the thread was blocked.
	 */
	if (blocks && in_scope(p, t)) {
		t->blocked_ns = now;
		t->wait = wait_of(p);
	}
	if (!t->weight)
		return;
	look_at_name(p, t);
	thread = thread_of(t);
	if (thread) {
		account_run(t, thread, now);
		if (blocks) {
			bucket = log2_of(t->segment_ns);
			thread->segments += t->weight;
			thread->segment_ns += t->segment_ns * t->weight;
			thread->runs[bucket < RUN_BUCKETS ? bucket : RUN_BUCKETS - 1] += t->weight;
		} else {
			thread->preempted += t->weight;
			if (!(p->flags & PF_KTHREAD) && syscall_of(p) == NR_SCHED_YIELD)
				thread->yielded += t->weight;
		}
	}
	t->running_ns = 0;
	if (blocks)
		t->weight = 0;
	else
		t->preempted_ns = now;
}

static __always_inline void enter(struct task_struct *p, u64 now)
{
	struct task_state *t = state_of(p);
	struct thread *thread;
	u64 ns;

	if (!t || !t->weight)
		return;
	look_at_name(p, t);
	t->running_ns = now;
	if (t->woken_ns) {
		u32 kind = wake_kind(t, bpf_get_smp_processor_id());

		ns = now - t->woken_ns;
		t->woken_ns = 0;
		add_length(kind, ns, t->weight);
		add_edge(t, kind, ns);
		thread = thread_of(t);
		if (thread) {
			thread->woken += t->weight;
			thread->woken_ns += ns * t->weight;
		}
	} else if (t->preempted_ns) {
		add_length(HIST_PREEMPTED, now - t->preempted_ns, t->weight);
	}
	t->preempted_ns = 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	u64 now = bpf_ktime_get_ns();

	if (prev->pid)
		leave(prev, !preempt && prev->__state != TASK_RUNNING, now);
	if (next->pid)
		enter(next, now);
	return 0;
}

#define CODE_BYTES 32

/*
 * Whether the code around the thread's program counter has a PAUSE (f3 90) in
 * it: what spin locks at user level have in their loops.
 */
static __always_inline bool in_pause_loop(struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	u8 code[CODE_BYTES];
	int i;

	if (bpf_probe_read_user(code, sizeof(code), (void *)(regs->ip - CODE_BYTES / 2)))
		return false;
	for (i = 0; i < CODE_BYTES - 1; i++)
		if (code[i] == 0xf3 && code[i + 1] == 0x90)
			return true;
#endif
	return false;
}

static __always_inline bool interrupted_user(struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	/* An interrupt of user mode leaves no system call number: see arch/x86/entry/calling.h. */
	return (long)regs->orig_ax < 0 || regs->orig_ax > MAX_SYSCALL;
#else
	return false;
#endif
}

/* Each tick looks at what the thread is doing; one that is never switched out is accounted here. */
SEC("tp_btf/local_timer_entry")
int BPF_PROG(on_tick)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_state *t;
	struct thread *thread;
	struct pt_regs *regs;

	if (!p->pid || p->flags & PF_KTHREAD)
		return 0;
	t = state_of(p);
	if (!t || !in_scope(p, t))
		return 0;
	look_at_name(p, t);
	thread = thread_of(t);
	if (!thread)
		return 0;
	if (t->weight)
		account_run(t, thread, bpf_ktime_get_ns());
	regs = (struct pt_regs *)bpf_task_pt_regs(p);
	thread->ticks++;
	if (interrupted_user(regs)) {
		thread->user_ticks++;
		if (in_pause_loop(regs))
			thread->pause_ticks++;
	} else if (syscall_of(p) == NR_SCHED_YIELD) {
		thread->yield_ticks++;
	}
	return 0;
}

/* A new thread belongs to where its parent belongs, and has been woken by nobody. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	struct task_state *p = state_of(parent);
	struct task_state *c = new_state_of(child);

	if (!c)
		return 0;
	if (p && p->member)
		c->member = 1;
	else if (scope_kind == SCOPE_CHILDREN && parent->tgid == scope_pid && child->tgid != scope_pid)
		c->member = 1;
	if (in_scope(child, c))
		begin_stretch(c, 1);
	return 0;
}

static __always_inline bool descends(struct task_struct *p)
{
	int depth;

	for (depth = 0; depth < MAX_TREE_DEPTH && p; depth++) {
		if (p->tgid == scope_pid)
			return true;
		if (p->pid <= 1)
			return false;
		p = p->real_parent;
	}
	return false;
}

/* Run once, at the start: the threads that are there already. */
SEC("iter/task")
int first_look(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;
	struct task_state *t;

	if (!p)
		return 0;
	t = bpf_task_storage_get(&tasks, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t)
		return 0;
	if (scope_kind == SCOPE_TREE && descends(p))
		t->member = 1;
	/* Only runners: what sleeps begins with its wake-up. */
	if (p->__state == TASK_RUNNING && !t->weight && in_scope(p, t)) {
		t->weight = 1;
		if (p->on_cpu)
			t->running_ns = bpf_ktime_get_ns();
	}
	return 0;
}

#endif
