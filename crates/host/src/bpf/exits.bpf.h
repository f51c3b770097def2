/* SPDX-License-Identifier: GPL-2.0-only */
/* Exits and entries, and for what reason the guest was left. */
#ifndef GLEANER_EXITS_H
#define GLEANER_EXITS_H

/*
 * The kernel has the types of kvm-amd only where that is loaded, and accepts no
 * program that reads one that it does not have.
 */
static __always_inline bool is_svm(u32 isa)
{
	struct vcpu_svm *svm = NULL;

	return bpf_core_field_exists(svm->vmcb) && isa == KVM_ISA_SVM;
}

static __always_inline u32 exit_code_of(struct kvm_vcpu *vcpu, u32 isa)
{
	struct vcpu_vmx___before_vt *old = (void *)vcpu;
	struct vcpu_svm *svm = (void *)vcpu;
	struct vcpu_vmx *vmx = (void *)vcpu;

	if (is_svm(isa))
		return BPF_CORE_READ(svm, vmcb, control.exit_code);
	if (bpf_core_field_exists(vmx->vt))
		return BPF_CORE_READ(vmx, vt.exit_reason.full) & 0xffff;
	if (bpf_core_field_exists(old->exit_reason))
		return BPF_CORE_READ(old, exit_reason.full) & 0xffff;
	return EXIT_CODES;
}

static __always_inline u32 reason_of_apic(u32 reg)
{
	switch (reg) {
	case APIC_EOI:
		return REASON_EOI;
	case APIC_ICR:
		return REASON_IPI;
	case APIC_LVTT:
	case APIC_TMICT:
		return REASON_APIC_TIMER;
	default:
		return REASON_APIC_OTHER;
	}
}

static __always_inline u32 reason_of_msr(struct kvm_vcpu *vcpu, u32 isa)
{
	struct vcpu_svm *svm = (void *)vcpu;
	u32 msr = BPF_CORE_READ(vcpu, arch.regs[VCPU_REGS_RCX]);

	/* AMD has one code for both, and says which in EXITINFO1. */
	if (is_svm(isa) && !(BPF_CORE_READ(svm, vmcb, control.exit_info_1) & 1))
		return REASON_MSR_READ;
	if (msr == MSR_IA32_TSC_DEADLINE)
		return REASON_TSC_DEADLINE;
	if (msr >= APIC_BASE_MSR && msr <= APIC_LAST_MSR)
		return reason_of_apic((msr - APIC_BASE_MSR) << 4);
	return REASON_MSR_WRITE;
}

/* A local APIC in device memory, where the guest does not use x2APIC. */
static __always_inline u32 reason_of_fault(struct kvm_vcpu *vcpu)
{
	struct vcpu_svm *svm = (void *)vcpu;
	u64 address = BPF_CORE_READ(svm, vmcb, control.exit_info_2);

	if ((address & ~0xfffULL) != APIC_DEFAULT_PHYS_BASE)
		return REASON_EPT;
	return reason_of_apic(address & 0xff0);
}

static __always_inline u32 injecting_after(u32 reason)
{
	switch (reason) {
	case REASON_HLT:
		return INJECT_HALT;
	case REASON_INTERRUPT:
		return INJECT_INTERRUPT;
	case REASON_INTERRUPT_WINDOW:
		return INJECT_WINDOW;
	default:
		return INJECT_NOTHING;
	}
}

SEC("tp_btf/kvm_exit")
int BPF_PROG(on_exit, struct kvm_vcpu *vcpu, u32 isa)
{
	u32 code, reason = REASON_OTHER, zero = 0;
	struct pcpu *c = bpf_map_lookup_elem(&pcpus, &zero);
	struct vcpu *v;
	u64 now;

	if (c)
		c->exits++;
	if (paused)
		return 0;
	now = clock();
	v = vcpu_at_event(vcpu, STATE_GUEST, now);
	if (!v)
		return 0;
	code = exit_code_of(vcpu, isa);
	if (code < EXIT_CODES)
		reason = reason_of_code[code];
	if (reason == REASON_MSR_WRITE)
		reason = reason_of_msr(vcpu, isa);
	else if (reason == REASON_EPT && is_svm(isa))
		reason = reason_of_fault(vcpu);
	lock(v);
	catch_up(v, EVENT_EXIT);
	on_guest_exit(v, reason, now);
	v->injecting = injecting_after(reason);
	unlock(v);
	return 0;
}

