/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * Demand-based coordinated scheduling (ASPLOS'13, "the paper" here): what a
 * host's scheduler decides when it takes interrupts between vCPUs for the
 * demand for coordination.
 *
 * No maps, no helpers, no loops: a BPF scheduler includes this file, and
 * native.c compiles the same functions for the simulator and the tests. Times
 * are nanoseconds, of the host's clock or of virtual time.
 */
#ifndef GLEANER_COORDINATION_LOGIC_H
#define GLEANER_COORDINATION_LOGIC_H

#ifndef LOGIC
#define LOGIC static inline
#endif

/* Which interrupts make a vCPU urgent, and for how long (§3.1.3). */
struct urgent_rules {
	/*
	 * Resched-DP: the sender of a reschedule interrupt is not preempted
	 * for so long; 0 is off.
	 */
	__u64 resched_dp_ns;
	/*
	 * Resched-Co: the recipient of a reschedule interrupt runs first for
	 * so long; 0 is off.
	 */
	__u64 resched_co_ns;
	/* An urgent vCPU runs so long before the next urgent one. */
	__u64 slice_ns;
	/*
	 * By so much time on a pCPU an urgent vCPU may be ahead of the one that
	 * it preempts.
	 */
	__u64 allowance_ns;
	/*
	 * TLB-Co: the recipient of a TLB shootdown runs first until it has
	 * acknowledged.
	 */
	_Bool tlb_co;
	/*
	 * Whether a vCPU that waits for answers to its shootdown keeps its
	 * pCPU at a pause-loop exit (proposed in §4.3).
	 */
	_Bool tlb_wait;
};

/* Why a vCPU is urgent. All zero: it is not. */
struct urgency {
	/* A time-based request: urgent before this time. */
	__u64 until_ns;
	/* The same, from when the vCPU runs next; until then it is urgent, too. */
	__u64 once_it_runs_ns;
	/* Event-based requests: interrupts that are not acknowledged. */
	__u32 events;
	/* Answers for which the vCPU waits since it sent a shootdown. */
	__u32 awaited;
};

/* A time-based request: urgent for `ns` from `now` on. */
LOGIC void urgency_for_time(struct urgency *urgency, __u64 now, __u64 ns)
{
	__u64 until = now + ns < now ? ~0ULL : now + ns;

	if (ns && until > urgency->until_ns)
		urgency->until_ns = until;
}

/*
 * A time-based request of a vCPU that waits for a pCPU: urgent until `ns` after
 * it starts to run. The time that it waits for protected ones is no part of that.
 */
LOGIC void urgency_once_it_runs(struct urgency *urgency, __u64 ns)
{
	if (ns > urgency->once_it_runs_ns)
		urgency->once_it_runs_ns = ns;
}

/* The vCPU runs from `now` on. */
LOGIC void urgency_runs(struct urgency *urgency, __u64 now)
{
	urgency_for_time(urgency, now, urgency->once_it_runs_ns);
	urgency->once_it_runs_ns = 0;
}

/* An event-based request: urgent until it is acknowledged. */
LOGIC void urgency_for_event(struct urgency *urgency)
{
	if (urgency->events < ~0U)
		urgency->events++;
}

/*
 * The guest signalled the end of the interrupt, which it does once for all
 * that were pending.
 */
LOGIC void urgency_acknowledge(struct urgency *urgency)
{
	urgency->events = 0;
}

/* The vCPU sleeps: there is nothing left that it could be urgent for. */
LOGIC void urgency_end(struct urgency *urgency)
{
	urgency->until_ns = 0;
	urgency->once_it_runs_ns = 0;
	urgency->events = 0;
	urgency->awaited = 0;
}

/* The vCPU sent a shootdown to `recipients` others, for which it will wait. */
LOGIC void urgency_awaits(struct urgency *urgency, __u32 recipients)
{
	/* Several answer at once. */
	if (urgency->awaited <= ~0U - recipients)
		__sync_fetch_and_add(&urgency->awaited, recipients);
	else
		urgency->awaited = ~0U;
}

/* One of those acknowledged. */
LOGIC void urgency_answered(struct urgency *urgency)
{
	if (urgency->awaited)
		__sync_fetch_and_sub(&urgency->awaited, 1);
}

/*
 * A pause-loop exit: the vCPU spins itself, so its urgency ends (§4.3).
 *
 * Returns whether it should give the pCPU away. With `tlb_wait` not while it
 * waits for answers to a shootdown: if those that must answer run first, it
 * will not wait for long.
 */
LOGIC _Bool urgency_spins(struct urgency *urgency, const struct urgent_rules *rules)
{
	if (rules->tlb_co && rules->tlb_wait && urgency->awaited)
		return 0;
	urgency->until_ns = 0;
	urgency->once_it_runs_ns = 0;
	urgency->events = 0;
	return 1;
}

/* Whether the vCPU is urgent at `now`. */
LOGIC _Bool urgency_holds(const struct urgency *urgency, __u64 now)
{
	return urgency->events || urgency->once_it_runs_ns || now < urgency->until_ns;
}

/*
 * How long from `now` on the running vCPU must not be preempted. An
 * event-based request protects it for one slice since `ran_from`, when it
 * started to run.
 */
LOGIC __u64 urgency_protects_for(const struct urgency *urgency, __u64 now, __u64 ran_from, __u64 slice)
{
	__u64 ends = ran_from + slice < ran_from ? ~0ULL : ran_from + slice;
	__u64 slice_left = ends > now ? ends - now : 0;
	__u64 time_left = urgency->until_ns > now ? urgency->until_ns - now : 0;

	if (time_left > slice)
		time_left = slice;
	if (urgency->events && slice_left > time_left)
		return slice_left;
	return time_left;
}

/* Weights are 1 to 10000; this leaves room to divide them among vCPUs. */
#define SHARE_UNIT 64
/* The share of a task with weight 100, whose virtual time is the real one. */
#define NORMAL_SHARE (100 * SHARE_UNIT)
/* Averages of active vCPUs are in 1/ACTIVE_UNIT. */
#define ACTIVE_UNIT 64

/*
 * What one of a VM's vCPUs has of the VM's weight, if `active` of them were
 * active on average (§3.2.1: recent idleness decides). Fewer than one count as
 * one.
 */
LOGIC __u64 share_of(__u32 weight, __u32 active)
{
	__u64 share = (__u64)weight * SHARE_UNIT * ACTIVE_UNIT / (active > ACTIVE_UNIT ? active : ACTIVE_UNIT);

	return share ? share : 1;
}

/*
 * The average of active vCPUs after `span` ns, in which they were active for
 * `summed` ns together. What was before counts as `window` ns.
 */
LOGIC __u32 active_average(__u32 before, __u64 summed, __u64 span, __u64 window)
{
	if (!span)
		return before;
	return (before * window + summed * ACTIVE_UNIT) / (window + span);
}

/* By how much virtual time advances in `ns`. */
LOGIC __u64 virtual_time(__u64 ns, __u64 share)
{
	return ns * NORMAL_SHARE / share;
}

/*
 * Whether fairness lets an urgent vCPU with this share run before another: its
 * virtual time is at most the allowance ahead, which is time of its own on a
 * pCPU. So it may borrow as much, however many siblings share its VM's weight.
 */
LOGIC _Bool urgent_may_preempt(const struct urgent_rules *rules, __u64 share, __u64 urgent_vtime, __u64 other_vtime)
{
	__u64 most = other_vtime + virtual_time(rules->allowance_ns, share);

	return most < other_vtime || urgent_vtime <= most;
}

/*
 * Where a task that slept starts, whose virtual time was `own`: it has saved up
 * one slice at most. That counts from `here`, the virtual time of its pCPU, if
 * that lags behind `floor`, that of all pCPUs; else the task would wait until
 * those who run here have caught up. For the same reason it is at most as far
 * `ahead` of its pCPU as it was of those who waited where it fell asleep.
 */
LOGIC __u64 vtime_after_sleep(__u64 own, __u64 ahead, __u64 here, __u64 floor, __u64 slice)
{
	__u64 from = here < floor ? here : floor, least = from > slice ? from - slice : 0;
	__u64 most = here + ahead < here ? ~0ULL : here + ahead;

	if (own > most)
		return most;
	return own < least ? least : own;
}

/* A woken task preempts only one that has had more by such a part of a slice: for less, a switch is not worth it. */
#define WAKEUP_PARTS 3

/* Whether a woken task may preempt another one in the order of virtual time. */
LOGIC _Bool woken_may_preempt(__u64 own, __u64 other, __u64 slice)
{
	return own < other && other - own > slice / WAKEUP_PARTS;
}

/* A vCPU that woke a sibling is expected to halt soon after, if it did so often of late. */
#define HALTS_SOON 4
#define HALTS_SOON_MOST (2 * HALTS_SOON)

/* How often of late a vCPU halted soon after it woke a sibling, after one time more. Once not is no proof, twice is. */
LOGIC __u32 halted_soon(__u32 before, _Bool soon)
{
	if (!soon)
		return before / 2;
	return before < HALTS_SOON_MOST ? before + 1 : HALTS_SOON_MOST;
}

/* CPU bursts, the times between two waits, beyond these are all alike: shorter ones wait, longer ones compute. */
#define SHORTEST_BURST 100000
#define LONGEST_BURST 20000000

/* Moving average of a task's bursts, after one more of `ns`. */
LOGIC __u64 burst_average(__u64 before, __u64 ns)
{
	return before - before / 4 + (ns < LONGEST_BURST ? ns : LONGEST_BURST) / 4;
}

/* How long the burst of a task is expected to be that has computed for `since` ns since it last waited. Never 0. */
LOGIC __u64 burst_now(__u64 average, __u64 since)
{
	__u64 burst = average > since ? average : since;

	if (burst < SHORTEST_BURST)
		return SHORTEST_BURST;
	return burst < LONGEST_BURST ? burst : LONGEST_BURST;
}

/* Two tasks whose bursts differ by less than this factor are of one kind: both wait, or both compute. */
#define OF_ONE_KIND 4

/* Beside whom a task would run, on the other threads of its core. */
enum beside {
	BESIDE_NOBODY,
	BESIDE_OTHER_KIND,
	BESIDE_OWN_KIND,
};

/*
 * Beside whom, by the bursts of both; `other` 0: the other thread is idle.
 * Those that wait and those that compute need a core at different times, and
 * different parts of it (HP3C'20, §5: symbiotic job scheduling).
 */
LOGIC enum beside runs_beside(__u64 own, __u64 other)
{
	if (!other)
		return BESIDE_NOBODY;
	return own / OF_ONE_KIND < other && other / OF_ONE_KIND < own ? BESIDE_OWN_KIND : BESIDE_OTHER_KIND;
}

/* How a woken vCPU is placed on a pCPU (§3.2). */
enum placement_rule {
	/* Anywhere. */
	PLACEMENT_NONE,
	/*
	 * Not beside a sibling, another vCPU of the same VM, as long as there
	 * is a pCPU without one.
	 */
	PLACEMENT_BALANCE,
	/* The same, as long as one of those pCPUs is underloaded. */
	PLACEMENT_LOAD_CONSCIOUS,
};

/* The pCPUs without a sibling. All zero: none was seen. */
struct placement {
	__u32 apart;
	__u32 apart_and_underloaded;
};

/*
 * Takes a pCPU into account: its `load` is the sum of its vCPUs' weights,
 * `total` that of all `pcpus`. Underloaded are those with at most the average.
 */
LOGIC void placement_sees(struct placement *placement, _Bool has_sibling, __u64 load, __u64 total, __u32 pcpus)
{
	if (has_sibling)
		return;
	placement->apart++;
	if (load * pcpus <= total)
		placement->apart_and_underloaded++;
}

/*
 * The load of a pCPU in quarters of the average, rounded. Weights of active
 * vCPUs change all the time, so that equal loads are never quite equal.
 */
LOGIC __u64 load_level(__u64 load, __u64 total, __u32 pcpus)
{
	return total ? (4 * load * pcpus + total / 2) / total : 0;
}

/* Whether the woken vCPU may be put on a pCPU, after all were seen. */
LOGIC _Bool placement_allows(const struct placement *placement, enum placement_rule rule, _Bool has_sibling)
{
	switch (rule) {
	case PLACEMENT_BALANCE:
		return !has_sibling || !placement->apart;
	case PLACEMENT_LOAD_CONSCIOUS:
		return !has_sibling || !placement->apart_and_underloaded;
	default:
		return 1;
	}
}

#endif
