/* SPDX-License-Identifier: GPL-2.0-only */
/* Samples threads that no wake-up shows: at each tick, when they are created, and at the start. */
#ifndef GLEANER_SAMPLE_H
#define GLEANER_SAMPLE_H

/*
 * Samples the program counter in user mode and the code around it, in which
 * user space finds loops that only wait. The map keeps hot spots and evicts
 * others.
 */
static __always_inline void sample_code(struct task_state *t, struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	struct spot spot = { .ip = regs->ip, .name = t->name };
	struct code *code = bpf_map_lookup_elem(&spots, &spot);
	struct code found = { .count = 1 };

	if (code) {
		__sync_fetch_and_add(&code->count, 1);
		return;
	}
	if (bpf_probe_read_user(found.bytes, sizeof(found.bytes), (void *)(regs->ip - CODE_BEFORE)))
		return;
	bpf_map_update_elem(&spots, &spot, &found, BPF_ANY);
#endif
}

static __always_inline bool interrupted_user(struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	/* Interrupts in user mode leave no system call number: see arch/x86/entry/calling.h. */
	return (long)regs->orig_ax < 0 || regs->orig_ax > MAX_SYSCALL;
#else
	return false;
#endif
}

/* Time since this vCPU's last tick, if it was not idle in between. */
static __always_inline u64 tick_length(u64 now)
{
	struct vcpu *v = this_vcpu();
	u64 length;

	if (!v)
		return 0;
	length = now - v->tick_ns;
	v->tick_ns = now;
	return length <= TICK_MAX_NS ? length : 0;
}

/* Each tick samples the running thread, and accounts one that is never switched out. */
SEC("tp_btf/local_timer_entry")
int BPF_PROG(on_tick)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_state *t;
	struct thread *thread;
	u64 now = bpf_ktime_get_ns(), tick = tick_length(now), weight = window.weight;
	struct pt_regs *regs;
	struct vcpu *v;

	if (!p->pid || p->flags & PF_KTHREAD)
		return 0;
	t = state_of(p);
	if (!t || !in_scope(p, t))
		return 0;
	update_name(p, t);
	thread = thread_of(t);
	if (!thread)
		return 0;
	if (weight && is_followed(p, t))
		account_run(t, thread, now, weight);
	v = weight == 1 ? NULL : this_vcpu();
	if (v)
		v->scope_ns += tick;
	regs = regs_of(p);
	thread->ticks++;
	if (interrupted_user(regs)) {
		thread->user_ticks++;
		sample_code(t, regs);
	} else if (syscall_of(p) == NR_SCHED_YIELD) {
		thread->yield_ticks++;
	}
	return 0;
}

/* A new thread inherits its parent's scope. No other thread has woken it. */
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
	start_stretch(c, bpf_ktime_get_ns());
	return 0;
}

/* Run once at the start, for threads that exist already. */
SEC("iter/task")
int first_pass(struct bpf_iter__task *ctx)
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
	return 0;
}

#endif
