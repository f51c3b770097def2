/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Interrupts between vCPUs make them urgent (§3.1 of the paper). The programs
 * here run at KVM's events, in the context of the vCPU that causes them. They
 * change a vCPU's urgency while others read it; at worst a request is lost, or
 * lasts until the vCPU stops, as far as its allowance goes. What a sender waits
 * for is counted atomically.
 */
#ifndef GLEANER_SCX_URGENT_H
#define GLEANER_SCX_URGENT_H

/*
 * The task became urgent. If it waits for a pCPU, that pCPU decides anew at
 * once. If an interrupt made it urgent and the sender runs on that pCPU, it
 * decides anew after KVM has delivered the interrupt. Otherwise the recipient
 * would run without it, and the sender would deliver it only at its next turn.
 * A task that runs is not disturbed: its processor may give it the interrupt
 * without an exit.
 */
static __always_inline void reconsider(struct task *t, struct task *sender)
{
	/* Read once: it can fall asleep meanwhile, and the kernel ends a scheduler that kicks pCPU -1. */
	u32 counted = *(volatile u32 *)&t->counted;
	struct pcpu *c;

	if (!counted || *(volatile u32 *)&t->runs)
		return;
	c = pcpu_of(counted - 1);
	if (!c)
		return;
	c->urgent = 1;
	if (sender && sender->counted == counted) {
		sender->owes = counted;
		c->owed = 1;
	} else {
		kick(counted - 1, SCX_KICK_PREEMPT);
	}
}

/* Also one whose thread has woken and waits for a pCPU, or polls before it sleeps. */
static __always_inline bool is_halted(struct task *t)
{
	struct kvm_vcpu *vcpu = (void *)t->vcpu;

	return BPF_CORE_READ(vcpu, arch.mp_state) == KVM_MP_STATE_HALTED;
}

static __always_inline void make_urgent(struct task *t, u64 now)
{
	if (!urgency_holds(&t->urgency, now))
		t->urgent_since = now;
}

/* The task became urgent. If it runs, its pCPU has to be asked whether another one preempts it. */
static __always_inline void runs_urgently(struct task *t)
{
	struct pcpu *c = *(volatile u32 *)&t->runs ? pcpu_of(*(volatile u32 *)&t->counted - 1) : NULL;

	if (c)
		c->urgent_runs = 1;
}

/* It is to run first for so long. */
static __always_inline void urgent_for(struct task *t, u64 ns, u64 now)
{
	make_urgent(t, now);
	if (*(volatile u32 *)&t->runs) {
		urgency_for_time(&t->urgency, now, ns);
		runs_urgently(t);
	} else {
		urgency_once_it_runs(&t->urgency, ns);
	}
}

/* The recipient of an interrupt from `from`; to be released. */
static __always_inline struct task_struct *recipient_of(struct task *from, u32 vcpu_id)
{
	struct address key = { .kvm = from->kvm, .vcpu_id = vcpu_id };
	s32 *tid = bpf_map_lookup_elem(&threads, &key);

	return tid ? bpf_task_from_pid(*tid) : NULL;
}

/* `from` sent a reschedule interrupt: it might hold the lock of a wait queue. */
static __always_inline void protect_sender(struct task *from, u64 now)
{
	u64 ns = rules_of(from)->resched_dp_ns;

	if (!ns)
		return;
	urgency_for_time(&from->urgency, now, ns);
	runs_urgently(from);
	count(STAT_RESCHED_DP);
}

static __always_inline void hurry_recipient(struct task *from, struct task *to, u8 use, u64 now)
{
	const struct urgent_rules *rules = rules_of(to);

	if (use == USE_SHOOTDOWN && rules->tlb_co) {
		make_urgent(to, now);
		urgency_for_event(&to->urgency);
		runs_urgently(to);
		count(STAT_TLB_CO);
	} else if (use == USE_RESCHEDULE && rules->resched_co_ns) {
		urgent_for(to, rules->resched_co_ns, now);
		count(STAT_RESCHED_CO);
	} else {
		return;
	}
	reconsider(to, from);
}

