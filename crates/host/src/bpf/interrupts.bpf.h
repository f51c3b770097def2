/* SPDX-License-Identifier: GPL-2.0-only */
/* Interrupts between vCPUs, and those that they take. */
#ifndef GLEANER_INTERRUPTS_H
#define GLEANER_INTERRUPTS_H

static __always_inline u32 class_of(u32 vector)
{
	if (vector == RESCHEDULE_VECTOR)
		return VECTOR_RESCHEDULE;
	if (vector == CALL_FUNCTION_VECTOR || vector == CALL_FUNCTION_SINGLE_VECTOR)
		return VECTOR_CALL;
	if (vector == LOCAL_TIMER_VECTOR)
		return VECTOR_TIMER;
	if (vector >= FIRST_EXTERNAL_VECTOR && vector < FIRST_SYSTEM_VECTOR)
		return VECTOR_DEVICE;
	return VECTOR_OTHER;
}

/* Read on another pCPU than the vCPU's: it may just be getting one, which on_switch puts right. */
static __always_inline bool waits_for_pcpu(struct vcpu *v)
{
	if (v->window != window)
		return false;
	return v->state == STATE_ASLEEP || v->state == STATE_PREEMPTED;
}

/* An interrupt is delivered, in the context of who sends it. */
SEC("tp_btf/kvm_apic_accept_irq")
int BPF_PROG(on_accept, u32 vcpu_id, u16 mode, u16 level, u8 vector)
{
	struct vcpu *sender = current_vcpu(), *v;
	struct recipient key = {};
	u32 class, *slot;
	u64 now;

	/* A device's VM is not known here. */
	if (!sender)
		return 0;
	key.kvm = sender->kvm;
	key.vcpu_id = vcpu_id;
	slot = bpf_map_lookup_elem(&recipients, &key);
	v = slot ? bpf_map_lookup_elem(&vcpus, slot) : NULL;
	if (!v) {
		struct lost *lost = this_lost();

		if (lost)
			lost->recipients++;
		return 0;
	}
	/* Delivery modes other than fixed have no vector. */
	class = mode & 0x700 ? VECTOR_OTHER : class_of(vector);
	__sync_fetch_and_add(&v->delivered[class], 1);
	if (v != sender) {
		lock(sender);
		if (v->injecting == INJECT_HALT)
			sender->waking++;
		else
			sender->to_running[class]++;
		unlock(sender);
	}
	if (v == sender)
		return 0;
	now = (clock() & ~1ULL) | (v->injecting == INJECT_HALT);
	/* The oldest counts, until the vCPU gets a pCPU, and until it takes it. */
	if (class <= VECTOR_CALL && waits_for_pcpu(v) && !v->wanted_ns[class])
		v->wanted_ns[class] = now;
	if (!v->irq_ns[class])
		v->irq_ns[class] = now;
	return 0;
}

/* The histogram for an interrupt of another vCPU, by whether it was halted when it was delivered. */
static __always_inline u32 hist_of_ipi(u32 class, bool halted)
{
	if (halted)
		return HIST_WAKING;
	if (class == VECTOR_RESCHEDULE)
		return HIST_RESCHEDULE;
	return class == VECTOR_CALL ? HIST_CALL : HISTS;
}

/* A timer or a device ended the halt: KVM woke the thread for it. */
static __always_inline void add_halt_ended(struct vcpu *v, u32 slot, u32 class)
{
	if (!v->halt_woken_ns)
		return;
	if (class == VECTOR_TIMER)
		add_length(slot, HIST_TIMER, since(v->halt_woken_ns, clock()));
	else if (class == VECTOR_DEVICE)
		add_length(slot, HIST_DEVICE, since(v->halt_woken_ns, clock()));
}

/* The vCPU enters the guest with this interrupt. */
SEC("tp_btf/kvm_inj_virq")
int BPF_PROG(on_inject, unsigned int vector, bool soft, bool reinjected)
{
	u32 class = class_of(vector), id;
	u64 since_ns, injecting;
	struct thread *t;
	struct vcpu *v;

	if (paused || soft || reinjected)
		return 0;
	t = thread_of(bpf_get_current_task_btf());
	v = up_to_date(vcpu_of(t));
	if (!v)
		return 0;
	lock(v);
	v->injected[class]++;
	injecting = v->injecting;
	if (injecting && injecting < INJECTS)
		v->ended[injecting][class]++;
	v->injecting = INJECT_NOTHING;
	unlock(v);
	/* Of several interrupts the first one taken counts, although it may have come later. */
	if (injecting == INJECT_HALT)
		add_halt_ended(v, t->slot, class);
	since_ns = v->irq_ns[class];
	if (!since_ns)
		return 0;
	v->irq_ns[class] = 0;
	id = hist_of_ipi(class, since_ns & 1);
	if (id < HISTS)
		add_length(t->slot, id, since(since_ns, clock()));
	return 0;
}

#endif
