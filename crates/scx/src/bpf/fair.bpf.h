/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shares: each task has a virtual time, which advances while it runs, the
 * faster the lower its weight. The tasks of a pCPU run in the order of virtual
 * time. A VM's vCPUs share its weight, as far as they are active.
 *
 * Virtual times are comparable between pCPUs: on a pCPU with more to run they
 * advance more slowly, and others take over the tasks that are behind.
 */
#ifndef GLEANER_SCX_FAIR_H
#define GLEANER_SCX_FAIR_H

/* Weights are 1 to 10000; this leaves room to divide them among vCPUs. */
#define WEIGHT_UNIT 64
#define NORMAL_WEIGHT (100 * WEIGHT_UNIT)

static __always_inline u64 weight_of(struct task_struct *p, struct task *t)
{
	struct vm *vm = vm_of(t);
	u64 weight, active;

	if (!vm)
		return (u64)entity(p)->weight * WEIGHT_UNIT ?: 1;
	active = vm->active ?: 1;
	weight = (u64)vm->weight * WEIGHT_UNIT / active;
	return weight ?: 1;
}

static __always_inline u64 virtual_time(u64 ns, u64 weight)
{
	return ns * NORMAL_WEIGHT / weight;
}

/* The virtual time of the task that runs on the pCPU, at `now`. */
static __always_inline u64 current_vtime(struct pcpu *c, u64 now)
{
	u64 ran = now > c->ran_from ? now - c->ran_from : 0;

	return c->vtime + virtual_time(ran, c->weight ?: NORMAL_WEIGHT);
}

/*
 * A task that slept starts again: it has saved up one slice at most. If the
 * virtual time of its pCPU lags behind that of others, that counts from there;
 * else the task would wait until those who run there have caught up.
 */
static __always_inline void catch_up(struct task_struct *p, struct pcpu *c, u64 now)
{
	u64 from = c ? current_vtime(c, now) : floor_vtime, least;

	if (from > floor_vtime)
		from = floor_vtime;
	least = from > fair_slice_ns ? from - fair_slice_ns : 0;
	if (entity(p)->dsq_vtime < least)
		set_vtime(p, least);
}

static __always_inline void count_sibling(u32 vm, u32 cpu, s32 by)
{
	struct place key = { .vm = vm, .pcpu = cpu };
	u32 none = 0, *number;

	if (!vm)
		return;
	number = bpf_map_lookup_elem(&siblings, &key);
	if (!number) {
		if (by < 0)
			return;
		bpf_map_update_elem(&siblings, &key, &none, BPF_NOEXIST);
		number = bpf_map_lookup_elem(&siblings, &key);
		if (!number)
			return;
	}
	__sync_fetch_and_add(number, by);
}

/*
 * The vCPU is runnable, or sleeps. It can be found to be a vCPU before the
 * kernel hands it to this scheduler, which makes it runnable once more.
 */
static __always_inline void set_active(struct task *t, bool active)
{
	struct vm *vm = vm_of(t);

	if (!vm || __sync_lock_test_and_set(&t->active, active) == active)
		return;
	__sync_fetch_and_add(&vm->active, active ? 1 : -1);
}

/* Takes the task out of the load in which it is counted. */
static __always_inline void uncount(struct task *t)
{
	struct pcpu *c;

	if (!t->counted)
		return;
	c = pcpu_of(t->counted - 1);
	if (c)
		__sync_fetch_and_sub(&c->load, t->load);
	count_sibling(t->vm, t->counted - 1, -1);
	t->counted = 0;
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
	count_sibling(t->vm, cpu, 1);
}

/* The virtual time of the first task that waits for the pCPU; ~0: none does. */
static __always_inline u64 first_vtime(u32 cpu)
{
	struct task_struct *p;
	u64 vtime = ~0ULL;

	bpf_for_each(scx_dsq, p, cpu, 0) {
		vtime = entity(p)->dsq_vtime;
		break;
	}
	return vtime;
}

#endif