/* `from`, the thread `tid`, waits for `to` to answer its shootdown. */
static __always_inline void await_answer(struct task *from, s32 tid, struct task *to)
{
	int i;

	/* First: the answer may come at once. */
	urgency_awaits(&from->urgency, 1);
	for (i = 0; i < ASKERS; i++) {
		if (__sync_val_compare_and_swap(&to->askers[i], 0, tid) == 0)
			return;
	}
	urgency_answered(&from->urgency);
}

/* Those who waited for the answer of `t` have it. */
static __always_inline void answer(struct task *t)
{
	struct task_struct *sender;
	struct task *from;
	int i;

	for (i = 0; i < ASKERS; i++) {
		if (!t->askers[i])
			continue;
		sender = bpf_task_from_pid(__sync_lock_test_and_set(&t->askers[i], 0));
		if (!sender)
			continue;
		from = task_of(sender);
		if (from)
			urgency_answered(&from->urgency);
		bpf_task_release(sender);
	}
}

/* An interrupt is about to be delivered, in the context of who sends it. */
SEC("?tp_btf/kvm_apic_accept_irq")
int BPF_PROG(on_accept, u32 vcpu_id, u16 mode, u16 level, u8 vector)
{
	struct task_struct *recipient;
	struct task *from, *to;
	struct vm *vm;
	bool halted;
	u64 now;
	u8 use;

	/* Delivery modes other than fixed have no vector. */
	if (mode & 0x700 || !has_use(vector))
		return 0;
	from = task_of(bpf_get_current_task_btf());
	if (!from || !from->vm)
		return 0;
	use = use_of(from, vector);
	if (use == USE_NONE)
		return 0;
	recipient = recipient_of(from, vcpu_id);
	if (!recipient) {
		count(STAT_UNKNOWN_RECIPIENTS);
		return 0;
	}
	to = task_of(recipient);
	if (to && to != from) {
		now = bpf_ktime_get_ns();
		halted = is_halted(to);
		/* Interrupts to several siblings are one wait. */
		if (computed(from, now) >= SHORTEST_BURST)
			waits(from, now);
		RECORD(EVENT_INTERRUPT, .at = now, .task = bpf_get_current_task_btf()->pid, .other = recipient->pid,
		       .what = use, .flag = halted);
		/* Guests also wake idle vCPUs by function calls, and send those no shootdowns. */
		if (use == USE_SHOOTDOWN && halted)
			use = USE_RESCHEDULE;
		if (use == USE_RESCHEDULE) {
			vm = vm_of(from);
			if (vm)
				__sync_fetch_and_add(&vm->reschedules, 1);
			if (halted)
				from->woke_at = now;
			protect_sender(from, now);
		}
		if (use == USE_SHOOTDOWN && rules_of(from)->tlb_wait)
			await_answer(from, bpf_get_current_task_btf()->pid, to);
		hurry_recipient(from, to, use, now);
		RECORD(EVENT_SENT, .task = bpf_get_current_task_btf()->pid);
	}
	bpf_task_release(recipient);
	return 0;
}

/* A vCPU enters the guest: KVM has delivered what it sent. Interrupts are off, so that this ends before it is preempted. */
SEC("?tp_btf/kvm_entry")
int BPF_PROG(on_entry)
{
	struct pcpu *c = pcpu_of(bpf_get_smp_processor_id());
	struct task *from;
	u32 owes;

	if (!c || !c->owed)
		return 0;
	c->owed = 0;
	from = task_of(bpf_get_current_task_btf());
	owes = from ? from->owes : 0;
	if (!owes)
		return 0;
	from->owes = 0;
	RECORD(EVENT_DELIVERED, .task = bpf_get_current_task_btf()->pid);
	kick(owes - 1, SCX_KICK_PREEMPT);
	return 0;
}

struct kvm_lapic;

