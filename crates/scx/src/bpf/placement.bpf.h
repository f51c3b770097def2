/* SPDX-License-Identifier: GPL-2.0-only */
/* Where a woken vCPU goes (§3.2 of the paper). */
#ifndef GLEANER_SCX_PLACEMENT_H
#define GLEANER_SCX_PLACEMENT_H

static __always_inline bool has_sibling(struct task *t, u32 cpu)
{
	struct place key = { .vm = t->vm, .pcpu = cpu };
	u32 *number = bpf_map_lookup_elem(&siblings, &key);
	u32 itself = t->counted == cpu + 1;

	return number && *number > itself;
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

/*
 * A search among pCPUs. In a map, because the verifier follows each value of
 * variables that a loop changes, and not those of maps.
 */
struct search {
	struct placement seen;
	u64 total;
	/* The best idle pCPU: beside whom, and how near to the last one. */
	u32 rank;
	s32 idle;
	/* The pCPU with the least load that the rule allows, beside whom, and the virtual time there; and that of all. */
	u64 least;
	u64 least_of_all;
	u64 vtime;
	u32 beside;
	s32 chosen;
	s32 any;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct search);
} searches SEC(".maps");

/* What the placement rule has to know about all pCPUs that are online. */
static __always_inline void see_pcpus(struct search *s, struct task *t)
{
	struct pcpu *c;
	int cpu;

	s->total = 0;
	bpf_for(cpu, 0, pcpu_count) {
		c = pcpu_of(cpu);
		if (c)
			s->total += c->load;
	}
	s->seen.apart = 0;
	s->seen.apart_and_underloaded = 0;
	bpf_for(cpu, 0, pcpu_count) {
		c = pcpu_of(cpu);
		if (c && c->online)
			placement_sees(&s->seen, has_sibling(t, cpu), c->load, s->total, online_count);
	}
}

/*
 * The sibling that woke the vCPU, if it runs on this pCPU and is about to halt,
 * and no other sibling waits for that. Not under Resched-Co, which lets the
 * woken vCPU preempt somebody at once.
 */
static __always_inline struct task *halting_waker(struct task *t, u32 cpu)
{
	struct task *waker = task_of(bpf_get_current_task_btf());
	struct place key = { .vm = t->vm, .pcpu = cpu };
	u32 *number, itself = t->counted == cpu + 1;

	if (!waker || waker == t || waker->vm != t->vm || !waker->woke_at || waker->halted_soon < HALTS_SOON ||
	    rules_of(t)->resched_co_ns)
		return NULL;
	number = bpf_map_lookup_elem(&siblings, &key);
	return number && *number - itself == 1 ? waker : NULL;
}

/* 0: the pCPU `last` itself; 1: it has the same last-level cache. */
static __always_inline u32 distance(u32 cpu, u32 last)
{
	if (cpu == last)
		return 0;
	return llc_of[cpu & (MAX_PCPUS - 1)] == llc_of[last & (MAX_PCPUS - 1)] ? 1 : 2;
}

/*
 * The best idle pCPU, and those with the least load, for a vCPU whose bursts are
 * expected to be of `own` ns. Of those with about the same load, the one whose
 * task has had most, which fairness lets the woken one preempt first.
 */
static __always_inline void search_pcpus(struct search *s, struct task_struct *p, struct task *t, u64 own, s32 last,
					 u64 now)
{
	const struct cpumask *allowed = ((struct task_struct___scx *)p)->cpus_ptr, *idle;
	u64 load, vtime;
	u32 beside, rank;
	struct pcpu *c;
	int cpu;

	s->rank = ~0U;
	s->idle = -1;
	s->least = ~0ULL;
	s->least_of_all = ~0ULL;
	s->beside = ~0U;
	s->vtime = 0;
	s->chosen = -1;
	s->any = last;
	idle = scx_bpf_get_idle_cpumask();
	bpf_for(cpu, 0, pcpu_count) {
		if (!bpf_cpumask_test_cpu(cpu, allowed))
			continue;
		c = pcpu_of(cpu);
		if (!c || !c->online)
			continue;
		if (c->load < s->least_of_all) {
			s->least_of_all = c->load;
			s->any = cpu;
		}
		if (!placement_allows(&s->seen, placement_rule, has_sibling(t, cpu)))
			continue;
		beside = symbiosis ? worst_beside(cpu, own) : BESIDE_NOBODY;
		load = load_level(c->load, s->total, online_count);
		vtime = current_vtime(c, now);
		if (load < s->least || (load == s->least && (beside < s->beside ||
							    (beside == s->beside && vtime > s->vtime)))) {
			s->least = load;
			s->beside = beside;
			s->vtime = vtime;
			s->chosen = cpu;
		}
		rank = 3 * beside + distance(cpu, last);
		if (bpf_cpumask_test_cpu(cpu, idle) && rank < s->rank) {
			s->rank = rank;
			s->idle = cpu;
		}
	}
	scx_bpf_put_idle_cpumask(idle);
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
	struct task *waker;
	struct search *s;
	struct pcpu *c;
	int cpu, claim;
	u32 zero = 0;

	s = bpf_map_lookup_elem(&searches, &zero);
	if (!s)
		return last;
	see_pcpus(s, t);
	bpf_for(claim, 0, CLAIMS) {
		search_pcpus(s, p, t, own, last, now);
		if (s->idle < 0)
			break;
		if (!scx_bpf_test_and_clear_cpu_idle(s->idle))
			continue;
		*idle = true;
		if (s->rank / 3 == BESIDE_OWN_KIND)
			count(STAT_ALIKE);
		/* Who wakes next sees it there already. */
		c = pcpu_of(s->idle);
		if (c)
			c->burst = own;
		return s->idle;
	}
	cpu = bpf_get_smp_processor_id();
	waker = bpf_cpumask_test_cpu(cpu, allowed) ? halting_waker(t, cpu) : NULL;
	if (waker) {
		/* It may hold a lock, such as that of the wait queue, on which the woken one would spin. */
		urgency_for_time(&waker->urgency, waker->woke_at, follow_ns);
		count(STAT_FOLLOWED);
		return cpu;
	}
	/* Its affinity may leave none that the rule allows. */
	cpu = s->chosen < 0 ? s->any : s->chosen;
	if (has_sibling(t, cpu))
		count(STAT_STACKED);
	return cpu;
}

#endif
