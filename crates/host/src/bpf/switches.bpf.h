/* SPDX-License-Identifier: GPL-2.0-only */
/* vCPUs that leave and get their pCPUs, and who had these before. */
#ifndef GLEANER_SWITCHES_H
#define GLEANER_SWITCHES_H

#define TASK_RUNNING 0

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *p)
{
	struct vcpu *v;

	if (paused)
		return 0;
	v = vcpu_of(thread_of(p));
	if (v)
		v->woken_ns = clock();
	return 0;
}

/* Who had the pCPU for which a vCPU waited, as far as its last user is that. */
static __always_inline void add_steal(u32 victim, struct task_struct *prev, struct thread *from, u64 ns)
{
	struct steal_key key = { .victim = victim };
	struct steal *sum;

	if (from)
		key.culprit = from->tgid;
	else
		key.culprit = prev->pid ? CULPRIT_HOST : CULPRIT_IDLE;
	sum = bpf_map_lookup_elem(&steals, &key);
	if (!sum) {
		struct steal none = {};
		struct lost *lost;

		if (bpf_map_update_elem(&steals, &key, &none, BPF_ANY)) {
			lost = this_lost();
			if (lost)
				lost->pairs++;
			return;
		}
		sum = bpf_map_lookup_elem(&steals, &key);
		if (!sum)
			return;
	}
	sum->count++;
	sum->ns += ns;
}

/* The vCPU gets the pCPU for which others have sent it interrupts. */
static __always_inline void add_wanted(struct vcpu *v, u32 slot, u64 now)
{
	u32 class;
	u64 from;

	for (class = 0; class <= VECTOR_CALL; class++) {
		from = v->wanted_ns[class];
		if (from)
			add_length(slot, from & 1 ? HIST_PCPU_HALTED : HIST_PCPU_RESCHEDULE + class,
				   since(from, now));
		v->wanted_ns[class] = 0;
	}
}

static __always_inline void enter(struct vcpu *v, struct thread *to, struct task_struct *prev,
				  struct thread *from, u64 now)
{
	u32 cpu = bpf_get_smp_processor_id(), id = HIST_PREEMPTED;
	u64 waited = 0;

	lock(v);
	catch_up(v, EVENT_IN);
	if (v->state == STATE_ASLEEP) {
		waited = since(wake_up_of(v, now), now);
		id = HIST_WOKEN;
	} else if (v->state == STATE_PREEMPTED) {
		waited = since(v->since_ns, now);
	}
	switched_in(v, now);
	if (v->pcpu != cpu) {
		v->migrations++;
		v->pcpu = cpu;
	}
	unlock(v);
	add_wanted(v, to->slot, now);
	if (waited) {
		add_length(to->slot, id, waited);
		add_steal(v->tgid, prev, from, waited);
	}
}

static __always_inline enum pcpu_user user_of(struct task_struct *p, struct thread *t)
{
	if (t)
		return PCPU_VCPU;
	return p->pid ? PCPU_OTHER : PCPU_IDLE;
}

/* Who had the pCPU is asked at the switch away, when a thread that became a vCPU meanwhile is known as one. */
static __always_inline void add_pcpu(struct pcpu *c, enum pcpu_user prev, enum pcpu_user next, u64 now)
{
	struct pcpu_times *times = &c->times[(c->written + 1) % 2];
	u64 ns;

	*times = c->times[c->written % 2];
	/* The clock that programs read may step back a little where the kernel adjusts it (ktime_get_mono_fast_ns). */
	if (now < times->since_ns)
		now = times->since_ns;
	ns = times->since_ns ? since(times->since_ns, now) : 0;
	if (prev == PCPU_VCPU)
		times->vcpu_ns += ns;
	else if (prev == PCPU_OTHER)
		times->other_ns += ns;
	else
		times->idle_ns += ns;
	times->user = next;
	times->since_ns = now;
	/* Seen after the times: neither the compiler nor x86 swaps the two. */
	__sync_fetch_and_add(&c->written, 1);
}

/* Whoever had it when following was paused had it until then; who has had it since is known at the switch. */
static __always_inline void catch_up_pcpu(struct pcpu *c)
{
	enum pcpu_user user = c->times[c->written % 2].user;

	if (c->window == window)
		return;
	add_pcpu(c, user, user, resumed_ns);
	c->window = window;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct thread *from, *to;
	struct vcpu *v;
	struct pcpu *c;
	u32 zero = 0;
	u64 now;

	if (paused)
		return 0;
	from = prev->pid ? thread_of(prev) : NULL;
	to = next->pid ? thread_of(next) : NULL;
	now = clock();
	c = bpf_map_lookup_elem(&pcpus, &zero);
	if (c) {
		catch_up_pcpu(c);
		add_pcpu(c, user_of(prev, from), user_of(next, to), now);
	}
	v = vcpu_of(from);
	if (v && !v->exited) {
		lock(v);
		catch_up(v, EVENT_OUT_ASLEEP);
		/* Senders may have seen it off its pCPU just before it got one. */
		v->wanted_ns[VECTOR_RESCHEDULE] = 0;
		v->wanted_ns[VECTOR_CALL] = 0;
		switched_out(v, !preempt && prev->__state != TASK_RUNNING, now);
		unlock(v);
	}
	v = vcpu_of(to);
	if (v && !v->exited)
		enter(v, to, prev, from, now);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_thread_end, struct task_struct *p)
{
	struct thread *t = thread_of(p);
	struct vcpu *v = vcpu_of(t);
	struct recipient key = {};

	if (!v)
		return 0;
	lock(v);
	catch_up(v, EVENT_OUT_ASLEEP);
	account(v, clock());
	v->exited = 1;
	unlock(v);
	key.kvm = v->kvm;
	key.vcpu_id = v->vcpu_id;
	bpf_map_delete_elem(&recipients, &key);
	/* User space gives the slot to another thread. */
	t->slot = NO_SLOT;
	return 0;
}

#endif