/* The guest signals the end of an interrupt. */
SEC("?tp_btf/kvm_eoi")
int BPF_PROG(on_eoi, struct kvm_lapic *apic, int vector)
{
	struct task *t = has_use(vector) ? task_of(bpf_get_current_task_btf()) : NULL;

	if (t && use_of(t, vector) == USE_SHOOTDOWN) {
		RECORD(EVENT_ACKNOWLEDGES, .task = bpf_get_current_task_btf()->pid);
		urgency_acknowledge(&t->urgency);
		answer(t);
	}
	return 0;
}

/* The guest halts the vCPU. The thread sleeps later, if KVM polls before. */
SEC("?fentry/kvm_vcpu_halt")
int BPF_PROG(on_halt, struct kvm_vcpu *vcpu)
{
	struct task *t = task_of(bpf_get_current_task_btf());
	u64 now = bpf_ktime_get_ns(), from;

	if (t)
		waits(t, now);
	if (t && t->woke_at) {
		RECORD(EVENT_HALTS, .at = now, .task = bpf_get_current_task_btf()->pid);
		/* The wakee may have run first. */
		from = t->ran_from > t->woke_at ? t->ran_from : t->woke_at;
		t->halted_soon = halted_soon(t->halted_soon, now - from <= follow_ns);
		t->woke_at = 0;
	}
	return 0;
}

/* A pause-loop exit. */
SEC("?fentry/kvm_vcpu_on_spin")
int BPF_PROG(on_spin, struct kvm_vcpu *vcpu)
{
	struct task *t = task_of(bpf_get_current_task_btf());
	struct vm *vm = t ? vm_of(t) : NULL;
	u64 now = bpf_ktime_get_ns();

	if (!vm)
		return 0;
	__sync_fetch_and_add(&vm->spins, 1);
	RECORD(EVENT_SPINS, .at = now, .task = bpf_get_current_task_btf()->pid);
	if (urgency_holds(&t->urgency, now) && urgency_spins(&t->urgency, rules_of(t)))
		count(STAT_CANCELLED);
	return 0;
}

/* Apart from the hot path: once per vCPU. */
static __noinline int new_vcpu(struct task_struct *p, struct kvm_vcpu *vcpu)
{
	struct address key = {};
	u64 now = bpf_ktime_get_ns();
	struct task *t = task_of(p);
	u32 tgid = p->tgid;
	s32 tid = p->pid;
	struct vm *vm;
	bool is_new;

	if (!t)
		return 0;
	is_new = !bpf_map_update_elem(&vms, &tgid, (void *)&new_vm, BPF_NOEXIST);
	vm = bpf_map_lookup_elem(&vms, &tgid);
	/* If there is no memory for it now, there may be when it is loaded again. */
	if (!vm)
		return 0;
	if (is_new) {
		vm->changed_at = now;
		vm->summed_from = now;
	}
	key.kvm = (u64)BPF_CORE_READ(vcpu, kvm);
	key.vcpu_id = BPF_CORE_READ(vcpu, vcpu_id);
	bpf_map_update_elem(&threads, &key, &tid, BPF_ANY);
	RECORD(EVENT_VCPU, .at = now, .task = tid, .other = tgid, .cpu = bpf_get_smp_processor_id());
	/* It runs now, and was counted as another task. */
	uncount(t);
	t->vcpu = (u64)vcpu;
	t->kvm = key.kvm;
	t->vcpu_id = key.vcpu_id;
	t->vm = tgid;
	__sync_fetch_and_add(&vm->vcpus, 1);
	set_active(t, true, now);
	count_on(p, t, bpf_get_smp_processor_id());
	return 0;
}

/* The thread is about to run a vCPU; other threads load it only to set it up. */
SEC("?fentry/kvm_arch_vcpu_load")
int BPF_PROG(on_load, struct kvm_vcpu *vcpu, int cpu)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_struct___scx *scx = (void *)p;
	struct kvm_vcpu___pid *own = (void *)vcpu;
	struct task *t = task_of(p);

	if (!t || t->vm || BPF_CORE_READ(own, pid) != BPF_CORE_READ(scx, thread_pid))
		return 0;
	return new_vcpu(p, vcpu);
}

#endif
