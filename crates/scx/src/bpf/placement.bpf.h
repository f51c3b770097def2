/* SPDX-License-Identifier: GPL-2.0-only */
/* Where a woken vCPU goes (§3.2 of the paper). */
#ifndef GLEANER_SCX_PLACEMENT_H
#define GLEANER_SCX_PLACEMENT_H

/* How many other vCPUs of the same VM run or wait on this pCPU. */
static __always_inline u32 siblings_on(const struct vm *vm, struct task *t, u32 cpu)
{
	u32 itself = t->counted == cpu + 1, all = vm->on[cpu & (MAX_PCPUS - 1)];

	return all > itself ? all - itself : 0;
}

/* Threads that a core has at most. */
#define MAX_THREADS 8
/* Attempts to claim an idle pCPU: others may be faster. */
#define CLAIMS 4

/* Beside whom a task with these bursts would run on this pCPU, at worst. A program of its own for the verifier. */
__noinline u32 worst_beside(u32 cpu, u64 own)
{
	u32 worst = BESIDE_NOBODY, with, other = cpu;
	struct pcpu *c;
	int i;

	bpf_for(i, 1, MAX_THREADS) {
		other = next_thread[other & (MAX_PCPUS - 1)];
		if (other == cpu)
			break;
		c = pcpu_of(other);
		with = c ? runs_beside(own, c->burst) : BESIDE_NOBODY;
		if (with > worst)
			worst = with;
	}
	return worst;
}

/* The best ones so far. */
struct best {
	/* An idle one: beside whom, and how near to the last one. */
	u32 rank;
	s32 idle;
	/* The one with the least load, beside whom, and the virtual time there. */
	u64 least;
	u64 vtime;
	u32 beside;
	s32 chosen;
};

/*
 * A search among pCPUs. In a map, because the verifier follows each value of
 * variables that a loop changes, and not those of maps.
 */
struct search {
	struct placement seen;
	/* Among pCPUs without a sibling, and among all. */
	struct best apart;
	struct best all;
	/* The least loaded one that affinity allows. */
	u64 least;
	s32 any;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct search);
} searches SEC(".maps");

/*
 * The sibling that woke the vCPU, if it runs on this pCPU and is about to halt,
 * and no other sibling waits for that. Not under Resched-Co, which lets the
 * woken vCPU preempt somebody at once.
 */
static __always_inline struct task *halting_waker(const struct vm *vm, struct task *t, u32 cpu)
{
	struct task *waker = task_of(bpf_get_current_task_btf());

	if (!waker || waker == t || waker->vm != t->vm || !waker->woke_at || waker->halted_soon < HALTS_SOON ||
	    rules_of(t)->resched_co_ns)
		return NULL;
	return siblings_on(vm, t, cpu) == 1 ? waker : NULL;
}

/* 0: the pCPU `last` itself; 1: it has the same last-level cache. */
static __always_inline u32 distance(u32 cpu, u32 last)
{
	if (cpu == last)
		return 0;
	return llc_of[cpu & (MAX_PCPUS - 1)] == llc_of[last & (MAX_PCPUS - 1)] ? 1 : 2;
}

static __always_inline void none_of(struct best *b)
{
	b->rank = ~0U;
	b->idle = -1;
	b->least = ~0ULL;
	b->vtime = 0;
	b->beside = ~0U;
	b->chosen = -1;
}

static __always_inline void compare(struct best *b, s32 cpu, u32 rank, u64 load, u32 beside, u64 vtime)
{
	if (rank < b->rank) {
		b->rank = rank;
		b->idle = cpu;
	}
	if (load < b->least ||
	    (load == b->least && (beside < b->beside || (beside == b->beside && vtime > b->vtime)))) {
		b->least = load;
		b->vtime = vtime;
		b->beside = beside;
		b->chosen = cpu;
	}
}

/*
 * The best idle pCPU, and those with the least load, for a vCPU whose bursts are
 * expected to be of `own` ns. Of those with about the same load, the one whose
 * task has had most, which fairness lets the woken one preempt first. Returns
 * the best of those that the placement rule allows.
 */