static __always_inline void read_polling(struct vcpu *v, struct kvm_vcpu *vcpu)
{
	u64 success = BPF_CORE_READ(vcpu, stat.generic.halt_poll_success_ns);
	u64 fail = BPF_CORE_READ(vcpu, stat.generic.halt_poll_fail_ns);

	if (v->poll_window != window) {
		/* What KVM polled in pauses is left out. */
		v->first_poll_success_ns += success - v->poll_success_ns;
		v->first_poll_fail_ns += fail - v->poll_fail_ns;
		v->poll_window = window;
	}
	v->poll_success_ns = success;
	v->poll_fail_ns = fail;
}

SEC("tp_btf/kvm_entry")
int BPF_PROG(on_entry, struct kvm_vcpu *vcpu)
{
	struct vcpu *v;
	u64 now;

	if (paused)
		return 0;
	now = clock();
	v = vcpu_at_event(vcpu, STATE_UNKNOWN, now);
	if (!v)
		return 0;
	lock(v);
	catch_up(v, EVENT_ENTRY);
	if (v->reason == REASON_HLT && v->state == STATE_HYPERVISOR) {
		read_polling(v, vcpu);
		v->poll_limit_ns = BPF_CORE_READ(vcpu, halt_poll_ns);
		if (bpf_core_field_exists(vcpu->arch.msr_kvm_poll_control))
			v->guest_polls = !(BPF_CORE_READ(vcpu, arch.msr_kvm_poll_control) & 1);
	}
	on_guest_entry(v, now);
	v->injecting = INJECT_NOTHING;
	unlock(v);
	return 0;
}

static __always_inline void refine_this(u32 reason)
{
	struct vcpu *v = current_vcpu();

	if (!v)
		return;
	lock(v);
	refine(v, reason);
	unlock(v);
}

/*
 * A register of the local APIC is written, in whatever way. For Intel alone:
 * AMD's exits say the address.
 */
SEC("tp_btf/kvm_apic")
int BPF_PROG(on_apic, unsigned int write, unsigned int reg)
{
	struct vcpu *v = current_vcpu();
	u32 reason;

	if (!v || !write)
		return 0;
	reason = v->reason;
	/* Other exits write it as well, and MSR writes are known already. */
	if (reason == REASON_EPT || reason == REASON_MMIO || reason == REASON_APIC_OTHER)
		refine_this(reason_of_apic(reg));
	return 0;
}

SEC("tp_btf/kvm_mmio")
int BPF_PROG(on_mmio)
{
	struct vcpu *v = current_vcpu();

	if (v && v->reason == REASON_EPT)
		refine_this(REASON_MMIO);
	return 0;
}

SEC("tp_btf/kvm_fast_mmio")
int BPF_PROG(on_fast_mmio)
{
	struct vcpu *v = current_vcpu();

	if (v && v->reason == REASON_EPT)
		refine_this(REASON_MMIO);
	return 0;
}

SEC("tp_btf/kvm_hypercall")
int BPF_PROG(on_hypercall, unsigned long nr)
{
	if (nr == KVM_HC_SEND_IPI)
		refine_this(REASON_PV_IPI);
	else if (nr == KVM_HC_SCHED_YIELD)
		refine_this(REASON_PV_YIELD);
	else if (nr == KVM_HC_KICK_CPU)
		refine_this(REASON_PV_KICK);
	return 0;
}

SEC("tp_btf/kvm_userspace_exit")
int BPF_PROG(on_userspace)
{
	struct vcpu *v = current_vcpu();

	if (!v)
		return 0;
	lock(v);
	went_to_vmm(v);
	unlock(v);
	return 0;
}

SEC("tp_btf/kvm_vcpu_wakeup")
int BPF_PROG(on_wakeup, u64 ns, bool waited)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct thread *t;
	struct vcpu *v;

	if (paused)
		return 0;
	t = thread_of(p);
	v = vcpu_of(t);
	if (!t) {
		t = bpf_task_storage_get(&threads, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (t) {
			t->slot = PENDING;
			t->tgid = p->tgid;
			t->halted_until = clock();
		}
	}
	v = up_to_date(v);
	if (!v)
		return 0;
	lock(v);
	if (waited)
		v->halts_blocked++;
	else
		v->halts_polled++;
	unlock(v);
	return 0;
}

#endif
