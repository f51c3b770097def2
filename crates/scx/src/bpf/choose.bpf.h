/* SPDX-License-Identifier: GPL-2.0-only */
/* What a pCPU does next: an urgent vCPU, the fair order, or work of other pCPUs. */
#ifndef GLEANER_SCX_CHOOSE_H
#define GLEANER_SCX_CHOOSE_H

/* The pCPU decides anew in `ns`: ticks are too far apart for urgent slices. */
static __always_inline void decide_in(struct pcpu *c, u64 ns, u64 now)
{
	/* If it does so earlier, it sees then how much is left. */
	if ((c->decides_at > now && c->decides_at <= now + ns) || bpf_timer_start(&c->timer, ns, 0))
		return;
	c->decides_at = now + ns;
	RECORD(EVENT_TIMED, .value = ns);
}

/*
 * Runs the urgent vCPU that has waited longest here, if fairness allows.
 * `other`: the virtual time of who would run else.
 */
static __always_inline bool run_urgent(s32 cpu, struct pcpu *c, u64 other, u64 now)
{
	u64 oldest = ~0ULL, slice = 0;
	bool waits = false, moved = false;
	struct task_struct *p;
	s32 first = 0;
	struct task *t;

	bpf_for_each(scx_dsq, p, cpu, 0) {
		t = task_of(p);
		if (!t || !urgency_holds(&t->urgency, now))
			continue;
		waits = true;
		if (t->urgent_since >= oldest)
			continue;
		if (!urgent_may_preempt(rules_of(t), weight_of(p, t), entity(p)->dsq_vtime, other)) {
			count(STAT_OVER_ALLOWANCE);
			continue;
		}
		oldest = t->urgent_since;
		slice = rules_of(t)->slice_ns;
		first = p->pid;
	}
	if (!waits)
		c->urgent = 0;
	if (oldest == ~0ULL)
		return false;
	bpf_for_each(scx_dsq, p, cpu, 0) {
		if (p->pid != first)
			continue;
		/* At the end of its slice it is the last of the urgent ones. */
		t = task_of(p);
		if (t)
			t->urgent_since = now + slice;
		moved = scx_bpf_dsq_move(&___it, p, scx_enum(scx_dsq_id_flags, SCX_DSQ_LOCAL), 0);
		break;
	}
	if (moved) {
		count(STAT_URGENT_RUNS);
		decide_in(c, slice, now);
	}
	return moved;
}

static __always_inline bool comes_before(struct task_struct *p, struct pcpu *c, u64 now)
{
	return woken_may_preempt(entity(p)->dsq_vtime, current_vtime(c, now), fair_slice_ns);
}

/*
 * Whether the pCPU, among its own tasks, would choose this one, which has woken
 * and is to wait here. Where that is certain, a kick, which costs the waker's
 * pCPU an interrupt of its own, and a decision of this one are saved.
 */
static __always_inline bool preempts(struct task_struct *p, struct task *t, s32 cpu, struct pcpu *c, u64 now)
{
	u64 own = entity(p)->dsq_vtime, other, first;

	/* Several would have to be compared, or who runs may be protected. */
	if (!c->runs || c->urgent || c->urgent_runs || c->preempting)
		return false;
	first = first_vtime(cpu, ~0ULL);
	if (!urgency_holds(&t->urgency, now))
		return own < first && comes_before(p, c, now);
	other = current_vtime(c, now);
	return urgent_may_preempt(rules_of(t), weight_of(p, t), own, first < other ? first : other);
}

/*
 * A task that preempted runs now. A kick meanwhile had no effect: the pCPU does
 * not decide while one is next.
 */
static __always_inline void has_preempted(struct task *t, s32 cpu, struct pcpu *c, u64 now)
{
	u64 slice;

	c->preempting = 0;
	if (c->urgent)
		kick(cpu, SCX_KICK_PREEMPT);
	if (!c->urgent_runs)
		return;
	/* At the end of its slice it is the last of the urgent ones. */
	slice = rules_of(t)->slice_ns;
	t->urgent_since = now + slice;
	count(STAT_URGENT_RUNS);
	decide_in(c, slice, now);
}