static __always_inline struct best *search_pcpus(struct search *s, const struct cpumask *allowed,
						 const struct vm *vm, struct task *t, u64 own, s32 last,
						 u64 now)
{
	const struct cpumask *idle;
	u64 total = total_load, load, vtime;
	u32 online = online_count, beside, rank;
	struct pcpu *c;
	bool apart;
	int cpu;

	s->seen.apart = 0;
	s->seen.apart_and_underloaded = 0;
	none_of(&s->apart);
	none_of(&s->all);
	s->least = ~0ULL;
	s->any = last;
	idle = scx_bpf_get_idle_cpumask();
	bpf_for(cpu, 0, pcpu_count) {
		c = pcpu_of(cpu);
		if (!c || !c->online)
			continue;
		apart = !siblings_on(vm, t, cpu);
		placement_sees(&s->seen, !apart, c->load, total, online);
		if (!bpf_cpumask_test_cpu(cpu, allowed))
			continue;
		if (c->load < s->least) {
			s->least = c->load;
			s->any = cpu;
		}
		beside = symbiosis ? worst_beside(cpu, own) : BESIDE_NOBODY;
		rank = bpf_cpumask_test_cpu(cpu, idle) ? 3 * beside + distance(cpu, last) : ~0U;
		load = load_level(c->load, total, online);
		vtime = current_vtime(c, now);
		compare(&s->all, cpu, rank, load, beside, vtime);
		if (apart)
			compare(&s->apart, cpu, rank, load, beside, vtime);
	}
	scx_bpf_put_idle_cpumask(idle);
	return placement_allows(&s->seen, placement_rule, true) ? &s->all : &s->apart;
}

/* Claims the pCPU if it is idle. */
static __always_inline bool claim(s32 cpu, u64 own)
{
	struct pcpu *c = pcpu_of(cpu);

	if (!c || !scx_bpf_test_and_clear_cpu_idle(cpu))
		return false;
	/* Who wakes next sees it there already. */
	c->burst = own;
	return true;
}

/*
 * The pCPU for the woken vCPU, whose bursts are expected to be of `own` ns: an
 * idle one, beside nobody or those of the other kind, the nearest to its last
 * one; else that of its waker, if that is about to halt, which it may do first;
 * else the one with the least load, and of those the one whose task has had
 * most. `idle`: it was claimed.
 */
static __always_inline s32 place_vcpu(struct task_struct *p, struct task *t, u64 own, s32 last, u64 now,
				      bool *idle)
{
	const struct cpumask *allowed = ((struct task_struct___scx *)p)->cpus_ptr;
	const struct vm *vm = vm_of(t);
	struct best *best = NULL;
	struct task *waker;
	struct search *s;
	int cpu, attempt;
	u32 zero = 0;

	if (!vm)
		return last;
	/* No pCPU is better than this one, so none is searched for. */
	if (!siblings_on(vm, t, last) && bpf_cpumask_test_cpu(last, allowed) &&
	    (!symbiosis || worst_beside(last, own) == BESIDE_NOBODY) && claim(last, own)) {
		*idle = true;
		return last;
	}
	s = bpf_map_lookup_elem(&searches, &zero);
	if (!s)
		return last;
	bpf_for(attempt, 0, CLAIMS) {
		best = search_pcpus(s, allowed, vm, t, own, last, now);
		if (best->idle < 0)
			break;
		if (!claim(best->idle, own))
			continue;
		*idle = true;
		if (best->rank / 3 == BESIDE_OWN_KIND)
			count(STAT_ALIKE);
		return best->idle;
	}
	if (!best)
		return last;
	cpu = bpf_get_smp_processor_id();
	waker = bpf_cpumask_test_cpu(cpu, allowed) ? halting_waker(vm, t, cpu) : NULL;
	if (waker) {
		/* It may hold a lock, such as that of the wait queue, on which the woken one would spin. */
		urgency_for_time(&waker->urgency, waker->woke_at, follow_ns);
		runs_urgently(waker);
		count(STAT_FOLLOWED);
		return cpu;
	}
	/* Its affinity may leave none that the rule allows. */
	cpu = best->chosen < 0 ? s->any : best->chosen;
	if (siblings_on(vm, t, cpu))
		count(STAT_STACKED);
	return cpu;
}

#endif
