/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shares: each task has a virtual time, which advances while it runs, the
 * faster the lower its weight. The tasks of a pCPU run in the order of virtual
 * time. A VM's weight is divided among the vCPUs that were active of late. If
 * it were divided among those that are active right now, a vCPU would have all
 * of it at one moment and a part at the next, when its siblings wake up.
 *
 * Virtual times are comparable between pCPUs: on a pCPU with more to run they
 * advance more slowly, and others take over the tasks that are behind.
 */
#ifndef GLEANER_SCX_FAIR_H
#define GLEANER_SCX_FAIR_H

/* `vm`: the task's; NULL if it is no vCPU. */
static __always_inline u64 weight_in(struct vm *vm, struct task_struct *p)
{
	return vm ? share_of(vm->weight, vm->average) : share_of(entity(p)->weight, ACTIVE_UNIT);
}

static __always_inline u64 weight_of(struct task_struct *p, struct task *t)
{
	return weight_in(vm_of(t), p);
}

/* The virtual time of the task that runs on the pCPU, at `now`. */
static __always_inline u64 current_vtime(struct pcpu *c, u64 now)
{
	u64 ran = now > c->ran_from ? now - c->ran_from : 0;

	return c->vtime + virtual_time(ran, c->weight ?: NORMAL_SHARE);
}

/* A task that slept starts again. */
static __always_inline void catch_up(struct task_struct *p, struct task *t, struct pcpu *c, u64 now)
{
	u64 own = entity(p)->dsq_vtime, floor = floor_vtime, from;

	from = vtime_after_sleep(own, t->ahead, c ? current_vtime(c, now) : floor, floor, fair_slice_ns);
	if (from != own)
		set_vtime(p, from);
}

static __always_inline void count_place(struct task *t, u32 cpu, s32 by)
{
	struct vm *vm = vm_of(t);

	if (vm)
		__sync_fetch_and_add(&vm->on[cpu & (MAX_PCPUS - 1)], by);
}

/* `by` more of the VM's vCPUs are active from `now` on. pCPUs that do this at once lose some of the sum. */
static __always_inline void average_active(struct vm *vm, s32 by, u64 now)
{
	u64 from = __sync_lock_test_and_set(&vm->changed_at, now), summed;
	u32 active = __sync_fetch_and_add(&vm->active, by);

	if (now > from)
		__sync_fetch_and_add(&vm->sum, active * (now - from));
	from = vm->summed_from;
	if (now < from + average_ns || __sync_val_compare_and_swap(&vm->summed_from, from, now) != from)
		return;
	summed = __sync_lock_test_and_set(&vm->sum, 0);
	vm->average = active_average(vm->average, summed, now - from, average_ns);
}

/*
 * The vCPU is runnable, or sleeps. It can be found to be a vCPU before the
 * kernel hands it to this scheduler, which makes it runnable once more.
 */
static __always_inline void set_active(struct task *t, bool active, u64 now)
{
	struct vm *vm = vm_of(t);

	if (vm && __sync_lock_test_and_set(&t->active, active) != active)
		average_active(vm, active ? 1 : -1, now);
}

/* The task of this VM runs, and has run until `now`. */
static __always_inline void account(struct vm *vm, struct task *t, u64 now)
{
	if (vm && now > t->accounted_until)
		__sync_fetch_and_add(&vm->ran_ns, now - t->accounted_until);
	t->accounted_until = now;
}

/* For how long the task has computed since its last wait. */
static __always_inline u64 computed(struct task *t, u64 now)
{
	return t->computed + (t->runs && now > t->computes_from ? now - t->computes_from : 0);
}

static __always_inline u64 burst_of(struct task *t, u64 now)
{
	return burst_now(t->burst, computed(t, now));
}

/* The task starts to wait: its guest halts it, it has sent a sibling an interrupt, or it sleeps. */
static __always_inline void waits(struct task *t, u64 now)
{
	t->burst = burst_average(t->burst, computed(t, now));
	t->computed = 0;
	t->computes_from = now;
}

/* Takes the task out of the load in which it is counted. */
static __always_inline void uncount(struct task *t)
{
	/* Another pCPU may take the task from its queue meanwhile. */
	u32 counted = __sync_lock_test_and_set(&t->counted, 0);
	struct pcpu *c = counted ? pcpu_of(counted - 1) : NULL;

	if (!c)
		return;
	__sync_fetch_and_sub(&c->load, t->load);
	__sync_fetch_and_sub(&total_load, t->load);
	count_place(t, counted - 1, -1);
}

/* Counts it in the load of this pCPU alone. */
static __always_inline void count_on(struct task_struct *p, struct task *t, u32 cpu)
{
	struct pcpu *c;

	if (t->counted == cpu + 1)
		return;
	uncount(t);
	c = pcpu_of(cpu);
	if (!c)
		return;
	t->load = weight_of(p, t);
	t->counted = cpu + 1;
	__sync_fetch_and_add(&c->load, t->load);
	__sync_fetch_and_add(&total_load, t->load);
	count_place(t, cpu, 1);
}

/*
 * The virtual time of the first task that waits for the pCPU, if it has waited
 * since before `since`, ~0 for any; ~0: none does.
 */
static __always_inline u64 first_vtime(u32 cpu, u64 since)
{
	struct task_struct *p;
	u64 vtime = ~0ULL;
	struct task *t;

	bpf_for_each(scx_dsq, p, cpu, 0) {
		t = since == ~0ULL ? NULL : task_of(p);
		if (!t || t->queued_at < since)
			vtime = entity(p)->dsq_vtime;
		break;
	}
	return vtime;
}

#endif