/*
 * Takes over the task that is furthest behind on another pCPU, if it is by more
 * than two slices and has waited for half a slice: one that is behind can be on
 * the right pCPU, and give way to somebody who needs it for a moment.
 */
static __always_inline bool pull(s32 cpu, u64 own, u64 now)
{
	u64 vtime, behind = ~0ULL;
	s32 from = -1;
	int other;

	bpf_for(other, 0, pcpu_count) {
		if (other == cpu)
			continue;
		vtime = first_vtime(other, now - fair_slice_ns / 2);
		if (vtime < behind) {
			behind = vtime;
			from = other;
		}
	}
	if (from < 0 || own <= 2 * fair_slice_ns || behind >= own - 2 * fair_slice_ns)
		return false;
	if (!move_to_local(from))
		return false;
	count(STAT_PULLED);
	return true;
}

/* Takes a task over from a pCPU with the same last-level cache, or with another one: of those, the next by number first. */
static __always_inline bool steal_from(s32 cpu, bool near)
{
	u32 own = llc_of[cpu & (MAX_PCPUS - 1)];
	int i, other;

	bpf_for(i, 1, pcpu_count) {
		other = cpu + i < pcpu_count ? cpu + i : cpu + i - pcpu_count;
		if ((llc_of[other & (MAX_PCPUS - 1)] == own) == near && scx_bpf_dsq_nr_queued(other) &&
		    move_to_local(other)) {
			count(STAT_STOLEN);
			return true;
		}
	}
	return false;
}

/*
 * Whether an urgent vCPU decides what runs next: `prev`, which goes on if it is
 * protected, another one, or `prev` again if it is the only one; CHOICE_IDLE:
 * it does not. `own`: the virtual time of `prev`; `first`: the lowest of those
 * who wait.
 */
static __always_inline enum choice urgent_decides(s32 cpu, struct pcpu *c, struct task_struct *prev, u64 own,
						  u64 first, u64 now)
{
	const struct urgent_rules *rules = &default_rules;
	struct task *t = prev ? task_of(prev) : NULL;
	bool urgent = false;
	u64 left = 0;

	if (t) {
		rules = rules_of(t);
		/* Not if it has taken more than its allowance from those who wait. */
		urgent = urgency_holds(&t->urgency, now) &&
			 urgent_may_preempt(rules, weight_of(prev, t), own, first);
	}
	if (urgent) {
		c->urgent_runs = 1;
		left = urgency_protects_for(&t->urgency, now, c->slice_from, rules->slice_ns);
	}
	if (left) {
		count(STAT_PROTECTED);
		set_slice(prev, fair_slice_ns);
		decide_in(c, left, now);
		return CHOICE_PROTECTED;
	}
	if (c->urgent && run_urgent(cpu, c, first < own ? first : own, now))
		return CHOICE_URGENT;
	if (!urgent)
		return CHOICE_IDLE;
	c->slice_from = now;
	set_slice(prev, fair_slice_ns);
	decide_in(c, rules->slice_ns, now);
	return CHOICE_URGENT_GOES_ON;
}

/* What the pCPU does next. `prev`: who runs and could go on. */
static __always_inline enum choice choose(s32 cpu, struct pcpu *c, struct task_struct *prev, u64 now)
{
	u64 own = prev ? current_vtime(c, now) : ~0ULL, first = first_vtime(cpu, ~0ULL);
	enum choice choice = first == ~0ULL ? CHOICE_IDLE : urgent_decides(cpu, c, prev, own, first, now);

	if (choice != CHOICE_IDLE)
		return choice;
	if (now - c->balanced_at >= balance_ns) {
		c->balanced_at = now;
		if (pull(cpu, first < own ? first : own, now))
			return CHOICE_PULLED;
	}
	if (!(prev && own <= first)) {
		if (move_to_local(cpu))
			return CHOICE_FIRST;
		if (steal_from(cpu, true) || steal_from(cpu, false))
			return CHOICE_STOLEN;
	}
	if (!prev)
		return CHOICE_IDLE;
	/* While this looked elsewhere, one may have come to preempt it. */
	if (!c->preempting)
		set_slice(prev, fair_slice_ns);
	return CHOICE_GOES_ON;
}

#endif
